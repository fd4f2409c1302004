"""Adapters: fitted models in, posteriors out, and back. One file a library."""

from klfusion.adapters.dispatch import extract, rebuild

__all__ = ["extract", "rebuild"]
