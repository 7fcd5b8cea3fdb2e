"""The command: measure, show, and write the record.

python -m benchmarks                        every benchmark, as a table
python -m benchmarks take_cpus pods         these; a curve's name sweeps it
python -m benchmarks --curves --record      everything, into docs/performance
"""

from __future__ import annotations

import sys
import time

import click

from benchmarks import record
from benchmarks.figure import NORMAL, QUICK
from benchmarks.problems import WrongResultError
from benchmarks.suite import BENCHMARKS, CURVES, Run, run
from benchmarks.table import amount, text_table


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice([*BENCHMARKS, *CURVES]), metavar="[NAME]...")
@click.option("--curves", is_flag=True, help="Also sweep every size (growth curves).")
@click.option("--quick", is_flag=True, help="The smallest sizes: shows that everything runs, not how fast.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--record", "keep", is_flag=True, help="Write results.json, results.md and the SVG into docs/performance."
)
@click.option("--list", "listing", is_flag=True, help="Only say which names there are.")
def main(names: tuple[str, ...], curves: bool, quick: bool, output: str, keep: bool, listing: bool) -> None:
    if listing:
        for name, about in {**BENCHMARKS, **CURVES}.items():
            click.echo(f"{name:14}{about}")
        return
    if keep and quick:
        raise click.UsageError("the figures of --quick mean nothing: they are not for the record")
    wanted = names or (*BENCHMARKS, *(CURVES if curves else ()))
    runs, wrong = list[Run](), list[str]()
    for name in wanted:
        click.echo(f"{name}: {({**BENCHMARKS, **CURVES})[name]} ...", err=True)
        try:
            runs.append(run(name, QUICK if quick else NORMAL, time.perf_counter))
        except WrongResultError as error:
            click.echo(f"{name}: {error}", err=True)
            wrong.append(name)
            continue
        if output == "text":
            show(runs[-1])
        if keep:
            record.save(runs[-1:])
    if output == "json":
        sys.stdout.write(record.encode({each.name: each for each in runs}))
    if wrong:
        raise click.ClickException(f"no figures of {', '.join(wrong)}, see above")


def show(done: Run) -> None:
    """One run for a terminal."""
    click.echo(f"\n{done.name}: {done.about}\n{done.before}; load {done.after.load} at its end; {done.seconds:.0f} s")
    if done.left_out:
        click.echo(f"left out: {done.left_out}")
    elif done.rows:
        click.echo(text_table(done.rows))
    for curve in done.curves:
        click.echo(f"{curve.title}, by {curve.size}")
        for series in curve.series:
            points = "  ".join(f"{x:g}: {amount(y, curve.unit)}" for x, y in series.points)
            slope = "" if series.slope is None else f"n^{series.slope:.2f}"
            click.echo(f"  {series.name:36}{slope:8}{points}")


if __name__ == "__main__":
    main()
