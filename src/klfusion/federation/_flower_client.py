"""The Flower app of a silo: fit a model locally, send one posterior."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from klfusion.adapters import extract
from klfusion.errors import KLFusionError
from klfusion.federation import _flower_messages as messages
from klfusion.posteriors.posterior import Posterior

_Name = Callable[[Context], str] | None
_Handle = Callable[[Message, Context], Message]
_log = logging.getLogger("flwr.klfusion")


def fit_and_send(
    fit: Callable[[Context], Any],
    *,
    refit: Callable[[Posterior, Context], Any] | None = None,
    use: Callable[[Posterior, Context], object] | None = None,
    name: _Name = None,
    max_bytes: int = messages.MAX_BYTES,
) -> ClientApp:
    """Make the Flower app of a silo, which fits a model locally and sends one posterior.

    Parameters
    ----------
    fit : callable
        ``fit(context)`` returns a fitted model that `klfusion.extract` reads, or a `Posterior`.
    refit : callable, optional
        ``refit(start, context)`` fits again from the fused posterior, for ``refine=True``.
    use : callable, optional
        ``use(fused, context)`` is called with the fused posterior at the end.
    name : callable, optional
        ``name(context)`` returns the silo's name. Default: ``name`` of the node's configuration.
    max_bytes : int
        Refuse larger messages from the server.

    Notes
    -----
    If one of these functions raises, the server receives the exception's type and the silo's name.
    Its text may quote data and stays in the silo's log. Errors of klfusion are sent whole.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.mixture import BayesianGaussianMixture
    >>> from klfusion.federation.flower import fit_and_send
    >>> def fit(context):
    ...     x = np.loadtxt(context.node_config["data"])
    ...     return BayesianGaussianMixture(n_components=3).fit(x)
    >>> app = fit_and_send(fit)  # the clientapp in [tool.flwr.app.components]
    """
    handled = {"refits": refit is not None, "uses": use is not None}

    def send(model: Any, message: Message, context: Context) -> Message:
        silo = _silo_name(name, context)
        posterior = model if isinstance(model, Posterior) else extract(model, name=silo)
        provenance = {**posterior.provenance, messages.HANDLED: handled}
        posterior = replace(posterior, name=silo, provenance=provenance)
        return Message(RecordDict({messages.KEY: messages.pack(posterior)}), reply_to=message)

    def handle_refit(message: Message, context: Context) -> Message:
        if refit is None:
            raise KLFusionError("expected a silo that refits, got one without refit")
        again = refit(messages.unpack(message.content, "fused posterior", max_bytes), context)
        if isinstance(again, Posterior):  # derived from the start, it may name the other silos
            own = {key: value for key, value in again.provenance.items() if key != "silos"}
            again = replace(again, provenance=own)
        return send(again, message, context)

    def handle_use(message: Message, context: Context) -> Message:
        if use is not None:
            use(messages.unpack(message.content, "fused posterior", max_bytes), context)
        return Message(RecordDict(), reply_to=message)

    app = ClientApp()
    app.train()(_without_details(lambda message, own: send(fit(own), message, own), name))
    app.train(messages.REFIT.partition(".")[2])(_without_details(handle_refit, name))
    app.evaluate()(_without_details(handle_use, name))
    return app


def _silo_name(name: _Name, context: Context) -> str:
    found = context.node_config.get("name") if name is None else name(context)
    if not isinstance(found, str) or not found:
        raise KLFusionError(
            "expected the silo's name in the node's configuration, as in flower-supernode "
            f"""--node-config 'name="hospital-a"', got {found!r}"""
        )
    return found


def _without_details(handle: _Handle, name: _Name) -> _Handle:
    """Keep the text of exceptions at the silo: it may quote data, and Flower would send it."""

    def handle_quietly(message: Message, context: Context) -> Message:
        try:
            return handle(message, context)
        except Exception as error:
            _log.exception("this silo replies with an error")
            reason = str(error) if isinstance(error, KLFusionError) else "see the log of the silo"
            try:
                who = f"silo {_silo_name(name, context)!r}: "
            except Exception:  # the name may be what failed
                who = ""
            return messages.failure(message, f"{who}{type(error).__name__} ({reason})")

    return handle_quietly
