"""The apps of silos that fail, for Flower."""

from faults import ROUND

from klfusion.federation.flower import client_app, server_app

client, server = client_app(ROUND), server_app(ROUND)
