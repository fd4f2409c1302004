"""Assignment problems: cost matrices in, plans out; no distributions here."""
