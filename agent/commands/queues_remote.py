"""`--server` of the queue commands: where an accountant is asked, and how its answer is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from agent.serve.queue_client import QueueServerError, ServerAddress

_F = TypeVar("_F", bound=Callable[..., Any])


def server_options(function: _F) -> _F:
    """`--server` and its certificates; `asked_server` reads them."""
    file = click.Path(path_type=Path)
    decorated: Any = function
    for option in (
        click.option("--client-key", type=file, help="Key of the client's certificate, PEM."),
        click.option("--client-cert", type=file, help="Certificate to show to an https server, PEM."),
        click.option("--server-ca", type=file, help="CA of an https server, PEM [the system's]."),
        click.option("--server", metavar="URL|SOCKET", help="Ask an accountant instead of reading files."),
    ):
        decorated = option(decorated)
    found: _F = decorated
    return found


def asked_server(values: Mapping[str, Any]) -> tuple[ServerAddress | None, dict[str, Any]]:
    """Which server a command line asks, None for files, and the other parameters."""
    left = dict(values)
    server, ca, certificate, key = (left.pop(name) for name in ("server", "server_ca", "client_cert", "client_key"))
    return None if server is None else ServerAddress(server, ca, certificate, key), left


def show_answer(text: str, output: str) -> dict[str, Any]:
    """Print an answer that was asked for with output=both, as text or JSON, and return its JSON. Raises QueueServerError."""
    try:
        document = json.loads(text)
        answer, shown = document["answer"], document["text"]
    except (ValueError, KeyError, TypeError) as error:
        raise QueueServerError("the server does not speak as an accountant of this version does") from error
    click.echo(json.dumps(answer, indent=2) if output == "json" else shown, nl=output == "json")
    return answer if isinstance(answer, dict) else {}
