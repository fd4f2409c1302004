"""`Homogeneous`: every silo has the same components (paper, section 3)."""

from dataclasses import dataclass
from typing import ClassVar, final

from klfusion._utils.checks import check_flag
from klfusion.errors import IncompatibleSilosError
from klfusion.methods.method import Method
from klfusion.methods.search import best_of, known_size
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search


@final
@dataclass(frozen=True, kw_only=True)
class Homogeneous(Method):
    """All silos have the same components (paper, section 3): permutations and averages.

    Parameters
    ----------
    leave_one_out : bool
        Whether local search follows the paper's alternation. It takes a silo out of the averages
        before it assigns the silo anew, which reaches lower objectives.
    n_init, max_iter, tol, divergence
        As for `Method`.

    Examples
    --------
    >>> import klfusion as kf
    >>> kf.Homogeneous(n_init=2).n_init
    2
    """

    name: ClassVar[str] = "homogeneous"
    leave_one_out: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("leave_one_out", self.leave_one_out)

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Alternate from the components of several silos, one start each; keep the best."""
        sizes = {rows.stop - rows.start for rows in problem.silos}
        if len(sizes) > 1:
            raise IncompatibleSilosError(
                f"method 'homogeneous': expected silos of one size, got sizes {sorted(sizes)}; "
                "method 'auto' allows them to differ"
            )
        if search.n_components not in (None, problem.largest_silo):
            raise IncompatibleSilosError(
                f"method 'homogeneous': expected n_components to be the silos' size "
                f"{problem.largest_silo}, got {search.n_components}"
            )
        order = search.rng.permutation(len(problem.silos))[: self.n_init]
        starts, refined = [problem.natural[problem.silos[j]] for j in order], self.leave_one_out
        return best_of([known_size(problem, start, search, refined=refined) for start in starts])
