"""Memory of JSON is known before it is parsed."""

from __future__ import annotations

import string
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import klfusion as kf
from benchmarks import bounds
from klfusion.errors import FileFormatError, KLFusionError
from klfusion.io import parts, storage, strict_json
from klfusion.posteriors.structure import Structure
from tests.helpers.loops import for_each
from tests.helpers.mutated import signed

RATES, NORMAL = kf.families.Gamma(), kf.families.NormalWishart(20)
LETTERS = string.ascii_letters + string.digits
SMALL = kf.Posterior(RATES, RATES.natural([3.0, 40.0], [10.0, 10.0]), name="a")
LARGE = kf.Posterior(
    NORMAL,
    np.tile(NORMAL.natural(np.zeros((1, 20)), [29.0], np.eye(20)[None], [29.0]), (100, 1)),
    name="a",
)
# Documents of many entries, by their number.
ODD: dict[str, Callable[[int], Any]] = {
    "empty lists": lambda n: [[]] * n,
    "short lists": lambda n: [[0]] * n,
    "nested lists": lambda n: [[[[[[]]]]]] * n,
    "empty mappings": lambda n: [{}] * n,
    "small mappings": lambda n: [{"a": 0}] * n,
    "mappings of long keys": lambda n: [{"provenance": 0}] * n,
    "mappings of many keys": lambda n: [dict.fromkeys(string.ascii_letters[:22], "ab")] * (n // 9),
    "mappings of six": lambda n: [dict.fromkeys("abcdef", 0)] * n,
    "mappings of new keys": lambda n: [{f"{c}{k:x}": 0 for c in "abc"} for k in range(n)],
    "keys": lambda n: {f"{k:x}": 0 for k in range(n)},
    "keys of lists": lambda n: {f"{k:x}": [] for k in range(n)},
    "wide keys": lambda n: {f"\U0001f600{k:x}": "" for k in range(n)},
    "words of two letters": lambda n: [a + b for a in LETTERS for b in LETTERS] * (n // 3_844 + 1),
    "words of one letter": lambda n: ["\u03b1"] * n,
    "words with accents": lambda n: ["\u00e9a"] * n,
    "wide words": lambda n: ["\U0001f600"] * n,
    "words beside a wide one": lambda n: [*["abcdefgh"] * n, "\U0001f600"],
    "text with a wide letter": lambda n: "a" * 10 * n + "\U0001f600",
    "text with a Greek letter": lambda n: "a" * 10 * n + "\u03b1",
    "text with an escape": lambda n: "a" * 10 * n + '"\\',
    "floats": lambda n: [0.5] * n,
    "integers": lambda n: [999] * n,
    "large integers": lambda n: [10**30] * n,
    "nothing": lambda n: [None] * n,
}


def peak_of(data: bytes) -> tuple[bool, int]:
    """Whether a file loads, and the peak of memory."""
    tracemalloc.start()
    try:
        storage.loads(data)
        loads = True
    except FileFormatError as error:
        assert "times the file in memory" in str(error)
        loads = False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return loads, peak


@for_each("kind", ODD)
def test_odd_documents_take_ten_times_the_file_at_most_or_are_refused(kind: str):
    storage.loads(storage.dumps(SMALL))  # what is imported or kept for good does not count
    for base in (SMALL, LARGE):
        outcomes = set()
        for n in (1_000, 3_000, 9_000, 30_000, 90_000):
            document, arrays = parts.take_apart(base)
            document["posterior"]["provenance"] = {"x": ODD[kind](n)}
            data = signed(document, arrays)
            loads, peak = peak_of(data)
            outcomes.add(loads)
            assert peak < strict_json.MOST_TIMES * len(data) + strict_json.FREE, (n, loads)
        assert True in outcomes  # short ones are within what any file may take


@pytest.mark.parametrize("shape", [(), (0,)])
def test_many_small_arrays_take_ten_times_the_file_at_most_or_are_refused(shape: tuple[int, ...]):
    for n in (500, 1_500, 4_000):
        arrays = {f"{k:x}": np.ones(shape) for k in range(n)}
        document, own = parts.take_apart(replace(SMALL, structure=Structure("own", arrays)))
        data = signed(document, own)
        assert peak_of(data)[1] < strict_json.MOST_TIMES * len(data) + strict_json.FREE, n


@pytest.mark.parametrize("n", [3_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_silos_of_different_forms_take_ten_times_the_file_at_most(n: int):
    for what, make in bounds.FORMS.items():
        data = bounds.different(n, make)
        loads, peak = peak_of(data)
        assert loads or n > 3_000, what
        assert peak < strict_json.MOST_TIMES * len(data) + strict_json.FREE, what


def test_a_wrong_hash_takes_no_more():
    document, arrays = parts.take_apart(replace(SMALL, provenance={"x": "a" * 500_000 + "\u03b1"}))
    data = signed(document, arrays).replace(b"aaaa", b"aaab")
    tracemalloc.start()
    with pytest.raises(FileFormatError, match="SHA-256"):
        storage.loads(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < strict_json.MOST_TIMES * len(data) + strict_json.FREE


@pytest.mark.parametrize("name", ["plain", "\u00e9", "\u03b1", "\U0001f600"])
def test_honest_files_of_many_entries_load(name: str):
    """Ten thousand of the smallest silos, and long vocabularies, in any script."""
    many = bounds.many(bounds.smallest()[0][1], 10_000, last=name)
    assert storage.loads(many).silo_names[-1] == name
    words = [f"word {k}" for k in range(100_000)] + [name]
    topics = Structure("topics", info={"vocabulary": words})
    dirichlet = kf.families.Dirichlet(len(words))
    site = kf.Posterior(dirichlet, np.ones((1, len(words))), structure=topics)
    assert storage.loads(storage.dumps(site)).structure.info["vocabulary"][-1] == name


def test_text_may_hold_anything():
    """Commas, brackets and quotes within a string are no entries."""
    log = 'a, b: [c] {d} "e" \\ ' * 50_000
    back = storage.loads(storage.dumps(replace(SMALL, provenance={"log": log})))
    assert back.provenance["log"] == log


def test_what_would_not_load_is_not_written():
    with pytest.raises(KLFusionError, match="at most 10 times the file in memory"):
        storage.dumps(replace(SMALL, provenance={"x": [[]] * 100_000}))


@for_each("text, message", [
    (b'{"a":1,"b":2,"a":1}', "duplicate key"),
    (b'{"a":{"b":1},"c":[{"b":1,"b":1}]}', "duplicate key"),
    (b"[" * 65 + b"]" * 65, "nested at most 64 deep"),
    (b'["' + b"[" * 65, "expected a JSON header"),
    (b"[NaN]", "NaN, which is no JSON number"),
    (b"[" + b"9" * 41 + b"]", "an integer of 41 digits"),
    (b'["\xff"]', "expected a JSON header"),
    (b"", "expected a JSON header"),
])  # fmt: skip
def test_strict(text: bytes, message: str):
    for own in (text, b" " * strict_json.FREE + text):  # short texts have checks of their own
        with pytest.raises(FileFormatError, match=message):
            strict_json.parse_json(own, len(own), 0)


@for_each("text, value", [
    (b"[" * 64 + b"]" * 64, None),
    (b'["[[,:{", "\\"[\\\\", {"\\\\": "]"}]', ["[[,:{", '"[\\', {"\\": "]"}]),
    ('["\U0001f600", "\\u03b1"]'.encode(), ["\U0001f600", "\u03b1"]),
    (b"7", 7),
])  # fmt: skip
def test_parsed(text: bytes, value: Any):
    for own in (text, b" " * strict_json.FREE + text):
        found = strict_json.parse_json(own, len(own), 0)
        assert value is None or found == value


def test_short_documents_take_no_more_than_is_free():
    most = strict_json.FREE // strict_json._PER_BYTE
    keys = "{" + ",".join(f'"{chr(192 + k % 60)}{k:x}":{k % 7}.5' for k in range(most // 12)) + "}"
    for text in (keys, "[" + ",".join(["999"] * (most // 4 - 9)) + ',"\U0001f600"]'):
        data = text.encode()
        assert 0.8 * most < len(data) <= most
        tracemalloc.start()
        strict_json.parse_json(data, len(data), 0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < strict_json.FREE
