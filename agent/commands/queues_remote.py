"""`--server` of the queue commands: where an accountant is asked, and how its answer is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from agent.serve.queue_client import QueueServerError, ServerAddress

_F = TypeVar("_F", bound=Callable[..., Any])


def server_options(function: _F) -> _F:
    """`--server` and its certificates, as the parameter `server`: a ServerAddress, or None for files."""

    @wraps(function)
    def with_server(
        *args: Any,
        server: str | None,
        server_ca: Path | None,
        client_cert: Path | None,
        client_key: Path | None,
        **values: Any,
    ) -> Any:
        address = None if server is None else ServerAddress(server, server_ca, client_cert, client_key)
        return function(*args, server=address, **values)

    file = click.Path(path_type=Path)
    decorated: Any = with_server
    for option in (
        click.option("--client-key", type=file, help="Key of the client's certificate, PEM."),
        click.option("--client-cert", type=file, help="Certificate to show to an https server, PEM."),
        click.option("--server-ca", type=file, help="CA of an https server, PEM [the system's]."),
        click.option("--server", metavar="URL|SOCKET", help="Ask an accountant instead of reading files."),
    ):
        decorated = option(decorated)
    found: _F = decorated
    return found


def show_answer(text: str, output: str) -> dict[str, Any]:
    """Print an answer that was asked for with output=both, as text or JSON, and return its JSON. Raises QueueServerError."""
    try:
        document = json.loads(text)
        answer, shown = document["answer"], document["text"]
    except (ValueError, KeyError, TypeError) as error:
        raise QueueServerError("the server does not speak as an accountant of this version does") from error
    click.echo(json.dumps(answer, indent=2) if output == "json" else shown, nl=output == "json")
    return answer if isinstance(answer, dict) else {}
