"""`pinfold replay`: recorded decisions run again."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import click

from agent.errors import BadInputError
from agent.log import printable
from agent.node.support_archive import is_support_archive, open_decisions
from agent.replay.check import Tally, check
from agent.replay.context import Context
from agent.replay.runner import answers


def _lines(name: str) -> Iterator[str]:
    """The lines of a file; bytes that are not UTF-8 as lone surrogates, so that they cost their own record only."""
    path = Path(name)
    try:
        with _open(path) as stream:
            yield from io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape")
    except (OSError, EOFError, zlib.error) as error:
        raise BadInputError(
            f"{path}: {error}", hint="give a file of JSON lines, plain or .gz, or - for stdin"
        ) from error


def _open(path: Path) -> BinaryIO:
    if str(path) == "-":
        return sys.stdin.buffer
    if is_support_archive(path):
        return cast(BinaryIO, open_decisions(path))
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", "compare", is_flag=True, help="Compare with each record's `want`; exit 1 if any differs.")
@click.option("--profile", type=click.Choice(["0.18", "main"]), default="0.18", help="Upstream profile of queue kinds.")
def command(files: tuple[str, ...], compare: bool, profile: str) -> int:
    """Run recorded decisions again.

    FILE holds JSON lines {"kind", "id", "input", "want"}, plain or gzipped, or is an archive of `pinfold gather`; - is standard
    input. One answer per record, in order.

    \b
    Examples:
      pinfold replay decisions.jsonl
      pinfold replay --check take_cpus.jsonl.gz
      pinfold replay --check pinfold-gather-20261129-210000.tar.gz
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
                click.echo(printable(f"{line['kind']} {line['id']}: {difference}"))
    if not compare:
        return 0
    click.echo(f"replay: {tally.ok} ok, {tally.differ} differ, {tally.known} known")
    return 1 if tally.differ else 0
