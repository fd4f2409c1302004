"""Reports on a fusion: `summarize` returns a plain dict, `write_report` writes an HTML page."""

from klfusion.report.html import write_report
from klfusion.report.summarize import summarize

__all__ = ["summarize", "write_report"]
