"""The `manifests` source: a directory of static-pod files, looked at again only where something changed.

A file is known by its name, size, inode and change times; a broken one is named and skipped while the others go on. A file
that can be read no more keeps what it last said: only its removal ends a pod.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.formats.documents import MAX_BYTES
from agent.formats.manifests import ManifestPod, decode_manifests

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 4096  # a directory with more is a mistake, and reading it would stall the loop

_Signature = tuple[int, int, int, int]


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
    signature: _Signature
    pods: tuple[ManifestPod, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class ManifestDirectory:
    """One directory. pod_level_resources: the feature gate, for defaulting."""

    path: Path
    pod_level_resources: bool = True
    _files: dict[str, _File] = field(default_factory=dict)
    _last: Listing = field(default_factory=Listing)

    def list(self) -> Listing:
        """The pods in file name order. Never raises for a single file."""
        try:
            found = self._found()
        except OSError as error:
            problem = f"{self.path}: {error.strerror}; pods known from there are kept"
            return Listing(self._last.pods, (problem,), readable=False)
        changed = found.keys() != self._files.keys() or any(
            self._files[name].signature != signature for name, signature in found.items()
        )
        if not changed and self._last.readable and not self._last.problems:
            return self._last
        self._files = {name: self._read(name, signature) for name, signature in found.items()}
        files = self._files.values()
        self._last = Listing(
            tuple(pod for file in files for pod in file.pods), tuple(text for file in files for text in file.problems)
        )
        return self._last

    def _found(self) -> Mapping[str, _Signature]:
        found: dict[str, _Signature] = {}
        for path in sorted(self.path.iterdir()):
            if path.name.startswith(".") or path.suffix not in SUFFIXES or len(found) == MAX_FILES:
                continue
            try:
                facts = path.stat()
            except OSError:  # gone between listing and looking, or a dangling link: _read names what is still there
                found[path.name] = (0, 0, 0, 0)
                continue
            if stat.S_ISREG(facts.st_mode):  # a FIFO or a device would block the loop
                found[path.name] = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
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
            return _File((0, 0, 0, 0), kept, (f"{path}: {error.strerror}",))
        found = decode_manifests(data, str(path), pod_level_resources=self.pod_level_resources)
        problems = tuple(f"{problem} ({problem.hint})" for problem in found.problems)
        earlier: tuple[ManifestPod, ...] = ()
        if problems and before is not None:
            # half-written, or a mistake in an edit: what ran from this file goes on until the file says otherwise
            named = {each.pod.namespaced_name for each in found.pods}
            earlier = tuple(each for each in before.pods if each.pod.namespaced_name not in named)
        return _File(signature, (*found.pods, *earlier), problems)
