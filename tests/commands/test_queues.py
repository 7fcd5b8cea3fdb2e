from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.commands.queues import command
from agent.errors import AgentError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "queues" / "cluster.yaml"


def run(*args: str, text: str | None = None) -> Result:
    return CliRunner().invoke(command, list(args), input=text, standalone_mode=False)


def answer(*args: str) -> tuple[int, Any]:
    result = run(*args, "-o", "json")
    assert result.exception is None
    return result.return_value, json.loads(result.stdout)


def test_status_shows_the_tree_with_bars() -> None:
    result = run("status", str(EXAMPLE))
    assert result.return_value == 0
    assert "  vision    200       cpu" in result.output
    assert "6.5 GPUs" in result.output
    code, shown = answer("status", str(EXAMPLE))
    assert code == 0
    assert {each["name"]: each["fairShare"]["gpu"] for each in shown["queues"]} == {
        "research": 8,
        "vision": 3.5,
        "language": 6,
    }
    assert shown["violations"] == shown["problems"] == []


def test_status_explains_a_fair_share() -> None:
    result = run("status", str(EXAMPLE), "--queue", "vision")
    assert "queue research, gpu: fair share 8 GPUs of 8 GPUs of the cluster = quota 8 GPUs + " in result.output
    assert "queue vision, gpu: fair share 3.5 GPUs of 8 GPUs that research divides = quota 3.5 GPUs + " in result.output
    with pytest.raises(AgentError, match="nobody"):
        raise run("status", str(EXAMPLE), "--queue", "nobody").exception or AssertionError


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (["--set", "main.cpu=8"], 0, "FITS"),
        (["--set", "main.cpu=12"], 1, "REJECTED"),
        (["--set", "main.cpu=12", "--scheduler-name", "other"], 0, "NOT_MANAGED"),
        (["--set", "main.memory=17Gi", "--strict"], 0, "FITS"),
        (["--set", "main.cpu=6001m", "--strict"], 1, "REJECTED"),
        ([], 0, "NO_GROWTH"),
    ],
)
def test_check_resize_answers_by_exit_status(options: list[str], code: int, reason: str) -> None:
    found, shown = answer("check-resize", str(EXAMPLE), "--pod", "vision/serve", *options)
    assert (found, shown["reason"]) == (code, reason)


def test_a_refused_resize_says_what_to_do_about_it() -> None:
    result = run("check-resize", str(EXAMPLE), "--pod", "vision/serve", "--set", "main.cpu=12")
    assert "pod vision/serve (PodGroup serve), queue vision, cpu" in result.output
    assert "2 cores more would fit" in result.output


def test_reclaim_says_who_could_give_and_why_not_the_others() -> None:
    code, refused = answer("reclaim", str(EXAMPLE), "--job", "vision/urgent")
    assert (code, refused["possible"], refused["victims"]) == (1, False, [])
    assert refused["candidates"]["language"]["steps"][-1]["amounts"] == {"allocated": 6, "quota": 8}
    code, taken = answer("reclaim", str(EXAMPLE), "--job", "vision/urgent", "--in-quota-priority")
    assert (code, taken["possible"]) == (0, True)
    assert [victim["job"] for victim in taken["victims"]] == ["language/pretrain"]
    text = run("reclaim", str(EXAMPLE), "--job", "vision/urgent", "--in-quota-priority").output
    assert "decision: reclaim" in text


def test_simulate_plays_until_nothing_moves() -> None:
    code, shown = answer("simulate", str(EXAMPLE), "--in-quota-priority")
    assert (code, shown["looped"], shown["waiting"]) == (
        0,
        False,
        {"language/pretrain": {"cpu": 8000, "memory": 64 * 2**30, "gpu": 2}},
    )
    assert (
        "taken from language/pretrain by InQuotaQueuePriority"
        in run("simulate", str(EXAMPLE), "--in-quota-priority").output
    )


def test_json_and_standard_input_are_read_and_a_total_can_be_given() -> None:
    queues = {
        "kind": "List",
        "apiVersion": "v1",
        "items": [{"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "a"}}],
    }
    result = run("status", "-", "--total", "cpu=64,memory=512Gi,gpu=8", text=json.dumps(queues))
    assert "cpu 64 cores, memory 512 Gi, gpu 8 GPUs" in result.output


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["status", "no/such/file"], "no/such/file"),
        (["check-resize", str(EXAMPLE), "--pod", "gone"], "default/gone"),
        (["check-resize", str(EXAMPLE), "--pod", "vision/serve", "--set", "side.cpu=1"], "side"),
        (["check-resize", str(EXAMPLE), "--pod", "vision/serve", "--set", "cpu=1"], "pod-level"),
        (["check-resize", str(EXAMPLE), "--pod", "vision/serve", "--set", "main.gpu=1"], "main.gpu=1"),
        (["reclaim", str(EXAMPLE), "--job", "gone"], "default/gone"),
        (["status", str(EXAMPLE), "--total", "disk=1"], "disk=1"),
    ],
)
def test_a_mistake_is_named(args: list[str], told: str) -> None:
    result = run(*args)
    assert result.exception is not None
    assert told in str(result.exception)


def test_a_broken_document_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("kind: Queue\n---\n[}\n")
    assert "broken.yaml:3" in str(run("status", str(path)).exception)
