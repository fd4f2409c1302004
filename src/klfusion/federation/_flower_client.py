"""The app of a silo: fit where the data is, send one posterior."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from klfusion.adapters import extract
from klfusion.errors import KLFusionError
from klfusion.federation._flower_messages import (
    FEDERATION,
    KEY,
    MAX_BYTES,
    REFIT,
    failure,
    pack,
    unpack,
)
from klfusion.posteriors.posterior import Posterior

_log = logging.getLogger("flwr.klfusion")


def fit_and_send(
    fit: Callable[[Context], Any],
    *,
    refit: Callable[[Posterior, Context], Any] | None = None,
    use: Callable[[Posterior, Context], object] | None = None,
    name: Callable[[Context], str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> ClientApp:
    """Make the Flower app of a silo: it fits where the data is, and sends one posterior.

    Parameters
    ----------
    fit : callable
        ``fit(context)`` gives a fitted model that an adapter knows, or a `Posterior`.
    refit : callable, optional
        ``refit(start, context)`` fits again from the fused posterior, for a server with
        ``refine=True``.
    use : callable, optional
        ``use(fused, context)`` is called with the fused posterior at the end. Silos without it
        are not sent one.
    name : callable, optional
        ``name(context)`` names the silo. Default: ``name`` of the node's configuration, as in
        ``flower-supernode --node-config 'name="hospital-a"'``.
    max_bytes : int
        Refuse larger messages from the server.

    Returns
    -------
    flwr.clientapp.ClientApp

    Notes
    -----
    Of an exception in these functions the server is told the type and the silo's name. What it
    says, which may hold data, stays in the silo's log; errors of klfusion are passed on.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.mixture import BayesianGaussianMixture
    >>> from klfusion.federation.flower import fit_and_send
    >>> def fit(context):
    ...     x = np.loadtxt(context.node_config["data"])
    ...     return BayesianGaussianMixture(n_components=3).fit(x)
    >>> app = fit_and_send(fit)  # what [tool.flwr.app.components] names as clientapp
    """
    able = {"refits": refit is not None, "uses": use is not None}

    def send(model: Any, message: Message, context: Context) -> Message:
        silo = _silo_name(name, context)
        posterior = model if isinstance(model, Posterior) else extract(model, name=silo)
        known = {**posterior.provenance, FEDERATION: able}
        posterior = replace(posterior, name=silo, provenance=known)
        return Message(RecordDict({KEY: pack(posterior)}), reply_to=message)

    def first(message: Message, context: Context) -> Message:
        return send(fit(context), message, context)

    def second(message: Message, context: Context) -> Message:
        if refit is None:
            raise KLFusionError("expected a silo that refits, got one without refit")
        start = unpack(message.content, "fused posterior", max_bytes)
        again = refit(start, context)
        if isinstance(again, Posterior):  # it may be made of the start, but is of this silo alone
            own = {key: value for key, value in again.provenance.items() if key != "silos"}
            again = replace(again, provenance=own)
        return send(again, message, context)

    def last(message: Message, context: Context) -> Message:
        if use is not None:
            use(unpack(message.content, "fused posterior", max_bytes), context)
        return Message(RecordDict(), reply_to=message)

    app = ClientApp()
    app.train()(_discreet(first, name))
    app.train(REFIT.partition(".")[2])(_discreet(second, name))
    app.evaluate()(_discreet(last, name))
    return app


def _silo_name(name: Callable[[Context], str] | None, context: Context) -> str:
    found = context.node_config.get("name") if name is None else name(context)
    if not isinstance(found, str) or not found:
        raise KLFusionError(
            "expected the silo's name in the node's configuration, as in flower-supernode "
            f"""--node-config 'name="hospital-a"', got {found!r}"""
        )
    return found


def _discreet(
    handle: Callable[[Message, Context], Message], name: Callable[[Context], str] | None
) -> Callable[[Message, Context], Message]:
    """Keep at the silo what exceptions say: they quote data, and Flower would send that."""

    def handle_discreetly(message: Message, context: Context) -> Message:
        try:
            return handle(message, context)
        except Exception as error:
            _log.exception("this silo answers with an error")
            words = str(error) if isinstance(error, KLFusionError) else "its log says more"
            try:
                who = f"silo {_silo_name(name, context)!r}: "
            except Exception:  # the name may be what failed
                who = ""
            return failure(message, f"{who}{type(error).__name__} ({words})")

    return handle_discreetly
