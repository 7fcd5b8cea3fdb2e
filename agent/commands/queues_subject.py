"""What a queue command is about, and how its answer is shown: objects in files, or an accountant that is asked. The options
for it are those of every queue command.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from agent.commands.queues_remote import asked_server, server_options, show_answer
from agent.formats.queue_objects import QueueObjects, decode_objects
from agent.kube.object_files import MAX_FILE_BYTES, ObjectFiles, decode_file, read_objects
from agent.model.queue import ResourceQuantities
from agent.queues.options import Profile, QueueOptions
from agent.queues.quantities import parse_total
from agent.queues.snapshot import Snapshot, take_snapshot
from agent.serve.queue_client import QueueClient

_F = TypeVar("_F", bound=Callable[..., Any])

_RULES = (
    click.argument("files", nargs=-1, metavar="[FILE...]"),
    click.option("--total", help="What there is to divide, such as cpu=64,memory=512Gi,gpu=8 [sum of the nodes]."),
    click.option("--profile", type=click.Choice([each.value for each in Profile]), default="0.18", help="KAI release."),
    click.option("--k-value", type=float, default=1.0, help="Weight of past usage in fair shares."),
    click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer."),
)
_RECLAIM = (
    click.option("--in-quota-priority", is_flag=True, help="KAI's queuePriorityInQuotaReclaim."),
    click.option("--saturation-multiplier", type=float, default=1.0, help="KAI's relcaimerSaturationMultiplier."),
    click.option("--forbid-take-back", is_flag=True, help="Refuse what victims could undo at once."),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """files: "-" is standard input. total: what there is to divide, None for what the nodes have. client: of the accountant
    that is to be asked instead, None for files. output: "text" or "json".
    """

    files: tuple[str, ...]
    total: ResourceQuantities | None
    options: QueueOptions
    output: str
    client: QueueClient | None

    def objects(self) -> QueueObjects:
        """Everything in the files."""
        if not self.files:
            raise click.UsageError("give files with the objects, or --server")
        return decode_objects(document for name in self.files for document in _documents(name))

    def snapshot(self) -> Snapshot:
        """The moment that the files show; refused objects are named on standard error."""
        snapshot = take_snapshot(self.objects(), self.options, self.total)
        warn(snapshot)
        return snapshot

    def flags(self) -> dict[str, bool]:
        """The switches of the command line, as an accountant takes them with a question."""
        flags = {
            "queuePriorityInQuotaReclaim": self.options.queue_priority_in_quota_reclaim,
            "forbidTakeBack": self.options.forbid_take_back,
        }
        return {name: True for name, given in flags.items() if given}

    def show(self, encoded: Callable[[], object], lines: Callable[[], Iterable[str]]) -> None:
        """Print an answer in the form that is asked for."""
        if self.output == "json":
            click.echo(json.dumps(encoded(), indent=2))
        else:
            for line in lines():
                click.echo(line)

    def show_answer(self, text: str) -> dict[str, Any]:
        """Print an accountant's answer in that form, and return it as an object."""
        return show_answer(text, self.output)


def warn(snapshot: Snapshot) -> None:
    """Name what was refused."""
    for problem in snapshot.problems:
        click.echo(f"refused: {problem}", err=True)


def subject_options(*, reclaim: bool = False, only_files: tuple[str, ...] = ("files",)) -> Callable[[_F], _F]:
    """The options of every queue command, as the parameter `subject`. reclaim: also those of the reclaim rules.

    only_files: parameters of the command, beside the shared ones, that mean nothing to an accountant: wrong use with --server.
    """
    refused = (*only_files, "total", "profile", "k_value", "saturation_multiplier")

    def decorate(function: _F) -> _F:
        @wraps(function)
        def with_subject(
            *args: Any,
            files: tuple[str, ...],
            total: str | None,
            profile: str,
            k_value: float,
            output: str,
            in_quota_priority: bool = False,
            saturation_multiplier: float = 1.0,
            forbid_take_back: bool = False,
            **values: Any,
        ) -> Any:
            address, values = asked_server(values)
            if address is not None:
                _refuse_given(refused)
            rules = Profile.parse(profile)
            options = QueueOptions(k_value, saturation_multiplier, in_quota_priority, rules, forbid_take_back)
            client = None if address is None else QueueClient(address)
            return function(*args, subject=Subject(files, _total(total), options, output, client), **values)

        decorated: Any = server_options(with_subject)
        for option in reversed((*_RULES, *(_RECLAIM if reclaim else ()))):
            decorated = option(decorated)
        found: _F = decorated
        return found

    return decorate


def _refuse_given(names: Iterable[str]) -> None:
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            told = parameter.opts[0] if isinstance(parameter, click.Option) else "FILE"
            raise click.UsageError(f"{told} means nothing with --server: an accountant has its own")


def _total(text: str | None) -> ResourceQuantities | None:
    """`cpu=64,memory=512Gi,gpu=8` in the scheduler's units."""
    try:
        return None if text is None else parse_total(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--total") from error


def _documents(name: str) -> Iterator[object]:
    if name != "-":
        yield from ObjectFiles([Path(name)]).read()
    else:
        yield from read_objects(decode_file(sys.stdin.buffer.read(MAX_FILE_BYTES + 1), name), name)
