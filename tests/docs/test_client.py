"""The program that docs/served.md shows for reading the node service, run against an agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.agents import PATIENCE_SECONDS, pod_text, running
from tests.docs.pages import ROOT, fenced


def test_the_program_shown_prints_what_the_agent_holds(tmp_path: Path) -> None:
    (program,) = fenced(ROOT / "docs/served.md", "python")
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        shown = program.replace("connect()", f"connect({str(tmp_path / 'node.sock')!r})") + "        break\n"
        done = subprocess.run(
            [sys.executable, "-c", shown], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("['a']")
