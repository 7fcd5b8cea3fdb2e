"""A running agent for tests: the real command as a process of its own, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agent.errors import AgentError
from agent.serve.control_client import ControlClient

PATIENCE_SECONDS = 30.0  # an upper bound on a busy machine; nothing waits that long when all is well
TWO_SOCKETS = Path(__file__).resolve().parents[1] / "fixtures" / "sysfs" / "two-socket-smt"


def pod_text(name: str, cpu: str = "", *, uid: str = "", memory: str = "64Mi", label: str = "") -> str:
    """A manifest of one pod with one container `main`; with `cpu` it is Guaranteed."""
    metadata: dict[str, Any] = {"name": name}
    if uid:
        metadata["uid"] = uid
    if label:
        metadata["labels"] = {"version": label}
    resources = {"limits": {"cpu": cpu, "memory": memory}} if cpu else {}
    container = {"name": "main", "image": "example", "resources": resources}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    )


@dataclass
class Agent:
    """One agent process and what it was told. config: beside the paths, which are all below `directory`. launcher: what runs
    the command. environment: beside the test's own."""

    directory: Path
    config: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    launcher: Sequence[str] = ("-m", "agent")
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def manifests(self) -> Path:
        return self.directory / "manifests"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def socket(self) -> Path:
        return self.directory / "pr" / "kubelet.sock"

    @property
    def control(self) -> ControlClient:
        return ControlClient(self.directory / "control.sock", timeout_seconds=PATIENCE_SECONDS)

    def write_config(self) -> Path:
        values: dict[str, Any] = {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "sources": {"manifests": {"path": str(self.manifests), "periodSeconds": 0.05}},
            "state": {"directory": str(self.state)},
            "podResources": {"socket": str(self.socket), "qps": 0},
            "control": {"socket": str(self.directory / "control.sock")},
            "nodeService": {"socket": str(self.directory / "node.sock")},
            "http": {"port": 0},
            "enforcement": {"backend": "none", "periodSeconds": 0.2},
            **self.config,
        }
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(values))
        return path

    def start(self, *, wait: bool = True) -> None:
        self.manifests.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, *self.launcher, "run", "--config", str(self.write_config())]
        env = {**os.environ, **self.environment}
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        if wait:
            self.until(lambda status: True)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def manifest(self, name: str, text: str) -> None:
        """Put a file there in one step, as an editor with care does."""
        new = self.manifests / f".{name}.new"
        new.write_text(text)
        new.rename(self.manifests / f"{name}.yaml")

    def remove(self, name: str) -> None:
        (self.manifests / f"{name}.yaml").unlink()

    def status(self) -> Mapping[str, Any]:
        return self.control.call("status", {})

    def until(self, done: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """The status once it is as wanted."""
        end = time.monotonic() + PATIENCE_SECONDS
        status: Mapping[str, Any] = {}
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, f"the agent ended: {self.log()}"
            with contextlib.suppress(AgentError):
                status = self.status()
                if done(status):
                    return status
            time.sleep(0.02)
        raise AssertionError(f"not within {PATIENCE_SECONDS} s: {status}\n{self.log()}")

    def until_pod(self, name: str) -> Mapping[str, Any]:
        """The status once this pod is here."""
        return self.until(lambda status: any(pod["name"] == name for pod in status["pods"]))

    def cpus(self) -> dict[str, str]:
        """Pod -> CPUs of its container main, of the pods that hold some exclusively."""
        return {
            pod["name"]: pod["containers"][0]["cpus"]
            for pod in self.status()["pods"]
            if pod["containers"][0]["isolation"] == "container"
        }

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)

    def hang_up(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def run_in(self, pod: str, script: str) -> tuple[subprocess.Popen[bytes], int]:
        """A process in the pod's container main, by `pinfold exec`: the command's own, and the pid inside."""
        pid_file = self.directory / f"{pod}.pid"
        pid_file.unlink(missing_ok=True)
        inside = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; {script}"
        command = [
            *(sys.executable, "-m", "agent", "exec", "--socket", str(self.directory / "control.sock")),
            *(pod, "main", "--", "sh", "-c", inside),
        ]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE_SECONDS
        while not pid_file.exists():
            assert time.monotonic() < end, "the command did not start"
            assert process.poll() is None, f"pinfold exec ended with {process.returncode}"
            time.sleep(0.02)
        return process, int(pid_file.read_text())


@contextmanager
def running(directory: Path, **config: Any) -> Iterator[Agent]:
    """An agent on the captured two-socket machine (backend none) unless `config` says otherwise; ended at the end."""
    with launched(Agent(directory, {"node": {"root": str(TWO_SOCKETS)}, **config})) as agent:
        yield agent


@contextmanager
def launched(agent: Agent) -> Iterator[Agent]:
    """This agent, started, and ended at the end."""
    try:
        agent.start()
        yield agent
    finally:
        if agent.process is not None and agent.process.poll() is None:
            agent.process.send_signal(signal.SIGCONT)
            agent.process.kill()
            agent.process.wait()


def affinity(pid: int) -> set[int]:
    """The CPUs that a process may use, from the kernel."""
    return set(os.sched_getaffinity(pid))
