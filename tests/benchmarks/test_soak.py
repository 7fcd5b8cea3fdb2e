"""The soak runs, in seconds instead of hours, and its judgement can fail. What it finds in so short a time is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.model.cpuset import CPUSet
from agent.model.state import CPUState, Grants, State
from benchmarks.machine import MachineNote
from benchmarks.problems import CannotRunError
from benchmarks.soak import real
from benchmarks.soak.__main__ import main
from benchmarks.soak.invariants import broken
from benchmarks.soak.log_lines import log_kinds
from benchmarks.soak.result import Part, text
from benchmarks.soak.samples import Cost, Series
from benchmarks.soak.trend import trend
from tests.policy.nodes import cpus, machine, managers
from tests.states import EPOCH


def test_a_simulated_minute_breaks_no_law_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    arguments = ["--minutes", "0", "--simulated-hours", "0.01", "-o", "json", "--output-file", str(path)]
    result = CliRunner().invoke(main, arguments)
    assert result.stdout, result.stderr
    (part,) = json.loads(path.read_text())
    assert json.loads(result.stdout) == [part]
    assert part["done"]["turn"] >= 36
    assert part["done"]["restart"] >= 5
    assert [each for each in part["wrong"] if not each.endswith("grows")] == []
    assert {each["what"] for each in part["trends"]} >= {
        "one process: Python objects",
        "over restarts: resident memory",
    }


@pytest.mark.real
def test_seconds_of_real_churn_end_with_a_table() -> None:
    try:
        part = real.soak(real.Scale(churn=8, idle=1, settle=0.1, askers=1))
    except CannotRunError as reason:
        pytest.skip(str(reason))
    assert part.wrong == []
    assert part.done["kill"] >= 1
    assert part.done["client: list and leave"] > 0
    assert {"agent", "accountant"} == part.idle.keys() == part.logs.keys()
    assert {"agent: threads", "agent: Python's memory blocks"} <= {each.what for each in part.trends}
    assert "agent: threads" in text(part)


@pytest.mark.parametrize(
    ("values", "growing"),
    [
        pytest.param([10.0] * 40, False, id="constant"),
        pytest.param([10.0 + number % 5 for number in range(40)], False, id="up and down"),
        pytest.param([10.0 + number / 4 for number in range(40)], True, id="rising"),
        pytest.param([10.0 + number / 40 for number in range(40)], False, id="rising by less than the grain"),
        pytest.param([10.0 - number for number in range(40)], False, id="falling"),
        pytest.param([10.0 + number / 4 + 3 * (number % 3) for number in range(40)], True, id="rising under noise"),
    ],
)
def test_growth_is_told_from_noise(values: list[float], growing: bool) -> None:
    found = trend("things", "", list(enumerate(values)), grain=1.5)
    assert found is not None
    assert found.growing is growing
    assert not found.overfull


def test_a_slope_is_per_hour() -> None:
    found = trend("things", "", [(10.0 * number, number / 2) for number in range(120)], grain=0)
    assert found is not None
    assert found.slope == pytest.approx(180)
    assert found.error == pytest.approx(0, abs=1e-6)


def test_too_few_samples_make_no_line() -> None:
    assert trend("things", "", [(0.0, 1.0), (1.0, 2.0)], grain=0) is None
    assert trend("things", "", [(float(number), 1.0) for number in range(9)], grain=0, warm_up=7) is None


@pytest.mark.parametrize(("rise", "overfull"), [(7.5, False), (8.5, True)])
def test_what_fills_in_the_warm_up_is_no_growth_but_has_a_bound(rise: float, overfull: bool) -> None:
    samples = [(100.0 + number, 10 + rise * min(number / 30, 1)) for number in range(100)]
    found = trend("things", "MiB", samples, grain=1.5, warm_up=30, room=8)
    assert found is not None
    assert (found.start, found.first, found.growing, found.overfull) == (10, 10 + rise, False, overfull)


# a process that gets pods and loses them again, as many as the soak has in five minutes: {size} bytes of each stay, as {pieces}
_LEAKY = """
import signal, sys
from pathlib import Path
from benchmarks.soak.named_agent import answer_blocks
answer_blocks(Path(sys.argv[1]))
size, pieces = int(sys.argv[2]), int(sys.argv[3])
changes, kept, number = [bytes(5000)] * 256, [], 0
for line in sys.stdin:
    for _ in range(int(line)):
        number += 1
        pod = [str(number) * 100 for _ in range(40)]
        changes[number % 256] = str(number).encode() * 1500
        kept.extend(bytes([number % 256]) * (size // pieces - 33) for _ in range(pieces))
    print(number, flush=True)
"""


@pytest.mark.parametrize(
    ("size", "pieces", "said"),
    [
        pytest.param(0, 1, [], id="nothing but what is bounded"),
        pytest.param(3_000, 1, ["agent: resident memory grows"], id="a text of a pod"),
        pytest.param(1_000, 10, ["agent: Python's memory blocks grows"], id="a few values of a pod"),
    ],
)
def test_a_leak_per_pod_is_seen(tmp_path: Path, size: int, pieces: int, said: list[str]) -> None:
    path = tmp_path / "blocks"
    command = [sys.executable, "-c", _LEAKY, str(path), str(size), str(pieces if size else 0)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        series = Series("agent", process.pid, 0.0, path, room=10.0)
        for number in range(120):
            process.stdin.write("10\n")
            process.stdin.flush()
            assert process.stdout.readline()
            series.sample(4.0 * number)
        process.stdin.close()
    note = MachineNote("now", 2, "a CPU", 1.0, "6", "3.11", "")
    part = Part("Leaky", note, note, 480.0, {}, series.trends(180.0))
    assert {each.what for each in part.trends} >= {"agent: resident memory", "agent: Python's memory blocks"}
    assert part.verdicts() == said


def test_a_storm_is_more_lines_than_causes() -> None:
    lines = [json.dumps({"event": "pod source", "level": "error"})] * 40
    lines += [json.dumps({"event": "admitted", "level": "info"})] * 40 + ["Segmentation fault"]
    causes: Mapping[str, tuple[str, ...]] = {"pod source": ("restart",), "admitted": ("pod comes",)}
    found = {kind.event: kind for kind in log_kinds(lines, {"restart": 3, "pod comes": 40}, causes)}
    assert found["pod source"].storm
    assert not found["admitted"].storm
    assert found["(not a log line)"].level == "Segmentation fault"


def test_the_laws_notice_what_breaks_them() -> None:
    node = managers(machine({0: "0-7"}))

    def laws(cpu: CPUState) -> list[str]:
        return list(broken(State(EPOCH, grants=Grants(cpu)), node))

    assert laws(CPUState(CPUSet.parse("0-7"))) == []
    (gone,) = laws(cpus("0,3-7", a={"app": "1-2"}))
    assert gone == "pod a holds something and is not here"
    assert "CPUs 2 of pod b have two owners" in "; ".join(laws(cpus("0,4-7", a={"app": "1-2"}, b={"app": "2-3"})))
    assert "CPUs 1 are exclusive and shared" in "; ".join(laws(cpus("0-1,3-7", a={"app": "1-2"})))
    assert "CPUs 7 belong to nobody" in "; ".join(laws(CPUState(CPUSet.parse("0-6"))))
    assert "reserved CPUs 0 are exclusive" in "; ".join(laws(cpus("1-7", a={"app": "0"})))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"wrong": ["it fell over"]}, "it fell over"),
        ({"trends": [trend("threads", "", [(1.0, 1.0), (2.0, 5.0), (3.0, 9.0)], 1)]}, "threads grows"),
        (
            {
                "trends": [
                    trend("memory", "MiB", [(1.0, 1.0), (9.0, 5.0), (10.0, 5.0), (11.0, 5.0)], 1, warm_up=8, room=3)
                ]
            },
            "memory rises by 4.0 MiB while it warms up, more than 3",
        ),
        ({"idle": {"agent": Cost(60, 0.1, 35.0, 0, {})}}, "agent wakes up 35/s when idle"),
        ({"idle": {"agent": Cost(60, 3.0, 1.0, 0, {})}}, "agent uses 3.00 % when idle"),
    ],
)
def test_what_is_not_as_it_should_be_is_said_and_encoded(parts: Mapping[str, Any], said: str) -> None:
    note = MachineNote("now", 2, "a CPU", 1.0, "6", "3.11", "")
    values: dict[str, Any] = {"done": {}, "trends": [], **parts}
    part = Part("Some", note, note, 60.0, **values)
    assert part.verdicts() == [said]
    assert said in text(part)
    assert part.encode()["wrong"] == [said]
