"""TorchRL: TensorDictPrioritizedReplayBuffer over a LazyTensorStorage; a Ray actor around it for W3."""

import importlib.metadata

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer

from peers.timing import per_item
from workloads import ALPHA, BATCH, BETA

torch.set_num_threads(1)


def version():
    return importlib.metadata.version("torchrl") + " torch " + torch.__version__


def as_dict(rows, n):
    return TensorDict({k: torch.from_numpy(np.asarray(v)) for k, v in rows.items()},
                      batch_size=[n] if n else [])


class Peer:
    def __init__(self, shape, columns, capacity):
        self._step = sum(int(np.prod(d)) * np.dtype(t).itemsize for d, t in columns.values())
        self._rb = TensorDictPrioritizedReplayBuffer(
            alpha=ALPHA, beta=BETA, storage=LazyTensorStorage(capacity), batch_size=BATCH)

    def insert1(self, row):
        self._rb.add(as_dict(row, 0))

    def insert(self, rows):
        self._rb.extend(as_dict(rows, len(rows["done"])))

    def sample(self):
        return self._rb.sample()

    def update(self, batch, td_error):
        self._rb.update_priority(batch["index"], torch.from_numpy(td_error))

    def bytes_per_step(self):
        return self._step

    def close(self):
        pass


class Tree:
    """The sum tree alone, as the sampler calls it."""

    def __init__(self, capacity, seed):
        from torchrl._torchrl import SumSegmentTreeFp32
        rng = np.random.default_rng(seed)
        self._tree = SumSegmentTreeFp32(capacity)
        every = torch.arange(capacity)
        self._tree[every] = torch.from_numpy(rng.random(capacity, dtype=np.float32) + 0.01)
        total = self._tree.query(0, capacity)
        self._draws = [torch.from_numpy(rng.random(BATCH, dtype=np.float32) * np.float32(total))
                       for _ in range(1024)]
        self._keys = [torch.from_numpy(rng.integers(0, capacity, BATCH)) for _ in range(1024)]
        self._values = [torch.from_numpy(rng.random(BATCH, dtype=np.float32)) for _ in range(64)]

    def draw_ns(self, seconds):
        return per_item(lambda i: self._tree.scan_lower_bound(self._draws[i % 1024]), seconds)

    def update_ns(self, seconds):
        def update(i):
            self._tree[self._keys[i % 1024]] = self._values[i % 64]
        return per_item(update, seconds)
