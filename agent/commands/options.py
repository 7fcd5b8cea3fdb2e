"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from agent.serve.control_client import CONTROL_SOCKET

_F = TypeVar("_F", bound=Callable[..., Any])


def config_options(function: _F) -> _F:
    """`--config FILE` and `--set KEY=VALUE`, as parameters `config` and `flags`."""
    function = click.option(
        "--set", "flags", multiple=True, metavar="KEY=VALUE", help="One configuration value; wins over files."
    )(function)
    return click.option(
        "--config", type=click.Path(path_type=Path), help="Configuration file [/etc/pinfold/config.yaml]."
    )(function)


def socket_option(function: _F) -> _F:
    """`--socket PATH`, as parameter `socket`. Whether the caller may use it is for the connection to find out and to say."""
    kind = click.Path(path_type=Path, readable=False)
    return click.option("--socket", type=kind, default=CONTROL_SOCKET, help="The agent's control socket.")(function)


def parse_flags(flags: tuple[str, ...]) -> dict[str, Any]:
    """`--set KEY=VALUE` pairs by dotted key; a value is YAML, so that numbers, lists and maps can be given.

    Keys that hold text take the value as it is written: `reservedSystemCPUs=0` is the text "0". Raises click.BadParameter.
    """
    if not flags:
        return {}
    import yaml

    # here, since the schema of the configuration is most of the time that a command takes to begin
    from agent.config_keys import locate

    values: dict[str, Any] = {}
    for flag in flags:
        key, equals, text = flag.partition("=")
        if not equals or not all(key.split(".")):
            raise click.BadParameter(f"{flag!r} is not KEY=VALUE", param_hint="--set")
        if locate(key)[1]:
            values[key] = text
            continue
        try:
            values[key] = yaml.safe_load(text) if text else ""
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise click.BadParameter(f"{flag!r}: the value is not YAML", param_hint="--set") from error
    return values
