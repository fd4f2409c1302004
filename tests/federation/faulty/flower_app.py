"""The apps of silos that fail, for Flower."""

from faults import ROUND

from klfusion.federation.flower import client_app, server_app

client = client_app(ROUND)
server = server_app(ROUND)
