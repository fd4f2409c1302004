"""The report: all of it escaped, nothing of it loaded, and small for a thousand silos."""

from __future__ import annotations

import json
import re
import stat
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import klfusion as kf
from klfusion import families
from klfusion.errors import KLFusionError
from klfusion.fusion import Fusion, PenaltyPath, Status
from klfusion.report import summarize, write_report
from klfusion.report.html import number

RATES = families.Gamma()
VOID = {"meta", "br", "hr", "img", "link", "input"}
EVIL = '<script>alert("1")</script>'


class Page(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def silo(name: str, shapes: list[float], counts: list[float] | None = None) -> kf.Posterior:
    natural = RATES.natural(shape=shapes, rate=np.full(len(shapes), 10.0))
    return kf.Posterior(RATES, natural, name=name, counts=counts)


@pytest.fixture
def fusion() -> Fusion:
    return kf.fuse(
        [
            silo("north", [30, 900], [20, 40.5]),
            silo("south", [910, 32, 250], [10, 10, 0.2]),
            silo(EVIL, [31, 905, 4000], [30, 40, 50]),
        ]
    )


def page_of(fusion: Fusion, folder: Path) -> tuple[str, Page]:
    text = write_report(fusion, folder / "fusion.html").read_text()
    return text, Page(text)


def thousand_silos(n: int = 1000, size: int = 12, dim: int = 10) -> Fusion:
    """Made by hand: what matters here is the report, not the fusing."""
    rng = np.random.default_rng(0)
    family = families.NormalWishart(dim)
    labels = tuple(rng.permutation(size)[:3].astype(np.intp) for _ in range(n))
    merges = 3 * n - size
    return Fusion(
        posterior=kf.Posterior(
            family,
            family.natural(
                rng.normal(size=(size, dim)),
                np.full(size, 20.0),
                np.repeat(20 * np.eye(dim)[None], size, axis=0),
                np.full(size, dim + 20.0),
            ),
            counts=rng.uniform(100, 200, size),
        ),
        silo_names=tuple(f"hospital-{i:04d}" for i in range(n)),
        labels=labels,
        divergences=tuple(rng.exponential(5.0, 3) for _ in range(n)),
        penalty=3.0,
        objective=2000.0,
        lower_bound=1990.0,
        trace=np.linspace(3000.0, 2000.0, 20),
        status=Status.MAX_ITER,
        method="Auto()",
        path=PenaltyPath(
            merges=np.zeros((merges, 2), dtype=np.intp),
            ratios=np.linspace(0.0, 40.0, merges),
            divergences=np.linspace(0.0, 4000.0, merges + 1),
            n_components=3 * n - np.arange(merges + 1),
        ),
    )


# The summary ------------------------------------------------------------------------------------


def test_summary_is_json_and_counts_what_is_there(fusion: Fusion) -> None:
    summary = json.loads(json.dumps(summarize(fusion), allow_nan=False))
    assert summary["n_silos"] == 3
    assert summary["n_local_components"] == 8
    assert summary["n_components"] == fusion.n_components == len(summary["components"])
    assert summary["n_left_out"] == 1  # a fifth of an observation
    assert summary["silos"][1]["n_left_out"] == 1
    matched = sum(m["n_local_components"] for s in summary["silos"] for m in s["matches"])
    assert matched == sum(len(c["sources"]) for c in summary["components"]) == 7
    assert sum(c["share"] for c in summary["components"]) == pytest.approx(1.0)
    for g, component in enumerate(summary["components"]):
        pairs = [(s["silo"], s["local_component"]) for s in component["sources"]]
        assert pairs == fusion.sources(g)


def test_summary_of_what_has_no_counts_nor_finite_bound(fusion: Fusion) -> None:
    bare = replace(
        fusion, posterior=replace(fusion.posterior, counts=None), lower_bound=-np.inf, path=None
    )
    summary = summarize(bare)
    assert summary["n_observations"] is None
    assert summary["lower_bound"] is None
    assert summary["path"] is None
    assert summary["components"][0]["share"] is None


def test_parameters_of_products_and_matrices_are_abbreviated(tmp_path: Path) -> None:
    family = families.Product(rate=families.Gamma(40), place=families.Normal(17))
    natural = family.natural(
        rate={"shape": np.full((1, 40), 2.0), "rate": np.full((1, 40), 3.0)},
        place={"mean": np.zeros((1, 17)), "covariance": np.eye(17)[None]},
    )
    fusion = kf.fuse([kf.Posterior(family, natural, name=name) for name in "ab"])
    shown = {p["name"]: p for p in summarize(fusion)["components"][0]["parameters"]}
    assert set(shown) == {"rate.shape", "rate.rate", "place.mean", "place.covariance"}
    assert (len(shown["rate.shape"]["numbers"]), shown["rate.shape"]["n_numbers"]) == (10, 40)
    assert shown["place.covariance"]["is_diagonal"]
    assert shown["place.covariance"]["matrix"] is None
    assert "diagonal of 17 × 17" in page_of(fusion, tmp_path)[1].text


# The page ---------------------------------------------------------------------------------------


def test_page_is_complete_and_well_formed(fusion: Fusion, tmp_path: Path) -> None:
    _, page = page_of(fusion, tmp_path)
    assert "3 silos sent 8 local components of family Gamma(dim=1)" in page.text
    assert "1 local component was left out" in page.text
    assert "Converged converged: no move" in page.text
    for name in fusion.silo_names:
        assert name in page.text
    assert {"table", "thead", "svg", "main", "h1"} <= set(page.tags)
    assert ("lang", "en") in page.attributes


def test_everything_from_outside_is_escaped(fusion: Fusion, tmp_path: Path) -> None:
    evil = replace(
        fusion,
        method=EVIL,
        posterior=replace(fusion.posterior, provenance={EVIL: EVIL}),
        provenance={"style": "</style><img src=x onerror=alert(1)>"},
    )
    text, page = page_of(evil, tmp_path)
    assert "<script" not in text
    assert not {"script", "img", "iframe", "link"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(EVIL) >= 4


def test_page_loads_nothing(fusion: Fusion, tmp_path: Path) -> None:
    text, page = page_of(fusion, tmp_path)
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert not [name for name, _ in page.attributes if name in {"src", "href", "srcset"}]


def test_thousand_silos_fit_one_page(tmp_path: Path) -> None:
    fusion = thousand_silos()
    start = time.perf_counter()
    text, page = page_of(fusion, tmp_path)
    assert time.perf_counter() - start < 2.0
    assert len(text) < 1_000_000
    assert "Of 1,000 silos, the 100 that fit best and the 100 that fit worst are shown" in page.text
    assert "Not converged stopped at max_iter" in page.text
    misfit = [float(d.mean()) for d in fusion.divergences]
    assert fusion.silo_names[int(np.argmax(misfit))] in page.text
    assert fusion.silo_names[int(np.argmin(misfit))] in page.text
    assert all(len(c.split()) < 1000 for c in re.findall(r'points="([^"]*)"', text))


def test_known_size_is_marked_on_the_path(tmp_path: Path) -> None:
    silos = [silo("a", [30, 900]), silo("b", [910, 32, 250])]
    fusion = kf.fuse(silos, n_components=4)
    _, page = page_of(fusion, tmp_path)
    assert "whose size was given" in page.text
    assert "4 components" in page.text


@pytest.mark.parametrize("names", ["a", "ab"])
def test_smallest_fusions(names: str, tmp_path: Path) -> None:
    fusion = kf.fuse([silo(name, [30]) for name in names])
    _, page = page_of(fusion, tmp_path)
    assert "one model of 1 component" in page.text


def test_written_whole_or_not_at_all(
    fusion: Fusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "fusion.html"
    assert fusion.report(str(target)) == str(target)
    assert stat.S_ISREG(target.stat().st_mode)
    before = target.read_bytes()

    def fail(*args: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(KLFusionError, match="no space left"):
        write_report(fusion, target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["fusion.html"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (0.0, "0"), (-0.00001, "−1.000e−05"), (12.3456, "12.35"), (-1.5, "−1.500"),
        (123456.7, "123,457"), (1e9, "1.000e+09"),
    ],
)  # fmt: skip
def test_numbers_as_people_read_them(value: float | None, text: str) -> None:
    assert number(value) == text
