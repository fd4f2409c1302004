"""Which numbers of patients a report leaves out: small ones, and others that would disclose them.

Numbers of a table add up: those of a hospital to its patients, those of a phenotype to its total,
and totals to all patients. So a number that is left out stays unknown if it can grow while others
that are left out make up for it. As flows from hospitals to phenotypes to their totals, these
numbers are a cycle. Each small number gets the cycle that leaves out the fewest patients: the
shortest path from its end back to its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion.fusion.result import Fusion
from klfusion.posteriors.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Patients:
    """Numbers of patients, and which are not shown.

    Parameters
    ----------
    cells : array of shape (n_silos, n_components + 1)
        Of each silo and global component; the last are of unmatched ones.
    hidden : array of shape (n_silos, n_components + 1)
    hidden_totals : array of shape (n_components,)
    """

    cells: FloatArray
    hidden: BoolArray
    hidden_totals: BoolArray

    @classmethod
    def of(cls, fusion: Fusion, sent: Sequence[Posterior] | None, min_cell: float) -> Patients:
        """Of a fusion and what its silos sent; without that, totals alone are shown."""
        size, counts = fusion.n_components, fusion.posterior.counts
        totals = np.zeros(size) if counts is None else np.asarray(counts)
        cells = np.zeros((fusion.n_silos, size + 1))
        if sent is None:  # as if all patients were of one hospital
            _, hidden = suppressed(np.append(totals, 0.0)[None], totals, min_cell)
            return cls(cells, np.ones(cells.shape, dtype=bool), hidden)
        for row, labels, silo in zip(cells, fusion.labels, sent, strict=True):
            np.add.at(row, labels, 0.0 if silo.counts is None else silo.counts)
        return cls(cells, *suppressed(cells, totals, min_cell))


def suppressed(
    cells: FloatArray, totals: FloatArray, min_cell: float
) -> tuple[BoolArray, BoolArray]:
    """Which cells, (n, k + 1), and which totals, (k,), are not shown.

    The last column has patients of no phenotype, which no page shows. The number of all patients
    of phenotypes is shown. That of a hospital follows from any number of it and its share.
    """
    hidden, of_total = (cells > 0) & (cells < min_cell), totals < min_cell
    if not (hidden.any() or of_total.any()):
        return hidden, of_total
    flows, n = _Flows(cells, totals, min_cell), len(cells)
    flows.protect()
    own, total = flows.hidden & flows.is_cell, flows.hidden & flows.is_total
    hidden[flows.tail[own], flows.head[own] - n] = True
    of_total[flows.tail[total] - n] = True
    return hidden, of_total


class _Flows:
    """Numbers of patients as flows: from a hospital to a phenotype, and on to its total.

    Those of no phenotype flow back to the hospitals. Nodes are hospitals, phenotypes, that of no
    phenotype, the totals, and the source of all hospitals.
    """

    def __init__(self, cells: FloatArray, totals: FloatArray, min_cell: float) -> None:
        n, k = len(cells), len(totals)
        of_none, of_all, source = n + k, n + k + 1, n + k + 2
        flows = [(j, n + g, cells[j, g]) for j, g in np.argwhere(cells > 0).tolist()]
        flows += [(n + g, of_all, totals[g]) for g in np.flatnonzero(totals > 0).tolist()]
        flows += [(source, j, cells[j].sum()) for j in range(n)]
        flows += [(of_none, source, cells[:, k].sum())] if cells[:, k].any() else []
        self.n_nodes, self.min_cell = n + k + 3, min_cell
        self.tail, self.head = np.array([flow[:2] for flow in flows], dtype=np.intp).T
        self.value = np.array([flow[2] for flow in flows], dtype=np.float64)
        self.between = {flow[:2]: i for i, flow in enumerate(flows)}
        self.is_cell, self.is_total = self.tail < n, self.head == of_all
        self.is_hospital = self.tail == source
        self.few = (self.value < min_cell) & (self.is_cell | self.is_total)
        self.hidden = self.few | (self.head == of_none) | (self.tail == of_none)

    def protect(self) -> None:
        """Hide what would disclose one of the few."""
        for flow in np.flatnonzero(self.few):
            # It may be `min_cell` and more, where the others allow it.
            least = self.min_cell - self.value[flow]
            if self._path(int(flow), self.hidden, least):
                continue
            every = np.ones_like(self.hidden)
            path = self._path(int(flow), every, least) or self._path(int(flow), every, 0.0)
            self.hidden[path] = True
            whole = self.head[[i for i in path if self.is_hospital[i]]]
            self.hidden |= self.is_cell & np.isin(self.tail, whole)

    def _cost(self) -> FloatArray:
        """Patients that are hidden with a flow; with the number of a hospital, all of it."""
        shown = np.where(self.hidden, 0.0, self.value)
        own = np.bincount(self.tail, np.where(self.is_cell, shown, 0.0), self.n_nodes)
        return np.asarray(np.where(self.is_hospital, own[self.head], shown))

    def _path(self, flow: int, among: BoolArray, least: float) -> list[int]:
        """The cheapest flows that make up for one that grows: some grow, others fall."""
        cost, grow = self._cost(), among.copy()
        grow[flow] = False
        fall = grow & (self.value >= least)
        ends = np.r_[self.tail[grow], self.head[fall]], np.r_[self.head[grow], self.tail[fall]]
        graph = csr_array((np.r_[cost[grow], cost[fall]], ends), shape=(self.n_nodes,) * 2)
        start, node = int(self.head[flow]), int(self.tail[flow])
        before = dijkstra(graph, indices=[start], return_predecessors=True)[1][0]
        path = []
        while node != start:
            last = int(before[node])
            if last < 0:
                return []
            found = self.between.get((last, node))
            path.append(self.between[node, last] if found is None else found)
            node = last
        return path
