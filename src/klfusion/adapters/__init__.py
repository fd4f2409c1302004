"""Adapters: fitted models in, posteriors out, and back. One file a library."""

from klfusion.adapters.dispatch import extract, rebuild, register

__all__ = ["extract", "rebuild", "register"]
