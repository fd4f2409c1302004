"""What all tests share: how Hypothesis draws its examples, and what is not collected."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import settings

from klfusion.privacy import mechanism

collect_ignore = ["federation/faulty_app"]  # an app of its own, for processes of its own

# The same examples in every run and without a time limit per example: whether a test passes
# depends on the code alone. No test overrides these.
settings.register_profile(
    "klfusion", derandomize=True, deadline=None, max_examples=30, print_blob=True
)
settings.load_profile("klfusion")

# Examples in docstrings that need an extra, and the library.
EXAMPLES = {
    "klfusion.fusion.result.Fusion.to_frame": "pandas",
    "klfusion.baselines.networks.Ensemble": "torch",
    "klfusion.privacy.mechanism.noised": "opendp",
    "klfusion.privacy.privatize.privatize": "opendp",
}


def pytest_collection_modifyitems(items):
    """Skip examples by name where their library is missing."""
    for item in items:
        library = EXAMPLES.get(item.name)
        if library is not None and find_spec(library) is None:
            item.add_marker(pytest.mark.skip(reason=f"needs {library}"))


@pytest.fixture(autouse=True)
def same_noise(request, monkeypatch):
    """Draw the noise of `kf.privatize` from a seed, so that tests depend on the code alone.

    Everything else is OpenDP's, the statement of the budget included. Tests of the secure noise
    itself are marked ``secure``.
    """
    if request.node.get_closest_marker("secure"):
        return
    rng, secure = np.random.default_rng(0), mechanism._secure

    def seeded(whole, scale, sensitivity, budget):
        noisy, statement = secure(whole, scale, sensitivity, budget)
        return whole + np.rint(rng.normal(scale=scale, size=np.shape(noisy))), statement

    monkeypatch.setattr(mechanism, "_secure", seeded)
