"""Failed fits are left out, and the rest is matched anew."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.running import Report
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.failed_fits import find_failed
from klfusion.model_size.failed_prior import FailedFits
from klfusion.model_size.linkage import link
from klfusion.model_size.linked import Linked
from klfusion.objective.problem import FusionProblem

_ROUNDS = 3  # of leaving out failed fits and matching the rest anew


@dataclass(frozen=True, eq=False)
class LinkedRows:
    """A matching of the rows of a problem that are no failed fits."""

    linked: Linked
    rows: IntArray  # (m,)
    part_of: IntArray  # of all rows: the row that a fragment is a part of, (n,); -1 for none

    def spread(self, labels: IntArray) -> IntArray:
        """Labels of all rows, (n,): a fragment has its sibling's; -1 for what is left out."""
        out = np.full(len(self.part_of), -1, dtype=np.intp)
        out[self.rows] = labels
        return np.where(self.part_of >= 0, out[self.part_of], out)


def link_rows(
    problem: FusionProblem,
    compare: Callable[[FusionProblem], FusionProblem],
    settings: LinkageSettings,
    report: Report,
    *,
    alike: Callable[[FusionProblem], FusionProblem] = lambda problem: problem,
    variation: FloatArray | None = None,
) -> LinkedRows:
    """Match the components of a problem; leave out failed fits and match the rest anew.

    ``alike`` makes the priors of silos equal, and ``compare`` makes components comparable. The
    ``variation`` between silos may be known.
    """
    rows, part_of = np.arange(problem.n), np.full(problem.n, -1, dtype=np.intp)
    left, known = problem, FailedFits.none(settings.failed_fits, problem.silo)
    for last in (*[False] * _ROUNDS, True):
        given = alike(left)
        base = compare(given)
        linked = link(base, settings, report, variation=variation)
        if not linked.matches or linked.different is None:
            break
        failed = find_failed(given, base, linked, known, merges=True)
        if last or not failed.any:
            before = linked.labels
            linked = linked.merged()
            if last or (linked.labels == before).all():
                break
            failed = find_failed(given, base, linked, known)
            if not failed.any:
                break
        known = failed.known
        fragments = np.flatnonzero(failed.part_of >= 0)
        siblings = failed.part_of[fragments]
        part_of[rows[fragments]] = rows[siblings]
        for i in np.flatnonzero(np.isin(part_of, rows[fragments])):  # of a fragment of another
            part_of[i] = part_of[part_of[i]]
        kept = np.flatnonzero(~failed.mixed & (failed.part_of < 0))
        left, rows = left.with_parts(fragments, siblings).some(kept), rows[kept]
    return LinkedRows(linked, rows, part_of)
