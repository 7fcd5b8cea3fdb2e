"""A private containerd for tests: own root, own socket, one image made on the spot, and the CRI calls that a kubelet would make.

Those calls are not pinfold's, so its own .proto does not have them; the few messages are encoded here by field number.
Source of the numbers: kubernetes/cri-api, pkg/apis/runtime/v1/api.proto (1.36).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, Union

import grpc
import pytest

IMAGE = "localhost/pinfold/busybox:1"
NODE_NETWORK = 2  # runtime.v1.NamespaceMode
Message: TypeAlias = Mapping[int, Union[str, int, "Message", Sequence[Union[str, "Message"]]]]
PATIENCE_SECONDS = 60.0


def encode(message: Message) -> bytes:
    """A protobuf message from field numbers: strings, integers, messages, lists of them."""
    out = b""
    for number, value in message.items():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, int):
                out += _varint(number << 3) + _varint(each)
            else:
                assert isinstance(each, str | Mapping)
                data = each.encode() if isinstance(each, str) else encode(each)
                out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return out


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def entries(labels: Mapping[str, str]) -> list[Message]:
    """A map<string, string>."""
    return [{1: key, 2: value} for key, value in labels.items()]


@dataclass
class Containerd:
    """A running containerd."""

    directory: Path
    process: subprocess.Popen[bytes] | None = None
    sandboxes: list[str] = field(default_factory=list)

    @property
    def socket(self) -> str:
        return str(self.directory / "c.sock")

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            command = ["containerd", "-c", str(self.directory / "config.toml")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.call("Version", {1: "v1"})
                return
            except grpc.RpcError:
                assert time.monotonic() < end, (self.directory / "log").read_text()[-3000:]
                time.sleep(0.05)

    def kill(self) -> None:
        """As a crash: containers go on under their shims."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def call(self, method: str, request: Message) -> str:
        """One CRI call; field 1 of the answer where it is a string."""
        with grpc.insecure_channel(f"unix://{self.socket}", options=[("grpc.enable_http_proxy", 0)]) as channel:
            # bytes in, bytes out: no serializers
            function = channel.unary_unary(f"/runtime.v1.RuntimeService/{method}", None, None)
            answer: bytes = function(encode(request), timeout=PATIENCE_SECONDS)
        return answer[2 : 2 + answer[1]].decode(errors="replace") if answer[:1] == b"\x0a" else ""

    def pod(self, uid: str, parent: str) -> tuple[str, Message]:
        """A sandbox with its cgroup below `parent`, as a kubelet asks for one: its id and configuration."""
        labels = {"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": uid, "io.kubernetes.pod.namespace": "default"}
        config: Message = {
            1: {1: uid, 2: uid, 3: "default"},
            3: str(self.directory / "logs"),
            6: entries(labels),
            8: {1: parent, 2: {1: {1: NODE_NETWORK}}},
        }
        sandbox = self.call("RunPodSandbox", {1: config})
        self.sandboxes.append(sandbox)
        return sandbox, config

    def container(self, sandbox: tuple[str, Message], name: str, script: str = "sleep 600", attempt: int = 0) -> str:
        """A started container: its id."""
        labels = entries({"io.kubernetes.container.name": name})
        config: Message = {
            1: {1: name, 2: attempt},
            2: {1: IMAGE},
            3: ["/bin/sh", "-c", script],
            9: labels,
            11: f"{name}-{attempt}.log",
            15: {1: {3: 1024}},
        }
        made = self.call("CreateContainer", {1: sandbox[0], 2: config, 3: sandbox[1]})
        self.call("StartContainer", {1: made})
        return made

    def end(self) -> None:
        """Remove every pod, then the runtime."""
        for sandbox in self.sandboxes:
            with contextlib.suppress(grpc.RpcError):
                self.call("StopPodSandbox", {1: sandbox})
                self.call("RemovePodSandbox", {1: sandbox})
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE_SECONDS)


@contextmanager
def private_containerd() -> Iterator[Containerd]:
    """Skips the test, with the reason, where containerd is not installed or we are not root."""
    for tool in ("containerd", "runc", "ctr", "busybox"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt-get install containerd runc busybox-static")
    if os.geteuid() != 0:
        pytest.skip("containerd needs root")
    directory = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))  # short: a socket's path has 107 characters at most
    runtime = Containerd(directory)
    try:
        (directory / "logs").mkdir()
        (directory / "cni").mkdir()
        (directory / "cni" / "lo.conflist").write_text(
            '{"cniVersion": "0.4.0", "name": "lo", "plugins": [{"type": "loopback"}]}'
        )
        (directory / "config.toml").write_text(_CONFIG.format(dir=directory, image=IMAGE))
        runtime.start()
        (directory / "image.tar").write_bytes(_image(Path(shutil.which("busybox") or "")))
        tell = ["ctr", "-a", runtime.socket, "-n", "k8s.io", "images", "import", str(directory / "image.tar")]
        subprocess.run(tell, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
        yield runtime
    finally:
        runtime.end()
        shutil.rmtree(directory, ignore_errors=True)


_CONFIG = """\
version = 2
root = "{dir}/root"
state = "{dir}/state"
[grpc]
  address = "{dir}/c.sock"
[ttrpc]
  address = "{dir}/t.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true  # without CAP_SYS_RESOURCE no sandbox starts otherwise
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{dir}/cni"
    bin_dir = "{dir}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def _image(busybox: Path) -> bytes:
    """An OCI image layout with one layer: a static busybox as /bin/sh and /bin/sleep; its command sleeps."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for name in ("sh", "sleep"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    plain = layer.getvalue()
    packed = gzip.compress(plain, 1)
    config = json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
            "os": "linux",
            "config": {"Entrypoint": ["/bin/sleep", "36000"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        }
    ).encode()
    kind = "application/vnd.oci.image"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _described(f"{kind}.config.v1+json", config),
            "layers": [_described(f"{kind}.layer.v1.tar+gzip", packed)],
        }
    ).encode()
    named = {**_described(f"{kind}.manifest.v1+json", manifest), "annotations": {"io.containerd.image.name": IMAGE}}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [named]}).encode())
        for blob in (config, packed, manifest):
            _add(tar, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
    return out.getvalue()


def _described(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))
