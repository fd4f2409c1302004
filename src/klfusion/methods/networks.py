"""`Networks`: matching of hidden units. Few are shared: it is compression at a limited cost."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from klfusion._utils.arrays import TINY, FloatArray, merge_saving
from klfusion._utils.checks import check_integer, check_number, number
from klfusion.families import DiagonalNormal
from klfusion.merging.local_search import refine
from klfusion.merging.neighbours import neighbour_path
from klfusion.methods.method import PenalisedMethod
from klfusion.methods.search import known_size_on_path, least_costs
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, MergePath, Search, Status

_MAX_PAIRS = 4_000  # of units within silos, whose quantile is computed
_STARTS = 5  # at least, where the path does not reach the size asked for


@final
@dataclass(frozen=True, kw_only=True)
class Networks(PenalisedMethod):
    """Hidden units of networks: ``method="auto"`` for networks.

    Units whose outgoing weights carry no signal are left out. For matching, all weights get one
    variance. Clusters merge with nearest neighbours along a penalty path. The penalty is the lower
    of two, and local search keeps its size:

    - the quantile ``within`` of the penalties at which two units of one silo, which are known to
      differ, would merge;
    - the penalty at which merges have lost the share ``loss`` of the divergence of all units from
      their average. With 0, only equal units merge: a larger network, with more features for a new
      head (`klfusion.head_statistics`).

    The last ``outgoing`` weights of a unit are those that leave it; `fuse` sets this for networks
    of one hidden layer. Their spread counts for no more than that of the others. The first
    ``convolutional`` layers have filters, which `fuse` sets, too. Filters are few and every later
    layer depends on them, so they merge only where nothing is lost.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> rng = np.random.default_rng(0)
    >>> shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}
    >>> silos = {name: {key: (rng.normal(size=s), np.full(s, 0.01)) for key, s in shapes.items()}
    ...          for name in "ab"}
    >>> kf.fuse(silos, method=kf.Networks(within=0.001)).n_components
    16
    """

    name: ClassVar[str] = "networks"
    cleans: ClassVar[bool] = True
    within: float = 0.1
    loss: float = 0.15
    outgoing: int = 0
    convolutional: int = 0
    n_init: int = 1
    max_iter: int = 30
    tol: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("within", self.within, high=1.0)
        number(self.loss, "loss", above=0.0, allow_equal=True)
        check_integer("outgoing", self.outgoing, least=0)
        check_integer("convolutional", self.convolutional, least=0)

    def compared(
        self, problem: FusionProblem, *like: FloatArray, variation: FloatArray | None = None
    ) -> FusionProblem:
        """Give every weight one variance, and outgoing ones a scale: neither is to dominate."""
        del variation
        if not isinstance(problem.family, DiagonalNormal):
            return problem.centred(*like)
        mean, variance = problem.family.params(problem.centred(*like).natural).values()
        others = problem.family.params(like[0] if like else problem.natural)
        common = np.full_like(variance, np.exp(np.log(others["variance"]).mean()))
        # The spread of outgoing weights is at most that of incoming ones.
        spread, scale = others["mean"].var(axis=0), np.ones(mean.shape[1])
        coming, going = np.split(spread, [len(spread) - self.outgoing])
        if going.sum() > coming.sum() > 0:
            scale[len(coming) :] = np.sqrt(coming.sum() / going.sum())
        return replace(problem, natural=problem.family.natural(scale * mean, common))

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Walk the path, cut it, refine."""
        path, size = neighbour_path(problem, search.report), search.n_components
        if size is not None:
            return known_size_on_path(problem, path, size, search, _STARTS)
        penalty = self.given_penalty or self._chosen(problem, path)
        start = path.labels(path.steps_at(penalty))
        labels, trace, converged = refine(problem, start, penalty, search, fixed_size=True)
        # Lower bound: each silo's best assignment, and clusters with a unit of every silo.
        full = problem.n / np.sqrt(len(problem.silos))
        bound = min(float(least_costs(problem, labels) + penalty * full), trace[-1])
        return Matching(labels, trace[-1], bound, trace, penalty, Status.of(converged), path)

    def _chosen(self, problem: FusionProblem, path: MergePath) -> float:
        if len(path.ratios) == 0:
            return 1.0
        # The penalty up to which merges lose this share of the divergence from one average.
        whole = problem.divergence(np.zeros(problem.n, dtype=np.intp), 1)
        loss = 0.0 if self.convolutional else self.loss
        steps = int(np.searchsorted(path.divergences, loss * whole, side="right")) - 1
        lossy = path.penalties[steps - 1] if steps > 0 else 0.5 * path.penalties[0]
        return max(min(_null_penalty(problem, self.within), float(lossy)), TINY)


def _null_penalty(problem: FusionProblem, quantile: float) -> float:
    """The penalty at which this share of the pairs of units within silos would merge."""
    a, b = np.nonzero(np.triu(problem.silo[:, None] == problem.silo, k=1))
    if len(a) == 0:  # one unit per silo: none are known to differ
        return np.inf
    if len(a) > _MAX_PAIRS:
        some = np.linspace(0, len(a) - 1, _MAX_PAIRS).astype(np.intp)
        a, b = a[some], b[some]
    state = Clusters(problem, np.arange(problem.n, dtype=np.intp))
    ratios = state.merge_increases(a, b) / merge_saving(1, 1)
    return float(np.quantile(ratios, quantile))
