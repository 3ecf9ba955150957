import json
import os
import pathlib
import subprocess
import time

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


def pool_status(name):
    """What `relive pool status` says of a pool; None: it has no broker."""
    done = subprocess.run([relive.build_info()["programs"]["relive"], "pool", "status", "--pool", name, "--json"],
                          capture_output=True, text=True, check=False, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else None


@pytest.fixture
def pool(runtime_dir):
    """The name of a pool of the host's memory."""
    name, deadline = "learn", time.monotonic() + 60
    command = [relive.build_info()["programs"]["relive-poold"], "--name", name, "--device", "host:64M",
               "--extent", "64K"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as broker:
        while not pool_status(name):
            assert broker.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield name
        broker.terminate()
