"""Real churn: `pinfold run` with every neighbour, all of them restarted at times, watched through /proc; then an idle minute."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import AgentError
from benchmarks.big_node import process_id, process_of
from benchmarks.machine import MachineNote
from benchmarks.problems import WrongResultError
from benchmarks.service_unit import environment
from benchmarks.soak.churn import CAUSES, Churn
from benchmarks.soak.clients import Clients
from benchmarks.soak.log_lines import log_kinds
from benchmarks.soak.named_agent import BLOCKS_FILE
from benchmarks.soak.neighbours import Neighbours
from benchmarks.soak.result import Part
from benchmarks.soak.runtime import Runtime, runtime
from benchmarks.soak.samples import Series, busy, cost
from tests.agents import TWO_SOCKETS, Agent
from tests.serve.browser import free_port

_KILLING = 0.2  # of the time: the agent is killed at times, so that no process lives long enough for a line
# What fills once is no growth: changes and reports kept for watchers, Events that wait, the most that the C library ever had in
# use at once. Nearly all of it is there after two to three minutes of this churn; what comes until then is printed and bounded.
_WARM_UP_SECONDS = 180.0
_WARM_UP_MIB = 10.0
_MOST_WARM_UP = 0.4  # of the rest, where that is shorter
_KILLS = 8
_TICK_SECONDS = 0.1
_SAMPLES = 120.0  # of one process, about
_IDLE_PODS = 15
_SETTLE_SECONDS = 25.0
_PATIENCE_SECONDS = 120.0
_ACCOUNTANT_CAUSES = {"queue accounting": ("neighbour restarts", "start")}


@dataclass(frozen=True, slots=True)
class Scale:
    """How long: seconds of churn and of idleness. settle: between the two. askers: PodResources clients at once."""

    churn: float
    idle: float
    settle: float = _SETTLE_SECONDS
    askers: int = 8

    @property
    def warm_up(self) -> float:
        """Seconds of one process that its lines leave out."""
        return min(_WARM_UP_SECONDS, self.churn * (1 - _KILLING) * _MOST_WARM_UP)


def soak(scale: Scale, seed: int = 1) -> Part:
    """Run it. Raises CannotRunError where something is missing, WrongResultError where the agent does not start."""
    before, began = MachineNote.now(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pinfold-soak-") as folder, runtime() as cgroups, ExitStack() as stack:
        neighbours = Neighbours(Path(folder))
        stack.callback(neighbours.stop)
        neighbours.start()
        agent = stack.enter_context(_agent(Path(folder) / "agent", neighbours, cgroups))
        churn = Churn(agent, neighbours, cgroups, random.Random(seed))
        stack.callback(churn.calm)
        run = _Run(scale, churn, agent, neighbours)
        run.kill_loop(scale.churn * _KILLING)
        series = run.churn(scale.churn * (1 - _KILLING))
        run.end_all()
        idle = run.idle()
        wrong = [*run.wrong, *_crashes(agent, Path(folder))]
        done = dict(churn.done) | {f"client: {name}": count for name, count in run.clients_done.items()}
        return Part(
            "Real churn",
            before,
            MachineNote.now(),
            time.monotonic() - began,
            done,
            [each for one in series for each in one.trends(scale.warm_up)],
            {
                "agent": log_kinds(agent.log().splitlines(), churn.done, CAUSES),
                "accountant": log_kinds(
                    (Path(folder) / "accountant.log").read_text().splitlines(), churn.done, _ACCOUNTANT_CAUSES
                ),
            },
            idle,
            run.cpu,
            wrong,
            tuple(_notes(cgroups)),
        )


def _notes(cgroups: Runtime | None) -> Iterator[str]:
    yield "the agent's environment, of its unit: " + " ".join(
        f"{name}={value}" for name, value in environment().items()
    )
    if cgroups is None:
        yield "cgroups cannot be made here: backend none, no drift, no exec"


@contextmanager
def _agent(directory: Path, neighbours: Neighbours, cgroups: Runtime | None) -> Iterator[Agent]:
    """Not started yet; killed at the end. Its environment is what the unit gives it."""
    directory.mkdir()
    config: dict[str, Any] = {
        "node": {"name": "n1", "root": "/" if cgroups is not None else str(TWO_SOCKETS), "maxPods": 500},
        "podResources": {
            "socket": str(directory / "pr" / "kubelet.sock"),
            "qps": 0,
            "upstream": neighbours.config["upstream"],
        },
        "reports": neighbours.config["reports"],
        "http": {"port": free_port()},
        "state": {"directory": str(directory / "state"), "kubeletFiles": True, "decisionBytes": 1 << 20},
    }
    given = {**environment(), BLOCKS_FILE: str(directory / "blocks")}
    agent = Agent(directory, config, launcher=("-m", "benchmarks.soak.named_agent"), environment=given)
    manifests = {"path": str(agent.manifests), "periodSeconds": 0.5}
    config["sources"] = {"manifests": manifests, **neighbours.config["sources"]}
    config["enforcement"] = {"backend": "none", "periodSeconds": 2.0}
    if cgroups is not None:
        own = {"backend": "cgroup", "parent": str(cgroups.corner / "own"), "kubeletCgroupRoot": cgroups.root}
        config["enforcement"] |= own
    try:
        yield agent
    finally:
        if agent.process is not None and agent.process.poll() is None:
            agent.kill()


class _Run:
    """wrong: what must not be. cpu: per cent of a CPU under churn, by process."""

    def __init__(self, scale: Scale, churn: Churn, agent: Agent, neighbours: Neighbours) -> None:
        self._scale, self._churn, self._agent, self._neighbours = scale, churn, agent, neighbours
        self.wrong: list[str] = []
        self.cpu: dict[str, float] = {}
        self.clients_done: dict[str, int] = {}
        self._clients = Clients(
            agent.socket, agent.directory / "node.sock", agent.directory / "control.sock", agent.config["http"]["port"]
        )

    def kill_loop(self, seconds: float) -> None:
        """Churn, and the agent is killed and started again."""
        self._start()
        end = time.monotonic() + seconds
        for _ in range(_KILLS):
            if time.monotonic() >= end:
                return
            self._shake(min(seconds / _KILLS, end - time.monotonic()))
            self._agent.kill()
            self._churn.done["kill"] += 1
            self._start()

    def churn(self, seconds: float) -> list[Series]:
        """Churn with clients; one process throughout."""
        self._clients.start(self._scale.askers)
        try:
            began = time.monotonic()
            cpu = busy(process_id(self._agent))
            series = self._shake(seconds, every=max(seconds / _SAMPLES, 0.2))
            self.cpu["agent"] = 100 * (busy(process_id(self._agent)) - cpu) / (time.monotonic() - began)
            return series
        finally:
            self._clients.stop()
            self.clients_done = dict(self._clients.done)

    def end_all(self) -> None:
        """All pods end; nothing may be left of them."""
        self._churn.calm()
        self._churn.empty()
        self._until("no pod is left when all have ended", lambda status: not status["pods"] and not status["refused"])
        self._until("well again when all neighbours are", lambda status: bool(status["ready"]))
        cgroups = self._churn.runtime
        if cgroups is not None and (left := cgroups.own_children()):
            self._until("", lambda status: not cgroups.own_children())
            left = cgroups.own_children()
            self.wrong += [f"cgroup {name} is left of a pod that has ended" for name in left]

    def idle(self) -> dict[str, Any]:
        """What it costs to hold some pods, with everybody there and quiet, at the default periods."""
        for _ in range(_IDLE_PODS):
            self._churn.pod_comes()
            self._churn.manifest_comes()
        config = self._agent.config
        config["enforcement"]["periodSeconds"], config["sources"]["manifests"]["periodSeconds"] = 10.0, 1.0
        self._agent.write_config()
        self._agent.hang_up()
        self._churn.done["reload"] += 1
        self._until("holds pods", lambda status: len(status["pods"]) >= _IDLE_PODS)
        time.sleep(self._scale.settle)
        found = {"agent": cost(process_id(self._agent), self._scale.idle)}
        accountant = self._neighbours.accountant
        if accountant is not None:
            found["accountant"] = cost(accountant.pid, self._scale.idle / 2)
        return found

    def _start(self) -> None:
        self._agent.start(wait=False)
        self._churn.done["start"] += 1
        self._until("answers after its start", lambda status: True)
        if process_of(self._agent).poll() is not None:
            raise WrongResultError(f"the agent ended after its start: {self._agent.log()[-1000:]}")

    def _until(self, what: str, done: Any) -> None:
        """Until the agent's status is as wanted; where it never is, that is wrong."""
        end, status = time.monotonic() + _PATIENCE_SECONDS, dict[str, Any]()
        while time.monotonic() < end and process_of(self._agent).poll() is None:
            with contextlib.suppress(AgentError):
                status = dict(self._agent.status())
                if done(status):
                    return
            time.sleep(0.1)
        if what:
            shown = {name: str(status.get(name))[:300] for name in ("ready", "problems", "pods", "refused")}
            self.wrong.append(f"not within {_PATIENCE_SECONDS:.0f} s: {what}: {shown}")

    def _shake(self, seconds: float, every: float | None = None) -> list[Series]:
        """Churn for so long, with a sample of agent and accountant at times."""
        now = last = time.monotonic()
        end, due = now + seconds, now
        series: list[Series] = []
        while now < end and process_of(self._agent).poll() is None:
            self._churn.step(now - last)
            if every is not None and now >= due:
                due = now + every
                self._sample(series, now)
            time.sleep(_TICK_SECONDS)
            last, now = now, time.monotonic()
        return series

    def _sample(self, series: list[Series], now: float) -> None:
        accountant = self._neighbours.accountant
        pids = {"agent": process_id(self._agent)} | ({"accountant": accountant.pid} if accountant is not None else {})
        for name, pid in pids.items():
            found = next((each for each in series if each.pid == pid), None)
            if found is None:
                found = Series(name, pid, now)
                if name == "agent":
                    found.blocks, found.room = self._agent.directory / "blocks", _WARM_UP_MIB
                series.append(found)
            with contextlib.suppress(OSError, WrongResultError):  # it has just been ended
                found.sample(now)


def _crashes(agent: Agent, folder: Path) -> Iterator[str]:
    """Tracebacks in the logs, and processes that ended by themselves."""
    if process_of(agent).poll() is not None:
        yield f"the agent ended with {process_of(agent).returncode}: {agent.log()[-600:]}"
    for name, path in (("agent", agent.directory / "log"), ("accountant", folder / "accountant.log")):
        count = path.read_text(errors="replace").count("Traceback (most recent call last)")
        if count:
            yield f"{name}: {count} tracebacks in its log"
            kept = Path(tempfile.gettempdir()) / f"pinfold-soak-{name}-{os.getpid()}.log"
            kept.write_bytes(path.read_bytes())
            yield f"{name}: its log is kept in {kept}"
