"""A round on NVFlare 2: the workflow of the server, the loop of a site, and a recipe of a job."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

try:
    import nvflare.client as flare
    from nvflare import FedJob
    from nvflare.app_common.workflows.model_controller import ModelController
    from nvflare.client import FLModel
    from nvflare.client.config import ExchangeFormat
    from nvflare.fuel.utils.constants import FrameworkType
    from nvflare.job_config.script_runner import ScriptRunner
    from nvflare.recipe.spec import Recipe
except ImportError as error:
    from klfusion.errors import MissingDependencyError

    raise MissingDependencyError(
        f"klfusion.federation.nvflare needs {error.name}, which is not installed: "
        "pip install 'klfusion[nvflare]'"
    ) from error

from klfusion.federation.round import Reply, Round, Site
from klfusion.federation.server import Server

_TASK = "train"  # the only task of a job; its meta data have the request
_PAUSE = 0.2  # seconds between two looks for replies


def run_site(definition: Round) -> None:
    """Answer the requests of a round at a site, as the script of an NVFlare job.

    The site has the name that NVFlare gives it. Its configuration is that of `FusionRecipe`.

    Examples
    --------
    >>> from klfusion.federation import Round
    >>> ROUND = Round(name="wines", fit=lambda site: site.config["model"])
    >>> if __name__ == "__main__":  # doctest: +SKIP
    ...     run_site(ROUND)
    """
    words = [word.partition("=") for word in sys.argv[1:]]
    config = {unquote(key): unquote(value) for key, _, value in words}
    flare.init()
    while flare.is_running():
        task = flare.receive()
        if task is None:
            break
        fused = _reply(task.params).data
        reply = definition.reply(Site(flare.get_site_name(), config), task.meta["request"], fused)
        flare.send(FLModel(params=_params(reply)))


class FusionController(ModelController):  # type: ignore[misc]
    """The workflow of the server; ``definition`` names a file or module, as in `Round.load`."""

    def __init__(self, definition: str, store: str) -> None:
        super().__init__(persistor_id="", ignore_result_error=True)
        self.definition, self.store = definition, store

    def run(self) -> None:
        """Run the round to its end."""
        definition = Round.load(self.definition)
        self.timeout = math.ceil(definition.timeout)
        Server(definition, self.store, senders="named").run(self._exchange)

    def _exchange(
        self, request: str, data: bytes, wanted: Callable[[str], bool], _: int
    ) -> Iterator[tuple[str, Reply]]:
        """Send a request to clients and yield each reply as it arrives, until the timeout."""
        missing = {client for client in self.sample_clients() if wanted(client)}
        if not missing:
            return
        replies: SimpleQueue[tuple[str, Reply]] = SimpleQueue()

        def keep(result: FLModel) -> None:
            replies.put((result.meta["client_name"], _reply(result.params)))

        task = FLModel(params=_params(Reply(data)), meta={"request": request})
        self.send_model(_TASK, task, sorted(missing), timeout=self.timeout, callback=keep)
        running = True
        while running:
            running = self.get_num_standing_tasks() > 0 and not self.abort_signal.triggered
            while not replies.empty():
                sender, reply = replies.get()
                missing.discard(sender)
                yield sender, reply
            time.sleep(_PAUSE if running else 0)
        for sender in sorted(missing):
            yield sender, Reply(error=f"no usable reply within {self.timeout} s")


class FusionRecipe(Recipe):  # type: ignore[misc]
    """The recipe of a job that runs a round.

    Parameters
    ----------
    script : str or path
        Python file that defines a `Round`, and that calls `run_site` when it is run by itself. A
        file of the current folder goes with the job; another must be at the same path everywhere.
    store : str or path
        Folder of the server, as in `klfusion.federation.Server`.
    **config
        Configuration of all sites, which becomes ``site.config``; values are text.
    """

    def __init__(
        self, script: str | os.PathLike[str], store: str | os.PathLike[str], **config: Any
    ) -> None:
        sent = Path(script).name == os.fspath(script)  # of the current folder
        path = os.fspath(script) if sent else str(Path(script).resolve())
        definition = Round.load(path)
        job = FedJob(name=definition.name, min_clients=definition.min_silos)
        if sent:
            job.to_server(path)
        source = Path(path).stem if sent else path
        job.to_server(FusionController(source, str(Path(store).resolve())))
        words = [f"{quote(key)}={quote(str(value))}" for key, value in config.items()]
        runner = ScriptRunner(
            script=path,
            script_args=" ".join(words),
            framework=FrameworkType.RAW,
            server_expected_format=ExchangeFormat.RAW,
        )
        job.to_clients(runner, tasks=[_TASK])
        super().__init__(job)


def _params(reply: Reply) -> dict[str, Any]:
    return {name: np.frombuffer(own, np.uint8) for name, own in reply.parts().items()}


def _reply(params: Any) -> Reply:
    """A reply from untrusted parameters: arrays of bytes by name."""
    given = params if isinstance(params, dict) else {}
    arrays = {name: own for name, own in given.items() if isinstance(own, np.ndarray)}
    if len(arrays) < len(given) or any(own.dtype != np.uint8 for own in arrays.values()):
        return Reply(error="expected arrays of bytes, got something else")
    return Reply.of({name: own.tobytes() for name, own in arrays.items()})
