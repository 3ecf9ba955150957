"""TorchRL's buffer with rows of one byte, so that its PrioritizedSampler is what is measured."""

import numpy as np
import torch
from tensordict import TensorDict

from peers.torchrl import buffer_of, version  # noqa: F401
from workloads import BATCH


class Tree:
    def __init__(self, capacity, seed):
        rng = np.random.default_rng(seed)
        self._rb = buffer_of(capacity)
        n = 1 << 16
        for start in range(0, capacity, n):
            m = min(n, capacity - start)
            index = self._rb.extend(TensorDict({"x": torch.zeros(m, dtype=torch.uint8)}, [m]))
            self._rb.update_priority(index, torch.from_numpy(rng.random(m, dtype=np.float32)))
        self._keys = [torch.from_numpy(rng.integers(0, capacity, BATCH)) for _ in range(256)]
        self._values = [torch.from_numpy(rng.random(BATCH, dtype=np.float32)) for _ in range(64)]

    def calls(self):
        def update(i):
            self._rb.update_priority(self._keys[i % 256], self._values[i % 64])
        return {"draw": (None, lambda i: self._rb.sample()), "update": (None, update)}
