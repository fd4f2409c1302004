"""The cone programme behind the relaxation, and its Newton system.

Everything except the column norms is local to a silo. The Newton matrix is a diagonal, plus one
rank-one term per silo and column, minus one rank-one term per column. So it reduces to one small
block per silo and one (G, G) system.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray, IntArray

_UNTHREADED = 2**18  # multiply-adds up to which OpenBLAS multiplies matrices in one thread


@dataclass(frozen=True)
class Point:
    """Interior point; every field is strictly inside its cone, but slacks of full silos are 0."""

    plan: FloatArray  # (n, G), P > 0
    radius: FloatArray  # (G,), t_g > ||P_g||
    pull: FloatArray  # (n, G), ||u_g|| < penalty
    price: FloatArray  # (J, G), y > 0, of free sign in full silos
    value: FloatArray  # (n,), multiplier of the row sums


@dataclass(frozen=True)
class Direction:
    """Change of a point, with the changes of reduced costs and slacks that follow from it."""

    point: Point
    reduced: FloatArray
    slack: FloatArray


class Silos:
    """Index structure of the silos: sums over a silo, and its block in an (n, n) matrix."""

    def __init__(self, silo: IntArray, n_columns: int) -> None:
        n = silo.size
        first = np.flatnonzero(np.r_[True, silo[1:] != silo[:-1]])
        self.sizes: IntArray = np.diff(np.r_[first, n])
        if self.sizes.max() > n_columns:
            raise ValueError(
                f"a silo has {self.sizes.max()} rows but there are {n_columns} columns"
            )
        self.of_row: IntArray = np.repeat(np.arange(self.sizes.size), self.sizes)
        self.rows = [slice(a, b) for a, b in pairwise([*first.tolist(), n])]
        # In a silo with as many rows as columns every column sum is one: it has no interior.
        self.full = (self.sizes == n_columns)[:, None]
        self.open: Any = np.flatnonzero(~self.full[:, 0]) if self.full.any() else slice(None)
        self._member = scipy.sparse.csr_array((np.ones(n), np.arange(n), np.r_[first, n]))
        width = self.sizes[self.of_row]
        self.indptr = np.r_[0, np.cumsum(width)]
        self.indices = np.repeat(first[self.of_row] - self.indptr[:-1], width)
        self.indices += np.arange(self.indptr[-1])
        self.buckets = []  # silos of one size are factorised in one batched call
        for size in np.unique(self.sizes):
            rows = first[self.sizes == size][:, None] + np.arange(size)
            self.buckets.append((rows, self.indptr[rows][:, :, None] + np.arange(size)))

    def sum(self, x: FloatArray) -> FloatArray:
        """Sum rows of `x` (n, G) within silos, to (J, G)."""
        return self._member @ x

    def spread(self, y: FloatArray) -> FloatArray:
        """Copy a silo's row of `y` (J, G) to its rows, to (n, G)."""
        return np.take(y, self.of_row, axis=0)


class Cones:
    """Nesterov-Todd scaling ``W`` of the column cones at ``(t, P)`` and ``(penalty, -u)``."""

    def __init__(self, at: Point, penalty: float) -> None:
        self.det = at.radius**2 - dot(at.plan, at.plan)
        self.dual_det = penalty**2 - dot(at.pull, at.pull)
        root, dual_root = np.sqrt(self.det), np.sqrt(self.dual_det)
        cosine = (at.radius * penalty - dot(at.plan, at.pull)) / (root * dual_root)
        half = 1.0 / np.sqrt(2.0 + 2.0 * cosine)
        self.head = (at.radius / root + penalty / dual_root) * half
        self.tail = at.plan * (half / root) + at.pull * (half / dual_root)
        self.scale = np.sqrt(root / dual_root)
        self.curvature = 1.0 / self.scale**2
        self.stretch = 2.0 * self.head**2 - 1.0

    def apply(self, head: FloatArray, tail: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Product of ``W`` with the cone vectors ``(head (G,), tail (n, G))``."""
        along = dot(self.tail, tail)
        lift = along / (1.0 + self.head) + head
        return self.scale * (self.head * head + along), self.scale * (tail + self.tail * lift)

    def unapply(self, head: FloatArray, tail: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Product of the inverse of ``W`` with ``(head, tail)``."""
        along = dot(self.tail, tail)
        lift = along / (1.0 + self.head) - head
        return (self.head * head - along) / self.scale, (tail + self.tail * lift) / self.scale


@dataclass(frozen=True)
class Problem:
    """Scaled problem: row minima subtracted (`offset` is their sum), largest entry about one."""

    costs: FloatArray
    penalty: float
    silos: Silos
    offset: float

    def reduced(self, at: Point) -> FloatArray:
        """Reduced costs (n, G): multipliers of P >= 0, which dual feasibility determines."""
        return self.costs + at.pull + self.silos.spread(at.price) - at.value[:, None]

    def slack(self, plan: FloatArray) -> FloatArray:
        """Room left in each silo and column (J, G)."""
        return np.where(self.silos.full, 0.0, 1.0 - self.silos.sum(plan))

    def bounds(self, at: Point) -> tuple[float, float]:
        """Upper and lower bound of the optimum given by a point."""
        upper = penalised_objective(self.costs, at.plan, self.penalty)
        lowest = (self.costs + at.pull + self.silos.spread(at.price)).min(axis=1)
        return upper + self.offset, float(lowest.sum() - at.price.sum()) + self.offset


class Newton:
    """Factorised Newton system at a point, and the two directions that Mehrotra's method needs."""

    def __init__(self, problem: Problem, at: Point) -> None:
        self.problem, self.at, self.cones = problem, at, Cones(at, problem.penalty)
        silos, cones = problem.silos, self.cones
        self.reduced, self.slack = problem.reduced(at), problem.slack(at.plan)
        if not self._is_interior():
            raise np.linalg.LinAlgError("the iterate reached the boundary of a cone")
        self.gap = inner(self.reduced, at.plan) + inner(self.slack, at.price)
        self.gap += problem.penalty * float(at.radius.sum()) - inner(at.plan, at.pull)
        degree = at.plan.size + (~silos.full).sum() * at.plan.shape[1] + at.radius.size
        self.barrier = self.gap / float(degree)
        self.inverse = 1.0 / (self.reduced / at.plan + cones.curvature)
        ratio = np.divide(self.slack, at.price, out=np.zeros_like(at.price), where=~silos.full)
        self.sharing = 1.0 / (ratio + silos.sum(self.inverse))
        self.rows = self._invert_rows()
        # What is left, minus one rank-one term per column, goes through the Woodbury identity.
        self.lean, _ = self._solve_local(cones.tail)
        self.lean_rows = self.rows @ self.lean
        coupling = _cross(self.lean, self.lean_rows)
        coupling.flat[:: coupling.shape[0] + 1] += 0.5 * cones.stretch / cones.curvature - dot(
            cones.tail, self.lean
        )
        self.coupling = scipy.linalg.cho_factor(coupling, check_finite=False)

    def _is_interior(self) -> bool:
        """Whether every cone still has room; false for NaN."""
        inside = self.problem.silos.open
        at, cones = self.at, self.cones
        local = (self.reduced, at.plan, self.slack[inside], at.price[inside])
        return all(bool((part > 0.0).all()) for part in (*local, cones.det, cones.dual_det))

    def _invert_rows(self) -> Any:
        """Inverse of the Schur complement of the row sums, block diagonal over silos (n, n)."""
        silos, n = self.problem.silos, self.inverse.shape[0]
        data = np.empty(silos.indptr[-1])
        for rows, slots in silos.buckets:
            inverse = self.inverse[rows]
            owner = silos.of_row[rows[:, 0]]
            block = -(inverse * self.sharing[owner][:, None, :]) @ inverse.transpose(0, 2, 1)
            diagonal = inverse.sum(axis=2)
            size = rows.shape[1]
            block[:, np.arange(size), np.arange(size)] += diagonal
            # In a full silo the row sums imply the total of the column sums; shift the null vector.
            shift = silos.full[owner] * diagonal.mean(axis=1, keepdims=True) / size
            data[slots] = np.linalg.inv(block + shift[:, :, None])
        return scipy.sparse.csr_array((data, silos.indices, silos.indptr), shape=(n, n))

    def _solve_local(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Solve without row sums and coupling; also the change of price (J, G) it implies."""
        scaled = self.inverse * x
        price = self.sharing * self.problem.silos.sum(scaled)
        return scaled - self.inverse * self.problem.silos.spread(price), price

    def _direction(
        self, head: FloatArray, tail: FloatArray, price: FloatArray, reduced: FloatArray
    ) -> Direction:
        """Direction whose residuals are cones ``(head, tail)``, `price` and `reduced`."""
        cones, silos = self.cones, self.problem.silos
        right = tail + cones.tail * (2.0 * cones.head / cones.stretch * head)
        right += reduced - silos.spread(price)
        local, _ = self._solve_local(right)
        value = -(self.rows @ local.sum(axis=1))
        weight = scipy.linalg.cho_solve(
            self.coupling, dot(cones.tail, local) + self.lean.T @ value, check_finite=False
        )
        value -= self.lean_rows @ weight
        plan, implied = self._solve_local(right + cones.tail * weight + value[:, None])
        along = dot(cones.tail, plan)
        radius = (head / cones.curvature + 2.0 * cones.head * along) / cones.stretch
        pull = cones.curvature * plan - tail
        pull -= cones.tail * (2.0 * cones.curvature * (cones.head * radius - along))
        price = price + implied
        # From dual feasibility and not from complementarity: rounding must not break the bound.
        return Direction(
            Point(plan, radius, pull, price, value),
            pull + silos.spread(price) - value[:, None],
            -silos.sum(plan),
        )

    def predictor(self) -> Direction:
        """Affine direction, that aims at a zero gap."""
        head = np.full(self.at.radius.size, -self.problem.penalty)
        price = np.where(self.problem.silos.full, 0.0, -self.at.price)
        return self._direction(head, self.at.pull, price, -self.reduced)

    def corrector(self, affine: Direction, target: float) -> Direction:
        """Direction to the central point of barrier weight `target`, to second order."""
        at, silos, cones = self.at, self.problem.silos, self.cones
        reduced = (target - affine.point.plan * affine.reduced) / at.plan - self.reduced
        price = np.where(silos.full, 0.0, target - affine.slack * affine.point.price)
        np.divide(price, self.slack, out=price, where=~silos.full)
        price -= np.where(silos.full, 0.0, at.price)
        head, tail = self._cone_correction(affine.point)
        head = target * at.radius / cones.det - self.problem.penalty - head
        return self._direction(
            head, at.pull - at.plan * (target / cones.det) - tail, price, reduced
        )

    def _cone_correction(self, affine: Point) -> tuple[FloatArray, FloatArray]:
        """Second-order term ``W^-1 (l^-1 o (W^-1 ds o W dv))`` of the cones, l the scaled point."""
        cones, zero = self.cones, np.zeros_like(affine.radius)
        a0, a1 = cones.unapply(affine.radius, affine.plan)
        b0, b1 = cones.apply(zero, -affine.pull)
        c0, c1 = a0 * b0 + dot(a1, b1), b1 * a0 + a1 * b0
        l0, l1 = cones.unapply(self.at.radius, self.at.plan)
        x0 = (l0 * c0 - dot(l1, c1)) / (l0**2 - dot(l1, l1))
        return cones.unapply(x0, (c1 - l1 * x0) / l0)

    def steps(self, move: Direction) -> tuple[float, float]:
        """Longest primal and dual steps that stay in the cones."""
        at, cones, step, inside = self.at, self.cones, move.point, self.problem.silos.open
        primal = max(
            _worst(step.plan, at.plan),
            _worst(move.slack[inside], self.slack[inside]),
            _worst_cone(
                step.radius**2 - dot(step.plan, step.plan),
                at.radius * step.radius - dot(at.plan, step.plan),
                cones.det,
            ),
        )
        dual = max(
            _worst(move.reduced, self.reduced),
            _worst(step.price[inside], at.price[inside]),
            _worst_cone(-dot(step.pull, step.pull), -dot(at.pull, step.pull), cones.dual_det),
        )
        return 1.0 / max(primal, 1e-300), 1.0 / max(dual, 1e-300)


def penalised_objective(costs: ArrayLike, plan: ArrayLike, penalty: float) -> float:
    """Objective of a plan, (n, G): its costs plus the penalised column norms."""
    plan = np.asarray(plan, dtype=np.float64)
    norms = np.sqrt(dot(plan, plan))
    return inner(np.asarray(costs, dtype=np.float64), plan) + penalty * float(norms.sum())


def dot(a: FloatArray, b: FloatArray) -> FloatArray:
    """Columnwise inner products (G,) of two (n, G) arrays."""
    products: FloatArray = np.einsum("ig,ig->g", a, b)
    return products


def _cross(a: FloatArray, b: FloatArray) -> FloatArray:
    """Product ``a.T @ b`` (G, G) of two (n, G) arrays, in pieces that BLAS does not thread.

    A product this small gains nothing from threads, and loses 100 ms to their barriers when the
    cores are shared.
    """
    piece = _UNTHREADED // a.shape[1] ** 2
    if piece < 16 or a.shape[0] <= piece:
        return a.T @ b
    product = a[:piece].T @ b[:piece]
    for first in range(piece, a.shape[0], piece):
        product += a[first : first + piece].T @ b[first : first + piece]
    return product


def inner(a: FloatArray, b: FloatArray) -> float:
    """Inner product of two matrices; unlike that of BLAS it starts no threads."""
    return float(np.einsum("ig,ig->", a, b))


def _worst(change: FloatArray, value: FloatArray) -> float:
    """Largest relative decrease: the reciprocal of the step to the boundary."""
    return float(-(change / value).min()) if value.size else 0.0


def _worst_cone(a: FloatArray, b: FloatArray, c: FloatArray) -> float:
    """Reciprocal of the smallest positive root of ``a x^2 + 2 b x + c`` with c > 0."""
    root = b * b - a * c
    return float((np.where(root >= 0.0, np.sqrt(np.maximum(root, 0.0)) - b, 0.0) / c).max())
