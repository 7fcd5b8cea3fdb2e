"""Kubernetes objects in YAML or JSON files and directories of them, read again only where something changed."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import BadInputError
from agent.formats.documents import DocumentError, split_documents
from agent.formats.yaml_reader import read_yaml

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE_BYTES = 256 * 1024 * 1024  # a large cluster's pods as JSON
MAX_FILES = 10_000

_Signature = tuple[int, int, int, int]


class ObjectFileError(BadInputError):
    """A file that cannot be read, or is neither YAML nor JSON: names file and line."""


def read_objects(text: str, name: str) -> Iterator[object]:
    """The documents of a text: JSON where it begins like it, else YAML. Raises ObjectFileError."""
    if text.lstrip().startswith("{"):
        try:
            yield json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ObjectFileError(f"{name}: not JSON: {error}") from error
        return
    for first, part in split_documents(text):
        try:
            yield read_yaml(part, first).value
        except DocumentError as error:
            raise ObjectFileError(f"{name}:{error.line}: {error.why}") from error


def decode_file(data: bytes, name: str) -> str:
    """The text of a file. Raises ObjectFileError."""
    if len(data) > MAX_FILE_BYTES:
        raise ObjectFileError(f"{name}: more than {MAX_FILE_BYTES} bytes", hint="give the objects in several files")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ObjectFileError(f"{name}: not UTF-8 text") from error


@dataclass(slots=True)
class ObjectFiles:
    """Files, and directories whose files are taken (hidden ones and other suffixes are passed over)."""

    paths: Sequence[Path]
    _signatures: dict[Path, _Signature] = field(default_factory=dict)
    _looked: dict[Path, _Signature] = field(default_factory=dict)
    _held: set[Path] = field(default_factory=set)  # files that had documents at the last reading
    _failed: bool = False  # the last reading did

    def changed(self) -> bool:
        """Whether `read` would find something else than the last time.

        A file that is written in place may be read half: it counts once it is the same at two looks. One that was renamed into
        its place is whole.
        """
        try:
            found = self._sign()
        except ObjectFileError:
            return True
        looked, self._looked = self._looked, found
        if found == self._signatures:
            return self._failed
        if not self._signatures:
            return True
        return all(each == looked.get(path) or self._is_new_file(path, each) for path, each in found.items())

    def _is_new_file(self, path: Path, signature: _Signature) -> bool:
        """Whether another file is in the place of one that was read, or the one that was read still is."""
        read = self._signatures.get(path)
        return read is not None and (read == signature or read[0] != signature[0])

    def read(self) -> list[object]:
        """The documents of all files. Raises ObjectFileError for the first that cannot be read; then nothing is taken.

        So it does for a file that had documents and is empty now: whoever writes it has only begun, or had no room.
        """
        self._failed = True
        signatures = self._sign()
        documents: list[object] = []
        held: set[Path] = set()
        for path in signatures:
            try:
                with path.open("rb") as stream:
                    data = stream.read(MAX_FILE_BYTES + 1)
            except OSError as error:
                raise _unreadable(path, error) from error
            inside = [each for each in read_objects(decode_file(data, str(path)), str(path)) if each is not None]
            if inside:
                held.add(path)
            elif path in self._held:
                hint = 'if there are to be none, write {"kind": "List", "items": []}, or remove the file from its directory'
                raise ObjectFileError(f"{path}: is empty, and had objects before", hint=hint)
            documents.extend(inside)
        self._signatures, self._held, self._failed = signatures, held, False
        return documents

    def _sign(self) -> dict[Path, _Signature]:
        found: dict[Path, _Signature] = {}
        for path in self._files():
            try:
                facts = path.stat()
            except OSError as error:
                raise _unreadable(path, error) from error
            if stat.S_ISREG(facts.st_mode) or path in self.paths:  # elsewhere a FIFO or a device would block
                found[path] = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        return found

    def _files(self) -> Iterator[Path]:
        for path in self.paths:
            if not path.is_dir():
                yield path
                continue
            try:
                inside = sorted(path.iterdir())
            except OSError as error:
                raise _unreadable(path, error) from error
            yield from [each for each in inside if each.suffix in SUFFIXES and not each.name.startswith(".")][
                :MAX_FILES
            ]


def _unreadable(path: Path, error: OSError) -> ObjectFileError:
    return ObjectFileError(f"{path}: {error.strerror}", hint="check the path and its permissions")
