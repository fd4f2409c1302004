"""Documentation and docstrings: the field's words, "per" before a unit, sentences of one idea."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers import prose

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "klfusion"
MOST_WORDS = 35

# Words that stood for something the field has a name for, in that sense only.
BANNED = {
    "amid": r"\bamid(?:st)?\b",
    "blend": r"\bblend(?:s|ed|ing)?\b",
    "double": (
        r"\b(?:a|the|these|those|no|any|each|two|of|part) doubles?\b(?!-| (?:precis|quot|under))"
        r"|\bdoubles (?:are|is|were)\b"
    ),
    "straggler": r"\bstragglers?\b",
    "usual": r"\busual\b",
    "ledger": r"\bledgers?\b",
    "tally": r"\btall(?:y|ies|ied)\b",
    "stock": r"\bstocks?\b",
    "facts": r"(?<!\bin )\bfacts?\b(?! that)",
    "told": r"\btold\b",
    "believed": r"\bbelieved\b",
    "tell apart": r"\btell(?:s|ing)?\b[^.;:]{0,30}\bapart\b",
    "together": r"\b(?:put(?:s|ting)?|predict(?:s|ed)?(?: \w+)?|all|taken) together\b",
    "finds no place": r"\bfinds? (?:no|none) (?:place|near)\b",
    "in its turn": r"\bin (?:its|their) turn\b",
    "data that tell, know or believe": (
        r"\b(?:data|observations?|counts?|evidence|posteriors?|components?|divergences?|distances?"
        r"|merges?|paths?|means?|covariances?|topics?|documents?|chance|famil(?:y|ies)|files?"
        r"|methods?|functions?|modules?|packages?|penalt(?:y|ies)|jumps?) "
        r"(?:do not |does not |cannot |can |could |may )?(?:tells?|knows?|believes?)\b"
    ),
}

_UNIT = (
    r"silo|site|word|observation|datum|family|library|component|batch|sweep|merge|document|topic"
    r"|row|column|file|line|sentence|layer|unit|class|second|minute|hour|day|round|worker|core"
    r"|iteration|step|start|cluster|member|model|parameter|run|frame|sequence|machine|pair|call|feature|weight"
)
# Words that a quantity does not end with; nouns after "one" do not end in s, those of several do.
_NOT = r"(?!(?:of|to|for|in|by|from|with|at|on|as|than|and|or|per|is|be|has|that|if|into|not)\b)"
_ONE = rf"one(?: {_NOT}[\w-]*[^\Ws])?(?: {_NOT}[\w-]*[^\Ws])?"
_SEVERAL = (
    rf"(?:two|three|four|five|ten|few|many|some|several|\d[\d,.]*)(?: {_NOT}[\w-]+)?(?: [\w-]+s)"
)
A_UNIT = re.compile(
    rf"\b(?:nats?|bytes?|seconds|bits|MB|GB|deviations|times|once|twice|{_ONE}|{_SEVERAL})"
    rf" an? (?:held-out |hidden |local |global )?(?:{_UNIT})\b(?!')",
    re.IGNORECASE,
)


def faults(sentences):
    """What is wrong with each sentence."""
    for sentence in sentences:
        for name, pattern in BANNED.items():
            if re.search(pattern, sentence, re.IGNORECASE):
                yield f"{name!r}: {sentence}"
        if match := A_UNIT.search(sentence):
            yield f"'per', not {match[0]!r}: {sentence}"
        if (words := prose.n_words(sentence)) > MOST_WORDS:
            yield f"{words} words: {sentence}"


def faults_by_file():
    """All faults of pages and docstrings, by file and, in code, by name."""
    for page in prose.pages(ROOT):
        for fault in faults(prose.of_page(page.read_text(encoding="utf-8"))):
            yield page.relative_to(ROOT).as_posix(), fault
    for path in sorted(SOURCE.rglob("*.py")):
        for name, text in prose.docstrings(path):
            for fault in faults(prose.of_docstring(text)):
                yield path.relative_to(ROOT).as_posix(), f"{name}: {fault}"


def test_pages_and_docstrings_have_none():
    found = list(faults_by_file())
    counts = Counter(file for file, _ in found)
    shown = [f"{n} in {file}" for file, n in counts.items()] + [f"{f}: {what}" for f, what in found]
    assert not found, "\n".join(shown)


@pytest.mark.parametrize(
    "sentence",
    [
        "The origin is moved amid the means.",
        "Clusters that are doubles, or a blend of two, are parted.",
        "Doubles are parted.",
        "A cluster nearer than usual.",
        "Merges are believed up to the last.",
        "What one observation is told by the other.",
        "Three facts carry this over.",
        "Splits are put together.",
        "It is sketched in its turn.",
        "Data tell which of the two it is.",
        "Two gain less than telling them apart costs.",
        "The loss in nats a word.",
        "One assignment a silo.",
        "One file a family.",
        "Two small blocks a held-out word.",
        " ".join(["word"] * (MOST_WORDS + 1)) + ".",
    ],
)
def test_a_fault_is_found(sentence):
    assert list(faults([sentence]))


@pytest.mark.parametrize(
    "sentence",
    [
        "Arrays have double precision, and a clear jump doubles the distance.",
        "In fact, the fact that silos differ is enough.",
        "Both are matched together with their weights.",
        "Components of a silo differ; one of a silo joins a cluster.",
        "It is usually faster.",
        "Give one silo a name.",
        "One hostile silo moves a component, and two silos may share a cluster.",
        " ".join(["word"] * MOST_WORDS) + ".",
    ],
)
def test_plain_words_pass(sentence):
    assert not list(faults([sentence]))


def test_prose_of_a_page():
    page = "# Title\n\nOne `a b` two. Three\nfour [link](x.md).\n\n    code\n\n| a | table |\n"
    page += "```python\nusual()\n```\n- first item\n- second\n\n[name]: ../file.py#L3\n"
    assert prose.of_page(page) == [
        "Title", "One `code` two.", "Three four link.", "first item", "second",
    ]  # fmt: skip


def test_prose_of_a_docstring():
    text = """Return a.

    Prose with ``code a b``.

    Parameters
    ----------
    name : str, told
        Name of it.
    rest, usual
        Others.

    Returns
    -------
    int array of usual shape

    Examples
    --------
    Two of them:

    >>> f()
    usual
    """
    found = ["Return a.", "Prose with `code`.", "Name of it.", "Others.", "Two of them:"]
    assert prose.of_docstring(text) == found
