"""The queue commands asking an accountant instead of reading files: same words, same exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from agent.cli import cli
from agent.config_schema_queues import QueuesSection
from agent.queue_server import QueueServer
from agent.serve.loop import ServingLoop

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "queues" / "cluster.yaml"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    section = QueuesSection.model_validate(
        {"objects": [str(EXAMPLE)], "socket": str(tmp_path / "q.sock"), "api": {"port": 0}}
    )
    with ServingLoop() as loop, QueueServer(section, loop):
        yield section.socket


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["queues", *args], standalone_mode=False)


COMMANDS = [
    pytest.param(["status"], id="status"),
    pytest.param(["status", "--queue", "vision"], id="one queue"),
    pytest.param(["check-resize", "--pod", "vision/serve", "--set", "main.cpu=8"], id="fits"),
    pytest.param(["check-resize", "--pod", "vision/serve", "--set", "main.cpu=12"], id="does not fit"),
    pytest.param(["reclaim", "--job", "vision/urgent"], id="reclaim"),
    pytest.param(["reclaim", "--job", "vision/urgent", "--in-quota-priority"], id="reclaim with the flag"),
    pytest.param(["simulate", "--in-quota-priority"], id="simulate"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_with_the_same_objects_says_what_the_files_say(server: str, command: list[str]) -> None:
    name, *options = command
    of_files, of_server = run(name, str(EXAMPLE), *options), run(name, "--server", server, *options)
    assert of_server.output == of_files.output
    assert of_server.return_value == of_files.return_value


def test_json_comes_from_the_server_too(server: str) -> None:
    shown = json.loads(run("status", "--server", server, "-o", "json").output)
    assert shown["complete"] is True
    assert {each["name"] for each in shown["queues"]} == {"research", "vision", "language"}


def test_a_pod_may_come_from_a_file_and_the_answer_from_the_server(server: str) -> None:
    result = run("check-resize", str(EXAMPLE), "--server", server, "--pod", "vision/serve", "--set", "main.cpu=12")
    assert "resize rejected: pod vision/serve" in result.output
    assert result.return_value == 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["status", str(EXAMPLE)], "FILE means nothing with --server"),
        (["status", "--total", "cpu=1"], "--total means nothing with --server"),
        (["reclaim", "--job", "a/b", "--profile", "main"], "--profile means nothing"),
        (["simulate", "--saturation-multiplier", "2"], "--saturation-multiplier means nothing"),
        (["check-resize", "--pod", "a/b", "--strict"], "--strict means nothing"),
        (["check-resize", "--pod", "a/b", "--scheduler-name", "x"], "--scheduler-name means nothing"),
    ],
)
def test_what_an_accountant_has_of_its_own_is_not_given(server: str, command: list[str], told: str) -> None:
    error = run(*command, "--server", server).exception
    assert isinstance(error, click.UsageError)
    assert told in str(error)
