"""`pinfold replay`: recorded decisions run again."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from agent.errors import BadInputError
from agent.replay.check import Tally, check
from agent.replay.context import Context
from agent.replay.runner import answers


def _lines(name: str) -> Iterator[str]:
    if name == "-":
        yield from sys.stdin
        return
    path = Path(name)
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as stream:
            yield from stream
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise BadInputError(
            f"{path}: {error}", hint="give a file of JSON lines, plain or .gz, or - for stdin"
        ) from error


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", "compare", is_flag=True, help="Compare with each record's `want`; exit 1 if any differs.")
@click.option("--profile", type=click.Choice(["0.18", "main"]), default="0.18", help="Upstream profile of queue kinds.")
def command(files: tuple[str, ...], compare: bool, profile: str) -> int:
    """Run recorded decisions again.

    FILE holds JSON lines {"kind", "id", "input", "want"}; - is standard input. One answer per record, in order.

    \b
    Examples:
      pinfold replay decisions.jsonl
      pinfold replay --check take_cpus.jsonl.gz
    """
    context = Context(profile=profile)
    tally = Tally()
    for name in files:
        for record, line in answers(_lines(name), context):
            if not compare:
                click.echo(json.dumps(line, separators=(",", ":")))
                continue
            difference = check(record, line, tally, profile)
            if difference:
                click.echo(f"{line['kind']} {line['id']}: {difference}")
    if not compare:
        return 0
    click.echo(f"replay: {tally.ok} ok, {tally.differ} differ, {tally.known} known")
    return 1 if tally.differ else 0
