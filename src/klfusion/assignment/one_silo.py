"""The assignment of one silo: distinct columns, or new ones, at least cost."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray


def assign_silo(
    costs: FloatArray, new: float = np.inf, forbidden: BoolArray | None = None
) -> IntArray:
    """Distinct columns of the rows of one silo, (L,), at least cost; -1 for a new component.

    ``costs`` is (L, G). Any row may open a new component at the cost ``new``; none may if that is
    infinite. No row may take the ``forbidden`` columns, (G,).

    Examples
    --------
    >>> import numpy as np
    >>> costs = np.array([[1.0, 2.0], [0.0, 9.0]])
    >>> assign_silo(costs), assign_silo(costs, new=0.5)
    (array([1, 0]), array([-1,  0]))
    """
    if forbidden is not None:
        costs = np.where(forbidden, np.inf, costs)
    if new == np.inf:
        columns: IntArray = linear_sum_assignment(costs)[1]
        return columns
    n_rows, n_columns = costs.shape
    columns = linear_sum_assignment(np.hstack([costs, np.full((n_rows, n_rows), new)]))[1]
    return np.where(columns < n_columns, columns, -1)
