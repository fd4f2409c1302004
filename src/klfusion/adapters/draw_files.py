"""Files of draws: ArviZ's netCDF and zarr, and Stan's csv, which needs no Stan."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief
from klfusion.adapters import inference_data
from klfusion.adapters._draws import posterior_of_arrays
from klfusion.errors import FileFormatError, KLFusionError, MissingDependencyError
from klfusion.posteriors.posterior import Posterior

ENDINGS = (".nc", ".zarr", ".csv")


def is_draws(path: Any) -> bool:
    """Whether a path is one of draws, by its ending."""
    return Path(path).suffix in ENDINGS


def extract(
    model: Any, name: str, variables: Sequence[str] | None = None, **options: Any
) -> Posterior:
    """The draws of one file, or of one csv file per chain; see `klfusion.from_draws`."""
    paths = [model] if isinstance(model, str | Path) else [*model]
    if not paths or not all(isinstance(path, str | Path) for path in paths):
        raise KLFusionError(f"silo {name!r}: expected paths of draws, got {brief(model)}")
    kinds = {Path(path).suffix for path in paths}
    if kinds == {".csv"}:
        return posterior_of_arrays(stan_csv(paths, variables), name, variables, options)
    if len(paths) == 1 and kinds <= {*ENDINGS}:
        return inference_data.extract(_read(Path(paths[0])), name, variables, **options)
    raise KLFusionError(
        f"silo {name!r}: expected one path ending in .nc or .zarr, or paths ending in .csv, "
        f"got {brief(model)}"
    )


def _read(path: Path) -> Any:
    try:
        import arviz  # noqa: PLC0415 (an extra)
        import xarray  # noqa: PLC0415

        if path.suffix == ".zarr":  # ArviZ before 1 refuses zarr 3, and leads to xarray
            import zarr  # noqa: F401, PLC0415
    except ImportError as error:
        need = f"{path}: draws need {error.name}, which is not installed"
        raise MissingDependencyError(f"{need}: pip install 'klfusion[draws]'") from error
    try:
        if path.suffix == ".zarr":
            return xarray.open_datatree(path, engine="zarr")
        return arviz.from_netcdf(str(path))
    except (OSError, ValueError, KeyError) as error:
        raise FileFormatError(f"{path}: expected draws of ArviZ, got {error}") from error


def stan_csv(paths: Sequence[Any], variables: Sequence[str] | None = None) -> dict[str, Any]:
    """Draws of Stan's csv files, one per chain, as arrays by name."""
    chains = [_chain(Path(path)) for path in paths]
    columns = chains[0][0]
    for path, (names, _) in zip(paths, chains, strict=True):
        if names != columns:
            raise FileFormatError(f"{path}: expected the columns of {paths[0]}")
    for path, (_, rows) in zip(paths, chains, strict=True):
        if len(rows) != len(chains[0][1]):
            expected = f"{path}: expected {len(chains[0][1])} draws, as {paths[0]} has"
            raise FileFormatError(f"{expected}, got {len(rows)}")
    table = np.stack([rows for _, rows in chains])
    places: dict[str, dict[tuple[int, ...], int]] = {}
    for k, column in enumerate(columns):
        name, *index = column.split(".")
        places.setdefault(name, {})[tuple(int(i) - 1 for i in index)] = k
    found: dict[str, Any] = {"draws": {}}
    if "divergent__" in places:
        found["diverging"] = table[..., places["divergent__"][()]] > 0
    for name, own in places.items():
        if not name.endswith("__") and (variables is None or name in variables):
            shape = tuple(max(i) + 1 for i in zip(*own, strict=True))
            values = np.empty((*table.shape[:2], *shape))
            for place, k in own.items():
                at: Any = (..., *place)
                values[at] = table[..., k]
            found["draws"][name] = values
    return found


def _chain(path: Path) -> tuple[list[str], FloatArray]:
    """Columns and draws after warm-up of one file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: expected a csv file of Stan, got {error}") from error
    if text and not text.endswith("\n"):
        raise FileFormatError(f"{path}: expected whole lines, got a last one that is cut off")
    lines = text.splitlines()
    found = (re.match(r"#\s*(\w+) = (\w+)", line) for line in lines)
    settings = {match[1]: match[2] for match in found if match is not None}
    rows = [*csv.reader(line for line in lines if line and not line.startswith("#"))]
    if len(rows) < 2 or "lp__" not in rows[0]:
        raise FileFormatError(f"{path}: expected a csv file of Stan's draws, got none in it")
    try:
        table = np.array(rows[1:], dtype=np.float64)
    except ValueError:
        expected = f"{path}: expected numbers in all {len(rows[0])} columns"
        raise FileFormatError(f"{expected}, got text or rows of other lengths") from None
    warmup = 0
    if settings.get("save_warmup") in ("1", "true"):
        warmup = -(-int(settings.get("num_warmup", 0)) // int(settings.get("thin", 1)))
    return rows[0], table[warmup:]
