#!/usr/bin/env python3
"""Learns CartPole-v1 with one buffer and one seed, by the learner of examples/dqn_cartpole_jax.py.

Usage: learner.py BUFFER SEED STEPS      BUFFER: relive, cpprb or uniform

Prints a line of JSON for each evaluation, [steps, mean return of 100 greedy episodes], and
{"seconds": ...} at the end. run.py runs all.
"""

import json
import os
import pathlib
import sys
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import gymnasium as gym
import numpy as np

from buffers import BUFFERS
from dqn_cartpole_jax import greedy, init, learn

ENVS, BATCH, CAPACITY = 8, 64, 100_000
LEARN_FROM, EXPLORE, EVALUATE = 1_000, 8_000, 2_000  # steps
UPDATES, RETARGET, RATE = 4, 128, 2.3e-3  # updates: for each step of the vector
EPISODES, LONGEST = 100, 500


def evaluate(online, seed):
    """Mean return of 100 episodes without exploration, in environments of their own."""
    envs = gym.make_vec("CartPole-v1", num_envs=EPISODES)
    obs, _ = envs.reset(seed=seed)
    running, returns = np.ones(EPISODES, bool), np.zeros(EPISODES)
    for _ in range(LONGEST):
        obs, reward, terminated, truncated, _ = envs.step(np.asarray(greedy(online, obs)))
        returns += reward * running
        running &= ~(terminated | truncated)
        if not running.any():
            break
    envs.close()
    return float(returns.mean())


def main():
    kind, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = np.random.default_rng(seed)
    envs = gym.make_vec("CartPole-v1", num_envs=ENVS)
    buffer = BUFFERS[kind](envs, CAPACITY, BATCH, seed)
    state, updates = init(seed, (4, 256, 256, 2)), 0
    obs, _ = envs.reset(seed=seed)
    live = np.ones(ENVS, bool)
    began, paused = time.monotonic(), 0.0
    for at in range(ENVS, steps + 1, ENVS):
        explore = rng.random(ENVS) < max(0.04, 1 - at / EXPLORE)
        action = np.where(explore, rng.integers(0, 2, ENVS), greedy(state["online"], obs))
        following, reward, terminated, truncated, _ = envs.step(action)
        buffer.add(obs, action, reward, following, terminated, truncated, live)
        obs, live = following, ~(terminated | truncated)
        part = at / steps
        for _ in range(UPDATES if at >= LEARN_FROM else 0):
            updates += 1
            batch, drawn = buffer.sample(0.4 + 0.6 * part)
            tau = float(updates % RETARGET == 0)
            state, error = learn(state, batch, RATE * (1 - 0.9 * part), tau)
            buffer.update(drawn, np.asarray(error))
        if at % EVALUATE == 0:
            since = time.monotonic()
            print(json.dumps([at, evaluate(state["online"], seed + 1_000)]), flush=True)
            paused += time.monotonic() - since
    print(json.dumps({"seconds": round(time.monotonic() - began - paused, 1)}))


if __name__ == "__main__":
    main()
