"""A round of silos with two Poisson rates each, in which silos fail as their names say."""

import os
import signal
import sys
import time
from dataclasses import replace

import klfusion as kf
from klfusion.federation import Reply, Round
from klfusion.io.storage import dumps, loads

GAMMA = kf.families.Gamma()
SHAPES = {"a": [30.0, 900.0], "b": [910.0, 32.0]}  # the honest
FAULTS = ("killed", "late", "duplicates", "replays", "truncates", "lies")


def posterior(name, request="fit"):
    """Posterior of a silo without a fault; the second one is of twice the observations."""
    natural = GAMMA.natural(SHAPES.get(name, [29.0, 905.0]), [10, 10])
    return kf.Posterior(GAMMA, natural * {"fit": 1, "second": 2}[request], name=name)


def fit(site):
    """Fit, or raise an error whose text quotes data."""
    if site.name == "raises":
        raise RuntimeError("patient 4711")
    return posterior(site.name)


def second(fused, site):
    """Fit again, starting from the fused posterior."""
    return posterior(site.name, "second")


def use(fused, site):
    """Keep the result where a test looks for it."""
    if "FAULTY_FOLDER" in os.environ:
        kf.save(f"{os.environ['FAULTY_FOLDER']}/used-{site.name}.safetensors", fused)


class FaultyRound(Round):
    """Sites that fail as their names say."""

    def reply(self, site, request="fit", fused=b""):
        """Reply as an honest site, or with the fault of this site."""
        good = super().reply(site, request, fused)
        if site.name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if site.name == "late":
            time.sleep(1.2 * self.timeout)
        return good if request == "use" else changed(self, good, site.name)


def changed(definition, good, name):
    """The message of a faulty site instead of a good one."""
    if name == "truncates":
        return Reply(good.data[:-8])
    if name == "large":
        return Reply(os.urandom(10 * definition.max_bytes))
    if not good.data or name not in MESSAGES:
        return good
    return Reply(dumps(MESSAGES[name](loads(good.data))))


def _last_year(sent):
    header = {**sent.provenance["federation"], "round": "last year"}
    return replace(sent, provenance={"federation": header})


MESSAGES = {
    # A copy of the message of another silo.
    "duplicates": lambda sent: replace(
        posterior("a", sent.provenance["federation"]["request"]), provenance=sent.provenance
    ),
    # Numbers of its own in the name of another silo.
    "steals": lambda sent: replace(sent, name="a"),
    # A message of its own from an earlier round.
    "replays": _last_year,
    # A claim to hold the other silos, which would then count twice.
    "lies": lambda sent: replace(sent, provenance={**sent.provenance, "silos": ["a", "b"]}),
}


ROUND = FaultyRound(
    name="rates",
    fit=fit,
    second=second,
    use=use,
    silos=["a", "b", *FAULTS] if "FAULTY_NAMED" in os.environ else None,
    n_silos=2 + len(FAULTS),
    timeout=float(os.environ.get("FAULTY_TIMEOUT", "40")),
    max_bytes=100_000,
)

if __name__ == "__main__" and "pytest" not in sys.modules:
    from klfusion.federation.nvflare import run_site

    run_site(ROUND)
