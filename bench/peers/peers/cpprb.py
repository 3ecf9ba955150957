"""cpprb: PrioritizedReplayBuffer; MPPrioritizedReplayBuffer, in shared memory, for several processes."""

import importlib.metadata

import cpprb
import numpy as np

from peers import prefill
from workloads import ALPHA, BATCH, BETA, row_bytes


def version():
    return importlib.metadata.version("cpprb")


def env_of(columns):
    return {name: {"shape": dims or 1, "dtype": dtype} for name, (dims, dtype) in columns.items()}


class Client:
    def __init__(self, buffer, columns):
        self._rb = buffer
        self._step = row_bytes(columns)

    def insert1(self, row):
        self._rb.add(**row)

    insert = insert1

    def sample(self):
        return self._rb.sample(BATCH, beta=BETA)

    def update(self, batch, td_error):
        self._rb.update_priorities(batch["indexes"], td_error)

    def view(self, batch):
        return {**batch, "weight": batch["weights"]}

    def bytes_per_step(self):
        return self._step

    def close(self):
        pass


class Peer(Client):
    def __init__(self, shape, columns, capacity):
        super().__init__(cpprb.PrioritizedReplayBuffer(capacity, env_of(columns), alpha=ALPHA),
                         columns)


class Tree:
    """cpprb's tree, measured by sampling rows of one byte, since the tree has no interface of its own."""

    def __init__(self, capacity, seed):
        rng = np.random.default_rng(seed)
        self._rb = cpprb.PrioritizedReplayBuffer(capacity, {"x": {"dtype": np.uint8}}, alpha=ALPHA)
        n = 1 << 16
        for start in range(0, capacity, n):
            m = min(n, capacity - start)
            self._rb.add(x=np.zeros(m, np.uint8), priorities=rng.random(m) + 0.01)
        self._indexes = [self._rb.sample(BATCH)["indexes"] for _ in range(256)]
        self._td = [rng.random(BATCH) + 0.01 for _ in range(64)]

    def calls(self):
        def update(i):
            self._rb.update_priorities(self._indexes[i % 256], self._td[i % 64])
        return {"draw": (None, lambda i: self._rb.sample(BATCH, beta=BETA)),
                "update": (None, update)}


class Host:
    """A host whose forked children inherit the buffer."""

    address = None

    def __init__(self, shape, columns, capacity):
        self._columns = columns
        self._rb = cpprb.MPPrioritizedReplayBuffer(capacity, env_of(columns), alpha=ALPHA)

    def prefill(self, feeder, steps):
        prefill(self.client("actor"), feeder, steps)

    def client(self, role):
        return Client(self._rb, self._columns)

    def close(self):
        pass
