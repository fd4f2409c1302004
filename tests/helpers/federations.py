"""Federations of real processes on loopback, each ended by its id: Flower and NVFlare."""

from __future__ import annotations

import os
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
        how = ["--insecure"]
        if self.tls:
            how = ["--ssl-ca-certfile", self.tls["ca"], "--ssl-certfile", self.tls["cert"],
                   "--ssl-keyfile", self.tls["key"]]  # fmt: skip
        if self.auth:
            how.append("--enable-supernode-auth")
        port = self.address.partition(":")[2]
        link = self._start(
            "superlink",
            ["flower-superlink", *how, "--port", port, "--disable-runtime-dependency-installation"],
        )
        wait_until(lambda: link.poll() is not None or self._listens(), "the SuperLink")
        assert link.poll() is None, self.log("superlink")
        return self

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

    def run(self, app: Path, **config) -> str:
        """Run an app and stream its log."""
        words = " ".join(f"{key.replace('_', '-')}={_toml(value)}" for key, value in config.items())
        return self.flwr("run", str(app), "test", "--stream", "--run-config", words)

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
        with (self.folder / f"{name}.log").open("wb") as log:
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


def _toml(value) -> str:
    return f"'{value}'" if isinstance(value, str | Path) else str(value).lower()


def run_nvflare(job: Path, workspace: Path) -> str:
    """Run a job in NVFlare's simulator, which starts a process per client, and return its log."""
    own = {"NVFLARE_SIMULATOR_WORKSPACE_ROOT": str(workspace), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(job)],
        env={**os.environ, **own}, cwd=job.parent, text=True, timeout=4 * PATIENCE, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout
