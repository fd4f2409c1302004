"""From matched components to a global one; nothing here changes a matching."""
