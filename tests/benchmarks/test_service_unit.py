"""What is measured has the environment of the unit, which is read and not written twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.problems import WrongResultError
from benchmarks.service_unit import environment
from tests.agents import TWO_SOCKETS, Agent, launched


def test_the_unit_says_how_many_heaps_the_c_library_may_have() -> None:
    assert "MALLOC_ARENA_MAX" in environment()


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("[Service]\nEnvironment=A=1", {"A": "1"}),
        (
            "[Service]\nEnvironment=A=1 \"B=two words\"\nEnvironment=A=3 'C=x=y'",
            {"A": "3", "B": "two words", "C": "x=y"},
        ),
        ("[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2", {"B": "2"}),
        ("[Unit]\nEnvironment=A=1\n[Service]\n# Environment=B=2\n;Environment=C=3\n[Install]\nEnvironment=D=4", {}),
    ],
)
def test_environment_lines_are_read_as_systemd_does(tmp_path: Path, lines: str, found: dict[str, str]) -> None:
    unit = tmp_path / "some.service"
    unit.write_text(lines)
    assert environment(unit) == found


@pytest.mark.parametrize("line", ["Environment=A=%h", "EnvironmentFile=/etc/default/some", "PassEnvironment=A"])
def test_what_is_not_read_is_an_error(tmp_path: Path, line: str) -> None:
    unit = tmp_path / "some.service"
    unit.write_text(f"[Service]\n{line}\n")
    with pytest.raises(WrongResultError, match=r"some\.service"):
        environment(unit)


def test_an_agent_is_started_with_what_it_is_given(tmp_path: Path) -> None:
    given = Agent(tmp_path, {"node": {"root": str(TWO_SOCKETS)}}, environment={"PINFOLD_TEST": "here"})
    with launched(given) as agent:
        assert agent.process is not None
        assert b"PINFOLD_TEST=here" in Path(f"/proc/{agent.process.pid}/environ").read_bytes().split(b"\0")
