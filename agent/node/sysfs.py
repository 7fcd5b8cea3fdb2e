"""Access to one sysfs tree: bounded reads of small files, parsed, with a note for every file that cannot be believed.

What the files mean is in `sysfs_cpu`, `sysfs_cache` and `sysfs_numa`; nothing else in the program opens /sys or /proc for the
machine's topology.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

from agent.errors import AgentError
from agent.model.cpuset import MAX_CPUS, CPUListError, CPUSet

MAX_FILE_BYTES = 1 << 20  # the longest real file is a cpumap of MAX_CPUS bits: 2.3 kB
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO}  # the last two: the CPU went offline while we looked
_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_HEX_WORD = re.compile(r"[0-9a-fA-F]{1,8}", re.ASCII)
_CPU_IN_PATH = re.compile(r"\bcpu(\d+)\b", re.ASCII)


class SysfsError(AgentError):
    """A file that exists but cannot be read, or a tree that describes no machine. Names the full path."""

    hint = "run with the right to read this file, or give --sysroot the directory that holds sys/ and proc/"


class Notes:
    """Odd facts found while reading, in order, one line per kind of fact with the CPUs it concerns."""

    def __init__(self) -> None:
        self._cpus: dict[str, int] = {}

    def add(self, text: str, cpus: CPUSet | None = None) -> None:
        """Keep a note; the same text for other CPUs makes one line with all of them."""
        self._cpus[text] = self._cpus.get(text, 0) | (cpus or CPUSet()).mask

    def lines(self) -> tuple[str, ...]:
        """The notes, without repetition."""
        return tuple(f"{text}: CPUs {CPUSet(mask)}" if mask else text for text, mask in self._cpus.items())


def parse_mask(text: str) -> CPUSet:
    """Read the kernel's hexadecimal mask format: 32-bit words, the most significant first ("0,0000000f" is CPUs 0-3).

    The empty string is the empty set. Raises CPUListError for anything else, bits of MAX_CPUS and more included.
    """
    mask = 0
    for word in text.strip().split(",") if text.strip() else ():
        if not _HEX_WORD.fullmatch(word):
            raise CPUListError(text, word)
        mask = mask << 32 | int(word, 16)
    if mask >> MAX_CPUS:
        raise CPUListError(text, f"bit {mask.bit_length() - 1}")
    return CPUSet(mask)


class Sysfs:
    """Reads a tree: `root` is / on a host, fixtures/sysfs/<machine> in a test. Names are relative to it, e.g. "sys/...".

    An absent file is None: what its absence means is the caller's to decide. Content that cannot be parsed is None too, with
    a note. A file that exists but cannot be read (permission, I/O error) raises SysfsError with its full path, as guessing
    would describe a different machine.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notes = Notes()
        self.unterminated: set[str] = set()  # names of the files read so far that do not end with a newline
        self._base = str(root)
        self._lists: dict[str, CPUSet | CPUListError] = {}  # the same text is read once per CPU of a group

    def read(self, name: str) -> str | None:
        """The content without NULs and blanks around it; None where there is no such file."""
        path = f"{self._base}/{name}"
        try:  # O_NONBLOCK: a FIFO in somebody's dump must not hang us
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                data = _read_all(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise SysfsError(f"{path}: {error.strerror}") from error
        if len(data) > MAX_FILE_BYTES:
            raise SysfsError(f"{path}: longer than {MAX_FILE_BYTES} bytes, so not a file of sysfs or procfs")
        # Kernels have written a NUL behind the newline (5.15 arm64, 2.6.3x x86), but never left the newline out.
        text = data.strip(b"\0 \n\t").decode("latin-1")
        if text and b"\n" not in data[-2:]:
            self.unterminated.add(name)
            self.doubt(name, "does not end with a newline: cut short, or written by hand")
        return text

    def names(self, directory: str) -> frozenset[str]:
        """The entries of a directory; empty where there is no such directory."""
        path = f"{self._base}/{directory}"
        try:
            return frozenset(os.listdir(path))  # noqa: PTH208 - twice as fast as Path here, and called per CPU
        except OSError as error:
            if error.errno in _ABSENT:
                return frozenset()
            raise SysfsError(f"{path}: {error.strerror}") from error

    def numbered(self, directory: str, prefix: str) -> tuple[int, ...]:
        """The n of the entries `<prefix>n` of a directory, ascending: listings give cpu1, cpu10, cpu2, cpufreq."""
        rests = (name[len(prefix) :] for name in self.names(directory) if name.startswith(prefix))
        return tuple(sorted({int(rest) for rest in rests if rest.isascii() and rest.isdigit() and len(rest) < 10}))

    def number(self, name: str) -> int | None:
        """A decimal number; None with a note where the file holds something else."""
        text = self.read(name)
        if not text:
            return None
        if not _NUMBER.fullmatch(text):
            self.doubt(name, "is not a number")
            return None
        return int(text)

    def cpu_list(self, name: str) -> CPUSet | None:
        """A set in the kernel's list format; an empty file is the empty set."""
        return self._set(name, CPUSet.parse)

    def cpu_mask(self, name: str) -> CPUSet | None:
        """A set in the kernel's mask format; an empty file is the empty set."""
        return self._set(name, parse_mask)

    def cpu_set(self, name: str) -> CPUSet | None:
        """A set in the format that the file's name tells: lists are called `...list`, anything else is a mask."""
        return self.cpu_list(name) if name.endswith("list") else self.cpu_mask(name)

    def doubt(self, name: str, what: str) -> None:
        """Note that a file cannot be believed, together with the same fault of other CPUs."""
        match = _CPU_IN_PATH.search(name)
        if match and int(match[1]) < MAX_CPUS:
            self.notes.add(f"{_CPU_IN_PATH.sub('cpuN', name, count=1)} {what}", CPUSet.of([int(match[1])]))
        else:
            self.notes.add(f"{name} {what}")

    def _set(self, name: str, parse: Callable[[str], CPUSet]) -> CPUSet | None:
        text = self.read(name)
        if text is None:
            return None
        key = f"{parse.__qualname__} {text}"
        found = self._lists.get(key)
        if found is None:
            try:
                found = parse(text)
            except CPUListError as error:
                found = error
            self._lists[key] = found
        if isinstance(found, CPUListError):
            self.doubt(name, f"is not a CPU set ({text[:40]!r})")
            return None
        return found


def _read_all(descriptor: int) -> bytes:
    data = chunk = os.read(descriptor, 1 << 16)
    # The kernel hands out sysfs files a page at a time, so less than the smallest page is the end: one read for nearly all.
    while len(chunk) >= 4096 and len(data) <= MAX_FILE_BYTES:
        chunk = os.read(descriptor, 1 << 16)
        data += chunk
    return data
