"""A network learns CartPole-v1 from batches of a Relive table."""

import subprocess
import sys

from conftest import EXAMPLES


def test_dqn_cartpole__returns_195_over_100_episodes():
    command = [sys.executable, EXAMPLES / "dqn_cartpole.py", "--until", "195", "--episodes", "100"]
    done = subprocess.run([*command, "--steps", "80000"], timeout=1500, check=False)
    assert done.returncode == 0
