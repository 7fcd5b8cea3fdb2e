"""`pinfold demo`: the agent at work, on this machine and on a captured one, in a temporary directory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path, PurePosixPath
from typing import Any

import click
import yaml

from agent.commands.status import render
from agent.errors import AgentError
from agent.model.cpuset import CPUSet
from agent.node.archive import open_sysroot
from agent.node.cgroup import Hierarchy, detect
from agent.node.topology import read_topology
from agent.policy.policy_machine import policy_machine
from agent.serve.control_client import ControlClient
from agent.serve.podresources_client import cpu_set, look

WAIT_SECONDS = 10.0  # for any one thing to happen; the whole demo takes a few seconds
CGROUP_ROOT = Path("/sys/fs/cgroup")
EXCLUSIVE_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: pinned}
spec:
  containers:
    - name: main
      image: example
      resources: {limits: {cpu: "1", memory: 64Mi}}
"""
SHARED_PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: shared-1}
spec: {containers: [{name: main, image: example}]}
---
apiVersion: v1
kind: Pod
metadata: {name: shared-2}
spec: {containers: [{name: main, image: example}]}
"""


class DemoError(AgentError):
    """The demo could not show what it wanted to."""


@click.command()
def command() -> int:
    """Run the agent for a few seconds, on this machine and on a captured two-socket machine, and show what it does.

    Needs no root and no terminal; everything lives in a temporary directory. Where cgroups may be written, two processes are
    started and their allowed CPUs printed before, during and after an exclusive pod.

    \b
    Example:
      pinfold demo
    """
    with tempfile.TemporaryDirectory(prefix="pinfold-demo-") as directory:
        click.echo("This machine")
        _this_machine(Path(directory) / "here")
        click.echo("\nA captured machine: 2 sockets, 2 NUMA nodes, 32 CPUs with SMT")
        with as_file(files("agent.examples") / "two-socket-smt.tar.gz") as archive, open_sysroot(archive) as root:
            _captured_machine(Path(directory) / "captured", root)
    return 0


# --- this machine ------------------------------------------------------------------------------------------------------


def _this_machine(directory: Path) -> None:
    machine = policy_machine(read_topology(Path("/")))
    cpus = machine.topology.all
    reserved = CPUSet.of([next(iter(cpus))])
    hierarchy = _writable_hierarchy()
    parent = PurePosixPath(f"pinfold-demo-{os.getpid()}")
    if hierarchy is None:
        click.echo("cgroups cannot be written here: the agent decides and serves, and enforces nothing")
    config = {
        **_config(directory, reserved),
        "enforcement": {
            "backend": "none" if hierarchy is None else "cgroup",
            "parent": str(parent),
            "periodSeconds": 0.5,
        },
    }
    try:
        with _agent(directory, config) as client:
            (directory / "manifests" / "shared.yaml").write_text(SHARED_PODS)
            _wait(client, lambda status: len(status["pods"]) == 2)
            if hierarchy is None:
                _show_pinned(directory, client, len(cpus), ())
            else:
                with _processes(directory, client) as pids:
                    _show_pinned(directory, client, len(cpus), pids)
    finally:
        if hierarchy is not None:
            with contextlib.suppress(AgentError):  # what made the demo fail is to be told, not this
                hierarchy.remove(parent)


def _show_pinned(directory: Path, client: ControlClient, cpus: int, pids: Sequence[int]) -> None:
    """An exclusive pod comes and goes; what the running processes may use is read from the kernel."""
    _print_allowed("before", pids)
    manifest = directory / "manifests" / "pinned.yaml"
    manifest.write_text(EXCLUSIVE_POD)
    status = _wait(client, lambda status: len(status["pods"]) + len(status["refused"]) == 3)
    client.call("look", {})
    for line in render(status):
        click.echo(f"  {line}")
    _print_allowed("during", pids)
    _print_podresources(directory)
    manifest.unlink()
    _wait(client, lambda status: len(status["pods"]) == 2 and not status["refused"])
    client.call("look", {})
    _print_allowed("after", pids)
    if cpus < 2:
        click.echo("  (with a single CPU nothing can be exclusive: see the refusal above)")


def _writable_hierarchy() -> Hierarchy | None:
    """The cgroup hierarchy, if this user can make groups in it."""
    probe = PurePosixPath(f"pinfold-demo-probe-{os.getpid()}")
    try:
        hierarchy = detect(CGROUP_ROOT)
        hierarchy.create(probe)
        hierarchy.inherit(probe)
        hierarchy.remove(probe)
    except AgentError:
        return None
    return hierarchy


@contextmanager
def _processes(directory: Path, client: ControlClient) -> Iterator[tuple[int, ...]]:
    """Two processes in the shared pods, each started with `pinfold exec`."""
    started = []
    try:
        for name in ("shared-1", "shared-2"):
            pid_file = directory / f"{name}.pid"
            script = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 60"
            arguments = ["exec", "--socket", str(directory / "control.sock"), name, "main", "--", "sh", "-c", script]
            started.append(subprocess.Popen([sys.executable, "-m", "agent", *arguments], stdin=subprocess.DEVNULL))
        yield tuple(_pid(directory / f"{name}.pid") for name in ("shared-1", "shared-2"))
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(WAIT_SECONDS)


def _pid(path: Path) -> int:
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if path.exists():
            return int(path.read_text(encoding="ascii"))
        time.sleep(0.02)
    raise DemoError("the example process did not start", hint="see the messages above")


def _print_allowed(when: str, pids: Sequence[int]) -> None:
    for number, pid in enumerate(pids, start=1):
        allowed = CPUSet.of(os.sched_getaffinity(pid))
        click.echo(f"  {when:7} process {number} of the shared pods may run on CPUs {allowed}")


# --- the captured machine ----------------------------------------------------------------------------------------------


def _captured_machine(directory: Path, root: Path) -> None:
    config = {
        **_config(directory, CPUSet.parse("0,16")),
        "node": {"root": str(root)},
        "memoryManagerPolicy": "Static",
        "evictionHard": {},
        "systemReserved": {"memory": "1Gi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "enforcement": {"backend": "none"},
    }
    with _agent(directory, config) as client:
        pods = (files("agent.examples") / "pods.yaml").read_text(encoding="utf-8")
        (directory / "manifests" / "pods.yaml").write_text(pods)
        status = _wait(client, lambda status: len(status["pods"]) + len(status["refused"]) == 4)
        for line in render(status):
            click.echo(f"  {line}")
        _print_podresources(directory)
        (answer,) = client.call("explain", {"pod": "too-large"})["pods"]
        click.echo("  pinfold explain too-large:")
        for line in str(answer["text"]).splitlines():
            click.echo(f"    {line}")


# --- both --------------------------------------------------------------------------------------------------------------


def _config(directory: Path, reserved: CPUSet) -> dict[str, Any]:
    return {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": str(reserved),
        "kubeletVersion": "1.37",
        "sources": {"manifests": {"path": str(directory / "manifests"), "periodSeconds": 0.1}},
        "state": {"directory": str(directory / "state")},
        "podResources": {"socket": str(directory / "pod-resources" / "kubelet.sock")},
        "nodeService": {"socket": str(directory / "node.sock")},
        "control": {"socket": str(directory / "control.sock")},
        "http": {"port": 0},
    }


@contextmanager
def _agent(directory: Path, config: dict[str, Any]) -> Iterator[ControlClient]:
    """The daemon as a process of its own, ended with SIGTERM."""
    (directory / "manifests").mkdir(parents=True)
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    log = directory / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "agent", "run", "--config", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    client = ControlClient(directory / "control.sock")
    try:
        _wait(client, lambda status: True, process, log)
        yield client
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


def _wait(
    client: ControlClient,
    done: Callable[[Mapping[str, Any]], bool],
    process: subprocess.Popen[bytes] | None = None,
    log: Path | None = None,
) -> dict[str, Any]:
    """The agent's status once it is as wanted."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if process is not None and process.poll() is not None:
            told = log.read_text(errors="replace") if log is not None else ""
            raise DemoError(f"the agent ended with status {process.returncode}: {told.strip()}")
        with contextlib.suppress(AgentError):  # it is not up yet
            status = dict(client.call("status", {}))
            if done(status):
                return status
        time.sleep(0.05)
    raise DemoError(f"the agent did not get there within {WAIT_SECONDS:.0f} s")


def _print_podresources(directory: Path) -> None:
    """What a monitoring agent sees."""
    click.echo("  PodResources List on the agent's socket:")
    seen = look(directory / "pod-resources" / "kubelet.sock", None, WAIT_SECONDS)
    for pod in seen.found:
        whole = f" (pod level: {cpu_set(pod.cpu_ids)})" if pod.cpu_ids else ""
        held = ", ".join(f"{each.name} {cpu_set(each.cpu_ids) or '-'}" for each in pod.containers)
        click.echo(f"    {pod.namespace}/{pod.name}{whole}: {held}")
