"""Runs the tests against mutants: tests are collected once, then one fork per mutant runs those that reach it.

    python -m tests.mutation.runner agent.policy.eligibility agent.policy.cpu_*

One line per survivor and one per module are printed, and written as JSON with --json FILE. How to read them: docs/mutation.md.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, settings

from tests.mutation.mutants import ROOT, VARIABLE, Mutant, MutatedModules

KILLED, SURVIVED, UNREACHED, TEXT = "killed", "survived", "unreached", "not tried"
ADDRESS_SPACE = 4 << 30  # bytes; a mutant that allocates without end dies here, not the machine


@dataclass(slots=True)
class MutationRun:
    """A pytest plugin in place of pytest's own loop.

    budget: seconds of CPU that the tests of one mutant may take. every: 3 tries each third mutant of a module, a sample.
    """

    modules: MutatedModules
    budget: float
    only: Sequence[str] = ()
    texts: bool = False
    every: int = 1
    results: list[tuple[Mutant, str]] = field(default_factory=list)
    _seconds: dict[str, float] = field(default_factory=dict)
    _reached: dict[str, list[pytest.Item]] = field(default_factory=lambda: collections.defaultdict(list))
    _kills: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)  # function, test

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Before tests are imported. Examples are few and the same for all mutants, and none is made smaller: it fails or not."""
        settings.register_profile(
            "mutants",
            max_examples=20,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._record(session.items)
        for module, mutants in self.modules.mutants.items():
            chosen = [mutant for mutant in mutants if self._is_asked_for(mutant)][:: self.every]
            count = collections.Counter({TEXT: len(mutants) - len(chosen)})
            for mutant in chosen:
                tests = list(self._chosen(mutant))
                verdict = self._judge(mutant, tests) if tests else UNREACHED
                self.results.append((mutant, verdict))
                count[verdict] += 1
                if verdict != KILLED:
                    print(line(mutant, verdict), flush=True)
            print(f"{module}: " + ", ".join(f"{number} {what}" for what, number in count.items()), flush=True)
        return True

    def _is_asked_for(self, mutant: Mutant) -> bool:
        if self.only:
            return any(fnmatch.fnmatch(f"{mutant.module}.{mutant.name}", each) for each in self.only)
        return self.texts or not mutant.text_only

    def _record(self, items: Sequence[pytest.Item]) -> None:
        """Run every test once on the original code: it has to pass, takes a time, and reaches functions."""
        from mutmut.state import state

        os.environ[VARIABLE] = "stats"
        for item in items:
            state()._stats.clear()
            started = time.process_time()
            reports = runtestprotocol(item, log=False, nextitem=None)
            self._seconds[item.nodeid] = time.process_time() - started
            failed = [report for report in reports if report.failed]
            if failed:
                raise pytest.UsageError(f"{item.nodeid} fails without a mutant: {failed[0].longreprtext}")
            if not any(report.skipped for report in reports):
                for function in state()._stats:
                    self._reached[function].append(item)
        os.environ[VARIABLE] = ""
        gc.freeze()  # forks share what is there already

    def _chosen(self, mutant: Mutant) -> Iterator[pytest.Item]:
        """The tests that reach the mutant, as many as the budget has room for: those that killed most, then the fast ones."""
        spent = 0.0
        function = f"{mutant.module}.{mutant.function}"
        for item in sorted(
            self._reached.get(function, ()),
            key=lambda item: (-self._kills[function, item.nodeid], self._seconds[item.nodeid]),
        ):
            spent += self._seconds[item.nodeid]
            if spent > self.budget:
                return
            yield item

    def _judge(self, mutant: Mutant, tests: Sequence[pytest.Item]) -> str:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            self._run(mutant, tests, write)
        os.close(write)
        _, status = os.waitpid(child, 0)
        killer = os.read(read, 1 << 20).decode()
        os.close(read)
        if status == 0:
            return SURVIVED
        self._kills[f"{mutant.module}.{mutant.function}", killer] += 1
        return KILLED

    def _run(self, mutant: Mutant, tests: Sequence[pytest.Item], write: int) -> None:
        """In the fork: end with status 0 only if all tests pass. A test that takes ten times as long hangs: SIGPROF ends it."""
        status = 1
        try:
            os.environ[VARIABLE] = f"{mutant.module}.{mutant.name}"
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            for item in tests:
                signal.setitimer(signal.ITIMER_PROF, 2 + 10 * self._seconds[item.nodeid])
                if any(report.failed for report in runtestprotocol(item, log=False, nextitem=None)):
                    os.write(write, item.nodeid.encode())
                    break
            else:
                status = 0
        finally:
            os._exit(status)


def line(mutant: Mutant, verdict: str) -> str:
    """A survivor for people: its name, the line before and after."""
    return f"{verdict:9} {mutant.module}.{mutant.name}\n    - {mutant.removed}\n    + {mutant.added}"


def modules_named(patterns: Sequence[str]) -> list[str]:
    """In the order of the patterns."""
    names = [
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".") for path in sorted((ROOT / "agent").rglob("*.py"))
    ]
    return list(dict.fromkeys(name for pattern in patterns for name in fnmatch.filter(names, pattern)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="+", help="module names or patterns, as agent.policy.cpu_*")
    parser.add_argument("--tests", nargs="+", default=["tests/policy"], help="files or directories of tests")
    parser.add_argument("--only", nargs="*", default=[], help="only these mutants: names or patterns")
    parser.add_argument(
        "--texts", action="store_true", help="also mutants that change nothing but the letters of a text"
    )
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of CPU for the tests of one mutant")
    parser.add_argument("--every", type=int, default=1, help="a sample: each n-th mutant of a module only")
    parser.add_argument("--json", type=Path, help="write the results here too")
    chosen = parser.parse_args(arguments)
    modules = MutatedModules(modules_named(chosen.modules))
    modules.install()
    run = MutationRun(modules, chosen.budget, chosen.only, chosen.texts, chosen.every)
    tests = [str(ROOT / test) for test in chosen.tests]
    options = ["-q", "--no-header", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-m", "not shared and not real"]
    status = pytest.main([*options, *tests], plugins=[run])
    if status not in (0, 5):  # 5: pytest itself has run no test
        return int(status)
    if chosen.json:
        rows = [{**asdict(mutant), "verdict": verdict} for mutant, verdict in run.results]
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
