"""TorchRL: TensorDictPrioritizedReplayBuffer over a LazyTensorStorage."""

import importlib.metadata

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer

from workloads import ALPHA, BATCH, BETA, row_bytes

torch.set_num_threads(1)


def version():
    return importlib.metadata.version("torchrl") + " torch " + torch.__version__


def buffer_of(capacity):
    return TensorDictPrioritizedReplayBuffer(
        alpha=ALPHA, beta=BETA, storage=LazyTensorStorage(capacity), batch_size=BATCH)


def as_dict(rows, size):
    return TensorDict({k: torch.from_numpy(np.asarray(v)) for k, v in rows.items()}, size)


class Peer:
    def __init__(self, shape, columns, capacity):
        self._step = row_bytes(columns)
        self._rb = buffer_of(capacity)

    def insert1(self, row):
        self._rb.add(as_dict(row, []))

    def insert(self, rows):
        self._rb.extend(as_dict(rows, [len(rows["done"])]))

    def sample(self):
        return self._rb.sample()

    def update(self, batch, td_error):
        self._rb.update_priority(batch["index"], torch.from_numpy(td_error))

    def view(self, batch):
        columns = {name: batch[name].numpy() for name in batch.keys()}
        weight = columns.get("priority_weight", columns.get("_weight"))
        return {**columns, "weight": weight}

    def bytes_per_step(self):
        return self._step

    def close(self):
        pass


class Tree:
    """The sum tree of TorchRL's sampler alone, without the tree of minima beside it."""

    def __init__(self, capacity, seed):
        from torchrl._torchrl import SumSegmentTreeFp32
        rng = np.random.default_rng(seed)
        self._tree = SumSegmentTreeFp32(capacity)
        every = torch.arange(capacity)
        self._tree[every] = torch.from_numpy(rng.random(capacity, dtype=np.float32) + 0.01)
        # updates change the sum a little, and no draw may be above it
        total = np.float32(self._tree.query(0, capacity) * 0.9)
        self._draws = [torch.from_numpy(rng.random(BATCH, dtype=np.float32) * total)
                       for _ in range(1024)]
        self._keys = [torch.from_numpy(rng.integers(0, capacity, BATCH)) for _ in range(1024)]
        self._values = [torch.from_numpy(rng.random(BATCH, dtype=np.float32)) for _ in range(64)]

    def calls(self):
        def update(i):
            self._tree[self._keys[i % 1024]] = self._values[i % 64]
        return {"draw": (None, lambda i: self._tree.scan_lower_bound(self._draws[i % 1024])),
                "update": (None, update)}
