"""Every error klfusion raises on purpose; catch `KLFusionError` to catch them all."""


class KLFusionError(ValueError):
    """What klfusion was given cannot be used; the message says expected and got."""


class InvalidPosteriorError(KLFusionError):
    """A posterior's numbers are outside its family: names the silo and the component."""


class IncompatibleSilosError(KLFusionError):
    """The silos cannot be fused, or not as asked; ``silo`` is the one that differs, if any."""

    def __init__(self, message: str, silo: str | None = None) -> None:
        super().__init__(message)
        self.silo = silo


class FileFormatError(KLFusionError):
    """A file is not a klfusion file, or is damaged; nothing was read from it."""


class MissingDependencyError(KLFusionError, ImportError):
    """An optional library is absent; the message holds the `pip install` line."""
