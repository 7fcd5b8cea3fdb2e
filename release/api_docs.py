"""`python -m release.api_docs DIRECTORY`: API pages of what other programs import, as HTML, by pdoc. A warning is a failure.

Public are `agent.client`, the pure rooms and the errors. The commands are described by the manual page, the messages of
`agent.proto` by their proto files.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pdoc

PUBLIC = (
    "agent.client",
    "agent.errors",
    "agent.model",
    "agent.formats",
    "agent.policy",
    "agent.queues",
    "agent.replay",
)


def build(directory: Path) -> list[str]:
    """Write the pages of everything public into `directory`; what pdoc had to say against them."""
    for name in PUBLIC:
        for module in _below(name):
            _resolve_named_tuples(module)
    pdoc.render.configure(docformat="markdown", search=False, show_source=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pdoc.pdoc(*PUBLIC, output_directory=directory)
    return [str(each.message) for each in said]


def _below(name: str) -> Iterator[ModuleType]:
    """A module, and those in it."""
    module = importlib.import_module(name)
    yield module
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
        yield importlib.import_module(found.name)


def _resolve_named_tuples(module: ModuleType) -> None:
    """Give the constructors of NamedTuples real types: Python keeps the text of the annotations, not where its names are."""
    for _, found in inspect.getmembers(module, inspect.isclass):
        if found.__module__ == module.__name__ and issubclass(found, tuple) and hasattr(found, "_fields"):
            found.__new__.__annotations__ = typing.get_type_hints(found)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m release.api_docs DIRECTORY", file=sys.stderr)
        return 2
    said = build(Path(sys.argv[1]))
    for each in said:
        print(f"warning: {each}", file=sys.stderr)
    print(f"{sys.argv[1]}/index.html: {len(said)} warnings")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
