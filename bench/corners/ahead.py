"""Batches drawn ahead by a thread, beside batches drawn when they are asked for."""

import numpy as np
import relive

from pair import Pair, case, open_table

CAPACITY = 1 << 17


@case("ahead.next", "ahead.next_update", "ahead.next_compute", "ahead.large_next", "ahead.large_compute")
def ahead(stack, seed):
    table = open_table(stack, {"obs": ((4,), "float32"), "action": "int64", "reward": "float32"}, CAPACITY)
    with table.writer() as writer:
        for _ in range(CAPACITY // 1024):
            writer.extend(obs=np.zeros((1024, 4), np.float32), action=np.zeros(1024, np.int64),
                          reward=np.zeros(1024, np.float32))
    td_error = np.random.default_rng(seed).random(4096, np.float32)
    matrix = np.ones((128, 128), np.float32)

    def loop(depth, n, update, compute):
        sampler = stack.enter_context(table.sampler(n, prefetch=depth, seed=seed))

        def step():
            batch = next(sampler)
            arrays = [batch[name] for name in batch.names]
            for _ in range(compute):
                matrix @ matrix
            if update:
                sampler.update_priorities(batch.key, td_error[:n])
            return arrays
        return step

    loops = {"next": (256, False, 0), "next_update": (256, True, 0), "next_compute": (256, True, 4),
             "large_next": (4096, False, 0), "large_compute": (4096, True, 16)}
    return [Pair("ahead." + name, 0.95, loop(2, *how), loop(0, *how), {"prefetch": 2, "batch": how[0]})
            for name, how in loops.items()]


CASES = [ahead]
