"""An agent that has seen many pods come and go remembers none of them, wherever in it one looks: what is kept by name or UID and
never dropped would grow for as long as the agent lives."""

from __future__ import annotations

import gc
import random
import re
import types
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from benchmarks.soak.simulated import MANIFESTS, PODS, World, counting

SECONDS = 90  # by the simulated clock; some 100 pods more than there are at once
_NAME = re.compile(r"\b(?:static|pod)-\d+\b")


def test_pods_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    with counting(), world.living() as agent:
        for _ in range(SECONDS):
            world.turn(agent)
        came = world.done["pod comes"] + world.done["manifest comes"]
        world.empty(agent)
        texts = list(_texts(agent.daemon))
        remembered = {name for text in texts for name in _NAME.findall(text)}
    assert came > 2 * (PODS + MANIFESTS)
    assert "soak" in texts, "the walk reaches what the agent holds"
    # the last view and the last plan may still show who was there before everything ended
    assert len(remembered) <= PODS + MANIFESTS + 5


def _texts(root: object) -> Iterator[str]:
    """Every text that can be reached from there, but for queues with a bound: they keep the newest by design."""
    seen: dict[int, object] = {}  # with the objects, so that no id comes twice
    stack = [root]
    while stack:
        each = stack.pop()
        if id(each) in seen or isinstance(each, types.ModuleType | types.BuiltinFunctionType | type):
            continue
        seen[id(each)] = each
        match each:
            case str():
                yield each
            case bytes():
                yield each.decode("latin-1")
            case types.FunctionType():
                stack += each.__closure__ or ()
            case deque(maxlen=int()):
                continue
            case _:
                stack += gc.get_referents(each)
