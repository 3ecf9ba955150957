"""`python -m relive` is the relive command."""

import json
import os
import subprocess
import sys

import pytest

import relive
from relive import _programs


def run(*args, **more):
    return subprocess.run([sys.executable, "-m", "relive", *args], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, check=False, **more)


@pytest.fixture
def command():
    if "relive" not in relive.build_info()["programs"]:
        pytest.skip("no relive command here: build it, and put it on PATH")


def test_main__is_the_command(command):
    done = run("--version")
    assert done.returncode == 0 and done.stdout.startswith("relive " + relive.__version__)
    assert run("no-such-subcommand").returncode != 0


def test_main__status_of_a_store(shm_store):
    name = shm_store.uri.partition(":")[2]
    shm_store.create_table("t", {"a": "float32"}, 1000)
    done = run("status", shm_store.uri, "--json")
    assert done.returncode == 0, done.stdout
    assert name in json.dumps(json.loads(done.stdout.splitlines()[0]))


def test_main__up_and_down(command, tmp_path, monkeypatch):
    if not relive.build_info()["remote"] or len(relive.build_info()["programs"]) < 3:
        pytest.skip("no daemons here: build them, and put them on PATH")
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(tmp_path))
    name = "main-%d" % os.getpid()
    done = run("up", "--store", name, "--size", "64M")
    try:
        assert done.returncode == 0 and "shm:" + name in done.stdout, done.stdout
        with relive.open("shm:" + name) as store:
            store.create_table("t", {"a": "float32"}, 1000)
        assert run("up", "--store", name).returncode == 0, "nothing of it is missing"
        assert run("up", "--store", name, "--size", "128M").returncode != 0, "it runs with 64M"
    finally:
        down = run("down", "--store", name)
    assert down.returncode == 0 and "is down" in down.stdout
    assert not list(tmp_path.rglob("*.sock"))
    with pytest.raises(relive.Error):
        relive.open("shm:" + name, timeout=1)


def test_main__bench(command):
    done = run("bench", "replay", "--capacity", "4096", "--loop", "--seconds", "0.1",
               "--windows", "1", "--json")
    assert done.returncode == 0, done.stdout
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    roles = {line["params"]["role"] for line in lines if line["metric"] == "items_per_s"}
    assert {"insert", "sample"} <= roles, done.stdout
    assert all(line["value"] > 0 for line in lines if line["metric"] == "items_per_s")


def test_main__says_what_is_missing(tmp_path):
    if os.access(os.path.join(os.path.dirname(_programs.__file__), "bin", "relive"), os.X_OK):
        pytest.skip("this package carries the command")
    done = run("status", env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 1 and "build_info" in done.stdout


def test_find__passes_the_packages_own_script_by(tmp_path, monkeypatch):
    script = tmp_path / "relive-memnode"
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_programs, "_HERE", str(tmp_path))
    assert _programs.find("relive-memnode") is None
