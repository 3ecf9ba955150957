import contextlib
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


@contextlib.contextmanager
def broker(*devices):
    """The name of a pool of such devices, while its broker runs."""
    name, deadline = "learn", time.monotonic() + 60
    command = [relive.build_info()["programs"]["relive-poold"], "--name", name, *devices]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not pool_status(name):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield name
        process.terminate()


@pytest.fixture
def pool(runtime_dir):
    """The name of a pool of the host's memory."""
    with broker("--device", "host:64M", "--extent", "64K") as name:
        yield name


@pytest.fixture
def cuda_pool(runtime_dir, monkeypatch):
    """The name of a pool of a CUDA device: the fake driver's, or the machine's if RLV_TEST_GPU is set."""
    fake = pathlib.Path(os.environ.get("RLV_BIN_DIR", "")).parent / "lib" / "fakecuda" / "libcuda.so.1"
    if "RLV_TEST_GPU" in os.environ:
        with broker("--device", "cuda:0:4G") as name:
            yield name
    elif fake.exists():
        monkeypatch.setenv("RLV_CUDA_LIBRARY", str(fake))
        with broker("--device", "cuda:0:64M", "--extent", "2M") as name:
            yield name
    else:
        pytest.skip("no fake driver: RLV_BIN_DIR does not name a build of the tests")
