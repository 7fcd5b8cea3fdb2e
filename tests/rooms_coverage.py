"""Branch coverage of the pure rooms by the repository's own tests: a table per room, and exit status 1 below the bound.

    .venv/bin/python -m tests.rooms_coverage [--bound 95] [--keep FILE]

Without the vectors beside the repository: what they alone reach is not covered. The commands' and servers' tests count where they
run in this process; what a test starts as a process of its own does not.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("model", "policy", "formats", "queues", "replay")
TESTS = (*ROOMS, "commands", "serve")
LISTED_BELOW = 90.0  # percent; modules below it are named


@dataclass(frozen=True, slots=True)
class Covered:
    """Branches of one module or room: how many there are, and how many were taken."""

    branches: int
    taken: int

    @property
    def percent(self) -> float:
        return 100.0 * self.taken / self.branches if self.branches else 100.0

    def __add__(self, other: Covered) -> Covered:
        return Covered(self.branches + other.branches, self.taken + other.taken)


def by_module(measured: coverage.Coverage) -> dict[str, Covered]:
    """Module path, from the repository -> its branches. A function or module that no test enters counts with all of its own."""
    found = {}
    for path in sorted(measured.get_data().measured_files()):
        exits = measured.branch_stats(path)
        name = str(Path(path).relative_to(ROOT))
        found[name] = Covered(sum(of for of, _ in exits.values()), sum(taken for _, taken in exits.values()))
    return found


def by_room(modules: Mapping[str, Covered]) -> dict[str, Covered]:
    """The sum of the modules of each room."""
    rooms: dict[str, Covered] = collections.defaultdict(lambda: Covered(0, 0))
    for name, covered in modules.items():
        rooms[name.split("/")[1]] += covered
    return dict(rooms)


def table(rooms: Mapping[str, Covered], modules: Mapping[str, Covered], bound: float) -> str:
    lines = [f"{'room':10} {'branches':>8} {'taken':>8} {'percent':>8}"]
    for name, of in rooms.items():
        low = "" if of.percent >= bound else f"  below {bound:g}"
        lines.append(f"{name:10} {of.branches:8} {of.taken:8} {of.percent:8.1f}{low}")
    low_modules = {name: of for name, of in modules.items() if of.percent < LISTED_BELOW}
    lines += [
        f"  {of.percent:5.1f} {name}" for name, of in sorted(low_modules.items(), key=lambda each: each[1].percent)
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bound", type=float, default=95.0, help="percent of the branches of each room")
    parser.add_argument(
        "--keep", type=Path, help="keep the data in this file, for `coverage report -m` or `coverage html`"
    )
    chosen = parser.parse_args(arguments)
    measured = coverage.Coverage(
        data_file=None if chosen.keep is None else str(chosen.keep),
        branch=True,
        source=[str(ROOT / "agent" / room) for room in ROOMS],
    )
    measured.start()
    tests = [str(ROOT / "tests" / room) for room in TESTS]
    status = pytest.main(["-q", "-m", "not shared and not real", "-p", "no:cacheprovider", *tests])
    measured.stop()
    if chosen.keep is not None:
        measured.save()
    modules = by_module(measured)
    rooms = by_room(modules)
    print(table(rooms, modules, chosen.bound))
    if status:
        print("not all tests passed: more may be covered")
        return int(status)
    return 1 if any(of.percent < chosen.bound for of in rooms.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
