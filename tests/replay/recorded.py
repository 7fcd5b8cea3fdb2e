"""Running a file of records as `pinfold replay --check` does, in this process."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.replay.check import Tally, check
from agent.replay.context import Context
from agent.replay.runner import answers

RECORDS = Path(__file__).parent / "records"


def lines(path: Path) -> list[str]:
    """The lines of a file, plain or packed."""
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            return list(stream)
    return path.read_text(encoding="utf-8").splitlines()


def answered(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every record with our answer."""
    for record, line in answers(lines(path), Context()):
        assert isinstance(record, dict)
        yield record, line


def differences(path: Path) -> tuple[Tally, list[str]]:
    """The count, and every difference with the record's id."""
    tally = Tally()
    found = []
    for record, line in answered(path):
        difference = check(record, line, tally)
        if difference is not None:
            found.append(f"{record['id']}: {difference}")
    return tally, found


def ids(path: Path, kind: str) -> list[str]:
    """The ids of the records of a kind."""
    return [record["id"] for record in map(json.loads, lines(path)) if record["kind"] == kind]
