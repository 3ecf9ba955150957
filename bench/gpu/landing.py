#!/usr/bin/env python3
"""Batches of a prioritized table on the GPU, by four paths in turn: how many a second, alone and beside a
learner, and how long a batch takes. Prints JSON lines.

    bench/gpu/landing.py [--seconds 2] [--rounds 5] [--seed 1]

    landing     table.sampler(device="cuda")
    gather      table.sampler(device=Landing(path="gather")): the GPU reads frames in the table
    pinned      table.sampler(pin_memory=True), then batch.torch("cuda")
    pageable    table.sampler(), then batch.torch("cuda")
    host        table.sampler() alone: the sampler's own rate
"""

import argparse
import json
import statistics
import subprocess
import time

import numpy as np
import torch

import relive
from relive.landing import Landing

SHAPES = {
    "cartpole": ({"obs": ("float32", (4,)), "action": "int64", "reward": "float32"}, 1, 1 << 17),
    "atari": ({"obs": ("uint8", (84, 84)), "action": "int64", "reward": "float32"}, 4, 1 << 15),
}
PATHS = {"landing": {"device": "cuda"}, "gather": {}, "pinned": {"pin_memory": True}, "pageable": {}, "host": {}}


def fill(table, signature, n):
    rng = np.random.default_rng(0)
    steps = {"obs": rng.integers(0, 255, (n, *signature["obs"][1])).astype(signature["obs"][0]),
             "action": np.zeros(n, np.int64), "reward": np.ones(n, np.float32)}
    with table.writer() as writer:
        for at in range(0, n, 1024):
            writer.extend({name: rows[at:at + 1024] for name, rows in steps.items()})


class Learner:
    """Forward and backward of a small network over a batch of tensors."""

    def __init__(self, n):
        self.net = torch.nn.Sequential(torch.nn.Linear(n, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).cuda()

    def __call__(self, tensors):
        obs = tensors["obs"].reshape(len(tensors["obs"]), -1).float()
        self.net(obs).square().mean().backward()


def window(sampler, path, seconds, learner):
    """Batches in a second."""
    n, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        batch = next(sampler)
        if path != "host":
            tensors = batch.torch() if path in ("landing", "gather") else batch.torch("cuda")
            if learner:
                learner(tensors)
        n += 1
    torch.cuda.synchronize()
    return n / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip()
    PATHS["gather"]["device"] = Landing(path="gather")
    store = relive.open("embed:")
    for name, (signature, stack, rows) in SHAPES.items():
        table = store.create_table(name, signature, capacity=rows,
                                   views=[relive.View(selector="prioritized", stack=stack)])
        fill(table, signature, rows)
        for learns in (False, True):
            learner = Learner(stack * int(np.prod(signature["obs"][1]))) if learns else None
            samplers = {path: table.sampler(256, seed=args.seed, **options)
                        for path, options in PATHS.items() if not (learns and path == "host")}
            rates = {path: [] for path in samplers}
            for turn in range(args.rounds + 1):
                for path, sampler in samplers.items():
                    rate = window(sampler, path, args.seconds if turn else 0.5, learner)
                    if turn:
                        rates[path].append(rate)
            for path, values in rates.items():
                print(json.dumps({
                    "bench": "landing", "metric": "batches_per_s", "value": statistics.median(values),
                    "min": min(values), "max": max(values),
                    "params": {"path": path, "rows": name, "learner": learns, "batch": 256,
                               "seed": args.seed},
                    "device": torch.cuda.get_device_name(), "commit": commit}), flush=True)
            for sampler in samplers.values():
                sampler.close()
        table.close()
    store.close()


if __name__ == "__main__":
    main()
