"""tianshou: PrioritizedVectorReplayBuffer, into which a chunk goes as a step of 64 environments; one step
goes into a PrioritizedReplayBuffer."""

import importlib.metadata

import numpy as np
from tianshou.data import Batch, PrioritizedReplayBuffer, PrioritizedVectorReplayBuffer
from tianshou.data import SegmentTree

from workloads import ALPHA, BATCH, BETA, CHUNK, row_bytes


def version():
    return importlib.metadata.version("tianshou")


def as_batch(rows):
    done = np.asarray(rows["done"], bool)
    return Batch(obs=rows["obs"], act=rows["action"], rew=rows["reward"], terminated=done,
                 truncated=np.zeros_like(done), obs_next=rows["next_obs"])


class Peer:
    def __init__(self, shape, columns, capacity):
        self._step = row_bytes(columns)
        self._many = PrioritizedVectorReplayBuffer(capacity, CHUNK, alpha=ALPHA, beta=BETA)
        self._one = PrioritizedReplayBuffer(min(capacity, 4096), alpha=ALPHA, beta=BETA)

    def insert1(self, row):
        self._one.add(as_batch(row))

    def insert(self, rows):
        self._many.add(as_batch(rows))

    def sample(self):
        return self._many.sample(BATCH)

    def update(self, drawn, td_error):
        self._many.update_weight(drawn[1], td_error)

    def view(self, drawn):
        batch = drawn[0]
        return {"obs": batch.obs, "action": batch.act, "reward": batch.rew.astype(np.float32),
                "next_obs": batch.obs_next, "done": batch.done, "weight": batch.weight}

    def bytes_per_step(self):
        return self._step

    def close(self):
        pass


class Tree:
    """tianshou's segment tree alone."""

    def __init__(self, capacity, seed):
        rng = np.random.default_rng(seed)
        self._tree = SegmentTree(capacity)
        self._tree[np.arange(capacity)] = rng.random(capacity) + 0.01
        # updates change the sum a little, and no draw may be above it
        total = self._tree.reduce()
        self._draws = [rng.random(BATCH) * total * 0.9 for _ in range(1024)]
        self._keys = [rng.integers(0, capacity, BATCH) for _ in range(1024)]
        self._values = [rng.random(BATCH) + 0.01 for _ in range(64)]

    def calls(self):
        def update(i):
            self._tree[self._keys[i % 1024]] = self._values[i % 64]
        return {"draw": (None, lambda i: self._tree.get_prefix_sum_idx(self._draws[i % 1024])),
                "update": (None, update)}
