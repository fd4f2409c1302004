"""Each silo's components to distinct global ones at least cost; silos do not interact."""

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.assignment.one_silo import assign_silo


def solve_hungarian(costs: FloatArray, silos: Sequence[slice]) -> IntArray:
    """Exact assignment without penalty: one rectangular LAP per silo (paper, sections 3 and 4.1).

    ``costs`` is (n, G). ``silos`` are the rows of each silo, no more than there are columns. Gives
    the column of each row, (n,).

    Examples
    --------
    >>> import numpy as np
    >>> solve_hungarian(np.array([[1.0, 2.0], [0.0, 9.0]]), [slice(0, 2)])
    array([1, 0])
    """
    labels = np.empty(len(costs), dtype=np.intp)
    for rows in silos:
        labels[rows] = assign_silo(costs[rows])
    return labels
