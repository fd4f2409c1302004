"""One round of fusion between sites and a server; Flower, NVFlare or a folder carries it."""

from klfusion.federation.round import Reply, Round, Site
from klfusion.federation.server import Server

__all__ = ["Reply", "Round", "Server", "Site"]
