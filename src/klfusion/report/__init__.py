"""A fusion for people: `summarize` makes a plain dict of it, `write_report` a page of that."""

from klfusion.report.html import write_report
from klfusion.report.summarize import summarize

__all__ = ["summarize", "write_report"]
