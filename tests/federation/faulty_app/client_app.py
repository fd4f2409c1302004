"""Silos with two Poisson rates each; the node's configuration may set a fault."""

import os
import signal

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

import klfusion as kf
from klfusion.federation.flower import fit_and_send

GAMMA = kf.families.Gamma()
SHAPES = {"a": [30.0, 900.0], "b": [910.0, 32.0], "c": [29.0, 905.0]}


def posterior(name: str) -> kf.Posterior:
    """Posterior of a silo without a fault."""
    shape = SHAPES.get(name, SHAPES["a"])
    return kf.Posterior(GAMMA, GAMMA.natural(shape=shape, rate=[10.0, 10.0]), name=name)


def fit(context):
    """Fit, or die."""
    if context.node_config.get("fault") == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return posterior(context.node_config["name"])


honest = fit_and_send(fit)
app = ClientApp()


@app.train()
def train(message, context):
    """Reply as the node's configuration sets."""
    if context.node_config.get("fault") != "large":
        return honest(message, context)
    size = 100 * int(context.run_config["max-bytes"])
    array = Array("uint8", (size,), "klfusion.safetensors", os.urandom(size))
    return Message(RecordDict({"posterior": ArrayRecord({"posterior": array})}), reply_to=message)
