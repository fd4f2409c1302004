"""Names from outside are shown on one line, and only a few of many."""

from __future__ import annotations

from klfusion._utils.text import few, printable


def test_control_characters_are_escaped_and_letters_stay():
    assert printable("Zürich 北京") == "Zürich 北京"
    assert printable("a\nb\x1b[31m\u202e") == "a\\nb\\x1b[31m\\u202e"


def test_few_of_many():
    assert few([]) == ""
    assert few(["a", "b"]) == "'a', 'b'"
    assert few("abcdef") == "'a', 'b', 'c', 'd', 'e' and 1 more"
    assert few(["a\n"]) == "'a\\n'"
