"""Writes the kubelet's files after every change, where they are wanted.

They are for others: where they cannot be written, nothing is refused.
"""

from __future__ import annotations

from agent.faults import Faults
from agent.formats.kubelet_export import export
from agent.formats.kubelet_forms import NEWEST
from agent.keeper import Keeper
from agent.model.state import State
from agent.node.kubelet_files import KubeletFiles
from agent.serve.health import Check, HealthBoard


class KubeletMirror:
    """Called by the daemon's loop alone. files: None where none are wanted."""

    def __init__(self, keeper: Keeper, files: KubeletFiles | None, board: HealthBoard, faults: Faults) -> None:
        self._keeper = keeper
        self._files = files
        self._board = board
        self._faults = faults
        self._written: State | None = None

    def write(self) -> None:
        """Bring the files up to the state in force."""
        if self._files is None or self._written is self._keeper.state:
            return
        problem = self._files.write(export(self._keeper.state, NEWEST).files)
        self._board.set("kubeletFiles", Check(True, problem))
        self._faults.note("kubeletFiles", problem, "the kubelet's files are not up to date")
        self._written = None if problem else self._keeper.state
