"""Where the recorded vectors lie: beside the repository, read in place. Without them the tests that need them are skipped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2] / "shared"
KUBELET = SHARED / "conformance" / "kubelet"
QUEUES = SHARED / "conformance" / "queues"


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a `.jsonl.gz` file of vectors, in order."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
