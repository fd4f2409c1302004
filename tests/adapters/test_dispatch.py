"""Finding the adapter: by class names alone, with a clear word where none serves."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters import dispatch
from klfusion.errors import KLFusionError, MissingDependencyError
from klfusion.posteriors.structure import Structure


def test_a_missing_library_names_its_extra(monkeypatch):
    def absent(name):
        raise ImportError("No module named 'gensim'", name="gensim")

    monkeypatch.setattr(dispatch, "import_module", absent)
    family = kf.families.Dirichlet(2)
    posterior = kf.Posterior(
        family,
        [[1.0, 2.0]],
        name="a",
        structure=Structure("topics", {}, {"package": "gensim", "class": "LdaModel"}),
    )
    with pytest.raises(MissingDependencyError, match=r"pip install 'klfusion\[gensim\]'"):
        kf.adapters.rebuild(posterior)


def test_the_nearest_supported_models_are_named():
    from sklearn.cluster import KMeans

    with pytest.raises(KLFusionError, match=r"from KMeans; .*BayesianGaussianMixture"):
        kf.extract(KMeans(n_clusters=2), name="a")


def test_an_adapter_must_extract():
    with pytest.raises(KLFusionError, match="expected an adapter with a function extract"):
        kf.adapters.register("nowhere", "Nothing", object())


def test_what_newcomers_pass_is_answered_with_what_to_pass():
    from sklearn.mixture import BayesianGaussianMixture
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.random.default_rng(0).normal(size=(60, 2)) + 9.0 * (np.arange(60) % 2)[:, None]
    model = BayesianGaussianMixture(n_components=2, random_state=0).fit(x)
    with pytest.raises(kf.KLFusionError, match=r"silo 'a', pipeline step .*pass the last step"):
        kf.extract(make_pipeline(StandardScaler(), model), name="a")
    with pytest.raises(kf.KLFusionError, match=r"silo 'a'.* ndarray: fit a model"):
        kf.extract(x, name="a")
    with pytest.raises(kf.KLFusionError, match=r"got BayesianGaussianMixture: kf\.extract"):
        kf.save("unused.safetensors", model)
    model.means_ = model.means_[:1]
    with pytest.raises(kf.KLFusionError, match=r"silo 'a': expected a fitted Bayesian.* agree"):
        kf.extract(model, name="a")


def test_messages_name_each_kind_once_and_the_way_for_draws():
    with pytest.raises(kf.KLFusionError) as error:
        kf.extract(object(), name="a")
    assert str(error.value).count("a mapping of means and variances") == 1
    with pytest.raises(kf.KLFusionError, match=r"got ndarray; kf.from_draws takes draws by name"):
        kf.fuse({"a": {"beta": np.zeros((4, 100))}})
