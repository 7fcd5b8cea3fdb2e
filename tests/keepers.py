"""A keeper over a real state directory for tests: the agent's start and its turns without sockets and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from agent.keeper import Keeper, Rules
from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.state import State
from agent.node.file_ops import FileOps
from agent.node.state_store import StateStore
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Decision, Observation, Wanted
from agent.policy.recovery import Running
from agent.startup import first_state
from tests.policy.nodes import machine, managers, policy

T8 = machine({0: "0-7"})


def rules(of: Managers | None = None, **others: object) -> Rules:
    """The rules of these managers, of a static policy on eight CPUs where none are given."""
    of = of or managers(T8)
    everything = {"cpu": Quantity.parse("9999"), "memory": Quantity.parse("999Ti"), "pods": Quantity.parse("9999")}
    node = NodeCapacity(everything, everything)
    return replace(Rules(of, node, policy(of), "this-boot"), **others)  # type: ignore[arg-type]


@contextmanager
def started(directory: Path, under: Rules | None = None, files: FileOps | None = None) -> Iterator[Keeper]:
    """A keeper as the agent's start makes it; closed as its end, or its death, does."""
    with StateStore(directory, files) as store:
        beginning = first_state(store)
        yield Keeper(store, under or rules(), beginning.state, stored=beginning.stored, frozen=beginning.newer)


def look(
    keeper: Keeper, *pods: Pod, alive: Sequence[tuple[str, str]] = (), running: Running | None = None, **seen: object
) -> tuple[Decision, ...]:
    """One look at manifests that list these pods. alive: containers with tasks."""
    fresh = [f"fresh-{keeper.state.generation}-{number}" for number in range(len(pods))]
    observation = Observation(
        [Wanted(pod, fingerprint="one") for pod in pods], alive=frozenset(alive), fresh_uids=fresh, now_seconds=100.0
    )
    return keeper.look(replace(observation, **seen), running)  # type: ignore[arg-type]


def stored(directory: Path) -> State:
    """What a start finds."""
    with StateStore(directory) as store:
        return first_state(store).state


def content(state: State) -> State:
    """A state but for the stamp that orders it."""
    return replace(state, generation=0)
