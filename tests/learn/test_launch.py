"""The launchers: a Slurm script under a stub of srun, and Kubernetes' manifests against its schemas."""

import os
import pathlib
import subprocess
import sys

import pytest

from conftest import EXAMPLES

SRUN = """#!/bin/bash
tasks=1
while case $1 in --*) ;; *) false ;; esac; do
	case $1 in --ntasks=*) tasks=${1#*=} ;; esac
	shift
done
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 143' TERM
for ((i = 0; i < tasks; i++)); do
	SLURM_PROCID=$i "$@" &
done
status=0
for job in $(jobs -p); do
	wait "$job" || status=$?
done
exit $status
"""
SCONTROL = """#!/bin/sh
[ "$1 $2" = "show hostnames" ] && echo "$3" | tr , '\\n'
"""
USE = """
import os, sys, relive
with relive.open(sys.argv[1], timeout=20) as store:
    print("nodes", len(store.info().nodes), os.environ["SLURM_PROCID"])
    table = store.create_table("t", {"obs": "float32", "reward": "float32"}, 4000, shards=2)
    with table.writer() as writer:
        for i in range(100):
            writer.append(obs=i, reward=i)
    batch = table.sample(32)
    print("right", bool((batch.obs == batch.reward).all()))
"""


@pytest.fixture
def job(tmp_path, monkeypatch, free_port):
    """The environment of a job of two nodes, both of which are this host."""
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    values = {"PATH": "%s:%s" % (tmp_path, os.environ["PATH"]), "TMPDIR": str(tmp_path),
              "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2",
              "SLURM_JOB_NODELIST": "127.0.0.1,localhost", "RELIVE_SIZE": "64M",
              "RELIVE_PORT": str(free_port)}
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def submit(*command):
    return subprocess.run([EXAMPLES / "slurm" / "store.sbatch", *command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=200, check=False)


def test_slurm__a_store_over_the_nodes_of_a_job(job, tmp_path):
    done = submit(sys.executable, "-c", USE, "{}")
    assert done.returncode == 0, done.stdout
    assert "nodes 2 0" in done.stdout and "right True" in done.stdout
    sockets = list(pathlib.Path(tmp_path, "relive-7").rglob("*.sock"))
    assert not sockets, "the daemons ended with the command"


def test_slurm__the_status_is_the_commands(job):
    assert submit("sh", "-c", "exit 7").returncode == 7
    assert submit().returncode == 2


@pytest.mark.parametrize("name", ["one-host.yaml", "rdma.yaml"])
def test_kubernetes__manifests_fit_the_schemas(name):
    tool = pathlib.Path(sys.executable).parent / "kubernetes-validate"
    done = subprocess.run([tool, "--strict", EXAMPLES / "kubernetes" / name],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0 and "passed for resource" in done.stdout, done.stdout
