"""The apps of a round with a second one, for Flower."""

from heads import ROUND

from klfusion.federation.flower import client_app, server_app

client = client_app(ROUND)
server = server_app(ROUND)
