"""`Binary`: local search on the binary objective from random starts."""

from dataclasses import dataclass
from typing import ClassVar, final

from klfusion.methods.method import PenalisedMethod
from klfusion.methods.search import best_of, known_size_starts, penalised_starts
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.linkage import cut
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search


@final
@dataclass(frozen=True, kw_only=True)
class Binary(PenalisedMethod):
    """The binary objective at a given penalty or size: alternate, then local search.

    Components are compared as they were sent; none is left out.

    Parameters
    ----------
    penalty : float or "auto"
        Weight of ``sum_g sqrt(n_g)``, in nats; ``"auto"`` chooses it as `Auto` does.
    n_init, max_iter, tol, divergence
        As for `Method`.

    Examples
    --------
    >>> import klfusion as kf
    >>> kf.Binary(penalty=5.0).given_penalty
    5.0
    """

    name: ClassVar[str] = "binary"

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Start from KL k-means++ seeds, several times."""
        if search.n_components is not None:
            return best_of(known_size_starts(problem, search.n_components, search))
        path, penalty = None, self.given_penalty
        if penalty is None:
            chosen = cut(problem, LinkageSettings(), search.report)
            path, penalty = chosen.path, chosen.penalty
        return penalised_starts(problem, penalty, path, [], self.n_init, search)
