"""Finding the adapter: by class names alone, with a clear word where none serves."""

from __future__ import annotations

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
