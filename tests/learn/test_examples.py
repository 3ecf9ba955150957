"""The examples in Python run unchanged on small budgets, too small to learn."""

import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import relive
from conftest import EXAMPLES, pool_status

CURVES = EXAMPLES.parent / "bench" / "learning" / "run.py"


def run(*command, timeout=900):
    """Runs a program, which must exit with 0, and returns its output."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_dqn_cartpole_jax__learns(store):
    said = run(sys.executable, EXAMPLES / "dqn_cartpole_jax.py", "--store", store, "--until", "60",
               "--steps", "30000", "--seed", 3)
    assert said.startswith("seed 3\n") and "return of the last 100 episodes" in said
    with relive.open(store) as opened:
        assert opened.table("cartpole").verify().problems == 0


def test_dqn_cartpole__learns_in_a_pool(pool):
    said = run(sys.executable, EXAMPLES / "dqn_cartpole.py", "--pool", pool, "--until", "40", "--episodes", "50",
               "--steps", "30000", "--seed", 3)
    assert "updates" in said
    status = pool_status(pool)
    assert status["iterations"] > 100 and status["jobs"] == 0 and status["held_bytes"] == 0


def test_dqn_cartpole__learns_where_batches_land_on_a_device(cuda_pool):
    """On a CPU the networks stay on the host, and take the host's side of each batch."""
    run(sys.executable, EXAMPLES / "dqn_cartpole.py", "--pool", cuda_pool, "--until", "30", "--episodes", "50",
        "--steps", "30000", "--seed", 3)
    status = pool_status(cuda_pool)
    assert status["iterations"] > 100 and status["jobs"] == 0 and status["held_bytes"] == 0


def test_apex_pong__actors_and_a_learner_in_a_pool(store, pool, tmp_path):
    plot = tmp_path / "pong.png"
    run(sys.executable, EXAMPLES / "apex_pong.py", "--store", store, "--actors", 2, "--updates", 12,
        "--learn-from", 200, "--plot", plot, "--pool", pool)
    status = pool_status(pool)
    assert status["iterations"] == 12 and status["jobs"] == 0 and status["held_bytes"] == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    with relive.open(store) as opened:
        table = opened.table("pong")
        view = table.info().views[0]
        assert view.inserted >= 200 and view.sampled >= 12 * 32
        assert table.verify().problems == 0
        batch = table.sample(64, layout="window")
        assert batch.obs.shape == (64, 4, 84, 84) and batch.obs.any(axis=(1, 2, 3)).all()


def actors_below(pid):
    """The Ray actors among the descendants of a driver; Ray names a process after its class."""
    commands, children = {}, collections.defaultdict(list)
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            child = int(status.parent.name)
            children[int(status.read_text().rpartition(")")[2].split()[1])].append(child)
            commands[child] = (status.parent / "cmdline").read_text()
        except OSError:  # it has ended
            continue
    found = [pid]
    for parent in found:
        found += children[parent]
    return {child for child in found if commands.get(child, "").startswith("ray::Actor")}


def test_ray_apex__a_killed_actor_comes_back(store, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    command = [sys.executable, EXAMPLES / "ray_apex.py", "--store", store, "--actors", "2",
               "--rounds", "40", "--round", "5"]
    said, killed, later = tmp_path / "said", None, set()
    deadline = time.monotonic() + 1200
    with said.open("w") as output, subprocess.Popen(command, stdout=output,
                                                    stderr=subprocess.STDOUT) as process:
        while process.poll() is None and time.monotonic() < deadline:
            if killed:
                later |= actors_below(process.pid)
            elif "updates" in said.read_text() and len(
                    first := actors_below(process.pid)) == 2:
                killed = min(first)
                os.kill(killed, signal.SIGKILL)
            time.sleep(0.1)
        process.kill()
    assert process.returncode == 0 and "200 updates" in said.read_text(), said.read_text()
    assert later - first, "what was asked of the killed one was done by another process"
    with relive.open(store) as opened:
        table = opened.table("ray-apex")
        assert table.info().views[0].inserted >= 1_000 and table.verify().problems == 0


def test_learn_curves__of_each_buffer(tmp_path):
    results, plot = tmp_path / "results.json", tmp_path / "curves.png"
    said = run(sys.executable, CURVES, "--seeds", 1, "--steps", 2000, "--results", results,
               "--plot", plot)
    runs = json.loads(results.read_text())["runs"]
    assert [run["buffer"] for run in runs] == ["relive", "cpprb", "uniform"]
    assert all(len(run["curve"]) == 1 and run["curve"][0][1] > 8 for run in runs)
    assert plot.read_bytes().startswith(b"\x89PNG") and '"steps_to_solve_median"' in said
