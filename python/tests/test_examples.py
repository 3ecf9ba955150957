"""The example programs run; what they learn takes longer than a test may."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def test_dqn_cartpole__learns_for_a_while():
    for package in ("torch", "gymnasium"):
        pytest.importorskip(package)
    done = subprocess.run([sys.executable, EXAMPLES / "dqn_cartpole.py", "--steps", "4000"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
                          check=False)
    assert done.returncode == 1 and "not solved" in done.stdout, done.stdout
    assert "  4000 steps,    752 updates" in done.stdout
