"""The apps of a cellar and of the server, for Flower."""

from wines import ROUND

from klfusion.federation.flower import client_app, server_app

client = client_app(ROUND)
server = server_app(ROUND)
