"""Numerical kernels that families share: functions of arrays; no family is imported here."""
