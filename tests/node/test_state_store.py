"""The state directory: one holder, one transaction, and after a kill or an error at any file operation before or after."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.formats.state import SCHEMA, encode
from agent.model.state import State
from agent.node.file_ops import FileOps
from agent.node.state_errors import NewerStateFileError, StateLockedError, StateWriteError
from agent.node.state_store import Origin, StateStore
from tests.states import small_state

NOW = datetime(2025, 6, 1, 12, 0, 0, tzinfo=UTC)


class Faulty(FileOps):
    """Real operations; before the one numbered `at` (from 0, all kinds counted) `strike` is called."""

    def __init__(self, at: int = -1, strike: Callable[[str], None] = lambda name: None, *, half: bool = False) -> None:
        self.count = 0
        self.armed = False
        self._at = at
        self._strike = strike
        self._half = half

    def _next(self, name: str) -> bool:
        if not self.armed:
            return False
        hit = self.count == self._at
        self.count += 1
        if hit and not (self._half and name == "write"):
            self._strike(name)
        return hit

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._next("open")
        return super().open(path, flags, mode)

    def write(self, fd: int, data: memoryview) -> int:
        if self._next("write") and self._half:
            super().write(fd, data[: len(data) // 2])
            self._strike("write")
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._next("fsync")
        super().fsync(fd)

    def close(self, fd: int) -> None:
        try:
            self._next("close")
        finally:
            super().close(fd)

    def link(self, source: Path, target: Path) -> None:
        self._next("link")
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._next("rename")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._next("unlink")
        super().unlink(path)


class NoHardLinks(Faulty):
    """A file system without hard links, as FAT is."""

    def link(self, source: Path, target: Path) -> None:
        self._next("link")
        if not source.exists():
            raise FileNotFoundError(errno.ENOENT, "no such file")
        raise PermissionError(errno.EPERM, "operation not permitted")


def stored(directory: Path) -> State | None:
    with StateStore(directory) as store:
        return store.load(NOW).state


def put(directory: Path, *states: State) -> None:
    with StateStore(directory) as store:
        store.load(NOW)
        for state in states:
            store.save(state)


def refusal(store: StateStore, state: State) -> StateWriteError | None:
    try:
        store.save(state)
    except StateWriteError as error:
        return error
    return None


@contextmanager
def in_child() -> Iterator[bool]:
    """Runs the body in a forked child (gives True) and, in the parent, waits for it to be killed or to end."""
    pid = os.fork()
    if pid == 0:
        try:
            yield True
        finally:
            os._exit(0)
    yield False
    os.waitpid(pid, 0)


def operations_of_a_save(directory: Path, kind: type[Faulty]) -> int:
    files = kind()
    put(directory, small_state(1), small_state(2))
    with StateStore(directory, files) as store:
        store.load(NOW)
        files.armed = True
        store.save(small_state(3))
    return files.count


def kill(name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kind", [Faulty, NoHardLinks])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("saves_before", [0, 1, 2])
def test_a_kill_at_any_file_operation_leaves_exactly_before_or_after(
    tmp_path: Path, kind: type[Faulty], half: bool, saves_before: int
) -> None:
    before = [small_state(number) for number in range(1, saves_before + 1)]
    after = small_state(9, note="after", pods=40)
    seen = set()
    for at in range(operations_of_a_save(tmp_path / "count", kind) + 1):
        directory = tmp_path / str(at)
        put(directory, *before)
        with in_child() as child:
            if child:
                files = kind(at, kill, half=half)
                store = StateStore(directory, files)
                store.load(NOW)
                files.armed = True
                store.save(after)
        with StateStore(directory) as store:
            loaded = store.load(NOW)
            assert not loaded.set_aside
            assert loaded.state in (before[-1] if before else None, after), f"killed before operation {at}"
            seen.add(loaded.state == after)
            store.save(small_state(10))  # and the next save works over whatever was left
        assert stored(directory) == small_state(10)
    assert seen == {False, True}


@pytest.mark.parametrize("kind", [Faulty, NoHardLinks])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("saves_before", [0, 1, 2])
def test_an_error_at_any_file_operation_keeps_the_old_state_and_the_next_save_works(
    tmp_path: Path, kind: type[Faulty], number: int, saves_before: int
) -> None:
    def fail(name: str) -> None:
        raise OSError(number, os.strerror(number))

    before = [small_state(generation) for generation in range(1, saves_before + 1)]
    failures = 0
    for at in range(operations_of_a_save(tmp_path / "count", kind)):
        directory = tmp_path / str(at)
        put(directory, *before)
        files = kind(at, fail)
        with StateStore(directory, files) as store:
            store.load(NOW)
            files.armed = True
            error = refusal(store, small_state(9, pods=40))
            if error is None:
                expected: State | None = small_state(9, pods=40)
            else:
                failures += 1
                assert (error.errno, error.undone) == (number, True)
                assert error.hint
                assert str(directory) in str(error)
                expected = before[-1] if before else None
            files.armed = False
            shutil.copytree(directory, copy := tmp_path / f"{at}-as-found-after-a-power-cut")
            assert stored(copy) == expected
            store.save(small_state(10))
        assert stored(directory) == small_state(10)
    assert failures >= 6  # every operation but closing and clearing up


def test_where_the_way_back_fails_too_it_says_so(tmp_path: Path) -> None:
    class Dying(FileOps):
        dead = False

        def fsync(self, fd: int) -> None:
            if os.path.isdir(f"/proc/self/fd/{fd}"):  # noqa: PTH112
                self.dead = True
                raise OSError(errno.EIO, "input/output error")

        def rename(self, source: Path, target: Path) -> None:
            if self.dead:
                raise OSError(errno.EIO, "input/output error")
            super().rename(source, target)

    put(tmp_path, small_state(1))
    with StateStore(tmp_path, Dying()) as store:
        store.load(NOW)
        with pytest.raises(StateWriteError, match="flush the state directory") as caught:
            store.save(small_state(2))
    assert not caught.value.undone


def test_the_previous_generation_is_kept(tmp_path: Path) -> None:
    put(tmp_path, small_state(1), small_state(2), small_state(3))
    assert (tmp_path / "pinfold_state").read_bytes() == encode(small_state(3))
    assert (tmp_path / "pinfold_state.previous").read_bytes() == encode(small_state(2))


@pytest.mark.parametrize(
    "bad", [b"", b"\0" * 100, encode(small_state(2))[:-40], encode(small_state(2)).replace(b'"0,9-15"', b'"0-15"')]
)
def test_a_damaged_file_is_moved_aside_and_the_previous_generation_loaded(tmp_path: Path, bad: bytes) -> None:
    put(tmp_path, small_state(1), small_state(2))
    (tmp_path / "pinfold_state").write_bytes(bad)
    with StateStore(tmp_path) as store:
        loaded = store.load(NOW)
        assert (loaded.state, loaded.origin) == (small_state(1), Origin.PREVIOUS)
        (aside,) = loaded.set_aside
        assert aside.kept_as == tmp_path / "pinfold_state.damaged-20250601T120000Z"
        assert aside.kept_as.read_bytes() == bad
        store.save(small_state(5))
    assert (tmp_path / "pinfold_state.previous").read_bytes() == encode(small_state(1))
    assert stored(tmp_path) == small_state(5)


def test_when_both_generations_are_damaged_both_are_kept_and_nothing_is_loaded(tmp_path: Path) -> None:
    put(tmp_path, small_state(1), small_state(2))
    (tmp_path / "pinfold_state").write_bytes(b"one")
    (tmp_path / "pinfold_state.previous").write_bytes(b"two")
    with StateStore(tmp_path) as store:
        loaded = store.load(NOW)
        assert (loaded.state, loaded.origin) == (None, Origin.LOST)
    assert [path.read_bytes() for path in sorted(tmp_path.glob("*.damaged-*"))] == [b"one", b"two"]


def test_the_first_start_finds_nothing_and_moves_nothing(tmp_path: Path) -> None:
    with StateStore(tmp_path / "made" / "here") as store:
        assert store.load(NOW).origin is Origin.FRESH


def test_a_damaged_file_that_cannot_be_moved_never_becomes_the_previous_one(tmp_path: Path) -> None:
    class ReadOnly(FileOps):
        on = True

        def rename(self, source: Path, target: Path) -> None:
            if self.on:
                raise OSError(errno.EROFS, "read-only file system")
            super().rename(source, target)

    put(tmp_path, small_state(1), small_state(2))
    (tmp_path / "pinfold_state").write_bytes(b"damaged")
    files = ReadOnly()
    with StateStore(tmp_path, files) as store:
        loaded = store.load(NOW)
        assert loaded.state == small_state(1)
        assert loaded.set_aside[0].kept_as == tmp_path / "pinfold_state"
        with pytest.raises(StateWriteError, match="move the damaged state aside"):
            store.save(small_state(3))
        assert (tmp_path / "pinfold_state.previous").read_bytes() == encode(small_state(1))
        files.on = False
        store.save(small_state(3))
    assert (tmp_path / "pinfold_state.damaged-20250601T120000Z").read_bytes() == b"damaged"
    assert (tmp_path / "pinfold_state.previous").read_bytes() == encode(small_state(1))


@pytest.mark.parametrize("name", ["pinfold_state", "pinfold_state.previous"])
def test_a_newer_file_is_never_touched_and_nothing_is_saved_over_it(tmp_path: Path, name: str) -> None:
    payload = json.dumps({"schema": SCHEMA + 1}).encode()
    newer = b'{"schema":%d,"bytes":%d,"sha256":"%s"}\n%s\n' % (SCHEMA + 1, len(payload), b"0" * 64, payload)
    (tmp_path / name).write_bytes(newer)
    with StateStore(tmp_path) as store:
        for attempt in (lambda: store.load(NOW), lambda: store.save(small_state(1))):
            with pytest.raises(NewerStateFileError, match=rf"{name}: written in schema {SCHEMA + 1}") as caught:
                attempt()
            assert caught.value.state is None
    assert (tmp_path / name).read_bytes() == newer
    assert {path.name for path in tmp_path.iterdir()} == {name, "pinfold_state.pid"}


def test_a_second_agent_on_the_same_directory_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from agent.node.state_store import StateStore\n"
        "store = StateStore(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(StateLockedError, match=f"pid {first.pid}"):
            StateStore(tmp_path)
        first.kill()
        first.wait(timeout=30)
        StateStore(tmp_path).close()  # the lock dies with its holder
    finally:
        first.kill()
        first.communicate(timeout=30)


def test_save_before_load_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with StateStore(tmp_path) as store, pytest.raises(RuntimeError, match="before load"):
        store.save(small_state())


def test_a_deleted_directory_refuses_and_recovers_when_it_is_back_with_the_lock_on_the_new_one(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    with StateStore(directory) as store:
        store.load(NOW)
        store.save(small_state(1))
        shutil.rmtree(directory)
        with pytest.raises(StateWriteError) as caught:
            store.save(small_state(2))
        assert caught.value.errno == errno.ENOENT
        directory.mkdir()
        store.save(small_state(2))
        with pytest.raises(StateLockedError, match=f"pid {os.getpid()}"):
            StateStore(directory)
    assert stored(directory) == small_state(2)


def test_a_symbolic_link_in_place_of_the_state_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.write_bytes(encode(small_state(4)))
    directory = tmp_path / "state"
    directory.mkdir()
    (directory / "pinfold_state").symlink_to(other)
    (directory / ".pinfold_state.new").symlink_to(other)
    with StateStore(directory) as store:
        assert store.load(NOW).origin is Origin.LOST
        store.save(small_state(5))
    assert other.read_bytes() == encode(small_state(4))


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    put(tmp_path, small_state(1))
    assert (tmp_path / "pinfold_state").stat().st_mode & 0o777 == 0o600


@contextmanager
def mounted_tmpfs(at: Path, options: str) -> Iterator[None]:
    at.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "pinfold-test", str(at)], check=False, capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"mounting a tmpfs is not allowed here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)


@pytest.mark.real
def test_a_really_full_disk_refuses_keeps_the_old_state_and_recovers_by_itself(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted_tmpfs(disk, "size=256k"), StateStore(disk / "state") as store:
        store.load(NOW)
        store.save(small_state(1))
        (disk / "filler").write_bytes(b"x" * (210 << 10))
        with pytest.raises(StateWriteError) as caught:
            store.save(small_state(2, pods=300))
        assert caught.value.errno == errno.ENOSPC
        assert "free some space" in caught.value.hint
        assert (disk / "state" / "pinfold_state").read_bytes() == encode(small_state(1))
        store.save(small_state(3))  # a small one fits: the cut-off file gave its room back
        (disk / "filler").unlink()
        store.save(small_state(4))
        store.close()
        assert stored(disk / "state") == small_state(4)


@pytest.mark.real
def test_a_read_only_remount_refuses_can_still_be_read_and_recovers(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted_tmpfs(disk, "size=1m"):
        put(disk, small_state(1))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with StateStore(disk) as store:
            assert store.load(NOW).state == small_state(1)
            with pytest.raises(StateWriteError) as caught:
                store.save(small_state(2))
            assert caught.value.errno == errno.EROFS
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            store.save(small_state(2))
        assert stored(disk) == small_state(2)


@pytest.mark.long
def test_a_thousand_saves_killed_at_random_moments(tmp_path: Path) -> None:
    generation = 0
    for round_ in range(100):
        with in_child() as child:
            if child:
                with StateStore(tmp_path) as store:
                    store.load(NOW)
                    for number in range(generation + 1, generation + 11):
                        if number == generation + 1 + round_ % 10:
                            signal.setitimer(signal.ITIMER_REAL, 0.0002 * (1 + round_ % 17))
                            signal.signal(signal.SIGALRM, lambda *_: kill(""))
                        store.save(small_state(number, pods=20))
                    time.sleep(0.01)
        with StateStore(tmp_path) as store:
            loaded = store.load(NOW)
            assert not loaded.set_aside
            if loaded.state is not None:
                assert loaded.state == small_state(loaded.state.generation, pods=20)
                assert loaded.state.generation >= generation
                generation = loaded.state.generation
    assert generation > 100
