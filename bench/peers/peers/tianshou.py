"""tianshou: PrioritizedReplayBuffer; a vector of 64 sub-buffers takes chunks."""

import importlib.metadata

import numpy as np
from tianshou.data import Batch, PrioritizedReplayBuffer, PrioritizedVectorReplayBuffer
from tianshou.data import SegmentTree

from peers.timing import per_item
from workloads import ALPHA, BATCH, BETA, CHUNK


def version():
    return importlib.metadata.version("tianshou")


def as_batch(rows, n):
    done = np.asarray(rows["done"], bool)
    return Batch(obs=rows["obs"], act=rows["action"], rew=rows["reward"], terminated=done,
                 truncated=np.zeros_like(done), obs_next=rows["next_obs"],
                 info={} if n is None else np.array([{}] * n))


class Peer:
    def __init__(self, shape, columns, capacity):
        self._step = sum(int(np.prod(d)) * np.dtype(t).itemsize for d, t in columns.values())
        self._many = PrioritizedVectorReplayBuffer(capacity, CHUNK, alpha=ALPHA, beta=BETA)
        self._one = PrioritizedReplayBuffer(min(capacity, 4096), alpha=ALPHA, beta=BETA)

    def insert1(self, row):
        self._one.add(as_batch(row, None))

    def insert(self, rows):
        self._many.add(as_batch(rows, len(rows["done"])))

    def sample(self):
        return self._many.sample(BATCH)

    def update(self, drawn, td_error):
        self._many.update_weight(drawn[1], td_error)

    def bytes_per_step(self):
        return self._step

    def close(self):
        pass


class Tree:
    def __init__(self, capacity, seed):
        self._rng = np.random.default_rng(seed)
        self._tree = SegmentTree(capacity)
        self._tree[np.arange(capacity)] = self._rng.random(capacity) + 0.01
        total = self._tree.reduce()
        self._draws = [self._rng.random(BATCH) * total for _ in range(1024)]
        self._keys = [self._rng.integers(0, capacity, BATCH) for _ in range(1024)]
        self._values = [self._rng.random(BATCH) + 0.01 for _ in range(64)]

    def draw_ns(self, seconds):
        return per_item(lambda i: self._tree.get_prefix_sum_idx(self._draws[i % 1024]), seconds)

    def update_ns(self, seconds):
        def update(i):
            self._tree[self._keys[i % 1024]] = self._values[i % 64]
        return per_item(update, seconds)
