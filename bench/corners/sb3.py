"""The adaptor for Stable-Baselines3 beside its own replay buffer."""

import numpy as np

from pair import Pair, case

CAPACITY, OBS, ACTION, BATCH = 1 << 17, 17, 6, 256


def make(envs):
    @case("sb3.add_%d" % envs, "sb3.sample_%d" % envs)
    def buffers(stack, seed):
        from gymnasium.spaces import Box
        from relive.adaptors.sb3 import ReliveReplayBuffer
        from stable_baselines3.common.buffers import ReplayBuffer

        rng = np.random.default_rng(seed)
        spaces = [Box(-np.inf, np.inf, (n,), np.float32) for n in (OBS, ACTION)]
        ours, theirs = (kind(CAPACITY, *spaces, "cpu", envs) for kind in (ReliveReplayBuffer, ReplayBuffer))
        stack.callback(ours.store.close)
        observations = rng.standard_normal((1000, envs, OBS), np.float32)
        action, reward = rng.standard_normal((envs, ACTION), np.float32), np.zeros(envs, np.float32)
        done, infos = np.zeros(envs, bool), [{} for _ in range(envs)]

        def adding(buffer):
            turn = [0]

            def add():
                turn[0] = (turn[0] + 1) % 999
                buffer.add(observations[turn[0]], observations[turn[0] + 1], action, reward, done, infos)
            return add

        for buffer in (ours, theirs):
            for _ in range(2000):
                adding(buffer)()
        return [Pair("sb3.add_%d" % envs, 1, adding(ours), adding(theirs), {"envs": envs}),
                Pair("sb3.sample_%d" % envs, 2, lambda: ours.sample(BATCH), lambda: theirs.sample(BATCH),
                     {"envs": envs, "batch": BATCH})]
    return buffers


CASES = [make(envs) for envs in (1, 8, 64)]
