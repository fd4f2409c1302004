"""Names of components: where all silos have them, components are matched by name."""

from klfusion.errors import InvalidPosteriorError
from klfusion.posteriors.compatibility import Silo
from klfusion.posteriors.structure import regression
from klfusion.posteriors.structure.kinds import NAMES


def component_names(silo: Silo) -> list[str] | None:
    """The names of a silo's components, checked; None if they have none."""
    structure, where = silo.structure, f"silo {silo.name!r}"
    if structure is None:
        return None
    if structure.kind == regression.KIND:  # its one component is the model
        return [regression.KIND]
    if structure.info.get(NAMES) is None:
        return None
    names = regression.names_of(structure.info, NAMES, where)
    if len(names) != silo.n_components:
        raise InvalidPosteriorError(
            f"{where}: expected {silo.n_components} names of components, got {len(names)}"
        )
    return names
