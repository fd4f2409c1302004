"""Give silos that saw fewer categories of a feature the same ones."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families import Dirichlet, Product
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import CLASSES


def align_categories(posteriors: Sequence[Posterior]) -> list[Posterior]:
    """Features of named classes with the most categories of any silo; other models unchanged.

    Categories are numbered. Those beyond a silo's own get its prior, as in a fit that never saw
    them.
    """
    families = [p.family for p in posteriors]
    factors = [list(f.factors) for f in families if isinstance(f, Product)]
    classes = all(p.structure is not None and p.structure.kind == CLASSES for p in posteriors)
    if not classes or len(factors) < len(posteriors) or len({len(f) for f in factors}) > 1:
        return list(posteriors)
    sizes = np.array([[factor.size for _, factor in own] for own in factors])
    most = sizes.max(axis=0)
    if (sizes == most).all() or not all(
        isinstance(g, Dirichlet) for own in factors for _, g in own
    ):
        return list(posteriors)
    names = [name for name, _ in factors[0]]
    family = Product(**{n: Dirichlet(int(k)) for n, k in zip(names, most, strict=True)})
    out = []
    for posterior, own in zip(posteriors, sizes, strict=True):
        assert posterior.prior is not None
        prior = np.concatenate(
            [_padded(part, part[-1:], k) for part, k in _parts(posterior.prior, own, most)]
        )
        rows = [
            np.concatenate([
                _padded(part, extra[-1:], k)
                for (part, k), (extra, _) in zip(
                    _parts(row, own, most), _parts(posterior.prior, own, most), strict=True
                )
            ])
            for row in posterior.natural
        ]  # fmt: skip
        out.append(replace(posterior, family=family, natural=np.stack(rows), prior=prior))
    return out


def _parts(row: FloatArray, sizes: FloatArray, most: FloatArray) -> list[tuple[FloatArray, int]]:
    """The numbers of each feature, and how many there are to be."""
    return list(zip(np.split(row, np.cumsum(sizes)[:-1]), map(int, most), strict=True))


def _padded(values: FloatArray, with_: FloatArray, size: int) -> FloatArray:
    return np.concatenate([values, np.repeat(with_, size - len(values))])
