"""Where log lines and errors go: their form depends on who reads the stream."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.log import goes_to_journal

REFUSED = [sys.executable, "-m", "agent", "config", "show", "--set", "cpuManagerPolicie=static"]


def told(command: list[str], log: Path, journal: str | None) -> list[str]:
    """The lines of standard error, written to a file that the environment calls the journal's, or not."""
    with log.open("w") as stream:
        facts = os.fstat(stream.fileno())
        environment = dict(os.environ)
        environment.pop("JOURNAL_STREAM", None)
        if journal is not None:
            environment["JOURNAL_STREAM"] = journal.format(f"{facts.st_dev}:{facts.st_ino}")
        subprocess.run(command, stdin=subprocess.DEVNULL, stderr=stream, env=environment, timeout=60, check=False)
    return log.read_text().splitlines()


@pytest.mark.parametrize(
    ("journal", "prefix"),
    [
        pytest.param(None, "", id="no journal"),
        pytest.param("{}", "<3>", id="the journal reads it"),
        pytest.param("8:1", "", id="the variable of a service that a shell came from"),
    ],
)
def test_an_error_has_the_priority_of_an_error_where_the_journal_reads(
    tmp_path: Path, journal: str | None, prefix: str
) -> None:
    error, hint = told(REFUSED, tmp_path / "log", journal)
    assert error == f"{prefix}pinfold: error: flag: cpuManagerPolicie: unknown key"
    assert hint.startswith(f"{prefix}         hint:")


def test_a_stream_without_a_file_is_not_the_journals() -> None:

    assert not goes_to_journal(io.StringIO())


LOG = "import logging; from agent.log import say, set_up; set_up(); say(logging.getLogger(), {}, 'event', cpus='1-2')"


@pytest.mark.parametrize(("level", "priority"), [("logging.INFO", 6), ("logging.WARNING", 4), ("logging.ERROR", 3)])
def test_a_log_line_has_its_priority_for_the_journal(tmp_path: Path, level: str, priority: int) -> None:
    assert told([sys.executable, "-c", LOG.format(level)], tmp_path / "log", "{}") == [f"<{priority}>event cpus=1-2"]


def test_elsewhere_a_log_line_is_json(tmp_path: Path) -> None:
    (line,) = told([sys.executable, "-c", LOG.format("logging.INFO")], tmp_path / "log", "8:1")
    assert {key: value for key, value in json.loads(line).items() if key != "time"} == {
        "level": "info",
        "event": "event",
        "cpus": "1-2",
    }
