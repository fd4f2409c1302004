"""Federations of real processes on loopback, each ended by its id: Flower and NVFlare."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

BIN = Path(sys.executable).parent
PATIENCE = 60.0  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition, what: str) -> None:
    """Poll a condition, at most `PATIENCE` seconds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {PATIENCE:g} s in vain for {what}")
        time.sleep(0.05)


def kill(process: subprocess.Popen) -> None:
    """Kill a process that a test started, and all that it started."""
    found, new = [], [process.pid]
    while new:
        found += new
        words = ["pgrep", "-P", ",".join(map(str, new))]
        listed = subprocess.run(words, capture_output=True, text=True, check=False)
        new = [int(pid) for pid in listed.stdout.split()]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


class FlowerFederation:
    """A SuperLink and its SuperNodes; use it in a with statement."""

    def __init__(self, folder: Path, tls: dict[str, str] | None = None, auth: bool = False):
        self.folder, self.tls, self.auth = folder, tls, auth
        self.address = f"127.0.0.1:{free_port()}"
        self.home = folder / "flwr"
        self.home.mkdir()
        trust = f'root-certificates = "{tls["ca"]}"' if tls else "insecure = true"
        (self.home / "config.toml").write_text(
            f'[superlink.test]\naddress = "{self.address}"\n{trust}\n', encoding="utf-8"
        )
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # SuperExec is found by name
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
        }
        self._processes: list[subprocess.Popen] = []

    def __enter__(self) -> FlowerFederation:
        self.start_server()
        return self

    def start_server(self) -> None:
        """Start the SuperLink, also anew: its database has the nodes that it knew."""
        how = ["--insecure"]
        if self.tls:
            how = ["--ssl-ca-certfile", self.tls["ca"], "--ssl-certfile", self.tls["cert"],
                   "--ssl-keyfile", self.tls["key"]]  # fmt: skip
        if self.auth:
            how.append("--enable-supernode-auth")
        port = self.address.partition(":")[2]
        self._link = link = self._start(
            "superlink",
            ["flower-superlink", *how, "--port", port, "--database", str(self.folder / "link.db"),
             "--disable-runtime-dependency-installation"],
        )  # fmt: skip
        wait_until(lambda: link.poll() is not None or self._listens(), "the SuperLink")
        assert link.poll() is None, self.log("superlink")

    def kill_server(self) -> None:
        """Kill the SuperLink, and the processes in which it runs the server's app."""
        kill(self._link)

    def __exit__(self, *_) -> None:
        self.end(self._processes[::-1])

    def node(self, name: str, auth: str | None = None, **config) -> subprocess.Popen:
        """Start a SuperNode; the server waits for it to connect."""
        how = ["--root-certificates", self.tls["ca"]] if self.tls else ["--insecure"]
        if auth is not None:
            how += ["--auth-supernode-private-key", auth]
        words = {"name": f'"{name}"'} | {
            k: f'"{v}"' if isinstance(v, str) else v for k, v in config.items()
        }
        return self._start(
            name,
            ["flower-supernode", *how, "--superlink", self.address, "--port", str(free_port()),
             "--node-config", " ".join(f"{k}={v}" for k, v in words.items())],
        )  # fmt: skip

    def flwr(self, *arguments: str) -> str:
        """Run Flower's command line to its end and return its output."""
        done = subprocess.run(
            [BIN / "flwr", *arguments],
            env=self.environment, cwd=self.folder, capture_output=True, text=True,
            timeout=4 * PATIENCE, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    def run(self, app: Path, store: Path) -> str:
        """Run an app to its end and return its log."""
        return self.start_run(app, store, "--stream")

    def start_run(self, app: Path, store: Path, *how: str) -> str:
        """Start an app, whose server has this folder."""
        return self.flwr("run", str(app), "test", *how, "--run-config", f"store='{store}'")

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def end(self, processes: list[subprocess.Popen]) -> None:
        """End processes that this federation started."""
        for process in processes:
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait()

    def _start(self, name: str, command: list[str]) -> subprocess.Popen:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [BIN / command[0], *command[1:]],
                env=self.environment, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def _listens(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


def start_nvflare(job: Path, workspace: Path) -> subprocess.Popen:
    """Start a job in NVFlare's simulator, whose processes are the server and one per client."""
    own = {"NVFLARE_SIMULATOR_WORKSPACE_ROOT": str(workspace), "OMP_NUM_THREADS": "1"}
    workspace.mkdir(exist_ok=True)
    with (workspace / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(job)],
            env={**os.environ, **own}, cwd=job.parent, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


def run_nvflare(job: Path, workspace: Path) -> str:
    """Run a job in NVFlare's simulator to its end and return its log."""
    simulator = start_nvflare(job, workspace)
    try:
        simulator.wait(4 * PATIENCE)
    finally:
        if simulator.poll() is None:
            kill(simulator)
    return (workspace / "log").read_text(encoding="utf-8", errors="replace")
