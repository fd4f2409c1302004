"""What a silo sends is of one size, however many observations it has."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf

N = 137  # a number that nothing else has by chance
WORDS = [f"w{chr(97 + i)}" for i in range(12)]


def points(n, dim=2):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, dim)) + np.where(np.arange(n) % 2, 4.0, -4.0)[:, None]


def documents(n):
    """Word counts; the first documents hold every word, so the vocabulary is the same."""
    counts = np.random.default_rng(0).poisson(1.0, size=(n, len(WORDS)))
    counts[: len(WORDS)] += np.eye(len(WORDS), dtype=int)
    return counts


def sklearn_mixture(n):
    model = BayesianGaussianMixture(n_components=2, random_state=0).fit(points(n))
    return kf.extract(model, name="a")


def sklearn_lda(n):
    model = LatentDirichletAllocation(3, max_iter=2, random_state=0).fit(documents(n))
    return kf.extract(model, name="a", vocabulary=WORDS)


def sklearn_logistic(n):
    x, y = points(n), np.arange(n) // 2 % 2
    return kf.extract(LogisticRegression(), name="a", data=(x, y), local=["intercept"])


def sklearn_discriminant(n):
    data = points(n), np.arange(n) % 2
    return kf.extract(LinearDiscriminantAnalysis(), name="a", data=data)


def lifelines_cox(n):
    lifelines = pytest.importorskip("lifelines")
    import pandas as pd

    frame = pd.DataFrame(points(n), columns=["x", "y"])
    frame["T"], frame["E"] = np.arange(n) % 97 + 1.0, np.arange(n) % 3 > 0
    return kf.extract(lifelines.CoxPHFitter().fit(frame, "T", "E"), name="a")


def gensim_lda(n):
    pytest.importorskip("gensim")
    from gensim.corpora import Dictionary
    from gensim.models import LdaModel

    texts = [[w for w, c in zip(WORDS, row, strict=True) for _ in range(c)] for row in documents(n)]
    words = Dictionary([WORDS])
    bags = [words.doc2bow(text) for text in texts]
    return kf.extract(LdaModel(bags, id2word=words, num_topics=3, random_state=0), name="a")


def hmmlearn_gaussian(n):
    pytest.importorskip("hmmlearn")
    from hmmlearn.vhmm import VariationalGaussianHMM

    return kf.extract(VariationalGaussianHMM(2, n_iter=3, random_state=0).fit(points(n)), name="a")


def hmmlearn_categorical(n):
    pytest.importorskip("hmmlearn")
    from hmmlearn.vhmm import VariationalCategoricalHMM

    x = np.random.default_rng(0).integers(5, size=(n, 1))
    model = VariationalCategoricalHMM(2, n_iter=3, random_state=0, n_features=5)
    return kf.extract(model.fit(x), name="a")


def network(n):
    """Regressions on random hidden units: the variances shrink with the data."""
    rng = np.random.default_rng(1)
    x, w = points(n), rng.normal(size=(6, 2))
    hidden = np.maximum(x @ w.T, 0.0)
    precision = hidden.T @ hidden + np.eye(6)
    out = np.linalg.solve(precision, hidden.T @ np.sin(x)).T
    mapping = {
        "fc1.weight": (w, np.full((6, 2), 1 / n)),
        "fc1.bias": (np.zeros(6), np.full(6, 1 / n)),
        "fc2.weight": (out, np.tile(1 / np.diag(precision), (2, 1))),
        "fc2.bias": (np.zeros(2), np.full(2, 1 / n)),
    }
    counts = np.bincount(np.arange(n) % 2)
    return kf.extract(mapping, name="a", activation="relu", class_counts=counts)


def pyro_guide(n):
    """With a latent number for each observation, which the guide has too."""
    torch = pytest.importorskip("torch")
    pyro = pytest.importorskip("pyro")
    from pyro import distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoNormal

    def model(x):
        noise = pyro.sample("noise", dist.LogNormal(0.0, 1.0))
        with pyro.plate("components", 2):
            centre = pyro.sample("centre", dist.Normal(0.0, 5.0))
        with pyro.plate("data", len(x)):
            z = pyro.sample("z", dist.Normal(0.0, 1.0))
            pyro.sample("x", dist.Normal(centre.mean() + z, noise), obs=x)

    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    guide = AutoNormal(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    for _ in range(3):
        svi.step(torch.tensor(points(n, 1)[:, 0], dtype=torch.float32))
    assert guide.median()["z"].shape == (n,)
    return kf.extract(guide, name="a", plate="components")


def numpyro_guide(n):
    """With a latent number for each observation, which the guide has too."""
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions as dist
    from numpyro import handlers
    from numpyro.infer.autoguide import AutoNormal

    def model(x):
        noise = numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
        with numpyro.plate("components", 2):
            centre = numpyro.sample("centre", dist.Normal(0.0, 5.0))
        with numpyro.plate("data", len(x)):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("x", dist.Normal(centre.mean() + z, noise), obs=x)

    guide = AutoNormal(model)  # with the parameters it starts from: SVI compiles slowly
    sites = handlers.trace(handlers.seed(guide, 0)).get_trace(points(n, 1)[:, 0])
    params = {key: site["value"] for key, site in sites.items() if site["type"] == "param"}
    assert guide.median(params)["z"].shape == (n,)
    return kf.extract(guide, name="a", plate="components", params=params)


def arrays_of(posterior):
    mine = [posterior.natural, posterior.prior, posterior.counts]
    return [a for a in [*mine, *posterior.structure.arrays.values()] if a is not None]


def text_of(posterior):
    """All that is not an array, in JSON; a number is one sign, however many digits it has."""
    text = json.dumps([posterior.structure.info, dict(posterior.provenance)], default=list)
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "0", text)


@pytest.mark.parametrize(
    "silo",
    [
        sklearn_mixture, sklearn_lda, sklearn_logistic, sklearn_discriminant, lifelines_cox,
        gensim_lda, hmmlearn_gaussian, hmmlearn_categorical, network,
        pyro_guide, pytest.param(numpyro_guide, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_silo_sends_as_much_of_ten_times_the_data(silo, tmp_path):
    few, many = silo(N), silo(10 * N)
    for n, posterior in ((N, few), (10 * N, many)):
        assert not any(n in array.shape for array in arrays_of(posterior))
        kf.save(tmp_path / f"{n}.safetensors", posterior)
    assert [a.shape for a in arrays_of(few)] == [a.shape for a in arrays_of(many)]
    assert sum(a.nbytes for a in arrays_of(few)) == sum(a.nbytes for a in arrays_of(many))
    assert text_of(few) == text_of(many)
    sizes = [(tmp_path / f"{n}.safetensors").stat().st_size for n in (N, 10 * N)]
    assert abs(sizes[1] - sizes[0]) <= 8  # a digit more in a count, and the padding after it
