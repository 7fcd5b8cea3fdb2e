"""The mutants of a module: mutmut makes them, this loads them in memory and says what each one changed.

mutmut writes all mutants of a function side by side and chooses between them by an environment variable, so that one import
serves all of them. Its own runner copies the tree and starts pytest once per mutant; `tests.mutation.runner` forks instead.
"""

from __future__ import annotations

import ast
import difflib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "MUTANT_UNDER_TEST"  # mutmut's own name; "stats" asks it to record which functions are called
MARK = "__mutmut_"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function. name: as mutmut writes it, function: the mangled name that its recorder reports."""

    module: str
    name: str
    removed: str
    added: str

    @property
    def function(self) -> str:
        return self.name.partition(MARK)[0]

    @property
    def text_only(self) -> bool:
        """Whether nothing but the letters of a literal text changed: a message, or a name that is compared."""
        return _without_texts(self.removed) == _without_texts(self.added)


def _without_texts(line: str) -> str:
    """The line with every literal text replaced by one and the same; itself where it is no whole statement."""
    parts = line.replace('\\"', "").split('"')
    return '""'.join(parts[::2])


@dataclass(slots=True)
class MutatedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the named modules with all their mutants; every other module is none of its business."""

    modules: Sequence[str]
    mutants: dict[str, list[Mutant]] = field(default_factory=dict)
    _code: dict[str, CodeType] = field(default_factory=dict)

    def install(self) -> None:
        """Make all mutants, and stand before the usual finders. The modules must not be imported yet."""
        from mutmut.mutation.file_mutation import mutate_file_contents

        early = set(self.modules) & set(sys.modules)
        if early:
            raise RuntimeError(f"already imported without mutants: {', '.join(sorted(early))}")
        for module in self.modules:
            path = ROOT / (module.replace(".", "/") + ".py")
            mutated = mutate_file_contents(str(path), path.read_text(encoding="utf-8"))
            self._code[module] = compile(mutated.code, f"<mutants of {module}>", "exec", dont_inherit=True)
            self.mutants[module] = changes(module, mutated.code, mutated.mutant_names)
        sys.meta_path.insert(0, self)
        os.environ[VARIABLE] = ""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._code:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code[module.__name__], module.__dict__)


def changes(module: str, code: str, names: Sequence[str]) -> list[Mutant]:
    """What each mutant changed: the lines in which its function differs from the original."""
    lines = code.splitlines()
    functions: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef) and MARK in node.name:
            function = node.name.partition(MARK)[0]
            header = lines[node.lineno - 1].replace(node.name, function)
            functions[node.name] = [header, *lines[node.lineno : node.end_lineno]]
    found = []
    for name in names:
        original = functions[name.partition(MARK)[0] + MARK + "orig"]
        diff = list(difflib.ndiff(original, functions[name]))
        removed, added = (" ".join(line[1:].strip() for line in diff if line[0] == sign) for sign in "-+")
        found.append(Mutant(module, name, removed, added))
    return found
