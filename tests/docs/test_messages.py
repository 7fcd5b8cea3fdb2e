"""docs/troubleshooting.md explains messages that the program really gives; docs/architecture.md names modules that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs.pages import ROOT, literals, marked

_FILLED = re.compile(r"\.\.\.|\bN\b|\"\.\.\.\"")  # what differs from time to time
_OF_OTHERS = {  # words that reach our messages from outside: gRPC's status codes, errno names, HTTP, our own commands' names
    "UNIMPLEMENTED", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNKNOWN", "EACCES", "HTTP 401", "HTTP 403",
}  # fmt: skip


def fragments() -> Iterator[str]:
    """The fixed parts of the messages in the tables' first columns."""
    for line in (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            for message in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
                yield from (part for part in _FILLED.split(message) if part.strip(' :,"'))


def test_the_messages_that_are_explained_are_given() -> None:
    modules = [path for path in (ROOT / "agent").rglob("*.py") if not path.stem.endswith(("_pb2", "_pb2_grpc"))]
    texts = [text for path in modules for text in literals(path)]
    said = "\n".join(texts)
    # of a message that is filled in at several places: a part of it
    cut = (part.strip(" :,") for text in texts if "X" in text for part in text.split("X"))
    parts = {part for part in cut if len(part) >= 7}
    found = [part.strip(' :",') for part in fragments()]
    unknown = [part for part in found if part not in _OF_OTHERS and part not in said]
    assert len(found) > 50
    assert [message for message in unknown if not any(part in message for part in parts)] == []


def test_the_modules_that_the_architecture_names_are_there() -> None:
    names = {text for text in marked(ROOT / "docs/architecture.md") if re.fullmatch(r"[\w/]+\.py", text)}
    assert len(names) > 30
    missing = [each for each in names if not (ROOT / each).exists() and not list((ROOT / "agent").rglob(each))]
    assert missing == []
