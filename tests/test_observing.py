"""What a look is made of, and when one would find nothing new."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.device_watch import DeviceWatch
from agent.enforcement import Enforcement
from agent.formats.manifests import ManifestPod
from agent.kube.manifest_directory import Listing
from agent.node.cgroup_errors import CgroupError
from agent.node.enforcer import ObserveOnly
from agent.node.mode_file import ModeFile
from agent.observing import Observing
from agent.pod_sources import PodSources
from agent.serve.health import HealthBoard
from tests.keepers import started
from tests.nodes import named
from tests.pods import guaranteed


class Unreadable(Enforcement):
    """Whose cgroups cannot be read."""

    def alive(self, uid: str) -> tuple[str, ...]:
        raise CgroupError(Path("pod") / uid, "cannot be read")


def test_after_a_look_that_failed_there_is_something_new(tmp_path: Path) -> None:
    with started(tmp_path) as keeper:
        board = HealthBoard()
        observing = Observing(
            keeper,
            Unreadable(ObserveOnly(), None),
            None,
            PodSources((), board),
            DeviceWatch(keeper),
            ModeFile(tmp_path / "mode"),
            board,
            lambda: None,
            lambda: 0.0,
        )
        listing = Listing((ManifestPod(named("a", guaranteed("2")), 1, "one"),))
        for _ in range(2):
            decisions = keeper.look(observing.look(listing))
            observing.settle(decided=bool(decisions))
        assert observing.nothing_new(listing)
        with pytest.raises(CgroupError):
            observing.look(Listing())
        assert not observing.nothing_new(listing)
