import os
import pathlib
import subprocess

import pytest

import relive

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def runtime_dir(tmp_path, monkeypatch):
    """The runtime directory of a test's daemons."""
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def store(runtime_dir):
    """The URI of a store that `relive up` runs."""
    name, command = "learn-%d" % os.getpid(), relive.build_info()["programs"]["relive"]
    subprocess.run([command, "up", "--store", name, "--size", "1200M"], check=True, timeout=60)
    try:
        yield "shm:" + name
    finally:
        subprocess.run([command, "down", "--force", "--store", name], check=False, timeout=60)
