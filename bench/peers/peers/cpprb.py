"""cpprb: PrioritizedReplayBuffer, and its multi-process form for W3."""

import importlib.metadata

import cpprb
import numpy as np

from peers.timing import per_item
from workloads import ALPHA, BATCH, BETA


def version():
    return importlib.metadata.version("cpprb")


def env_of(columns):
    return {name: {"shape": dims or 1, "dtype": dtype} for name, (dims, dtype) in columns.items()}


class Peer:
    def __init__(self, shape, columns, capacity):
        self._step = sum(int(np.prod(d)) * np.dtype(t).itemsize for d, t in columns.values())
        self._rb = cpprb.PrioritizedReplayBuffer(capacity, env_of(columns), alpha=ALPHA)

    def insert1(self, row):
        self._rb.add(**row)

    def insert(self, rows):
        self._rb.add(**rows)

    def sample(self):
        return self._rb.sample(BATCH, beta=BETA)

    def update(self, batch, td_error):
        self._rb.update_priorities(batch["indexes"], td_error)

    def bytes_per_step(self):
        return self._step

    def close(self):
        pass


class Tree:
    """Rows of one byte, so that the tree is what is left."""

    def __init__(self, capacity, seed):
        rng = np.random.default_rng(seed)
        self._rb = cpprb.PrioritizedReplayBuffer(capacity, {"x": {"dtype": np.uint8}}, alpha=ALPHA)
        n = 1 << 16
        for start in range(0, capacity, n):
            m = min(n, capacity - start)
            self._rb.add(x=np.zeros(m, np.uint8), priorities=rng.random(m) + 0.01)
        self._td = [rng.random(BATCH) + 0.01 for _ in range(64)]

    def draw_ns(self, seconds):
        return per_item(lambda i: self._rb.sample(BATCH, beta=BETA), seconds)

    def update_ns(self, seconds):
        indexes = [self._rb.sample(BATCH)["indexes"] for _ in range(64)]
        return per_item(lambda i: self._rb.update_priorities(indexes[i % 64], self._td[i % 64]),
                        seconds)

