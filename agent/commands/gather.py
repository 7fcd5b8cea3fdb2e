"""`pinfold gather`: one archive for support."""

from __future__ import annotations

import json
import os
import platform
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from agent import __version__
from agent.commands.options import config_options, parse_flags, socket_option
from agent.config import load
from agent.config_schema import Config
from agent.errors import AgentError
from agent.formats.redaction import Redaction
from agent.formats.state import MAX_BYTES as MAX_STATE_BYTES
from agent.formats.state import decode, encode
from agent.formats.topology_json import render_json
from agent.node.capture import capture
from agent.node.decision_log import CURRENT, PREVIOUS
from agent.node.state_store import NAME
from agent.node.support_archive import DECISIONS, SupportArchive
from agent.node.topology import read_topology
from agent.serve.control_client import ControlClient

_PACKAGES = ("click", "grpcio", "jeepney", "protobuf", "prometheus-client", "psutil", "pydantic", "pyudev", "PyYAML")


@click.command()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The archive to make [pinfold-gather-TIME.tar.gz]."
)
@config_options
@socket_option
@click.option(
    "--max-bytes", type=click.IntRange(min=1 << 16), default=16 << 20, show_default=True, help="Before compression."
)
@click.option("--no-redact", is_flag=True, help="Keep the names of pods, namespaces and containers.")
def command(
    output: Path | None, config: Path | None, flags: tuple[str, ...], socket: Path, max_bytes: int, no_redact: bool
) -> int:
    """Put the machine, the configuration, the state and the last decisions into one archive.

    Names of pods, namespaces and containers become pseudonyms, labels and annotations are left out. The archive can be given to
    `pinfold replay --check` and to `pinfold topology --sysroot`. Works with and without a running agent.

    \b
    Examples:
      pinfold gather
      pinfold gather -o /tmp/support.tar.gz --no-redact
    """
    now = datetime.now(UTC)
    path = output or Path(f"pinfold-gather-{now:%Y%m%d-%H%M%S}.tar.gz")
    loaded = load(config, parse_flags(flags))
    archive = SupportArchive(max_bytes)
    gathering = _Gathering(archive, loaded.config, None if no_redact else Redaction(secrets.token_bytes(32)))
    gathering.everything(socket)
    about = {"pinfold": __version__, "time": now.isoformat(timespec="seconds"), "redacted": not no_redact}
    contents = archive.write(path, about, int(time.time()))
    files = contents["files"]
    assert isinstance(files, Mapping)
    click.echo(f"{path}: {len(files)} files{'' if no_redact else ', names replaced'}")
    for name, why in archive.left_out.items():
        click.echo(f"left out {name}: {why}")
    return 0


@dataclass(slots=True)
class _Gathering:
    """One archive in the making. redaction: None keeps names. A part that cannot be had is named, and the rest goes on."""

    archive: SupportArchive
    config: Config
    redaction: Redaction | None

    def everything(self, socket: Path) -> None:
        self._part("versions.json", lambda: _json(_versions()))
        self._part("config.json", lambda: _json(self._config()))
        self._part(NAME, self._state)
        self._part("status.json", lambda: _json(self._status(socket)))
        self._part("topology.json", lambda: render_json(read_topology(Path(self.config.node.root))).encode())
        for name, content in capture(Path(self.config.node.root)):
            self.archive.add(name, content)
        self._part(DECISIONS, self._decisions)  # last: what room is left is theirs

    def _part(self, name: str, make: Any) -> None:
        try:
            self.archive.add(name, make())
        except (AgentError, OSError, ValueError, KeyError, TypeError) as error:  # a damaged file is what is looked for
            self.archive.left_out[name] = str(error)

    def _config(self) -> Any:
        values = self.config.model_dump(mode="json")
        return values if self.redaction is None else self.redaction.config(values)

    def _state(self) -> bytes:
        with (Path(self.config.state.directory) / NAME).open("rb") as stream:
            data = stream.read(MAX_STATE_BYTES)
        return data if self.redaction is None else encode(self.redaction.state(decode(data)))

    def _status(self, socket: Path) -> Any:
        status = ControlClient(socket).call("status", {})
        return status if self.redaction is None else self.redaction.status(status)

    def _decisions(self) -> bytes:
        """Both files, the older one only where both fit: each can be replayed alone."""
        files = [b"".join(self._records(name)) for name in (PREVIOUS, CURRENT)]
        whole = b"".join(files)
        return whole if len(whole) <= self.archive.room else files[1]

    def _records(self, name: str) -> Iterator[bytes]:
        path = Path(self.config.state.directory) / name
        if not path.exists():
            return
        with path.open("rb") as stream:
            for line in stream:
                if self.redaction is None:
                    yield line
                elif line.endswith(b"\n"):  # a last line without its end is being written, or was cut off
                    yield json.dumps(self.redaction.record(json.loads(line)), separators=(",", ":")).encode() + b"\n"


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


def _versions() -> Mapping[str, object]:
    uname = os.uname()
    return {
        "pinfold": __version__,
        "python": sys.version,
        "kernel": f"{uname.sysname} {uname.release} {uname.version}",
        "machine": uname.machine,
        "libc": " ".join(platform.libc_ver()),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
    }
