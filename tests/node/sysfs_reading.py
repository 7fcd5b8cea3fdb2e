"""Shorthands for tests that read built machines: a machine after an edit, and its groups as text."""

from __future__ import annotations

import shutil
from pathlib import Path

from agent.model.cpuset import CPUSet
from agent.model.topology import Topology
from agent.node.topology import read_topology
from tests.node.sysfs_tree import Style, TreeMachine, write_tree


def groups(sets: object) -> list[str]:
    """The CPUs of packages, caches or plain groups as kernel lists; fails where there are none at all."""
    assert isinstance(sets, tuple)
    return [str(item if isinstance(item, CPUSet) else item.cpus) for item in sets]


def read_edited(root: Path, machine: TreeMachine, edits: dict[str, str | None], style: Style = Style()) -> Topology:  # noqa: B008
    """The machine read after overwriting files (None: removed, with all below)."""
    write_tree(root, machine, style)
    for name, text in edits.items():
        path = root / name
        if text is None:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="latin-1")
    return read_topology(root)
