"""The result of a fusion, its settings, and its assembly from a matching; no search."""
