"""The map of the house holds: who may import whom, and that the pure rooms are pure (design section 2)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
AGENT = ROOT / "agent"

PURE = ("model", "policy", "formats", "queues", "replay")
EDGES = ("node", "kube", "serve")
BELOW = {
    "model": set(),
    "policy": {"model"},
    "formats": {"model", "policy", "proto"},
    "queues": {"model", "policy", "formats"},
    "replay": {"model", "policy", "formats", "queues"},
    "node": {"model", "policy", "formats", "queues", "proto"},
    "kube": {"model", "policy", "formats", "queues", "proto"},
    "serve": {"model", "policy", "formats", "queues", "proto"},
}
# what reaches outside a value: files, processes, clocks, chance, environment, logs, network
IMPURE = {
    "os", "io", "sys", "time", "random", "secrets", "socket", "subprocess", "threading", "asyncio", "logging", "pathlib",
    "shutil", "tempfile", "signal", "fcntl", "select", "selectors", "http", "urllib", "uuid", "grpc", "jeepney", "psutil",
    "pyudev", "click", "multiprocessing", "concurrent", "ctypes",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}


def modules(room: str) -> list[Path]:
    return sorted((AGENT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module != "pathlib":
                yield node.module or ""
            if node.module in ("agent", "pathlib"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", sorted(BELOW))
def test_a_room_imports_only_what_lies_below_it(room: str) -> None:
    assert modules(room), f"agent/{room} is empty"
    allowed = BELOW[room] | {room, "errors", "__version__"}
    for path in modules(room):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "agent" and len(parts) > 1:
                assert parts[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_import_nothing_that_reaches_outside(room: str) -> None:
    for path in modules(room):
        for name in imports(path):
            impure = name.split(".")[0] in IMPURE and name != "pathlib.PurePosixPath"  # that one is text only
            assert not impure, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_call_nothing_that_reaches_outside(room: str) -> None:
    for path in modules(room):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in IMPURE_CALLS, f"{path.relative_to(ROOT)}:{node.lineno} calls {node.func.id}"
            assert not isinstance(node, ast.Global), f"{path.relative_to(ROOT)}:{node.lineno} writes a global"


def test_edges_do_not_import_each_other() -> None:
    for room in EDGES:
        assert not BELOW[room] & set(EDGES)
