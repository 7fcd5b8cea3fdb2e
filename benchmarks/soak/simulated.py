"""An hour of the agent's loop at high speed: the real daemon, keeper, state file and servers' values in this process.

One turn is one second by its clock. The first third starts the agent anew from its state file now and then; after that one agent
lives to the end, for what only a long life shows. Nothing sleeps, and nothing is asked over a socket.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from agent.daemon import Daemon
from agent.enforcement import Enforcement
from agent.formats.podresources import Answers
from agent.keeper import Keeper, Rules
from agent.kube.event_writer import EventWriter
from agent.kube.http_access import Access, Server
from agent.kube.manifest_directory import ManifestDirectory
from agent.kube.source import View
from agent.model.occupancy import Occupancy
from agent.model.pod import Pod
from agent.node.decision_log import DecisionLog
from agent.node.enforcer import CgroupEnforcer
from agent.node.kubelet_files import KubeletFiles
from agent.node.service_manager import ServiceManager
from agent.node.state_store import StateStore
from agent.pod_sources import PodSources
from agent.policy.observation import Wanted
from agent.policy.occupancy import Origin
from agent.publisher import Publisher
from agent.reporting import Reporter
from agent.serve.board import NodeBoard
from agent.serve.gauges import GaugedNode
from agent.serve.health import HealthBoard
from agent.serve.metrics import NodeCollector
from agent.serve.node_feed import NodeFeed
from agent.serve.series import Tally
from agent.startup import first_state
from benchmarks.big_node import resident_mib
from benchmarks.machine import MachineNote
from benchmarks.soak.invariants import broken
from benchmarks.soak.log_lines import LogKind
from benchmarks.soak.memory_groups import MemoryGroups
from benchmarks.soak.result import Part
from benchmarks.soak.samples import entries
from benchmarks.soak.trend import HOUR, Trend, trend
from tests.agents import pod_text
from tests.keepers import rules
from tests.policy.nodes import machine, managers, pod

_BEGIN = 1_700_000_000.0  # Unix seconds, of no day in particular
_RESTARTING = 1 / 3  # of the time
_RESTART_SECONDS = 60
_WARM_UP = 0.25  # of each stretch that a line goes through
_SAMPLES = 120
PODS, MANIFESTS = 30, 15  # at any time, so that nothing but a leak makes more of anything
_MOST_WRONG = 20
_WHOLE = machine({0: "0-15", 1: "16-31"})
_LESS = machine({0: "0-15", 1: "16-27"})


@dataclass
class _Source:
    """A source beside a kubelet whose views are made here. silent_until: by the simulated clock."""

    name: str = "apiserver"
    pods: dict[str, Pod] = field(default_factory=dict)
    silent_until: float = 0.0
    now: float = 0.0

    def view(self) -> View:
        fault = "it does not answer" if self.now < self.silent_until else ""
        wanted = tuple(Wanted(each, self.name, running="app") for each in self.pods.values())
        return View(wanted, True, fault, running=frozenset(self.pods), heard=self.now)

    def start(self, changed: Callable[[], None]) -> None:
        return

    def stop(self) -> None:
        return


class _Target:
    """Takes every report and keeps none."""

    name = "spool"

    def deliver(self, report: Occupancy, since: float) -> bool:
        return True


class _Lines(logging.Handler):
    """Counts what is logged, by level and event."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.counts[record.getMessage(), record.levelname.lower()] += 1


@dataclass
class Living:
    """One agent between two starts, and what is looked at of it."""

    daemon: Daemon
    keeper: Keeper
    feed: NodeFeed
    registry: CollectorRegistry


class World:
    """The node around the agent. wrong: laws that were broken."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.now = 0.0
        self.source = _Source()
        self.groups = MemoryGroups(_WHOLE.topology.all)
        self.manifests: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.shrunk = False
        self._number = 0
        (folder / "manifests").mkdir()

    def fill(self) -> None:
        """As many pods as there shall be from now on."""
        while len(self.source.pods) < PODS:
            self._pod_comes()
        while len(self.manifests) < MANIFESTS:
            self._manifest_comes()

    def rules(self) -> Rules:
        policies = {"memory_policy": "Static", "topology_policy": "best-effort"}
        return rules(managers(_LESS if self.shrunk else _WHOLE, **policies))  # type: ignore[arg-type]

    @contextmanager
    def living(self) -> Iterator[Living]:
        """The agent, started from its state file."""
        tally, board, shown, feed = Tally(), HealthBoard(), NodeBoard(), NodeFeed("soak")
        shown.listen(feed.show)
        with StateStore(self.folder / "state") as store:
            beginning = first_state(store)
            keeper = Keeper(store, self.rules(), beginning.state, stored=beginning.stored, frozen=beginning.newer)
            reporter = Reporter(keeper, Origin("soak", "kai.scheduler/queue"), (_Target(),), tally)
            events = EventWriter(Server(Access("http://127.0.0.1:9")), "soak")  # never started: it keeps the newest
            daemon = Daemon(
                keeper,
                ManifestDirectory(self.folder / "manifests"),
                Enforcement(CgroupEnforcer(self.groups, self.groups.find, time.monotonic), None),
                Publisher(keeper, board, shown, _unread, reporter=reporter),
                board,
                tally,
                ServiceManager.of({}, os.getpid()),
                rediscover=lambda daemon: daemon.keeper.under(self.rules()),
                kubelet_files=KubeletFiles(self.folder / "state"),
                decision_log=DecisionLog(self.folder / "state", 1 << 20),
                sources=PodSources((self.source,), board),  # type: ignore[arg-type] # a Feed of ours
                announce=events.tell,
                unix_clock=lambda: _BEGIN + self.now,
            )
            registry = CollectorRegistry()
            registry.register(NodeCollector(lambda: _observed(keeper, board), tally, dict, kubelet_names=True))
            self.done["start"] += 1
            yield Living(daemon, keeper, feed, registry)

    def turn(self, agent: Living) -> None:
        """One second."""
        self.now += 1
        self.source.now = self.now
        self._act(agent)
        agent.daemon.prepare()
        state = agent.keeper.state
        self.groups.run([uid for uid, record in state.pods.items() if uid in self.source.pods or record.pod.uid])
        if self.now % 5 == 0:
            agent.feed.whole()
        if self.now % 15 == 0:
            generate_latest(agent.registry)
        if len(self.wrong) < _MOST_WRONG:
            self.wrong += [f"second {self.now:.0f}: {each}" for each in broken(state, agent.keeper.managers)]

    def _act(self, agent: Living) -> None:
        chances = {
            self._pod_goes: 0.9,
            self._resize: 0.4,
            self._manifest_goes: 0.4,
            self._break: 0.02,
            self._silence: 0.01,
            self._drift: 0.2,
        }
        for act, chance in chances.items():
            if self.rng.random() < chance and act():
                self.done[act.__name__.strip("_").replace("_", " ")] += 1
        self.fill()
        if self.rng.random() < 0.005:
            self.shrunk = not self.shrunk
            agent.keeper.under(self.rules())
            self.done["hotplug"] += 1

    def empty(self, agent: Living) -> None:
        """Everything ends."""
        self.shrunk, self.source.silent_until = False, 0.0
        agent.keeper.under(self.rules())
        (self.folder / "manifests" / "broken.yaml").unlink(missing_ok=True)
        self.source.pods.clear()
        while self._manifest_goes():
            pass
        for _ in range(5):
            self.now += 1
            self.source.now = self.now
            agent.daemon.prepare()
            self.groups.run(agent.keeper.state.pods)

    def _pod_comes(self) -> None:
        self.done["pod comes"] += 1
        self._number += 1
        uid = f"pod-{self._number}"
        others = {"log": "100m"} if self.rng.random() < 0.2 else {}
        cpu = self.rng.choice(["1", "2", "4", "500m"])
        self.source.pods[uid] = pod(uid, cpu=cpu, memory="256Mi", **others)  # type: ignore[arg-type]

    def _pod_goes(self) -> bool:
        if not self.source.pods:
            return False
        del self.source.pods[self.rng.choice(list(self.source.pods))]
        return True

    def _resize(self) -> bool:
        small = [each for each in self.source.pods.values() if "app" in _sizes(each) and _sizes(each)["app"] < 1]
        if small:
            uid = self.rng.choice(small).uid
            self.source.pods[uid] = pod(uid, cpu=f"{self.rng.randint(1, 9)}00m", memory="256Mi")
        return bool(small)

    def _manifest_comes(self) -> None:
        self.done["manifest comes"] += 1
        self._number += 1
        name, cpu = f"static-{self._number}", self.rng.choice(["1", "2", "300m", ""])
        self.manifests[name] = cpu
        self._put(name, pod_text(name, cpu))

    def _manifest_goes(self) -> bool:
        if not self.manifests:
            return False
        name = self.rng.choice(list(self.manifests))
        del self.manifests[name]
        (self.folder / "manifests" / f"{name}.yaml").unlink()
        return True

    def _break(self) -> bool:
        path = self.folder / "manifests" / "broken.yaml"
        if path.exists():
            path.unlink()
        else:
            self._put("broken", f"a: [{self._number}")
        return True

    def _silence(self) -> bool:
        self.source.silent_until = self.now + self.rng.randint(3, 10)
        return True

    def _drift(self) -> bool:
        return self.groups.drift(self.rng)

    def _put(self, name: str, text: str) -> None:
        new = self.folder / "manifests" / f".{name}.new"
        new.write_text(text)
        new.rename(self.folder / "manifests" / f"{name}.yaml")


class _Gauge:
    """Samples of this process. Memory blocks are those of Python's allocator. tracemalloc knows bytes and places too, and makes a
    turn many times as expensive.
    """

    def __init__(self) -> None:
        self._values: dict[str, list[tuple[float, float]]] = {}

    def sample(self, now: float) -> None:
        gc.collect()
        seen = {
            "Python objects": float(len(gc.get_objects())),
            "Python memory blocks": float(sys.getallocatedblocks()),
            "resident memory": resident_mib(os.getpid()),
            "file descriptors": float(entries("/proc/self/fd")),
        }
        for what, value in seen.items():
            self._values.setdefault(what, []).append((now, value))

    def trends(self, where: str) -> list[Trend]:
        """Per simulated hour, of what came after the warm-up."""
        lines = (
            trend(
                *(f"{where}: {what}", "MiB" if what == "resident memory" else "", samples, _GRAINS[what]),
                warm_up=(samples[-1][0] - samples[0][0]) * _WARM_UP,
            )
            for what, samples in self._values.items()
        )
        return [each for each in lines if each is not None]


# pods that are there at the moment move these; what leaks by the hour is more
_GRAINS = {"Python objects": 1500.0, "Python memory blocks": 5000.0, "resident memory": 1.5, "file descriptors": 1.0}


def soak(hours: float, seed: int = 1) -> Part:
    """Run it. hours: simulated."""
    before, began = MachineNote.now(), time.monotonic()
    turns = max(int(hours * HOUR), 12)
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pinfold-soak-", dir=place) as name, counting() as lines:
        world = World(Path(name), random.Random(seed))
        first, trends = _size_of_an_empty_state(world), list[Trend]()
        trends += _restarting(world, int(turns * _RESTARTING))
        trends += _one_life(world, turns - int(turns * _RESTARTING))
        last = _size_of_an_empty_state(world)
        if abs(last - first) > 64:  # digits of the generation
            world.wrong.append(f"the state file of an empty node had {first} bytes and has {last}")
        actions = sum(world.done.values())
        kinds = [LogKind(event, level, count, actions) for (event, level), count in lines.counts.most_common()]
        done = {**world.done, "turn": int(world.now), "start": world.done["start"]}
    seconds = time.monotonic() - began
    return Part(
        f"Simulated, {hours:g} h", before, MachineNote.now(), seconds, done, trends, {"agent": kinds}, wrong=world.wrong
    )


def _restarting(world: World, turns: int) -> list[Trend]:
    gauge = _Gauge()
    life = min(_RESTART_SECONDS, max(turns // 6, 1))
    for number in range(turns // life):
        with world.living() as agent:
            held = agent.keeper.state.grants
            for _ in range(life):
                world.turn(agent)
        del agent, held
        gauge.sample(world.now)
        world.done["restart"] = number + 1
    return gauge.trends("over restarts")


def _one_life(world: World, turns: int) -> list[Trend]:
    gauge = _Gauge()
    every = max(turns // _SAMPLES, 1)
    with world.living() as agent:
        for number in range(turns):
            world.turn(agent)
            if number % every == 0:
                gauge.sample(world.now)
        world.empty(agent)
        state = agent.keeper.state
        if state.pods or agent.keeper.refused or state.grants.cpu.held:
            world.wrong.append(
                f"all pods have ended, and left are {len(state.pods)} pods, CPUs {state.grants.cpu.held}"
            )
    return gauge.trends("one process")


def _size_of_an_empty_state(world: World) -> int:
    with world.living() as agent:
        world.empty(agent)
    return (world.folder / "state" / "pinfold_state").stat().st_size


@contextmanager
def counting() -> Iterator[_Lines]:
    """The agent's log is counted instead of written."""
    logger, lines = logging.getLogger("pinfold"), _Lines()
    kept = logger.propagate, logger.level
    logger.addHandler(lines)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.propagate = kept[0]
        logger.setLevel(kept[1])


def _observed(keeper: Keeper, board: HealthBoard) -> GaugedNode:
    return GaugedNode(keeper.state, keeper.managers.machine, board.is_ready(), {}, refused=len(keeper.refused))


def _unread(answers: Answers) -> None:
    return


def _sizes(each: Pod) -> dict[str, float]:
    return {container.name: float(container.resources.limits["cpu"].number) for container in each.containers}
