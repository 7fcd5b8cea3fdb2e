"""Commands out of a document for people: the fenced blocks marked `sh`, by heading."""

from __future__ import annotations

from pathlib import Path


def sections(path: Path) -> dict[str, list[str]]:
    """Heading of level two -> its blocks, each as it would be pasted into a shell."""
    found: dict[str, list[str]] = {}
    block: list[str] | None = None
    heading = ""
    for line in path.read_text().splitlines():
        if block is not None:
            if line == "```":
                found.setdefault(heading, []).append("\n".join(block))
                block = None
            else:
                block.append(line)
        elif line == "```sh":
            block = []
        elif line.startswith("## "):
            heading = line.removeprefix("## ")
    return found
