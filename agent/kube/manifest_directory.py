"""The `manifests` source: a directory of static-pod files, looked at again only where something changed.

A file is known by its name, size, inode and change times; a broken one is named and skipped while the others go on. A file
that can be read no more keeps what it last said: only its removal ends a pod. A file that is being written may be sound but
short: that it lacks a pod, or has another in its place, counts when it says so in two looks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.formats.documents import MAX_BYTES
from agent.formats.manifests import ManifestPod, decode_manifests

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 4096  # a directory with more is a mistake, and reading it would stall the loop

_Signature = tuple[int, int, int, int]
_UNREADABLE: _Signature = (0, 0, 0, 0)
_READ_AGAIN: _Signature = (-1, -1, -1, -1)


@dataclass(frozen=True, slots=True)
class Listing:
    """What the directory says. problems: "FILE[:LINE]: what is wrong", one per fault.

    readable: False where the directory itself cannot be listed; then pods are the last known ones.
    """

    pods: tuple[ManifestPod, ...] = ()
    problems: tuple[str, ...] = ()
    readable: bool = True


@dataclass(slots=True)
class _File:
    """signature: of the content that counts. seen: of the content that was read last."""

    signature: _Signature
    pods: tuple[ManifestPod, ...] = ()
    problems: tuple[str, ...] = ()
    seen: _Signature = _UNREADABLE


@dataclass(slots=True)
class ManifestDirectory:
    """One directory. pod_level_resources: the feature gate, for defaulting."""

    path: Path
    pod_level_resources: bool = True
    _files: dict[str, _File] = field(default_factory=dict)
    _last: Listing = field(default_factory=Listing)
    _passed_over: tuple[str, ...] = ()

    def list(self) -> Listing:
        """The pods in file name order. Never raises for a single file."""
        passed_over = self._passed_over
        try:
            found = self._found()
        except OSError as error:
            make = " (make it, or name another in sources.manifests.path)" if error.errno == errno.ENOENT else ""
            problem = f"{_shown(self.path)}: {error.strerror}{make}; pods known from there are kept"
            return Listing(self._last.pods, (problem,), readable=False)
        changed = found.keys() != self._files.keys() or any(
            self._files[name].signature != signature for name, signature in found.items()
        )
        if not changed and passed_over == self._passed_over and not self._last.problems:
            return self._last
        self._files = {name: self._read(name, signature) for name, signature in found.items()}
        files = self._files.values()
        problems = [text for file in files for text in file.problems]
        self._last = Listing(
            tuple(pod for file in files for pod in file.pods), (*problems, *self._passed_over, *self._named_twice())
        )
        return self._last

    def _found(self) -> Mapping[str, _Signature]:
        found: dict[str, _Signature] = {}
        passed_over: list[str] = []
        with os.scandir(self.path) as entries:
            files = sorted(
                (each for each in entries if each.name.endswith(SUFFIXES) and each.name[0] != "."),
                key=lambda each: each.name,
            )
        if len(files) > MAX_FILES:  # what is known stays: a file more must not end the pods of another
            files.sort(key=lambda each: each.name not in self._files)
            passed_over.append(
                f"{_shown(self.path)}: {len(files) - MAX_FILES} files are not read, {MAX_FILES} are the most"
            )
        for each in sorted(files[:MAX_FILES], key=lambda each: each.name):
            try:
                facts = each.stat()
            except OSError:  # gone between listing and looking, or a dangling link: _read names what is still there
                found[each.name] = _UNREADABLE
                continue
            if stat.S_ISREG(facts.st_mode):
                found[each.name] = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
            else:  # a FIFO or a device would block the loop
                passed_over.append(f"{_shown(self.path / each.name)}: is not a file")
        self._passed_over = tuple(passed_over)
        return found

    def _read(self, name: str, signature: _Signature) -> _File:
        before = self._files.get(name)
        if before is not None and before.signature == signature:
            return before
        path = self.path / name
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        except OSError as error:
            kept = before.pods if before is not None else ()
            return _File(_UNREADABLE, kept, (f"{_shown(path)}: {error.strerror}",))
        found = decode_manifests(data, _shown(path), pod_level_resources=self.pod_level_resources)
        problems = tuple(f"{problem} ({problem.hint})" for problem in found.problems)
        if before is None:
            return _File(signature, found.pods, problems, signature)
        if before.seen != signature and (ended := _ended(before.pods, found.pods)):
            others = (each for each in found.pods if each.pod.namespaced_name not in ended)
            return _File(_READ_AGAIN, (*others, *ended.values()), problems, signature)
        # half-written, or a mistake in an edit: what ran from this file goes on until the file says otherwise
        names = {each.pod.namespaced_name for each in found.pods}
        earlier = (each for each in before.pods if problems and each.pod.namespaced_name not in names)
        return _File(signature, (*found.pods, *earlier), problems, signature)

    def _named_twice(self) -> Iterable[str]:
        first: dict[str, str] = {}
        for name, file in self._files.items():
            for each in file.pods:
                other = first.setdefault(each.pod.namespaced_name, name)
                if other != name:
                    where = f"{_shown(self.path / name)}:{each.line}: pod {each.pod.namespaced_name} is in"
                    yield f"{where} {_shown(Path(other))} too (rename one, or remove one file)"


def _ended(before: Iterable[ManifestPod], now: Iterable[ManifestPod]) -> dict[str, ManifestPod]:
    """The pods that the new content would end, by name: they are missing, or another has their name."""
    fingerprints = {each.pod.namespaced_name: each.fingerprint for each in now}
    return {
        each.pod.namespaced_name: each
        for each in before
        if fingerprints.get(each.pod.namespaced_name) != each.fingerprint
    }


def _shown(path: Path) -> str:
    """A path for messages: file names need not be text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
