"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class MachineNote:
    """cpus: logical ones that this process may use. load: average of the last minute, when this was noted. commit: "" where there
    is no checkout; `+` after it: with changes that are not committed.
    """

    time: str
    cpus: int
    model: str
    load: float
    kernel: str
    python: str
    commit: str

    @classmethod
    def now(cls) -> Self:
        return cls(
            datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            len(os.sched_getaffinity(0)),
            _model(),
            round(os.getloadavg()[0], 2),
            platform.release(),
            platform.python_version(),
            _commit(),
        )

    def encode(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        commit = f", commit {self.commit}" if self.commit else ""
        return (
            f"{self.time}, {self.cpus} CPUs ({self.model}), load average {self.load}, Linux {self.kernel}, "
            f"Python {self.python}{commit}"
        )


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "agent", "benchmarks")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
