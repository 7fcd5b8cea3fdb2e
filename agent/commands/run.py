"""`pinfold run`: the daemon."""

from __future__ import annotations

from pathlib import Path

import click

from agent.assembly import run
from agent.commands.options import config_options, parse_flags
from agent.config import load
from agent.log import set_up


@click.command()
@config_options
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def command(config: Path | None, flags: tuple[str, ...], verbose: bool) -> int:
    """Run the agent in the foreground.

    SIGTERM ends it, all pins stay. SIGHUP reads the configuration again.

    \b
    Examples:
      pinfold run
      pinfold run --config ./config.yaml --set state.directory=/tmp/pinfold
    """
    set_up(verbose=verbose)
    values = parse_flags(flags)
    run(load(config, values), config, values)
    return 0
