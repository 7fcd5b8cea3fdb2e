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

    def changed(self) -> bool:
        """Whether `read` would find something else than the last time."""
        try:
            return self._sign() != self._signatures
        except ObjectFileError:
            return True

    def read(self) -> list[object]:
        """The documents of all files. Raises ObjectFileError for the first that cannot be read; then nothing is taken."""
        signatures = self._sign()
        documents: list[object] = []
        for path in signatures:
            try:
                with path.open("rb") as stream:
                    data = stream.read(MAX_FILE_BYTES + 1)
            except OSError as error:
                raise _unreadable(path, error) from error
            documents.extend(read_objects(decode_file(data, str(path)), str(path)))
        self._signatures = signatures
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
