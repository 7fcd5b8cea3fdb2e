"""Every `pinfold ...` that a page, a help text or a hint tells people to type is a command with these options.

What the commands do is for their own tests; this is so that no text names one that is not there any more.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from agent.cli import COMMANDS, cli
from benchmarks.__main__ import main as benchmarks
from tests.docs.pages import PAGES, ROOT, command_lines, literals, name

_END = {"|", "||", "&", "&&", ";", ">", ">>", "<", "(", ")", "#"}
_HOLDER = re.compile(r"[A-Z][A-Z0-9_]*$|\.\.\.$|\$")  # POD, FILE, ..., $NODE
_TYPED = re.compile(r"(?:^\s*|[|&;(]\s*|\s--\s+|--unit=\w+\s+|bin/)pinfold\s+(?=[a-z-])")
_TOLD = re.compile(r"`(pinfold [^`]+)`|: (pinfold (?!is )[a-z-]+(?: [a-z-]+)?(?: -[^,;:)]*)?)")


def words(line: str) -> list[str]:
    """The words of one simple command, without comment, redirection and what follows it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found: list[str] = []
    try:
        for word in lexer:
            if word in _END:
                break
            found.append(word)
    except ValueError:  # an apostrophe of a sentence
        pass
    return found


def commands(line: str) -> Iterator[list[str]]:
    """The pinfold commands of a line, each with its arguments."""
    for start in _TYPED.finditer(line):
        yield words(line[start.end() :])


def complaint(arguments: list[str], command: click.Command = cli) -> str | None:
    """What is wrong with a command line, None where nothing is. A value that is a placeholder is not looked at."""
    context = click.Context(command)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        if _HOLDER.match(arguments[0]):
            return None
        found = command.get_command(context, arguments[0])
        if found is None:
            return f"no command {arguments[0]!r}"
        command, context = found, click.Context(found, context, info_name=arguments[0])
        arguments = arguments[1:]
    try:
        values, rest, _ = command.make_parser(context).parse_args(list(arguments))
    except click.BadOptionUsage:  # a sentence that names an option without its value
        return None
    except click.UsageError as error:
        return error.message
    if rest and not isinstance(command, click.Group):
        return f"too many arguments: {rest}"
    for parameter in command.params:
        given = values.get(parameter.name or "")
        for value in [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else ():
            if isinstance(parameter.type, click.Choice) and not _HOLDER.match(value):
                try:
                    parameter.type.convert(value, parameter, context)
                except click.UsageError as error:
                    return error.message
    return None


def told(text: str) -> Iterator[str]:
    """Commands in a text of the program: in code marks, after a colon, and the lines of examples in help texts."""
    for marked, plain in _TOLD.findall(text):
        yield marked or plain
    yield from (line for line in text.splitlines() if re.match(r"\s+pinfold ", line))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pinfold status --wach", "No such option"),
        ("pinfold sttus", "no command 'sttus'"),
        ("pinfold checkpoint mend --plan", "no command 'mend'"),
        ("pinfold pause now", "too many arguments"),
        ("pinfold status -o xml", "'xml' is not one of"),
        ("kubectl get pod -o json | pinfold queues check-resize - --pods a", "No such option"),
        ("pinfold host-services --apply && systemctl daemon-reload", None),
        ("pinfold exec POD CONTAINER -- CMD", None),
        ("pinfold checkpoint export --kubelet-version X  # a comment", None),
    ],
)
def test_what_is_not_there_is_noticed(line: str, said: str | None) -> None:
    (arguments,) = commands(line)
    found = complaint(arguments)
    assert found is None if said is None else said in str(found)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_name_commands_and_options_that_exist(page: Path) -> None:
    wrong = [
        f"{line.strip()}: {why}"
        for line in command_lines(page)
        for arguments in commands(line)
        if (why := complaint(arguments))
    ]
    assert not wrong


def test_help_texts_hints_and_configuration_files_name_commands_that_exist() -> None:
    texts = {
        str(path.relative_to(ROOT)): list(literals(path))
        for path in sorted((ROOT / "agent").rglob("*.py"))
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
    }
    for folder in ("systemd", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".yaml", ".service", ".conf"):
                texts[str(path.relative_to(ROOT))] = [path.read_text(encoding="utf-8")]
    found = [(where, line) for where, each in texts.items() for text in each for line in told(text)]
    wrong = [
        f"{where}: {line}: {why}"
        for where, line in found
        for arguments in commands(line)
        if (why := complaint(arguments))
    ]
    assert len(found) > 100
    assert not wrong


def test_the_readme_has_every_command() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Commands")[2].partition("\n## ")[0]
    assert set(re.findall(r"`pinfold ([a-z-]+)", table)) == set(COMMANDS)


def test_every_command_has_an_example_in_its_help() -> None:
    def without(command: click.Command, path: str) -> Iterator[str]:
        text = command.get_help(click.Context(command, info_name=path))
        if not re.search(rf"Examples?:\n(.+\n)*    {path}( |$)", text, re.MULTILINE):
            yield path
        if isinstance(command, click.Group):
            for each in command.list_commands(click.Context(command)):
                found = command.get_command(click.Context(command), each)
                assert found is not None
                yield from without(found, f"{path} {each}")

    assert not list(without(cli, "pinfold"))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_commands_name_modules_and_files_that_exist(page: Path) -> None:
    for line in command_lines(page):
        for module in re.findall(r"python3? -m ((?!venv|pytest|build)[\w.]+)", line):
            assert importlib.util.find_spec(module) is not None, line
        if "pytest" in line:
            for path in re.findall(r"\btests/[\w/.]+", line):
                assert (ROOT / path).exists(), line


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_benchmarks_that_a_page_names_exist(page: Path) -> None:
    lines = [line for line in command_lines(page) if re.search(r"python -m benchmarks(?= |$)", line)]
    asked = [words(line.partition("-m benchmarks")[2]) for line in lines]
    assert [why for arguments in asked if (why := complaint(arguments, benchmarks))] == []
