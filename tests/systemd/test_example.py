"""The example configuration: right as it is, and right with what it leaves to uncomment."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest

from agent.commands.config import facts
from agent.config import load
from tests.agents import TWO_SOCKETS
from tests.systemd.cache import REPOSITORY

# where there is no checkout around the tests, the wheel has brought it
IN_TREE = REPOSITORY / "systemd" / "config.yaml"
EXAMPLE = IN_TREE if IN_TREE.exists() else Path(sysconfig.get_path("data")) / "share/pinfold/systemd/config.yaml"
OFFERED = re.compile(r"#((?! [^ ]).+)")  # a setting; "# " and a word is prose


def test_the_example_starts_an_agent_as_it_is() -> None:
    loaded = load(EXAMPLE)
    assert loaded.config.cpuManagerPolicy == "static"
    assert "the agent starts with this configuration" in facts(loaded, TWO_SOCKETS)


def test_what_it_offers_in_comments_works_too(tmp_path: Path) -> None:
    lines = EXAMPLE.read_text().splitlines()
    offered = [found[1] if (found := OFFERED.fullmatch(line)) else line for line in lines]
    kubelet = "kubeletConfig: /var/lib/kubelet/config.yaml"
    assert kubelet in offered
    path = tmp_path / "config.yaml"
    path.write_text("\n".join(line for line in offered if line != kubelet))
    loaded = load(path)
    assert loaded.config.memoryManagerPolicy == "Static"
    assert loaded.config.cpuManagerPolicyOptions == {"full-pcpus-only": "true"}
    assert "the agent starts with this configuration" in facts(loaded, TWO_SOCKETS)


@pytest.mark.parametrize("name", ["pinfold.service", "sysusers.d/pinfold.conf", "tmpfiles.d/pinfold.conf"])
def test_what_an_admin_needs_lies_beside_it(name: str) -> None:
    assert (EXAMPLE.parent / name).is_file()
