"""What all tests share: the vectors beside the repository, how hard properties are tried, `--long`, real parts in CI."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.shared import SHARED

# No deadlines: the machines that run this are shared, and a slow moment is not a defect.
settings.register_profile("quick", max_examples=60, deadline=None)
settings.register_profile(
    "long", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long, and try properties harder")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    no_vectors = pytest.mark.skip(reason=f"the vectors are not there: {SHARED}")
    not_long = pytest.mark.skip(reason="takes minutes: run with --long")
    for item in items:
        if item.get_closest_marker("shared") and not SHARED.is_dir():
            item.add_marker(no_vectors)
        if item.get_closest_marker("long") and not config.getoption("--long"):
            item.add_marker(not_long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI every real part is there: a test of one that is skipped is a test that did not run, and fails."""
    report = yield
    if os.environ.get("CI") and item.get_closest_marker("real") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a real-part test was skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of the vectors; skips the test where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"the vectors are not there: {SHARED}")
    return SHARED
