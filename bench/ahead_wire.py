#!/usr/bin/env python3
"""Batches of Python's iterator over a wire, with and without batches ahead: microseconds of a batch, its arrays
and what a learner does with them, in windows that alternate.

Usage: ahead_wire.py URI [--windows N] [--seconds S]

The node of URI must not be in reach of a mapping (bench/README.md, micro_limit). A window is as long as --seconds, in
slices of 2 ms, and counts as its 10th percentile, which shows least of what others do on the machine. A line of JSON
for each loop has the median and the smallest of its windows.
"""

import argparse
import json
import statistics
import time

import numpy as np
import relive

SHAPES = {
    "small": ({"obs": ((4,), "float32"), "action": "int64", "reward": "float32"}, 1 << 16, {}),
    "atari": ({"obs": ((84, 84), "uint8"), "action": "int64", "reward": "float32"}, 1 << 13, {"stack": 4}),
}
BATCH = 256
SLICE_S = 0.002
LOOPS = {  # shape, batches ahead, updates priorities, matrix products
    "%s.%s.%d" % (shape, name, depth): (shape, depth, *work)
    for shape, depths, works in (
        ("small", (0, 2, 4), {"next": (False, 0), "update": (True, 0), "compute": (False, 8),
                              "learn": (True, 8)}),
        ("atari", (0, 2), {"next": (False, 0), "compute": (False, 100)}))
    for name, work in works.items() for depth in depths
}


def fill(store, shape):
    signature, capacity, view = SHAPES[shape]
    table = store.create_table("ahead-%s-%d" % (shape, time.time_ns()), signature, capacity,
                               views=[relive.View(**view)])
    with table.writer() as writer:
        for _ in range(capacity // 1024):
            writer.extend({name: np.zeros((1024, *(column[0] if isinstance(column, tuple) else ())),
                                          column[1] if isinstance(column, tuple) else column)
                           for name, column in signature.items()})
    return table


def loop(table, depth, updates, products):
    """A function that draws batches for so many seconds and returns microseconds of one, of a slice."""
    sampler = table.sampler(BATCH, prefetch=depth, seed=1)
    matrix = np.ones((128, 128), np.float32)
    errors = np.random.default_rng(1).random(BATCH, np.float32)

    def piece(seconds):
        n, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds or n < 2:
            batch = next(sampler)
            arrays = [batch[name] for name in batch.names]
            for _ in range(products):
                matrix @ matrix
            if updates:
                sampler.update_priorities(batch.key, errors)
            n += 1
            del arrays
        return spent * 1e6 / n

    def window(seconds):
        begin, us = time.perf_counter(), []
        while time.perf_counter() - begin < seconds:
            us.append(piece(SLICE_S))
        return sorted(us)[len(us) // 10]
    return window


def loops(store):
    tables = {shape: fill(store, shape) for shape in SHAPES}
    return {name: loop(tables[shape], *how) for name, (shape, *how) in LOOPS.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("--windows", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3)
    options = parser.parse_args()
    with relive.open(options.uri) as store:
        windows = loops(store)
        us = {name: [] for name in windows}
        for _ in range(options.windows):
            for name, window in windows.items():
                us[name].append(window(options.seconds))
        for name, values in us.items():
            print(json.dumps({"loop": name, "us": round(statistics.median(values), 1),
                              "least_us": round(min(values), 1)}))


if __name__ == "__main__":
    main()
