"""Sequences of 120 steps in the window layout, beside numpy's gather."""

import numpy as np
import relive

from pair import Pair, case, drawing, open_sampler, open_table

LENGTH, BATCH, EPISODE = 120, 64, 1000
SHAPES = {"vector": ((32,), np.float32, 200_000), "frame": ((64, 64), np.uint8, 20_000)}


def make(kind):
    @case("sequences." + kind)
    def sequences(stack, seed):
        shape, dtype, capacity = SHAPES[kind]
        rng = np.random.default_rng(seed)
        columns = {"obs": (shape, dtype), "action": ((), np.int64), "reward": ((), np.float32)}
        table = open_table(stack, relive.sequence.signature(columns), capacity,
                           views=[relive.View(stack=LENGTH, selector="uniform")])
        arrays = {name: np.zeros((capacity, *dims), of) for name, (dims, of) in columns.items()}
        arrays["terminated"] = np.arange(capacity) % EPISODE == EPISODE - 1
        step = (np.arange(capacity) % EPISODE).astype(np.uint32)
        with table.writer() as writer:
            for at in range(0, capacity, 100):
                writer.extend(**{name: array[at:at + 100] for name, array in arrays.items()},
                              step=step[at:at + 100])
        steps, others = np.arange(LENGTH), ("action", "reward", "terminated")

        def gather():
            at = rng.integers(0, capacity - LENGTH, BATCH)[:, None] + steps
            return arrays["obs"][at], arrays["obs"][at + 1], [arrays[name][at] for name in others]

        sampler = open_sampler(stack, table, BATCH, seed, layout="window")
        return [Pair("sequences." + kind, 2, drawing(sampler), gather,
                     {"length": LENGTH, "batch": BATCH, "capacity": capacity})]
    return sequences


CASES = [make(kind) for kind in SHAPES]
