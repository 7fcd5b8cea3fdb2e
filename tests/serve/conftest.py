"""A serving loop for the tests of the servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.serve.loop import ServingLoop


@pytest.fixture
def loop() -> Iterator[ServingLoop]:
    with ServingLoop() as loop:
        yield loop
