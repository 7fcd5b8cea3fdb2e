"""The command: soak, show what came of it; 1 where something grows, storms, wakes up or is wrong.

python -m benchmarks.soak                        both parts, some 14 minutes
python -m benchmarks.soak --minutes 2 -o json    less churn
python -m benchmarks.soak --minutes 0            only the simulated hour
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from benchmarks.problems import CannotRunError, WrongResultError
from benchmarks.soak import real, simulated
from benchmarks.soak.result import Part, text


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", type=click.FloatRange(0, 24 * 60), default=10.0, show_default=True, help="Of real churn.")
@click.option(
    "--simulated-hours", type=click.FloatRange(0, 24), default=1.0, show_default=True, help="Of simulated churn."
)
@click.option("--idle-seconds", type=click.FloatRange(1, 3600), default=60.0, show_default=True, help="After it.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Of what is done; how it goes is up to the machine."
)
@click.option("--output-file", type=click.Path(path_type=Path), help="Write the JSON here too.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(
    minutes: float, simulated_hours: float, idle_seconds: float, seed: int, output_file: Path | None, output: str
) -> None:
    parts: list[Part] = []
    try:
        if simulated_hours:
            click.echo(f"simulating {simulated_hours:g} h ...", err=True)
            parts.append(simulated.soak(simulated_hours, seed))
            if output == "text":
                click.echo(text(parts[-1]))
        if minutes:
            click.echo(f"{minutes:g} minutes of churn ...", err=True)
            parts.append(real.soak(real.Scale(minutes * 60, idle_seconds), seed))
            if output == "text":
                click.echo(text(parts[-1]))
    except (CannotRunError, WrongResultError) as error:
        raise click.ClickException(str(error)) from error
    document = json.dumps([part.encode() for part in parts], indent=1)
    if output == "json":
        click.echo(document)
    if output_file is not None:
        output_file.write_text(document + "\n")
    if any(part.verdicts() for part in parts):
        sys.exit(1)


if __name__ == "__main__":
    main()
