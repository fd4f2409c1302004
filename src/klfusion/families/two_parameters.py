"""What families share that have two positive parameters per dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families.capabilities import Tempered
from klfusion.families.family import DimensionalFamily
from klfusion.families.parameters import rows, stack


@dataclass(frozen=True)
class TwoParameters(DimensionalFamily, Tempered):
    """Independent dimensions; natural parameters are those named by ``parameters``."""

    parameters: ClassVar[tuple[str, str]]
    dim: int = 1

    @property
    def size(self) -> int:
        """``p = 2 d``."""
        return 2 * self.dim

    def _joined(self, *values: Any) -> FloatArray:
        """Natural parameters from the two, each (n, d), or (n,) in one dimension."""
        named = zip(values, self.parameters, strict=True)
        return stack(*(rows(value, self.dim, name) for value, name in named))

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The two, each (n, d); views."""
        return natural[:, : self.dim], natural[:, self.dim :]

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """One per dimension; the other natural parameter is a sample size."""
        return np.full(len(natural), float(self.dim))

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """Both parameters by name."""
        copies = (part.copy() for part in self._split(natural))
        return dict(zip(self.parameters, copies, strict=True))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """Both parameters."""
        return self.params(natural)
