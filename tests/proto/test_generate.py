"""The committed protobuf code is what its .proto files give."""

from __future__ import annotations

import subprocess
import sys


def test_the_generated_code_is_up_to_date() -> None:
    command = [sys.executable, "-m", "agent.proto.generate", "--check"]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")
