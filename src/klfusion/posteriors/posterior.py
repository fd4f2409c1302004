"""`Posterior`: all that a silo sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief, is_unicode
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError
from klfusion.families import Family
from klfusion.posteriors.structure import Structure, components, regression
from klfusion.posteriors.structure.schema import check_structure

UNKNOWN = "unknown"  # provenance["prior"] of draws without prior=, which is taken to be flat
GLOBAL = "global"  # name of a fused posterior

MAY_BE_FLAT = (regression.KIND, components.KIND)  # kinds whose priors may be
_HALVINGS = 10  # of the interval that holds the least share of a prior: to one part in 1,000
LEAST_SHARE = 0.5**_HALVINGS  # of a prior that stays, if any must


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of one model: a batch of components of one family. It never holds data.

    All fields are checked on construction. Errors name the silo and the component.

    Parameters
    ----------
    family : Family
        What the natural parameters mean.
    natural : array of shape (n, p)
        Natural parameters, one row per component.
    name : str
        The silo's name, unique within a fusion.
    prior : array of shape (p,), optional
        Natural parameters of the prior that all components share.
    counts : array of shape (n,), optional
        Expected number of observations per component.
    structure : Structure, optional
        Mixture weights, transitions, vocabulary and the like.
    provenance : mapping, optional
        Library versions and settings.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> site = kf.Posterior(rates, rates.natural(shape=[3, 40], rate=[10, 10]), name="site-a")
    >>> site
    Posterior('site-a', 2 components, Gamma(dim=1))
    >>> site.params()["shape"]
    array([[ 3.],
           [40.]])
    """

    family: Family
    natural: FloatArray
    name: str = "posterior"
    prior: FloatArray | None = None
    counts: FloatArray | None = None
    structure: Structure | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.family, Family):
            raise InvalidPosteriorError(
                f"expected family to be a klfusion family such as families.Normal(3), "
                f"got {self.family!r}"
            )
        name = self.name
        if not isinstance(name, str) or not name:
            raise InvalidPosteriorError(f"expected name to be a non-empty string, got {name!r}")
        if not is_unicode(name):
            raise InvalidPosteriorError(f"expected a name in Unicode, got {name!r}")
        where = f"silo {name!r}"
        natural = _frozen(self.natural, f"{where}: natural")
        if natural.ndim == 2 and len(natural) == 0:
            raise InvalidPosteriorError(f"{where}: expected at least one component, got none")
        self.family.check(natural, where)
        object.__setattr__(self, "natural", natural)
        if self.prior is not None:
            prior = _frozen(self.prior, f"{where}: prior")
            _check_shape(prior, self.family.size, f"{where}: expected a prior")
            if self.structure is not None and self.structure.kind in MAY_BE_FLAT:
                convex = "variables" in self.structure.info
                regression.check_prior(prior, self.family, where, convex=convex)
            else:
                self.family.check(prior[None], f"{where}, prior")
            object.__setattr__(self, "prior", prior)
        if self.counts is not None:
            counts = _frozen(self.counts, f"{where}: counts")
            _check_shape(counts, self.n_components, f"{where}: expected counts")
            bad = np.flatnonzero(~(np.isfinite(counts) & (counts >= 0)))
            if len(bad):
                got = f"expected a finite count >= 0, got {counts[bad[0]]:.6g}"
                raise InvalidPosteriorError(f"{where}, component {bad[0]}: {got}")
            object.__setattr__(self, "counts", counts)
        if self.structure is not None:
            if not isinstance(self.structure, Structure):
                raise InvalidPosteriorError(
                    f"{where}: expected structure to be a Structure, got {brief(self.structure)}"
                )
            check_structure(self.structure, self.family, self.n_components, where)
        source: Any = self.provenance
        if not isinstance(source, Mapping):
            got = f"got {brief(source)}"
            raise InvalidPosteriorError(f"{where}: expected provenance to be a mapping, {got}")

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.natural)

    def params(self) -> dict[str, FloatArray]:
        """Arrays of the family's standard parameters, by name."""
        return self.family.params(self.natural)

    def likelihood(self) -> Self:
        """What the data added to the prior: the same components without it.

        Natural parameters less the prior's are the sufficient statistics of the observations. Those
        of few observations may be no distribution of the family. Then the least share of the prior
        stays that makes them one; see `less_prior`.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> prior = rates.natural(shape=[1], rate=[1])[0]
        >>> site = kf.Posterior(rates, rates.natural(shape=[31, 901], rate=[11, 11]), prior=prior)
        >>> site.likelihood().params()["shape"].ravel()
        array([ 30., 900.])
        """
        if self.prior is None:
            raise InvalidPosteriorError(
                f"silo {self.name!r}: expected a posterior with a prior, which its likelihood is "
                "without, got none"
            )
        return replace(self, natural=less_prior(self.family, self.natural, self.prior), prior=None)

    def __repr__(self) -> str:
        plural = "" if self.n_components == 1 else "s"
        return f"Posterior({self.name!r}, {self.n_components} component{plural}, {self.family})"


def less_prior(family: Family, natural: FloatArray, prior: FloatArray) -> FloatArray:
    """``natural - prior`` of rows ``(n, p)``; the least share of the prior stays that must.

    What few observations add to a prior is often no distribution of the family, such as a singular
    covariance. Each row is ``natural - (1 - s) prior``, with ``s`` from 0 to 1 the least for which
    it is one, to one part in 1,000.
    """
    out = np.asarray(natural - prior)
    prior = np.broadcast_to(prior, out.shape)
    outside = np.flatnonzero(~family.inside(out))
    low, high = (np.full(len(outside), share) for share in (0.0, 1.0))
    for _ in range(_HALVINGS if len(outside) else 0):
        middle = 0.5 * (low + high)
        stays = family.inside(out[outside] + middle[:, None] * prior[outside])
        low, high = np.where(stays, low, middle), np.where(stays, middle, high)
    out[outside] += high[:, None] * prior[outside]
    return out


def check_equal(values: Sequence[tuple[str, Any]], expected: str, hint: str = "") -> None:
    """Refuse values, as (silo, value), that differ from the first, which is ``expected``."""
    for name, value in values:
        if value != values[0][1]:
            where = f"silo {name!r}: expected {expected} as in silo {values[0][0]!r}"
            got = str(value) if isinstance(value, Family) else repr(value)
            raise IncompatibleSilosError(f"{where}, got {got}{hint}")


def _check_shape(array: FloatArray, size: int, expected: str) -> None:
    if array.shape != (size,):
        raise InvalidPosteriorError(f"{expected} of shape ({size},), got {array.shape}")


def _frozen(values: ArrayLike | None, what: str) -> FloatArray:
    """A read-only float64 copy."""
    try:
        array = np.array(values, dtype=np.float64, order="C")
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidPosteriorError(f"{what}: expected an array of numbers ({error})") from error
    array.flags.writeable = False
    return array
