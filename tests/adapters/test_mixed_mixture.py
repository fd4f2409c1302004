"""`MixedMixture` fused: sites with different columns measured, categories never seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from klfusion.learners import Column, MixedMixture
from klfusion.posteriors.columns import unmeasured

SCHEMA = kf.Schema(
    [
        Column("age", "continuous", (30, 80), unit="years"),
        Column("blood.pressure", "continuous", (90, 140), unit="mmHg"),
        Column("weight", "continuous", (50, 100)),
        Column("sex", "binary", categories=("f", "m")),
        Column("pain", "categorical", categories=("none", "some", "much")),
        Column("visits", "counts", (0, 6)),
    ]
)
AGE, PRESSURE, WEIGHT = (40, 60, 75, 68), (110, 160, 120, 150), (60, 60, 90, 80)
MALE, MUCH, VISITS = (0.2, 0.9, 0.5, 0.1), (0.1, 0.1, 0.9, 0.8), (1, 6, 3, 12)


def patients(kinds, n, seed, missing=0.15):
    rng = np.random.default_rng(seed)
    kind = rng.choice(kinds, n)
    frame = {
        "age": rng.normal(np.take(AGE, kind), 7),
        "blood.pressure": rng.normal(np.take(PRESSURE, kind), 8),
        "weight": rng.normal(np.take(WEIGHT, kind), 8),
        "sex": np.where(rng.random(n) < np.take(MALE, kind), "m", "f").astype(object),
        "pain": np.where(rng.random(n) < np.take(MUCH, kind), "much", "none").astype(object),
        "visits": rng.poisson(np.take(VISITS, kind)).astype(float),
    }
    for values in frame.values():
        values[rng.random(n) < missing] = np.nan
    cells = ~np.isnan(SCHEMA.encoded(frame)).all(axis=1)
    return {name: values[cells] for name, values in frame.items()}, kind[cells]


def fitted(kinds, seed, without=(), **settings):
    frame, _ = patients(kinds, 250, seed)
    frame = {name: own for name, own in frame.items() if name not in without}
    frame = {name: own[~_empty(frame)] for name, own in frame.items()}
    return MixedMixture(SCHEMA, random_state=0, n_init=2, **settings).fit(frame)


def _empty(frame):
    return np.isnan(SCHEMA.encoded(frame)).all(axis=1)


@pytest.fixture(scope="module")
def fusion():
    models = {
        "a": fitted([0, 1], 1),
        "b": fitted([1, 2], 2, without=["blood.pressure"]),
        "c": fitted([0, 2, 3], 3),
    }
    return kf.fuse(models)


def test_all_kinds_of_patients_are_found_once(fusion):
    assert fusion.n_components == 4
    frame, kind = patients([0, 1, 2, 3], 600, 9)
    model = fusion.model()
    assert isinstance(model, MixedMixture)
    assert adjusted_rand_score(kind, model.predict(frame)) > 0.9
    assert model.feature_names_in_.tolist() == SCHEMA.names


def test_the_fused_model_imputes_and_finds_strange_patients(fusion):
    model = fusion.model()
    found = model.impute({"age": [60.0], "visits": [6], "sex": ["m"], "weight": [61.0]})
    assert found["blood.pressure"][0] == pytest.approx(160, abs=6)  # as site a measured
    assert found["pain"][0] == "none"
    assert model.unlikeness({"age": [150.0]})[0] > 5.0
    frame, _ = patients([0, 1, 2, 3], 200, 10)
    assert np.isfinite(model.score_samples(frame)).all()


def test_a_file_holds_it(fusion, tmp_path):
    kf.save(tmp_path / "f.safetensors", fusion)
    again = kf.load(tmp_path / "f.safetensors").model()
    frame, _ = patients([0, 1, 2, 3], 50, 11)
    np.testing.assert_array_equal(again.score_samples(frame), fusion.model().score_samples(frame))


def test_one_silo_comes_back_as_it_was():
    model = fitted([0, 1], 1)
    again = kf.adapters.rebuild(kf.extract(model, name="a"))
    frame, _ = patients([0, 1], 50, 5)
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    np.testing.assert_array_equal(again.unlikeness(frame), model.unlikeness(frame))
    assert again.get_params()["mean_strength"] == model.mean_strength


def test_silos_add_up_to_the_fit_of_all_rows():
    frame, _ = patients([0, 1], 500, 4)
    half = {name: (own[:250], own[250:]) for name, own in frame.items()}
    models = [
        MixedMixture(SCHEMA, random_state=0).fit({n: own[k] for n, own in half.items()})
        for k in range(2)
    ]
    whole = MixedMixture(SCHEMA, random_state=0).fit(frame)
    fused = kf.fuse(models, pooling="product").model()
    np.testing.assert_allclose(fused.counts_, whole.counts_, rtol=0.02)
    np.testing.assert_allclose(fused.measured_.sum(axis=0), whole.measured_.sum(axis=0))
    np.testing.assert_allclose(fused.natural_.sum(axis=0), whole.natural_.sum(axis=0), rtol=1e-6)


def test_a_column_that_a_silo_lacks_changes_no_divergence():
    full, lacking = fitted([0, 1], 1), fitted([0, 1], 2, without=["blood.pressure"])
    silos = [kf.extract(full, name="a"), kf.extract(lacking, name="b")]
    which = unmeasured(silos)
    assert which.sum() == 4  # of the Normal-Gamma of that column
    moved = silos[0].natural.copy()
    moved[:, which] = moved[::-1][:, which]  # another pressure
    other = replace(silos[0], natural=moved)
    first, second = kf.fuse(silos), kf.fuse([other, silos[1]])
    assert [own.tolist() for own in first.labels] == [own.tolist() for own in second.labels]
    np.testing.assert_allclose(first.path.evidence, second.path.evidence)


def test_a_silo_without_a_column_does_not_widen_it():
    full, lacking = fitted([0, 1], 1), fitted([0, 1], 2, without=["blood.pressure"])
    fusion = kf.fuse({"a": full, "b": lacking})
    label = fusion.labels["a"]
    factors = {
        name: own for name, _, own in fusion.posterior.family.parts(fusion.posterior.natural)
    }
    own = {name: own for name, _, own in full.family_.parts(full.natural_)}
    np.testing.assert_allclose(factors["blood_pressure"][label], own["blood_pressure"])


def test_no_column_in_common():
    columns = SCHEMA.names
    a = fitted([0, 1], 1, without=columns[:3])
    b = fitted([0, 1], 2, without=columns[3:])
    with pytest.raises(
        kf.KLFusionError, match=r"a column that every silo measured.*'a' lacks"
    ) as e:
        kf.fuse({"a": a, "b": b, "all": fitted([0, 1], 3)})
    assert "'b' lacks" in str(e.value)
    assert "'all' lacks" not in str(e.value)


def one_patient(**cells):
    return MixedMixture(SCHEMA, random_state=0).fit({name: [x] for name, x in cells.items()})


@pytest.mark.parametrize("lacking", [[], ["age", "weight"]])
def test_a_silo_with_hardly_any_rows_does_not_decide_which_columns_are_compared(lacking):
    patient = {"age": 61.0, "blood.pressure": 158.0, "weight": 63.0, "sex": "m", "visits": 5.0}
    tiny = one_patient(**{name: x for name, x in patient.items() if name not in lacking})
    silos = {"a": fitted([0, 1], 1), "b": fitted([1, 2], 2), "tiny": tiny}
    assert unmeasured([kf.extract(model, name=name) for name, model in silos.items()]) is None
    silos["c"] = fitted([0, 1], 3, without=["blood.pressure"])
    which = unmeasured([kf.extract(model, name=name) for name, model in silos.items()])
    assert which.sum() == 4


def test_a_silo_of_one_row_is_fused_where_all_columns_are_continuous():
    schema = kf.Schema(SCHEMA.columns[:2])
    rng = np.random.default_rng(0)

    def fit(n):
        kind = np.arange(n) % 2
        frame = {
            "age": rng.normal(np.take(AGE, kind), 7),
            "blood.pressure": rng.normal(np.take(PRESSURE, kind), 8),
        }
        return MixedMixture(schema, random_state=0, n_init=2).fit(frame)

    silos = {"a": fit(300), "b": fit(300)}
    with_one = kf.fuse({**silos, "tiny": fit(1)})
    assert [own.tolist() for own in with_one.labels[:2]] == [
        own.tolist() for own in kf.fuse(silos).labels
    ]


def test_other_sizes_and_silos_that_come_back_are_compared_in_the_same_columns(fusion):
    assert unmeasured(fusion.silos).any()
    assert fusion.at(penalty=fusion.penalty).objective == pytest.approx(fusion.objective)
    for silo in fusion.silos:
        again = fusion.remove(silo.name).add(silo)
        assert again.n_components == fusion.n_components
        assert again.objective == pytest.approx(fusion.objective)


def test_margins_are_of_the_columns_that_are_compared():
    full, lacking = fitted([0, 1], 1), fitted([0, 1], 2, without=["blood.pressure"])
    silos = [kf.extract(full, name="a"), kf.extract(lacking, name="b")]
    moved, which = silos[0].natural.copy(), unmeasured(silos)
    moved[:, which] = moved[::-1][:, which]  # another pressure
    found = [
        kf.diagnose(kf.fuse([own, silos[1]]))
        for own in (silos[0], replace(silos[0], natural=moved))
    ]
    for key in ("margins", "misfit"):
        np.testing.assert_allclose(*(np.stack(getattr(own, key)) for own in found))


def test_schemas_that_differ_are_named():
    model = fitted([0, 1], 1)
    frame, _ = patients([0, 1], 100, 5)
    changed = [*SCHEMA.columns]
    changed[4] = replace(changed[4], categories=("none", "much"))
    fewer = kf.Schema(changed)
    other = MixedMixture(fewer, n_init=1, random_state=0).fit(frame)
    with pytest.raises(kf.KLFusionError, match=r"silo 'b', column 'pain': expected categories"):
        kf.fuse({"a": model, "b": other})
    changed[4] = SCHEMA.columns[4]
    changed[0] = replace(changed[0], unit="months")
    other = MixedMixture(kf.Schema(changed), n_init=1, random_state=0).fit(frame)
    with pytest.raises(kf.KLFusionError, match=r"silo 'b', column 'age': expected unit 'years'"):
        kf.fuse({"a": model, "b": other})
    short = kf.Schema(SCHEMA.columns[:-1])
    other = MixedMixture(short, n_init=1, random_state=0).fit(
        {name: own for name, own in frame.items() if name != "visits"}
        | {"age": np.full(len(frame["age"]), 50.0)}
    )
    with pytest.raises(kf.KLFusionError, match=r"silo 'b': expected the columns.*'visits' differ"):
        kf.fuse({"a": model, "b": other})
    turned = MixedMixture(kf.Schema(SCHEMA.columns[::-1]), n_init=1, random_state=0).fit(frame)
    with pytest.raises(kf.KLFusionError, match=r"silo 'b': expected the columns.*order differs"):
        kf.fuse({"a": model, "b": turned})


def test_malformed_schemas_are_refused():
    silo = kf.extract(fitted([0, 1], 1), name="a")
    for schema in ("age", [], [{"kind": "counts"}], [{"name": "age"}]):
        structure = replace(silo.structure, info={**silo.structure.info, "schema": schema})
        with pytest.raises(kf.KLFusionError, match=r"mixture\.schema"):
            replace(silo, structure=structure)


def test_only_a_fitted_model_is_extracted():
    with pytest.raises(kf.KLFusionError, match="silo 'a': expected a fitted MixedMixture"):
        kf.extract(MixedMixture(SCHEMA), name="a")


def test_a_schema_of_another_family_is_refused(tmp_path):
    silo = kf.extract(fitted([0, 1], 1), name="a")
    schema = [dict(column) for column in silo.structure.info["schema"]]
    schema[4]["categories"] = ["none", "much"]
    structure = replace(silo.structure, info={**silo.structure.info, "schema": schema})
    other = replace(silo, structure=structure)
    with pytest.raises(kf.KLFusionError, match="'a': expected the family of its schema"):
        kf.adapters.rebuild(other)
    with pytest.raises(kf.KLFusionError, match="expected the family of its schema"):
        kf.fuse([other]).report(tmp_path / "page.html")
    info = {key: own for key, own in silo.structure.info.items() if key != "schema"}
    without = replace(silo, structure=replace(silo.structure, info=info))
    assert kf.fuse([without, replace(without, name="b")]).n_components == 2


def test_a_value_that_all_of_a_phenotype_have_is_pooled():
    columns = (Column("age", "continuous", (30, 80)), Column("dose", "continuous", (0, 10)))

    def site(seed):
        rng = np.random.default_rng(seed)
        kind = rng.integers(2, size=200)
        dose = np.where(kind, 5.0, rng.normal(2.0, 1.0, size=200))
        frame = {"age": rng.normal(np.where(kind, 70, 40), 4), "dose": dose}
        return MixedMixture(kf.Schema(columns), random_state=0).fit(frame)

    model = kf.fuse({name: site(seed) for seed, name in enumerate("ab")}).model()
    assert model.n_components_ == 2
    assert model.impute({"age": [70.0]})["dose"][0] == pytest.approx(5.0, abs=0.1)


def doses(share, seed, n=250, **change):
    """Patients of two kinds at a site where a share of the old are treated."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n)
    dose = rng.normal(30.0, 4.0, n)
    dose[rng.random(n) > np.where(kind, share, 0.0)] = 0.0
    age = rng.normal(np.where(kind, 70, 40), 6)
    pressure = rng.normal(np.where(kind, 150, 110), 8)
    column = Column("dose", "semicontinuous", (10, 50), unit="mg", **change)
    schema = kf.Schema([*SCHEMA.columns[:2], column])
    frame = {"age": age, "blood.pressure": pressure, "dose": dose}
    return MixedMixture(schema, random_state=0, n_init=2).fit(frame)


def test_semicontinuous_columns_are_fused(tmp_path):
    fusion = kf.fuse({"a": doses(0.8, 0), "b": doses(0.7, 1), "c": doses(0.75, 2)})
    assert fusion.n_components == 2
    kf.save(tmp_path / "fusion.safetensors", fusion)
    model = kf.load(tmp_path / "fusion.safetensors").model()
    found = model.impute({"age": [40.0, 70.0]})["dose"]
    np.testing.assert_allclose(found, [0.0, 0.75 * 30], atol=2)
    assert model.score({"dose": [0.0], "age": [40.0]}) > model.score(
        {"dose": [30.0], "age": [40.0]}
    )


def test_a_site_without_any_treated_patient_does_not_change_the_dose():
    two = {"a": doses(0.8, 0), "b": doses(0.8, 1)}
    three = kf.fuse({**two, "c": doses(0.0, 2)})
    lacking = unmeasured([kf.extract(model, name=name) for name, model in two.items()])
    assert lacking is None
    lacking = unmeasured([*three.silos])
    assert lacking is not None
    assert lacking.sum() == 4  # of how much, not of whether
    old = {"age": [70.0], "blood.pressure": [150.0], "dose": [30.0]}
    scores = [kf.fuse(two).model().score(old), three.model().score(old)]
    assert scores[1] > scores[0] - 1.5


def test_shared_values_that_differ_are_named():
    with pytest.raises(kf.KLFusionError, match=r"silo 'b', column 'dose': expected point_mass 0"):
        kf.fuse({"a": doses(0.8, 0), "b": doses(0.8, 1, point_mass=5.0)})
    with pytest.raises(kf.KLFusionError, match=r"silo 'b', column 'dose': expected log None"):
        kf.fuse({"a": doses(0.8, 0), "b": doses(0.8, 1, log=True)})
