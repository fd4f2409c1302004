"""What holds for all tests: they mirror the source, and pass or fail by the code alone."""

from __future__ import annotations

import re
from pathlib import Path

from tests.helpers.loops import for_each

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "klfusion"
OTHERS = {"helpers", "golden", "examples", "experiments", "benchmarks"}  # no packages of klfusion
FILES = [path for path in sorted(TESTS.rglob("*.py")) if path != Path(__file__)]


def test_packages_are_those_of_the_source():
    for path in TESTS.rglob("test_*.py"):
        package = path.parent.relative_to(TESTS)
        if package.parts[:1] and package.parts[0] not in OTHERS:
            assert (SOURCE / package).is_dir(), path


@for_each(
    "pattern, instead",
    [
        (r"perf_counter|process_time|timeit", "benchmarks measure times"),
        (r"derandomize|deadline=|database=", "conftest.py says how Hypothesis draws examples"),
        (r"setattr\(\s*\w+,\s*[\"']_[A-Z]", "a problem that exceeds the limit, or an argument"),
    ],
)
def test_what_no_test_does(pattern, instead):
    for path in FILES:
        if path.name != "conftest.py":
            found = re.search(pattern, path.read_text(encoding="utf-8"))
            assert found is None, f"{path.relative_to(TESTS)}: {found[0]} ({instead})"
