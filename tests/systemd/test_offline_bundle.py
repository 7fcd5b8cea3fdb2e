"""The offline bundle on a Debian 12 that has nothing but Python, in a network of its own without anybody in it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from agent import __version__
from release.bundle import make
from tests.systemd.cache import PYTHON, root_file_system
from tests.systemd.container import run_in

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]  # the first run on a machine makes a root file system

INSTALLED = """
cd /tmp && tar xf /bundle/pinfold-*.tar.gz && cd pinfold-*
rm -r /usr/lib/python3*/ensurepip || true  # as where python3-venv is not installed
./install.sh
pinfold --version
test -s /etc/systemd/system/pinfold.service
test -s /etc/pinfold/config.yaml
getent group pinfold
test -d /etc/pinfold/manifests
systemd-analyze verify pinfold.service
test -s /usr/local/share/man/man1/pinfold.1
bash -ec '. /usr/local/share/bash-completion/completions/pinfold'
pinfold config check
pinfold demo > /dev/null
echo reservedSystemCPUs: '"0-1"' > /etc/pinfold/config.yaml
./install.sh > /dev/null
cat /etc/pinfold/config.yaml
"""
DAMAGED = """
cd /tmp && tar xf /bundle/pinfold-*.tar.gz && cd pinfold-*
echo >> wheels/$(ls wheels | head -n 1)
code=0; ./install.sh || code=$?
echo exit $code
test ! -e /opt/pinfold
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root to enter a container")
    for tool, package in (("systemd-nspawn", "systemd-container"), ("mmdebstrap", "mmdebstrap")):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}: apt-get install {package}")
    directory = tmp_path_factory.mktemp("bundle")
    make(directory, PYTHON, platform.machine())
    return directory


def inside(script: str, bundle: Path) -> subprocess.CompletedProcess[str]:
    return run_in(root_file_system(), script, {"/bundle": bundle}, f"pinfold-bundle-{os.getpid()}")


def test_the_bundle_installs_and_upgrades_where_there_is_no_network(bundle: Path) -> None:
    done = inside(INSTALLED, bundle)
    assert done.returncode == 0, done.stdout
    assert f"pinfold {__version__} (commit " in done.stdout
    assert "Nothing has been started" in done.stdout
    assert 'reservedSystemCPUs: "0-1"\n' in done.stdout  # an upgrade leaves the configuration alone


def test_a_damaged_bundle_installs_nothing(bundle: Path) -> None:
    done = inside(DAMAGED, bundle)
    assert done.returncode == 0, done.stdout
    assert "the bundle is damaged: get it again; nothing has been installed" in done.stdout
    assert "exit 3" in done.stdout
