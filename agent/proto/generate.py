"""Regenerates the protobuf code of this folder from its .proto files; `--check` only tells whether that would change it.

    python -m agent.proto.generate            writes *_pb2.py, *_pb2_grpc.py and their .pyi beside the .proto files
    python -m agent.proto.generate --check    exit 1 and the names of the files that differ

Needs the dev extras in their pinned versions: generated code names the version of the compiler that wrote it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def compile_protos(output: Path) -> None:
    """Compile every .proto of this folder into `output`/agent/proto. Raises CalledProcessError with protoc's own message."""
    sources = sorted(FOLDER.glob("*.proto"))
    services = [path for path in sources if "\nservice " in path.read_text(encoding="utf-8")]
    _protoc(sources, f"--python_out={output}", f"--mypy_out=quiet:{output}")
    _protoc(services, f"--grpc_python_out={output}", f"--mypy_grpc_out=quiet:{output}")


def _protoc(sources: Sequence[Path], *outputs: str) -> None:
    # protoc finds its mypy plugins by PATH; a virtual environment need not be activated for this to work
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    names = [str(each.relative_to(ROOT)) for each in sources]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", *outputs, *names]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PATH": path})


def generated(folder: Path) -> dict[str, bytes]:
    """The generated files of a folder: name -> content."""
    return {path.name: path.read_bytes() for pattern in PATTERNS for path in folder.glob(pattern)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m agent.proto.generate", description="Regenerate the protobuf code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the committed code differs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        compile_protos(Path(scratch))
        wanted = generated(Path(scratch) / FOLDER.relative_to(ROOT))
    present = generated(FOLDER)
    if arguments.check:
        differing = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
        for name in differing:
            print(
                f"{FOLDER.relative_to(ROOT) / name}: differs from its .proto file; run python -m agent.proto.generate"
            )
        return 1 if differing else 0
    for name in present.keys() - wanted.keys():
        (FOLDER / name).unlink()
    for name, content in wanted.items():
        (FOLDER / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
