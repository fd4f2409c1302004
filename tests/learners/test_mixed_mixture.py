"""`MixedMixture`: mixtures over columns of different kinds, with missing cells."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion.learners import Column, MixedMixture
from klfusion.learners._mixture import Design
from tests.helpers.loops import for_each

SCHEMA = kf.Schema(
    [
        Column("age", "continuous", (30, 80)),
        Column("pressure", "continuous", (90, 140)),
        Column("sex", "binary", categories=("f", "m")),
        Column("pain", "categorical", categories=("none", "some", "much")),
        Column("visits", "counts", (0, 6)),
        Column("grade", "ordered", categories=(1, 2, 3)),
    ]
)


def patients(n=400, seed=0, missing=0.2):
    """Patients of two kinds, and their kinds."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n)
    frame = {
        "age": rng.normal(np.where(kind, 70, 45), 8),
        "pressure": rng.normal(np.where(kind, 150, 115), 10),
        "sex": np.where(rng.random(n) < np.where(kind, 0.8, 0.3), "m", "f").astype(object),
        "pain": np.where(rng.random(n) < np.where(kind, 0.8, 0.1), "much", "none").astype(object),
        "visits": rng.poisson(np.where(kind, 7, 2)).astype(float),
        "grade": rng.choice([1, 2, 3], n).astype(float),
    }
    for values in frame.values():
        values[rng.random(n) < missing] = np.nan
    cells = ~np.isnan(SCHEMA.encoded(frame)).all(axis=1)
    return {name: values[cells] for name, values in frame.items()}, kind[cells]


@pytest.fixture(scope="module")
def fitted():
    frame, kind = patients()
    return MixedMixture(SCHEMA, random_state=0).fit(frame), frame, kind


def test_kinds_of_patients_are_found(fitted):
    model, frame, kind = fitted
    assert model.n_components_ == 2
    assert adjusted_rand_score(kind, model.predict(frame)) > 0.9
    assert model.converged_
    assert np.all(np.diff(model.lower_bounds_) > -1e-8 * abs(model.lower_bound_))
    assert model.feature_names_in_.tolist() == SCHEMA.names
    np.testing.assert_allclose(model.weights_.sum(), 1.0)
    np.testing.assert_allclose(model.counts_.sum(), len(kind))


def test_the_size_has_the_highest_bound_of_all_sizes(fitted):
    model, _, _ = fitted
    bounds = model.bounds_by_size_
    assert list(bounds) == sorted(bounds) and min(bounds) == 1
    assert max(bounds, key=bounds.get) == model.n_components_
    assert bounds[model.n_components_] == model.lower_bound_


def test_measured_cells_are_counted(fitted):
    model, frame, _ = fitted
    there = ~np.isnan(SCHEMA.encoded(frame))
    np.testing.assert_allclose(model.measured_.sum(axis=0), there.sum(axis=0))


@for_each("kind", ["dirichlet_distribution", "dirichlet_process"])
def test_either_prior_of_the_weights(kind):
    frame, _ = patients()
    model = MixedMixture(SCHEMA, weight_concentration_prior_type=kind, random_state=0).fit(frame)
    assert model.n_components_ == 2


@for_each("seed", [4, 8, 10])
def test_starting_with_more_components_ends_no_lower(seed):
    # One severity and no groups: single merges lower the bound, although fewer components are best.
    rng = np.random.default_rng(seed)
    severity = rng.normal(size=300)
    frame = {
        "age": 60 + 8 * severity + 6 * rng.normal(size=300),
        "pressure": 130 + 12 * severity + 12 * rng.normal(size=300),
    }
    columns = [Column("age", "continuous", (40, 80)), Column("pressure", "continuous", (90, 170))]
    for k in range(6):
        sign = rng.random(300) < 1 / (1 + np.exp(2.5 - k - 2 * severity))
        frame[f"sign {k}"] = np.where(sign, "yes", "no")
        columns.append(Column(f"sign {k}", "binary", categories=("no", "yes")))
    prior = {"weight_concentration_prior": 1.0, "n_init": 1, "random_state": 0}
    prior["weight_concentration_prior_type"] = "dirichlet_process"  # the same for any number
    many, three = (MixedMixture(kf.Schema(columns), n, **prior).fit(frame) for n in (10, 3))
    assert many.n_components_ == three.n_components_ == 3
    assert many.lower_bound_ > three.lower_bound_ - 0.1


def test_equal_seeds_give_equal_fits():
    frame, _ = patients(150)
    first, second = (MixedMixture(SCHEMA, random_state=3).fit(frame) for _ in range(2))
    np.testing.assert_array_equal(first.natural_, second.natural_)
    assert clone(first).get_params() == first.get_params()


def test_the_density_of_a_row_is_that_of_its_cells(fitted):
    model, _, _ = fitted
    p = model.family_.params(model.natural_)
    before = model.family_.params(model.prior_[None])
    kappa = before["age.kappa"] + 2 * (p["age.shape"] - before["age.shape"])
    scale = np.sqrt(p["age.rate"] / p["age.shape"] * (1 + 1 / kappa))
    age = stats.t.pdf(60.0, 2 * p["age.shape"], p["age.mean"], scale)[:, 0]
    shape, rate = p["visits.shape"][:, 0], p["visits.rate"][:, 0]
    visits = stats.nbinom.pmf(3, shape, rate / (rate + 1))
    sex = p["sex.concentration"] / p["sex.concentration"].sum(axis=1, keepdims=True)
    joint = model.weights_ * age * visits * sex[:, 1]
    row = {"age": [60.0], "visits": [3], "sex": ["m"]}
    np.testing.assert_allclose(model.score_samples(row), np.log(joint.sum()))
    np.testing.assert_allclose(model.predict_proba(row)[0], joint / joint.sum())
    assert model.score(row) == pytest.approx(np.log(joint.sum()))
    nothing = {"age": [np.nan]}
    np.testing.assert_allclose(model.predict_proba(nothing)[0], model.weights_)
    np.testing.assert_allclose(model.score_samples(nothing), 0.0, atol=1e-12)


def test_missing_cells_are_filled_in(fitted):
    model, frame, _ = fitted
    filled = model.impute(frame)
    there = ~np.isnan(SCHEMA.encoded(frame))
    assert not np.isnan(SCHEMA.encoded(filled)).any()
    np.testing.assert_array_equal(SCHEMA.encoded(filled)[there], SCHEMA.encoded(frame)[there])
    found = model.impute({"pressure": [150.0, 112.0], "visits": [8, 1]})
    assert found["pain"].tolist() == ["much", "none"]
    np.testing.assert_allclose(found["age"], [70, 45], atol=4)
    np.testing.assert_array_equal(found["grade"] == 2, True)  # a median


def test_arrays_and_frames_come_back_as_such(fitted):
    model, frame, _ = fitted
    numbers = kf.Schema(SCHEMA.columns[:2])
    x = np.column_stack([frame["age"], frame["pressure"]])
    x = x[~np.isnan(x).all(axis=1)]
    of_numbers = MixedMixture(numbers, n_init=1, random_state=0).fit(x)
    assert of_numbers.impute(x).dtype == np.float64
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(frame).iloc[::2]
    filled = model.impute(table)
    assert list(filled.columns) == SCHEMA.names
    assert filled.index.equals(table.index)
    np.testing.assert_array_equal(model.predict(table), model.predict(frame)[::2])


def test_imputed_columns_keep_their_types():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "sex": pd.Categorical(rng.choice(["f", "m"], 60)),
            "stage": pd.Categorical(rng.choice([1, 2, 3], 60), categories=[1, 2, 3], ordered=True),
            "sick": rng.random(60) < 0.5,
            "known": pd.array(rng.random(60) < 0.5, dtype="boolean"),
            "visits": pd.array(rng.poisson(9, 60), dtype="Int64"),
            "age": rng.normal(60, 9, 60).round(),
            "whole": pd.array(rng.integers(100, 200, 60), dtype="Int64"),
        }
    )
    kinds = {"visits": "counts"}
    model = MixedMixture(kf.Schema.suggest(frame, kinds=kinds), n_init=1, random_state=0)
    holes = frame.copy()
    for row, name in enumerate(name for name in frame if name != "sick"):
        holes.loc[row, name] = None
    filled = model.fit(frame).impute(holes)
    assert not filled.isna().any(axis=None)
    kept = [name for name in frame if name != "whole"]  # its expected value is a fraction
    assert filled[kept].dtypes.to_dict() == frame[kept].dtypes.to_dict()
    assert filled["whole"].dtype == np.float64
    assert model.impute(frame)["whole"].dtype == "Int64"


def test_a_column_that_was_never_measured_stays_at_its_prior():
    frame, kind = patients()
    frame.pop("pressure")
    model = MixedMixture(SCHEMA, random_state=0).fit(frame)
    parts = [own for name, _, own in model.family_.parts(model.natural_) if name == "pressure"]
    before = [own for name, _, own in model.family_.parts(model.prior_) if name == "pressure"]
    np.testing.assert_array_equal(parts[0], np.tile(before[0], (model.n_components_, 1)))
    assert adjusted_rand_score(kind, model.predict(frame)) > 0.8


def test_strange_rows_are_unlike_every_component(fitted):
    model, frame, _ = fitted
    own = model.unlikeness(frame)
    assert np.median(own) < 1.0
    assert np.mean(own > 3.0) < 0.05
    assert model.unlikeness({"age": [170.0], "pressure": [60.0], "visits": [40]})[0] > 6.0


def test_in_one_dimension_the_bound_is_that_of_scikit_learn():
    """In more dimensions scikit-learn's diagonal precisions are no Gammas but a Wishart."""
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(-3, 1, 150), rng.normal(2, 0.7, 100)])[:, None]
    schema = kf.Schema([Column("x", "continuous", (-1.96, 1.96))])  # mean 0, deviation 1
    same = {"mean_precision_prior": 0.1, "mean_prior": [0.0], "covariance_prior": [2.0]}
    same |= {"degrees_of_freedom_prior": 2.0, "weight_concentration_prior": 0.1, "reg_covar": 0.0}
    kind = "dirichlet_distribution"
    difference = []
    for size in (1, 2):
        ours = MixedMixture(
            schema, size, random_state=0, weight_concentration_prior=0.1, tol=1e-12, max_iter=3000
        ).fit(x)
        theirs = BayesianGaussianMixture(
            n_components=size, covariance_type="diag", weight_concentration_prior_type=kind,
            tol=1e-12, max_iter=3000, random_state=0, **same,
        ).fit(x)  # fmt: skip
        order = np.argsort(-theirs.weights_)
        p = ours.family_.params(ours.natural_)
        np.testing.assert_allclose(p["x.mean"], theirs.means_[order], rtol=1e-5)
        np.testing.assert_allclose(
            p["x.rate"] / p["x.shape"], theirs.covariances_[order], rtol=1e-5
        )
        np.testing.assert_allclose(ours.weights_, theirs.weights_[order], rtol=1e-5)
        # Theirs lacks the constants of data and priors.
        prior = ours.family_.log_partition(ours.prior_[None])[0]
        constants = -0.5 * len(x) * np.log(2 * np.pi) - size * (prior - 0.5 * np.log(2 * np.pi))
        difference.append(ours.lower_bound_ - theirs.lower_bound_ - constants)
    log_norm = [_log_dirichlet_norm(0.1, size) for size in (1, 2)]
    np.testing.assert_allclose(difference, log_norm, atol=1e-4)


def _log_dirichlet_norm(concentration, size):
    return gammaln(size * concentration) - size * gammaln(concentration)


def test_complete_and_continuous_it_agrees_with_scikit_learn():
    rng = np.random.default_rng(2)
    centres = rng.normal(0, 4, (4, 5))
    x = centres[rng.integers(4, size=600)] + rng.normal(size=(600, 5))
    schema = kf.Schema([Column(f"x{k}", "continuous", (-1.96, 1.96)) for k in range(5)])
    ours = MixedMixture(schema, 4, weight_concentration_prior=0.1, random_state=0).fit(x)
    theirs = BayesianGaussianMixture(
        n_components=4, covariance_type="diag",
        weight_concentration_prior_type="dirichlet_distribution",
        mean_precision_prior=0.1, mean_prior=np.zeros(5), covariance_prior=2.0 * np.ones(5),
        degrees_of_freedom_prior=6.0, weight_concentration_prior=0.1, n_init=5, tol=1e-9,
        max_iter=1000, random_state=0, reg_covar=0.0,
    ).fit(x)  # fmt: skip
    assert adjusted_rand_score(ours.predict(x), theirs.predict(x)) == 1.0
    order = np.argsort(-theirs.weights_)
    means = np.column_stack([ours.family_.params(ours.natural_)[f"x{k}.mean"] for k in range(5)])
    np.testing.assert_allclose(means, theirs.means_[order], atol=1e-3)
    # From our responsibilities their iterations gain nothing.
    theirs._initialize(x, ours.predict_proba(x)[:, np.argsort(order)])
    _, log_resp = theirs._e_step(x)
    theirs._m_step(x, log_resp)
    bound = theirs._compute_lower_bound(log_resp, 0.0)
    assert bound == pytest.approx(theirs.lower_bound_, abs=0.05)


def test_equal_columns_of_statistics_are_kept_once():
    one, x = np.ones(5), np.arange(5.0)
    design = Design.of([x, one, x**2, one])
    assert design.columns.shape == (5, 3)
    mean = np.array([[1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_allclose(design.columns @ design.folded(mean), (x + 6 + 3 * x**2)[:, None])


@for_each(
    "change, message",
    [
        ({"schema": "age"}, "schema: expected a klfusion.Schema"),
        ({"n_components": 0}, "expected n_components to be an integer"),
        ({"weight_concentration_prior_type": "flat"}, "weight_concentration_prior_type: expected"),
        ({"mean_strength": 0.0}, "expected mean_strength to be a finite number"),
    ],
)
def test_wrong_settings(change, message):
    frame, _ = patients(20, missing=0.0)
    with pytest.raises(kf.KLFusionError, match=message):
        MixedMixture(**{"schema": SCHEMA, **change}).fit(frame)


def test_wrong_data():
    model = MixedMixture(SCHEMA)
    with pytest.raises(kf.KLFusionError, match="call fit first"):
        model.predict({"age": [1.0]})
    with pytest.raises(kf.KLFusionError, match="1 without any, the first is row 1"):
        model.fit({"age": [50.0, np.nan]})
    with pytest.raises(kf.KLFusionError, match="expected rows, got none"):
        model.fit({"age": np.zeros(0)})
    with pytest.raises(kf.KLFusionError, match="column 'pain', row 0: expected one of"):
        model.fit({"pain": ["severe"]})


def test_constant_columns_and_single_rows_are_fitted():
    frame, _ = patients(60, missing=0.0)
    frame["pressure"][:] = 120.0
    model = MixedMixture(SCHEMA, random_state=0, n_init=1).fit(frame)
    assert np.isfinite(model.score(frame))
    one = {name: values[:1] for name, values in frame.items()}
    assert MixedMixture(SCHEMA, n_init=1, random_state=0).fit(one).n_components_ == 1


def test_refits_of_sites_add_up_to_that_of_all_rows():
    frame, _ = patients(300, missing=0.1)
    cells = ~np.isnan(SCHEMA.encoded(frame)).all(axis=1)
    frame = {name: own[cells] for name, own in frame.items()}
    half = len(cells[cells]) // 2
    parts = [
        {name: own[rows] for name, own in frame.items()} for rows in (np.s_[:half], np.s_[half:])
    ]

    def site(rows):
        model = MixedMixture(SCHEMA, random_state=0, n_init=2, tol=1e-9)

        def fit(start, prior):
            found = model.fit(rows) if start is None else model.refit(rows, start, prior)
            return kf.extract(found, name="site")

        return fit

    refined = kf.refine_rounds({"a": site(parts[0]), "b": site(parts[1])}, rounds=8)
    np.testing.assert_allclose(refined.posterior.counts.sum(), len(cells[cells]))
    start = refined.posterior
    prior = np.tile(start.prior, (start.n_components, 1))
    whole = MixedMixture(SCHEMA, tol=1e-9).refit(frame, start, prior)
    np.testing.assert_allclose(whole.natural_, start.natural, rtol=0.01)
    np.testing.assert_allclose(whole.counts_, start.counts, rtol=0.01)


def pressures(n, seed, kinds=2):
    """Two columns that vary with each other, and one that does not."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(kinds, size=n)
    noise = rng.normal(size=(n, 2)) @ np.linalg.cholesky([[100.0, 72.0], [72.0, 64.0]]).T
    high, low = (np.take([[120, 160], [75, 105]], kind, axis=1) + noise.T).tolist()
    frame = {"high": np.array(high), "low": np.array(low), "age": rng.normal(60, 8, n)}
    return frame, kind


BLOCKS = kf.Schema(
    [
        Column("high", "continuous", (90, 140), block="pressure"),
        Column("age", "continuous", (30, 80)),
        Column("low", "continuous", (60, 90), block="pressure"),
    ]
)


def test_a_block_has_a_full_covariance():
    frame, kind = pressures(500, 0)
    model = MixedMixture(BLOCKS, random_state=0, n_init=2).fit(frame)
    assert model.n_components_ == 2
    assert [name for name, _ in model.family_.factors] == ["pressure", "age"]
    p = model.family_.params(model.natural_)
    covariance = p["pressure.scale_inv"] / p["pressure.dof"][:, None, None]
    np.testing.assert_allclose(covariance, [[[100, 72], [72, 64]]] * 2, rtol=0.3)
    assert adjusted_rand_score(kind, model.predict(frame)) > 0.9
    alone = kf.Schema([Column(c.name, c.kind, c.reference) for c in BLOCKS])
    plain = MixedMixture(alone, random_state=0, n_init=2).fit(frame)
    assert model.lower_bound_ > plain.lower_bound_ + 50  # one covariance explains the correlation


def test_cells_of_a_block_predict_the_others():
    frame, _ = pressures(500, 0)
    model = MixedMixture(BLOCKS, random_state=0, n_init=2).fit(frame)
    found = model.impute({"high": [140.0, 100.0]})["low"]
    np.testing.assert_allclose(found, [90, 60], atol=6)
    p = model.family_.params(model.natural_)
    before = model.family_.params(model.prior_[None])
    dof = p["pressure.dof"] - 1
    kappa = before["pressure.kappa"] + p["pressure.dof"] - before["pressure.dof"]
    shape = p["pressure.scale_inv"] * ((kappa + 1) / (kappa * dof))[:, None, None]
    x = np.array([130.0, 84.0])
    density = [
        stats.multivariate_t(m, s, v).pdf(x)
        for m, s, v in zip(p["pressure.mean"], shape, dof, strict=True)
    ]
    row = {"high": x[:1], "low": x[1:]}
    np.testing.assert_allclose(model.score_samples(row), np.log(model.weights_ @ density))
    part = stats.t.pdf(130.0, dof, p["pressure.mean"][:, 0], np.sqrt(shape[:, 0, 0]))
    np.testing.assert_allclose(model.score_samples({"high": x[:1]}), np.log(model.weights_ @ part))
    assert np.median(model.unlikeness(frame)) < 1.0
    assert model.unlikeness({"high": [150.0], "low": [60.0]})[0] > 6.0  # each alone is common


def test_blocks_are_fused_and_reported(tmp_path):
    models = {}
    for seed, name in enumerate("abc"):
        frame, _ = pressures(300, seed)
        frame["low"][::5] = np.nan
        if name == "c":
            del frame["low"]
        models[name] = MixedMixture(BLOCKS, random_state=0, n_init=2).fit(frame)
    fusion = kf.fuse({name: models[name] for name in "ab"})
    assert fusion.n_components == 2
    np.testing.assert_allclose(fusion.model().impute({"high": [140.0]})["low"], [90], atol=6)
    fusion.report(tmp_path / "page.html", one_page=True)
    with pytest.raises(kf.KLFusionError, match="expected the name of a block of continuous"):
        Column("a", "counts", (0, 1), block="b")
    # A block that a site lacks stays at its prior there.
    lacking = models["c"]
    np.testing.assert_array_equal(
        lacking.natural_[:, :7], np.tile(lacking.prior_[:7], (len(lacking.counts_), 1))
    )


# Semicontinuous columns -------------------------------------------------------------------------

TREATED = kf.Schema(
    [Column("age", "continuous", (30, 80)), Column("dose", "semicontinuous", (10, 40), unit="mg")]
)


def treated(n=400, seed=0):
    """Patients of two kinds: few of the young have a dose, most of the old a high one."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n)
    dose = rng.normal(np.where(kind, 40, 15), 3)
    dose[rng.random(n) < np.where(kind, 0.2, 0.8)] = 0.0
    dose[rng.random(n) < 0.2] = np.nan
    return {"age": rng.normal(np.where(kind, 70, 45), 6), "dose": dose}


def test_a_semicontinuous_column_is_as_two_columns():
    frame = treated()
    model = MixedMixture(TREATED, random_state=0).fit(frame)
    assert model.n_components_ == 2
    at, missing = frame["dose"] == 0, np.isnan(frame["dose"])
    by_hand = {
        "age": frame["age"],
        "any": np.where(missing, None, np.where(at, "no", "yes")),
        "dose": np.where(at, np.nan, frame["dose"]),
    }
    columns = [TREATED.columns[0], Column("any", "binary", categories=("no", "yes"))]
    schema = kf.Schema([*columns, Column("dose", "continuous", (10, 40))])
    other = MixedMixture(schema, random_state=0).fit(by_hand)
    assert model.lower_bound_ == other.lower_bound_
    np.testing.assert_array_equal(model.natural_, other.natural_)
    np.testing.assert_array_equal(model.score_samples(frame), other.score_samples(by_hand))
    np.testing.assert_array_equal(model.unlikeness(frame), other.unlikeness(by_hand))
    counts = [400, (~missing).sum(), (~missing & ~at).sum()]
    np.testing.assert_allclose(model.measured_.sum(axis=0), counts)


def test_a_row_has_a_probability_at_the_shared_value_and_else_a_density():
    model = MixedMixture(TREATED, random_state=0).fit(treated())
    at = np.exp(model.score_samples({"dose": [0.0]})[0])
    assert at == pytest.approx(0.5, abs=0.08)
    grid = np.linspace(-200.0, 300.0, 20_000)  # without zero
    rest = np.exp(model.score_samples({"dose": grid})).sum() * (grid[1] - grid[0])
    assert at + rest == pytest.approx(1.0, abs=1e-4)


def test_a_semicontinuous_cell_gets_its_expected_value():
    model = MixedMixture(TREATED, random_state=0).fit(treated())
    found = model.impute({"age": [45.0, 70.0, 70.0], "dose": [np.nan, np.nan, 0.0]})
    np.testing.assert_allclose(found["dose"], [0.2 * 15, 0.8 * 40, 0.0], atol=2.5)


def test_all_rows_may_have_the_shared_value():
    frame = treated()
    frame["dose"][:] = 0.0
    model = MixedMixture(TREATED, random_state=0).fit(frame)
    assert model.n_components_ == 2
    # What nobody has is at its prior.
    assert model.impute({"age": [50.0]})["dose"][0] == pytest.approx(0.0, abs=0.2)


@for_each("block", [None, "together"])
def test_a_column_of_logarithms_is_as_the_logarithm_by_hand(block):
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=300)
    frame = {name: np.exp(rng.normal(2.0 * kind, 0.5)) for name in ("cost", "days")}
    frame["days"][::7] = np.nan
    given = [Column(k, "continuous", (0.2, 20), log=True, block=block) for k in frame]
    logs = [Column(k, "continuous", tuple(np.log((0.2, 20))), block=block) for k in frame]
    model = MixedMixture(kf.Schema(given), random_state=0).fit(frame)
    by_hand = {name: np.log(own) for name, own in frame.items()}
    other = MixedMixture(kf.Schema(logs), random_state=0).fit(by_hand)
    np.testing.assert_allclose(model.natural_, other.natural_, rtol=1e-9)
    both = np.column_stack([*by_hand.values()])
    volume = np.nansum(both, axis=1)
    np.testing.assert_allclose(
        model.score_samples(frame), other.score_samples(by_hand) - volume, rtol=1e-9
    )
    fitted = volume if block is None else volume[~np.isnan(both).any(axis=1)]
    assert model.lower_bound_ == pytest.approx(other.lower_bound_ - fitted.sum())
    np.testing.assert_allclose(model.unlikeness(frame), other.unlikeness(by_hand), rtol=1e-6)
    cost = {"cost": [1.0]}
    filled, log_filled = model.impute(cost)["days"], other.impute({"cost": [0.0]})["days"]
    np.testing.assert_allclose(filled, np.exp(log_filled))
