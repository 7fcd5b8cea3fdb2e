"""`pinfold replay` from the command line: broken lines cost themselves only, and `--check` says what differs."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

MACHINE = {"kind": "topology", "id": "one", "input": {"cpus": [{"id": 0, "core": 0, "socket": 0, "numa": 0}]}}
PICK = {
    "kind": "take_cpus",
    "id": "pick",
    "input": {"topology": "one", "available": "0", "n": 1},
    "want": {"cpus": "0"},
}


def replay(*args: str, standard_input: bytes = b"") -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `pinfold replay ARGS`, as a process: encodings are its own."""
    command = [sys.executable, "-m", "agent", "replay", *args]
    done = subprocess.run(command, input=standard_input, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def lines(*records: object) -> bytes:
    """A file of records; bytes stand as they are."""
    return b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in records)


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        pytest.param(b"\xff\xfe", "not UTF-8", id="bytes that are no text"),
        pytest.param(b'{"kind": "\xe9"}', "not UTF-8", id="another encoding inside a text"),
        pytest.param(b"{", "not JSON", id="cut off"),
        pytest.param(b"[" * 100_000, "not JSON", id="nested without end"),
        pytest.param(b"9" * 5000, "not JSON", id="a number without end"),
        pytest.param(b"null", "a record is a JSON object", id="no object"),
        pytest.param(b'{"kind": ["x"]}', "unknown kind", id="a kind that is no text"),
    ],
)
@pytest.mark.parametrize("by_stdin", [False, True])
def test_a_broken_line_is_answered_and_the_next_one_too(
    tmp_path: Path, broken: bytes, error: str, by_stdin: bool
) -> None:
    content = lines(MACHINE, broken, PICK)
    (tmp_path / "records").write_bytes(content)
    status, out, err = replay("-", standard_input=content) if by_stdin else replay(str(tmp_path / "records"))
    first, second, third = map(json.loads, out.splitlines())
    assert (status, err) == (0, "")
    assert first["id"] == "one"
    assert error in second["error"]
    assert third["output"] == {"cpus": "0"}


def test_check_names_what_differs_and_survives_wants_and_names_of_any_shape(tmp_path: Path) -> None:
    wants: list[object] = [5, [], "x", {"cpus": ["0"]}, {"error": 1}]
    records: list[object] = [MACHINE, PICK]
    records += [{**PICK, "id": "\ud800\x1b[31m", "want": want} for want in wants]
    path = tmp_path / "records.gz"
    path.write_bytes(gzip.compress(lines(*records)))
    status, out, err = replay("--check", str(path))
    assert (status, err) == (1, "")
    assert out.splitlines()[-1] == "replay: 1 ok, 6 differ, 0 known"
    assert "\x1b" not in out


def test_a_damaged_archive_ends_with_what_is_wrong(tmp_path: Path) -> None:
    whole = gzip.compress(lines(MACHINE, *[PICK] * 2000))
    middle = len(whole) // 2
    for name, content in {"short.gz": whole[:middle], "bits.gz": whole[:middle] + b"\xff" * 64, "no.gz": b"{}"}.items():
        (tmp_path / name).write_bytes(content)
        status, _, err = replay(str(tmp_path / name))
        assert status == 2
        assert "pinfold: error:" in err
        assert "Traceback" not in err
