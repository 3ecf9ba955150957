import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import settings

import relive
from support.trace import read_trace

settings.register_profile("relive", database=None)
settings.load_profile("relive")

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"

SIGNATURE = {
    "obs": ((3,), "float32"),
    "action": "int64",
    "reward": "float32",
    "id": "uint64",
}


@pytest.fixture
def store():
    with relive.open("embed:") as opened:
        yield opened


@pytest.fixture
def make_table(store):
    """Tables of SIGNATURE; each call another name."""
    made = []

    def make(signature=None, capacity=4096, **options):
        made.append("table-%d" % len(made))
        return store.create_table(made[-1], signature or SIGNATURE, capacity, **options)

    return make


def step_values(i, **more):
    """A row of SIGNATURE whose values follow from its number."""
    return dict(obs=np.full(3, i, np.float32), action=i, reward=float(i % 7), id=i, **more)


@pytest.fixture
def filled(make_table):
    """A table of 500 steps in episodes of 20."""
    table = make_table()
    with table.writer() as writer:
        for i in range(500):
            writer.append(**step_values(i, terminated=i % 20 == 19))
    return table


@pytest.fixture(scope="session")
def cartpole():
    """Episodes in which the pole falls, then some that are truncated after 500 steps."""
    recording = DATA / "cartpole.rlvt"
    return read_trace(recording, rows=570) + read_trace(recording, rows=5_000, skip=50_562)


@pytest.fixture(scope="session")
def pong():
    """The last episode that terminates, and the one that is truncated."""
    return read_trace(DATA / "pong.rlvt", rows=3_000, skip=22_743)


@pytest.fixture
def shm_store(tmp_path, monkeypatch):
    """A store that `relive up` runs, in a runtime directory of its own."""
    programs = relive.build_info()["programs"]
    if not relive.build_info()["remote"] or len(programs) < 3:
        pytest.skip("no relive command and daemons here: build them, and put them on PATH")
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(tmp_path))
    name = "python-%d" % os.getpid()
    up = [programs["relive"], "up", "--store", name, "--size", "128M"]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL, timeout=60)
    try:
        with relive.open("shm:" + name) as store:
            yield store
    finally:
        subprocess.run([programs["relive"], "down", "--force", "--store", name], check=False,
                       stdout=subprocess.DEVNULL, timeout=60)
        shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def runtime(tmp_path_factory, monkeypatch):
    """A runtime directory of the test's own, for daemons."""
    if len(relive.build_info()["programs"]) < 3:
        pytest.skip("no relive command and daemons here: build them, and put them on PATH")
    folder = tmp_path_factory.mktemp("r")
    folder.chmod(0o700)
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(folder))
    return folder
