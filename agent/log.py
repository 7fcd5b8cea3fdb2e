"""Logging of the daemon: for people on a terminal, with priorities for the journal, as JSON lines elsewhere.

A line is an event and key=value facts, one per decision that a person would ask about.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

ERROR_PREFIX = "<3>"  # sd-daemon(3): the priority of a line, for the journal
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
# a terminal or the journal must not obey what a pod put into its name
_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), 127, *range(128, 160)]}


def say(logger: logging.Logger, level: int, event: str, **facts: object) -> None:
    """One line: what happened, and its facts. Facts that are None or empty are left out."""
    kept = {key: value for key, value in facts.items() if value not in (None, "")}
    logger.log(level, event, extra={"facts": kept})


def printable(text: str) -> str:
    """The text without control characters."""
    return text.translate(_CONTROL)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    facts: dict[str, object] = getattr(record, "facts", {})
    return facts


def _value(value: object) -> str:
    text = printable(str(value))
    return json.dumps(text) if " " in text or '"' in text or "=" in text else text


class PlainFormatter(logging.Formatter):
    """`event key=value ...`, for people; with a journal priority in front where the journal reads."""

    def __init__(self, *, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(
            [printable(record.getMessage()), *(f"{key}={_value(value)}" for key, value in _facts(record).items())]
        )
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        if not self._journal:
            return f"{datetime.now(UTC).astimezone():%H:%M:%S} {record.levelname.lower():7} {text}"
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in text.splitlines())


class JSONFormatter(logging.Formatter):
    """One JSON object per line: time, level, event, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **{key: str(value) for key, value in _facts(record).items()},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def goes_to_journal(stream: TextIO) -> bool:
    """Whether the journal reads this stream: JOURNAL_STREAM names it by device and inode (systemd.exec(5)).

    A shell that was started by a service has the variable too, but not the stream.
    """
    try:
        facts = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{facts.st_dev}:{facts.st_ino}"


def _is_news(record: logging.LogRecord) -> bool:
    """False for what gRPC's server says, traceback and all, of every client that goes before its answer could be written.

    grpcio, _cygrpc/aio/server.pyx.pxi, _handle_exceptions. By name: most commands never load grpc.
    """
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ != "ExecuteBatchError"


def set_up(stream: TextIO = sys.stderr, *, verbose: bool = False) -> None:
    """Log to `stream` in the form its reader wants."""
    handler = logging.StreamHandler(stream)
    if goes_to_journal(stream):
        handler.setFormatter(PlainFormatter(journal=True))
    elif stream.isatty():
        handler.setFormatter(PlainFormatter(journal=False))
    else:
        handler.setFormatter(JSONFormatter())
    if not verbose:
        handler.addFilter(_is_news)
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else logging.INFO, force=True)
