"""The report: everything escaped, nothing loaded, small for a thousand silos."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import stat
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import klfusion as kf
from klfusion import families
from klfusion.errors import KLFusionError
from klfusion.fusion import explanation
from klfusion.fusion.result import Fusion
from klfusion.objective.solution import Status
from klfusion.posteriors.structure import Structure
from klfusion.report import summarize, write_report
from klfusion.report.charts import evidence_points, path_points
from klfusion.report.embedding import embed
from klfusion.report.html import number, percent
from klfusion.report.views import model_view
from tests.report import gallery
from tests.report.gallery import thousand_silos

RATES = families.Gamma()
VOID = {"meta", "br", "hr", "img", "link", "input"}
EVIL = gallery.EVIL


class Page(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
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
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        else:
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


# The summary ------------------------------------------------------------------------------------


def test_summary_is_json_and_its_counts_agree(fusion: Fusion) -> None:
    summary = json.loads(json.dumps(summarize(fusion), allow_nan=False))
    assert summary["n_silos"] == 3
    assert summary["n_local_components"] == 8
    assert summary["n_components"] == fusion.n_components == len(summary["components"])
    assert summary["n_unmatched"] == 1  # a fifth of an observation
    assert summary["silos"][1]["n_unmatched"] == 1
    matched = sum(m["n_local_components"] for s in summary["silos"] for m in s["matches"])
    assert matched == sum(len(c["sources"]) for c in summary["components"]) == 7
    assert sum(c["share"] for c in summary["components"]) == pytest.approx(1.0)
    for g, component in enumerate(summary["components"]):
        pairs = [(s["silo"], s["local_component"]) for s in component["sources"]]
        assert pairs == fusion.sources(g)


def test_the_page_says_why_the_size(fusion: Fusion, tmp_path: Path) -> None:
    why = summarize(fusion)["why"]
    assert why["sentences"] == fusion.explain().split("\n")
    assert [one["n_components"] for one in why["sizes"]] == fusion.path.n_components.tolist()
    assert why["decisions"][0]["probability"] == np.nanmin(np.concatenate(fusion.probability))
    _, page = page_of(fusion, tmp_path)
    assert f"Why {fusion.n_components} components" in page.text
    assert why["sentences"][0] in page.text
    assert ("data-chart", "evidence") in page.attributes
    assert f"{EVIL} · 2 alone, as 2" in page.text


def test_a_page_without_evidence_has_the_sentences_alone(fusion: Fusion, tmp_path: Path) -> None:
    _, page = page_of(kf.fuse(fusion.silos, n_components=4), tmp_path)
    assert "4 components: the size was asked for." in page.text
    assert ("data-chart", "evidence") not in page.attributes


def test_large_paths_are_drawn_around_the_size(fusion: Fusion) -> None:
    sizes = [
        {"n_components": n, "log_evidence": -abs(n - 20.0), "behind": 0.0, "probability": 0.1}
        for n in range(900, 4, -1)
    ]
    drawn = evidence_points({"sizes": sizes}, 20)
    assert drawn["points"][0] == (5, -15.0)
    assert drawn["points"][-1][0] == 60
    assert drawn["chosen"] == (20, 0.0)
    assert [one["n_components"] for one in drawn["rivals"]] == [*range(17, 24)]


@pytest.mark.parametrize(
    ("probability", "text"), [(0.5, "50.0 %"), (1.0, "> 99.9 %"), (1e-9, "< 0.1 %")]
)
def test_probabilities_are_never_rounded_to_certainty(probability: float, text: str) -> None:
    assert percent(probability) == text


def test_summary_without_counts_and_without_a_finite_bound(fusion: Fusion) -> None:
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
    assert "1 local component is unmatched" in page.text
    assert "Converged converged: the search stopped by its own criterion" in page.text
    assert "no assignment to these global components is better" in page.text
    for name in fusion.silo_names:
        assert name in page.text
    assert {"table", "thead", "main", "h1"} <= set(page.tags)
    assert ("lang", "en") in page.attributes
    charts = [value for key, value in page.attributes if key == "data-chart"]
    assert charts == [
        "evidence",
        "path",
        "map",
    ]  # no sweep lowered the objective, and rates have no view


@pytest.mark.parametrize("kind", gallery.KINDS)
def test_untrusted_text_is_escaped(kind: str, tmp_path: Path) -> None:
    text, page = page_of(gallery.hostile(gallery.KINDS[kind]()[0]), tmp_path)
    assert page.tags.count("script") == 4  # early, data, library, ours: `is_allowed` says which
    assert not {"img", "iframe", "link"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(EVIL) >= 4
    assert EVIL not in text


def test_only_our_scripts_may_run(fusion: Fusion, tmp_path: Path) -> None:
    text, page = page_of(fusion, tmp_path)
    policy = re.search(r"Content-Security-Policy\" content=\"([^\"]*)", text)
    assert policy is not None
    early, data, *scripts = page.scripts
    allowed = [
        "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"
        for script in [early, *scripts]
    ]
    assert f"script-src {' '.join(allowed)}" in policy[1].replace("&#39;", "'")
    assert policy[1].startswith("default-src &#39;none&#39;") or "default-src 'none'" in policy[1]
    assert json.loads(data)["map"]["global"]


def test_page_loads_nothing(fusion: Fusion, tmp_path: Path) -> None:
    text, page = page_of(fusion, tmp_path)
    for script in page.scripts:
        text = text.replace(script, "")
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert not [name for name, _ in page.attributes if name in {"src", "href", "srcset"}]


@pytest.mark.parametrize("kind", gallery.KINDS)
def test_every_kind_has_its_view(kind: str, tmp_path: Path) -> None:
    fusion, silos = gallery.KINDS[kind]()
    summary = json.loads(json.dumps(summarize(fusion, silos), allow_nan=False))
    assert summary["view"]["kind"] == kind
    page = Page(write_report(fusion, tmp_path / "fusion.html", silos).read_text())
    assert (("id", "model") in page.attributes) == (kind != "plain")
    assert "The error of distances in the plane is" in page.text


def test_views_show_the_parameters_of_the_models() -> None:
    topics = summarize(gallery.topics()[0])["view"]
    subjects = [set(words) for words in gallery.WORDS.values()]
    for topic in topics["topics"]:
        assert {entry["word"] for entry in topic[:10]} in subjects
    assert len(topics["words"]) == topics["n_words"] == 46
    hmm = summarize(gallery.hmm()[0])["view"]
    np.testing.assert_allclose(np.sum(hmm["transition"], axis=1), 1.0, atol=1e-3)
    assert hmm["columns"] == ["knee", "hip", "elbow", "shoulder"]
    network = summarize(gallery.network()[0])["view"]
    assert network["image"] == [8, 8]
    assert np.abs(network["incoming"]).max() == 127
    fusion, silos = gallery.mixture()
    mixture = summarize(fusion, silos)["view"]
    assert len(mixture["local"]) == sum(silo.n_components for silo in silos)
    for local in mixture["local"]:  # by its own match, wherever that is
        place = np.mean(local["outline"][:-1], axis=0)
        nearest = np.linalg.norm(np.array(mixture["centres"]) - place, axis=1).argmin()
        assert nearest == local["component"]
    np.testing.assert_allclose(
        mixture["centres"], fusion.posterior.params()["mean"], rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        (families.Normal(3), {"mean": np.eye(3), "covariance": np.stack([np.eye(3)] * 3)}),
        (families.DiagonalNormal(3), {"mean": np.eye(3), "variance": np.ones((3, 3))}),
        (
            families.NormalGamma(3),
            {"mean": np.eye(3), "kappa": np.ones((3, 3)), "shape": np.full((3, 3), 2.0),
             "rate": np.full((3, 3), 2.0)},
        ),
        (
            families.IsotropicNormalGamma(3),
            {"mean": np.eye(3), "kappa": np.ones(3), "shape": np.full(3, 2.0),
             "rate": np.full(3, 2.0)},
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_every_gaussian_family_is_drawn(family: families.Family, parameters: dict) -> None:
    view = model_view(kf.Posterior(family, family.natural(**parameters)))
    outline = np.array(view["outlines"])
    radius = np.linalg.norm(outline - np.array(view["centres"])[:, None], axis=2)
    np.testing.assert_allclose(radius, 1.48, rtol=1e-2)


# The map of components --------------------------------------------------------------------------


def test_distances_of_points_in_a_plane_are_kept() -> None:
    true = np.random.default_rng(0).normal(size=(30, 2))
    apart = np.linalg.norm(true[:, None] - true[None], axis=2)
    places, stress = embed(apart)
    assert stress < 0.02
    np.testing.assert_allclose(
        np.linalg.norm(places[:, None] - places[None], axis=2), apart, atol=0.1
    )


def test_few_or_equal_points_have_finite_positions() -> None:
    for n in (1, 2, 3):
        places, _ = embed(np.zeros((n, n)))
        assert places.shape == (n, 2)
        assert np.isfinite(places).all()


def test_local_components_lie_by_their_match() -> None:
    fusion, silos = gallery.mixture()
    plane = summarize(fusion, silos)["map"]
    centres = np.array(plane["global"])
    assert len(plane["local"]) == sum(silo.n_components for silo in silos)
    for local in plane["local"]:
        nearest = np.linalg.norm(centres - local["at"], axis=1).argmin()
        assert nearest == local["component"]


def test_confidence_compares_the_match_with_the_next_best() -> None:
    fusion, silos = two_and_one(4.4)
    match = summarize(fusion, silos)["silos"][2]["matches"][0]
    mean = 4.4 / 3  # of 0, 0 and 4.4
    assert match["confidence"] == pytest.approx(1 - ((4.4 - mean) / (10 - 4.4)) ** 2)
    match = summarize(replace(fusion, silos=None))["silos"][2]["matches"][0]  # from the match
    assert match["confidence"] == pytest.approx(1 - ((4.4 - mean) / (10 - mean)) ** 2)
    alone = summarize(kf.fuse([silo("a", [30]), silo("b", [31])]))
    assert alone["silos"][0]["matches"][0]["confidence"] is None


def two_and_one(place: float) -> tuple[Fusion, list[kf.Posterior]]:
    normal = families.Normal(1)
    silos = [
        kf.Posterior(
            normal,
            normal.natural(mean=[[m] for m in means], covariance=np.ones((len(means), 1, 1))),
            name=name,
        )
        for name, means in {"a": [0.0, 10.0], "b": [0.0, 10.0], "c": [place]}.items()
    ]
    return kf.fuse(silos, n_components=2, pooling="average"), silos


def test_silos_must_be_those_that_were_fused() -> None:
    fusion, silos = gallery.plain()
    with pytest.raises(KLFusionError, match="'a': expected the silos that were fused"):
        summarize(fusion, silos[1:])
    normal = families.Normal(1)
    one = {"mean": np.zeros((3, 1)), "covariance": np.ones((3, 1, 1))}
    natural = normal.natural(**one)
    strange = [kf.Posterior(normal, natural[: s.n_components], name=s.name) for s in silos]
    with pytest.raises(KLFusionError, match="expected Gamma"):
        summarize(fusion, strange)


def test_networks_with_different_classes(tmp_path: Path) -> None:
    def network(name: str, classes: list[int], seed: int) -> kf.Posterior:
        rng = np.random.default_rng(seed)
        shapes = {"fc1": (8, 3), "fc2": (len(classes), 9)}
        weights = {key: (rng.normal(size=s), np.full(s, 0.01)) for key, s in shapes.items()}
        silo = kf.extract(weights, name=name, class_counts=np.full(len(classes), 100.0))
        assert silo.structure is not None
        info = {**silo.structure.info, "classes": classes}
        return replace(silo, structure=replace(silo.structure, info=info))

    fusion = kf.fuse([network("a", [0, 1], 0), network("b", [1, 2], 1)])
    fusion.report(str(tmp_path / "fusion.html"))
    summary = summarize(fusion)
    assert summary["map"]["from_parameters"]
    assert summary["view"]["n_out"] == 3


def test_silo_that_fits_worse_than_all_is_named() -> None:
    fusion = thousand_silos(n=20)
    one = (fusion.divergences[0] + 1e5, *fusion.divergences[1:])
    summary = summarize(replace(fusion, divergences=one, status=Status.CONVERGED))
    assert "fits much worse" in summary["silos"][0]["warnings"][0]
    assert any("silos have warnings" in text for text in summary["warnings"])


def test_thousand_silos_fit_one_page(tmp_path: Path) -> None:
    fusion = thousand_silos()
    text, page = page_of(fusion, tmp_path)
    assert len(text) < 2_000_000  # of which the plotting library is 1.1 MB
    assert "Of 1,000 silos, the 100 that fit best and the 100 that fit worst are shown" in page.text
    assert "Not converged stopped at max_iter" in page.text
    misfit = [float(d.mean()) for d in fusion.divergences]
    assert fusion.silo_names[int(np.argmax(misfit))] in page.text
    assert fusion.silo_names[int(np.argmin(misfit))] in page.text
    data = json.loads(page.scripts[1])
    assert len(data["path"]["points"]) <= 403
    assert len(data["map"]["local"]) <= 400
    listed = page.text.split("Fit of each silo")[1]
    assert all(name in listed for name in fusion.silo_names)


def is_on_line(path: dict) -> bool:
    """Whether the marked point lies on the drawn steps, vertical parts included."""
    x, size = path["chosen"]["penalty"], path["chosen"]["n_components"]
    points = path["points"]
    reached = [s for penalty, s in points if penalty <= x]
    vertical = [s for penalty, s in points if penalty < x]
    return reached[-1] == size or reached[-1] < size < vertical[-1]


@pytest.mark.parametrize("kind", [kind for kind in gallery.KINDS if kind != "regression"])
def test_marked_point_is_on_the_line(kind: str) -> None:
    fusion = gallery.KINDS[kind]()[0]
    assert fusion.path is not None
    for size in fusion.path.n_components.tolist():
        for penalty in (0.0, fusion.penalty, 1e-12, 1e12):
            other = sized(fusion, size, penalty)
            path = path_points(summarize(other)["path"])
            assert path is not None
            assert is_on_line(path), (size, penalty)


def sized(fusion: Fusion, size: int, penalty: float) -> Fusion:
    """A fusion whose size evidence, not its penalty, has decided."""
    natural = np.repeat(fusion.posterior.natural[:1], size, axis=0)
    posterior = kf.Posterior(fusion.posterior.family, natural)
    labels = tuple(own % size for own in fusion.labels)
    return replace(fusion, posterior=posterior, labels=labels, penalty=penalty, silos=None)


def test_marked_point_of_a_thinned_path_is_on_the_line() -> None:
    summary = summarize(thousand_silos())
    for size in range(12, 3000, 97):
        path = summary["path"] | {"chosen": {"penalty": 1.0, "n_components": size}}
        penalties = [0.0, *path["penalties"]]
        step = path["n_components"].index(size)
        path["chosen"]["penalty"] = (penalties[step] + penalties[min(step + 1, 2988)]) / 2
        points = path_points(path)
        assert points is not None
        assert is_on_line(points), size


def test_size_that_differs_from_the_path_at_the_penalty_is_explained(tmp_path: Path) -> None:
    fusion = gallery.plain()[0]
    assert fusion.path is not None
    lower = replace(fusion, penalty=float(fusion.path.penalties[0]) / 2)
    page = page_of(lower, tmp_path)[1].text
    assert "nats the path alone has 8 components. Later steps" in page
    assert "The circle marks this fusion, 4 components." in page


def test_a_page_without_local_parameters_draws_none(tmp_path: Path) -> None:
    fusion = gallery.mixture()[0]

    def outlines(**options: bool) -> int:
        fusion.report(str(tmp_path / "page.html"), **options)
        text = (tmp_path / "page.html").read_text(encoding="utf-8")
        (data,) = re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text)
        return len(json.loads(data)["view"]["local"])

    assert outlines() == sum(map(len, fusion.labels))
    assert outlines(local=False) == 0


def test_how_it_was_made_is_sentences_then_a_table(fusion: Fusion, tmp_path: Path) -> None:
    fusion.report(str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text(encoding="utf-8").partition("How it was made</h2>")[2]
    sentences, _, table = text.partition("<table>")
    assert "silos were fused by the method <code>Auto</code> with the pooling" in sentences
    assert "The versions were klfusion " in sentences
    assert '<th scope="row">method</th>' in table


def test_words_of_topics_do_not_break(tmp_path: Path) -> None:
    fusion = gallery.topics()[0]
    fusion.report(str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    (style,) = re.findall(r"\.card li span:first-child \{(.*?)\}", text)
    assert "white-space: nowrap" in style
    assert re.search(r'class="card.*?<li><span[^>]*>\w+</span>', text, flags=re.DOTALL)


def test_advice_gives_what_it_promises(tmp_path: Path) -> None:
    """Every size of the path by its number and by a penalty; doubtful matches apart."""
    fusion = gallery.topics()[0]
    path = summarize(fusion)["path"]
    edges = [0.0, *path["penalties"]]
    for k, size in enumerate(path["n_components"]):
        assert fusion.at(n_components=size).n_components == size
        high = edges[k + 1] if k + 1 < len(edges) else 2.0 * edges[k] + 1.0
        if high > edges[k]:
            assert fusion.at(penalty=0.5 * (edges[k] + high)).n_components == size
    assert "fusion.at(n_components=...)" in page_of(fusion, tmp_path)[1].text
    assert "fusion.at(" not in page_of(fusion.without_silos(), tmp_path)[1].text
    shapes = {"a": [30, 900], "b": [32, 910], "c": [31, 670], "d": [29, 890]}
    silos = [silo(name, own) for name, own in shapes.items()]
    doubtful = kf.fuse(silos)
    assert "until at most 5 % of the rest" in page_of(doubtful, tmp_path)[1].text
    sizes = []
    for share in (0.05, 0.001):
        careful = kf.fuse(silos, method=kf.Auto(false_matches=share))
        matched = sum(one.matched for one in explanation.decisions(careful))
        assert careful.expected_false_matches <= share * matched
        sizes.append(careful.n_components)
    assert sizes[0] == doubtful.n_components < sizes[1]


def test_size_that_is_not_on_the_path(tmp_path: Path) -> None:
    silos = [silo("a", [30, 900]), silo("b", [910, 32, 250])]
    one = kf.fuse(silos, n_components=1, method=kf.MaxLoss(within_silos=True))
    elsewhere = replace(one, path=kf.fuse(silos).path)
    assert summarize(elsewhere)["path"]["chosen"] is None
    assert "a size that is not on the path" in page_of(elsewhere, tmp_path)[1].text
    pytest.importorskip("matplotlib")
    elsewhere.plot()


def test_known_size_is_marked_on_the_path(tmp_path: Path) -> None:
    silos = [silo("a", [30, 900]), silo("b", [910, 32, 250])]
    fusion = kf.fuse(silos, n_components=4)
    _, page = page_of(fusion, tmp_path)
    assert "its size was given" in page.text
    assert "4 components" in page.text


def test_merges_within_silos_first_penalty_and_variation(tmp_path: Path) -> None:
    silos = [silo("a", [30, 900]), silo("b", [910, 32, 250])]
    merged = kf.fuse(silos, n_components=2, method=kf.MaxLoss(within_silos=True))
    (group,) = summarize(merged)["merged_within_silos"]
    a_and_b = " + ".join(map(str, group["local_components"]))
    page = page_of(merged, tmp_path)[1].text
    assert f"{group['silo']} · {a_and_b} in component {group['component']}" in page
    assert "One component is the shorter description of their observations" in page
    page = page_of(kf.fuse(silos), tmp_path)[1].text
    assert "from penalty components 0 5" in page
    page = page_of(gallery.mixture()[0], tmp_path)[1].text
    assert "Estimated variation of components between silos" in page
    assert "pooling auto pooled hierarchical, prior counted once random_state 0" in page


@pytest.mark.parametrize(
    ("family", "parameters", "expected"),
    [
        (families.NormalWishart(2), {"scale_inv": [np.diag([40.0, 90.0])], "dof": [10.0]}, [2, 3]),
        (families.NormalGamma(2), {"shape": [5.0], "rate": [[20.0, 45.0]]}, [2, 3]),
        (families.IsotropicNormalGamma(2), {"shape": [5.0], "rate": [20.0]}, [2]),
    ],
)
def test_gaussians_are_shown_with_standard_deviations(
    family: families.Family, parameters: dict, expected: list[int]
) -> None:
    natural = family.natural(mean=[[0.0, 1.0]], kappa=[10.0], **parameters)
    fusion = kf.fuse([kf.Posterior(family, natural, name="a")])
    shown = {p["name"]: p["numbers"] for p in summarize(fusion)["components"][0]["parameters"]}
    assert shown["standard deviation"] == pytest.approx(expected)


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
        (1.542e-50, "≈ 0"), (-1e-13, "≈ 0"),
    ],
)  # fmt: skip
def test_format_of_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_control_characters_do_not_reach_the_page(tmp_path: Path) -> None:
    rates = families.Gamma()
    silos = [
        kf.Posterior(
            rates, rates.natural([30.0 + k, 900.0], [10, 10]), name=f"a\x07\x1b[31m\x7f\x9b{k}"
        )
        for k in range(2)
    ]
    path = tmp_path / "page.html"
    kf.fuse(silos).report(str(path))
    text = path.read_text(encoding="utf-8")
    raw = {c for c in text if unicodedata.category(c) == "Cc"}
    assert raw <= {"\n", "\t"}
    assert "a\\x07\\x1b[31m" in text


def test_columns_have_names_units_and_intervals(tmp_path: Path) -> None:
    family = families.NormalWishart(2)
    silos = []
    for j in range(3):
        mean = np.array([[37.0, 80.0], [39.5, 120.0]]) + 0.01 * j
        natural = family.natural(mean, [50, 50], 50.0 * np.stack([np.eye(2)] * 2), [52, 52])
        counts = np.array([30.0, 10.0])
        info = {"features": ["temperature", "pulse"], "units": {"temperature": "°C"}}
        around = Structure("mixture", {"counts": counts, "weight_prior": 1.0}, info)
        silos.append(kf.Posterior(family, natural, f"s{j}", counts=counts, structure=around))
    fusion = kf.fuse(silos)
    summary = summarize(fusion)
    (warm,) = [c["columns"] for c in summary["components"] if c["columns"][0]["mean"] > 39]
    assert [column["name"] for column in warm] == ["temperature (°C)", "pulse"]
    low, high = warm[1]["interval"]
    assert low < 120.01 < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(50 / 52 / 150), abs=0.1)  # four digits
    shares = {m["component"]: m["prevalence"] for m in summary["silos"][0]["matches"]}
    assert sorted(shares.values()) == [0.25, 0.75]
    fusion.report(str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "temperature (°C)" in text
    assert "75 %" in text
    assert "How it was made" in text
