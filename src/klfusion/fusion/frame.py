"""A fusion as a data frame."""

from typing import Any

import numpy as np

from klfusion.errors import MissingDependencyError
from klfusion.fusion.result import Fusion


def to_frame(fusion: Fusion) -> Any:
    """See `Fusion.to_frame`."""
    try:
        import pandas  # noqa: PLC0415 (an extra)
    except ImportError as error:
        text = "to_frame needs pandas, which is not installed: pip install 'klfusion[pandas]'"
        raise MissingDependencyError(text) from error
    sizes, reasons = [len(own) for own in fusion.labels], []
    counts = [np.full(size, np.nan) for size in sizes]
    for j, name in enumerate(fusion.silo_names):
        reasons += [fusion.unmatched.get(name, {}).get(k, "") for k in range(sizes[j])]
        sent = None if fusion.silos is None else fusion.silos[j].counts
        counts[j] = counts[j] if sent is None else sent
    columns = {
        "silo": np.repeat(np.array(fusion.silo_names, dtype=object), sizes),
        "component": np.concatenate([np.arange(size) for size in sizes]),
        "global_component": np.concatenate(fusion.labels),
        "divergence": np.concatenate(fusion.divergences),
        "probability": np.concatenate(fusion.probability or [np.full(n, np.nan) for n in sizes]),
        "observations": np.concatenate(counts),
        "unmatched": reasons,
    }
    return pandas.DataFrame(columns)
