"""How all that a node does grows with its pods: in this process what decides and writes, in a real agent what is served."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from pathlib import Path

from agent.formats.occupancy import OccupancyEncoder, encode_occupancy
from agent.model.occupancy import Occupancy
from agent.model.state import Epoch, State
from agent.node.state_store import StateStore
from agent.policy.managers import Managers
from agent.policy.node_fit import PodAmounts
from agent.policy.observation import Observation, Wanted
from agent.policy.occupancy import OccupancyMaker, Origin
from agent.policy.plan import decide
from agent.policy.restore import fresh
from benchmarks.bench_admission import ROOM, managers, pod
from benchmarks.bench_state_write import holding
from benchmarks.big_node import prepared, process_id, resident_mib, until_ready
from benchmarks.curve import Curve, Series
from benchmarks.disks import disks
from benchmarks.figure import Figure, Scale, least_cpu, repeated
from benchmarks.http2_load import measure
from benchmarks.problems import WrongResultError
from tests.agents import Agent

SIZES = (10, 30, 100, 300, 1000)
LIST = "/v1.PodResourcesLister/List"


@dataclass
class Lines:
    """Series by name, while they grow."""

    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, name: str, size: int, value: float) -> None:
        self.points.setdefault(name, []).append((float(size), value))

    def series(self) -> tuple[Series, ...]:
        return tuple(Series(name, tuple(points)) for name, points in self.points.items())


def curves(scale: Scale) -> Iterator[Curve]:
    inside, served, sizes, memory = Lines(), Lines(), Lines(), Lines()
    for pods in scale.pick(SIZES, (3, 6)):
        decided(pods, scale, inside, sizes)
        with prepared(pods) as agent:
            _, first = until_ready(agent, pods)
            served.add("first start, all admitted (CPU)", pods, first)
            served.add("restart until ready (CPU)", pods, min(restarted(agent, pods) for _ in range(scale.pick(2, 1))))
            asked(agent, pods, scale, served)
            memory.add("resident memory", pods, resident_mib(process_id(agent)))
    yield Curve("pods", "Deciding and writing, by pods (CPU time)", "pods on the node", "ms", inside.series())
    yield Curve("pods-served", "A running agent, by pods", "pods on the node", "ms", served.series())
    yield Curve("pods-bytes", "What is written and reported, by pods", "pods on the node", "bytes", sizes.series())
    yield Curve("pods-memory", "Memory of a running agent, by pods", "pods on the node", "MiB", memory.series())


def decided(pods: int, scale: Scale, times: Lines, sizes: Lines) -> None:
    rules, state = managers(512, 4), holding(pods)
    there = [Wanted(record.pod) for record in state.pods.values()]
    seen = Observation([*there, Wanted(pod("new", 1))])
    if "new" not in decide(rules, ROOM, state, seen, {}).state.pods:
        raise WrongResultError("the pod is refused")
    kept = PodAmounts()  # by the keeper
    took = least_cpu(lambda: decide(rules, ROOM, state, seen, {}, amounts=kept), scale.seconds)
    times.add("admit one more pod", pods, took)
    old = Observation(there)
    times.add("first look, all known", pods, least_cpu(lambda: decide(rules, ROOM, state, old, {}), scale.seconds))
    empty = State(Epoch(1, "0" * 16), grants=fresh(rules))
    times.add("first look, all new", pods, least_cpu(lambda: decide(rules, ROOM, empty, old, {}), 0.0, least=2))
    with disks() as places:
        took, size = saving(places["tmpfs"], state, scale.seconds)
    times.add("write the state (tmpfs)", pods, took)
    sizes.add("state file", pods, size)
    took = least_cpu(lambda: encode_occupancy(first_report(rules, state)), scale.seconds)
    times.add("occupancy report, the first", pods, took)
    took = reporting_changes(rules, (state, decide(rules, ROOM, state, seen, {}).state), scale.seconds)
    times.add("occupancy report, after a pod came or went", pods, took)
    sizes.add("occupancy report", pods, len(encode_occupancy(first_report(rules, state))))


def first_report(rules: Managers, state: State) -> Occupancy:
    """Of an agent that has made none yet."""
    return OccupancyMaker(Origin("node")).report(state, rules, ROOM, 0.0)


def reporting_changes(rules: Managers, states: tuple[State, State], seconds: float) -> float:
    """Reports and their text as a running agent makes them, of two states in turns that differ in one pod."""
    turns, maker, encoder = cycle(states), OccupancyMaker(Origin("node")), OccupancyEncoder()
    return least_cpu(lambda: encoder.encode(maker.report(next(turns), rules, ROOM, 0.0)), seconds)


def saving(directory: Path, state: State, seconds: float) -> tuple[float, int]:
    """Saves of two generations in turns, and the bytes of the file."""
    turns = cycle((state, replace(state, generation=state.generation + 1)))
    with StateStore(directory) as store:
        store.load(datetime.now(UTC))
        store.save(state)
        return least_cpu(lambda: store.save(next(turns)), seconds), store.path.stat().st_size


def restarted(agent: Agent, pods: int) -> float:
    """Milliseconds of CPU time."""
    agent.kill()
    _, cpu = until_ready(agent, pods)
    return cpu


def asked(agent: Agent, pods: int, scale: Scale, times: Lines) -> None:
    """What clients of the running agent wait for."""
    time.sleep(scale.pick(1.0, 0.0))  # what follows a start is over
    calls = scale.pick(300, 5)
    times.add("PodResources List", pods, Figure.of(measure(agent.socket, LIST, 1, calls)).least)
    connection = http.client.HTTPConnection("127.0.0.1", agent.config["http"]["port"], timeout=30)
    for name, path in (("page", "/"), ("metrics scrape", "/metrics")):
        times.add(name, pods, repeated(partial(fetch, connection, path), scale.seconds).least)
    connection.close()


def fetch(connection: http.client.HTTPConnection, path: str) -> None:
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise WrongResultError(f"{path}: status {answer.status}")
