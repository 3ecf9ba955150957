#!/usr/bin/env python3
"""What a device pool costs a learner: updates of examples/dqn_cartpole.py whose batches land in a pool and which take
turns at its gate, beside updates without one, in alternating windows. Prints a JSON line. With --frames the network is
that of Nature's DQN, for 32 stacks of 4 frames of 84x84.

    bench/pool/learner.py [--pool NAME] [--rounds 9] [--updates 300] [--frames]

It needs torch, gymnasium and a broker (relive-poold --name NAME --device host:64M --extent 64K). CPU times are of this
thread, and of the broker's process. The job's share is what the calls around an update take, less what the same clocks
take around no call, in the windows without a pool. Printed are the job's share, the broker's, and their sum, as
medians with the least and the most of a window.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import relive

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import dqn_cartpole  # noqa: E402  pylint: disable=wrong-import-position


class Counted:
    """A pool, or none, whose iterations count the CPU time of their begin and end."""

    def __init__(self, pool):
        self.pool, self.cpu = pool, 0.0

    def iteration(self):
        """As pool.iteration(), of which it is the context."""
        self.inner = self.pool.iteration() if self.pool else contextlib.nullcontext()
        return self

    def __enter__(self):
        began = time.thread_time()
        self.inner.__enter__()
        self.cpu += time.thread_time() - began

    def __exit__(self, *error):
        began = time.thread_time()
        result = self.inner.__exit__(*error)
        self.cpu += time.thread_time() - began
        return result


def cpu_of(pid):
    """CPU seconds of a process so far."""
    return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3)


def broker_of(name):
    """Process of a pool's broker."""
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"relive-poold") and name.encode() in words:
            return int(entry.parent.name)
    raise SystemExit("no broker of pool %s: start relive-poold --name %s --device host:64M --extent 64K" % (name, name))


class FrameLearner:
    """Fits Nature's network to the rewards of a table of frames."""

    def __init__(self, table, pool):
        self.pool, self.sampler = pool, table.sampler(32, prefetch=0, device=pool)
        self.net = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                                 nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
                                 nn.Linear(512, 6))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-4)

    def learn(self, beta):
        """Draws a batch, and takes one step of the optimizer when it is its turn."""
        batch = self.sampler.sample(32, beta=beta)
        with self.pool.iteration() if self.pool else contextlib.nullcontext():
            values = self.net(torch.from_numpy(np.asarray(batch.obs)).float() / 255).mean(1)
            loss = ((values - torch.from_numpy(np.asarray(batch.reward))) ** 2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def frame_learners(store, pool):
    """Returns a learner without the pool, and one with it."""
    table = store.create_table("frames", {"obs": ("uint8", (4, 84, 84)), "reward": ("float32", ())}, capacity=2000)
    with table.writer() as writer:
        writer.extend(obs=np.random.default_rng(1).integers(0, 256, (1000, 4, 84, 84), np.uint8),
                      reward=np.zeros(1000, np.float32))
    return [FrameLearner(table, of) for of in (None, pool)]


def cartpole_learners(store, pool):
    """Returns a learner without the pool, and one with it."""
    envs = gym.make_vec("CartPole-v1", num_envs=dqn_cartpole.ENVS)
    table = store.create_table("cartpole", relive.signature.of_env(envs), capacity=50_000,
                               max_writers=dqn_cartpole.ENVS,
                               views=[relive.View(n_step=dqn_cartpole.N_STEP, alpha=0.6)])
    fill(table, envs, 5000)
    return [dqn_cartpole.Learner(envs, table, store.create_weights("p%d" % i, bytes=1 << 20), of)
            for i, of in enumerate((None, pool))]


def fill(table, envs, steps):
    rng, (obs, _) = np.random.default_rng(1), envs.reset(seed=1)
    with table.writer(envs) as writer:
        for _ in range(steps):
            action = rng.integers(0, 2, envs.num_envs)
            following, reward, terminated, truncated, _ = envs.step(action)
            writer.append(obs=obs, action=action, reward=reward, terminated=terminated, truncated=truncated)
            obs = following


def window(learner, updates):
    """Wall and CPU time of an update."""
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(updates):
        learner.learn(0.5)
    return (time.perf_counter() - wall) / updates, (time.thread_time() - cpu) / updates


def spread(name, values):
    """Median, least and most, as fields of the line."""
    return {name: statistics.median(values), name + "_min": min(values), name + "_max": max(values)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pool", default="0")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--frames", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip()
    broker = broker_of(args.pool)
    staging = 16 << 20 if args.frames else dqn_cartpole.STAGING
    with relive.Pool(args.pool, persistent=staging) as pool, relive.open("embed:") as store:
        counted = Counted(None), Counted(pool)
        learners = (frame_learners if args.frames else cartpole_learners)(store, pool)
        learners[0].pool, learners[1].pool = counted
        rows = []
        for turn in range(args.rounds + 1):
            counted[0].cpu = counted[1].cpu = 0.0
            before = cpu_of(broker)
            (wall, _), (wall_pool, cpu_pool) = [window(learner, args.updates) for learner in learners]
            job, of_broker = counted[1].cpu - counted[0].cpu, cpu_of(broker) - before
            if turn:
                update = args.updates * cpu_pool
                rows.append(((job + of_broker) / update, job / update, of_broker / update, wall_pool / wall,
                             cpu_pool * 1e6))
        both, job, of_broker, ratio, cpu_us = zip(*rows)
        print(json.dumps({"bench": "pool_learner", "metric": "cpu_share", "value": statistics.median(both),
                          "min": min(both), "max": max(both), **spread("job_share", job),
                          **spread("broker_share", of_broker), **spread("wall_ratio", ratio),
                          "update_cpu_us": statistics.median(cpu_us),
                          "params": {"rounds": args.rounds, "updates": args.updates, "frames": args.frames},
                          "commit": commit}))
        learners.clear()  # a pool is closed when no landing is left in it


if __name__ == "__main__":
    main()
