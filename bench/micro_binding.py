#!/usr/bin/env python3
"""What a call through Python costs beside the same call in C: windows of both alternate, and a line of
JSON for each call has the medians of their microseconds and the difference.

Usage: micro_binding.py [--rounds N] [--seconds S] [--bin FOLDER] [--seed N]

C's are those of `relive bench replay` on the same table: CartPole's steps, capacity 2^17, full, embed:.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

import relive

ROOT = pathlib.Path(__file__).resolve().parent.parent
CAPACITY = 1 << 17
FILLED_BY = 1 << 10
STEP = {"obs": np.zeros(4, np.float32), "action": np.int32(0), "reward": np.float32(0),
        "terminated": False}
CALLS = {  # roles and options of the bench
    "append_1": ("insert", ["--actors", "1", "--learners", "0", "--insert-batch", "1"]),
    "sample_1": ("sample", ["--actors", "0", "--learners", "1", "--batch", "1"]),
    "sample_256": ("sample", ["--actors", "0", "--learners", "1", "--batch", "256"]),
}
AT_ONCE = 256  # calls between two looks at the clock


def in_c(options, call, window):
    """Microseconds of a call."""
    role, more = CALLS[call]
    command = [str(options.bin / "relive"), "bench", "replay", "--threads", "--learn", "sample",
               "--capacity", str(CAPACITY), "--prefill", str(CAPACITY), "--windows", "1",
               "--seconds", str(options.seconds), "--seed", str(options.seed + window), "--json", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for line in map(json.loads, done.stdout.splitlines()):
        if line["metric"] == "calls_per_s" and line["params"].get("role") == role:
            return 1e6 / line["value"]
    raise SystemExit("micro_binding: relive bench replay prints no calls_per_s of %s" % role)


def in_python(options, work):
    """Microseconds of a call."""
    calls, start = 0, time.perf_counter()
    while True:
        for _ in range(AT_ONCE):
            work()
        calls += AT_ONCE
        spent = time.perf_counter() - start
        if spent >= options.seconds:
            return spent * 1e6 / calls


def fill(writer):
    steps = {name: np.zeros((FILLED_BY, *np.shape(value)), np.asarray(value).dtype)
             for name, value in STEP.items()}
    for _ in range(CAPACITY // FILLED_BY):
        writer.extend(steps)


def works(writer, table, seed):
    """The calls in Python by name, and the samplers to close afterwards."""
    samplers = {n: table.sampler(n, prefetch=0, seed=seed) for n in (1, 256)}

    def sample(sampler):
        with sampler.sample():
            pass

    calls = {"append_1": lambda: writer.append(STEP), "sample_1": lambda: sample(samplers[1]),
             "sample_256": lambda: sample(samplers[256])}
    return calls, samplers.values()


def commit():
    try:
        return subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def measure(options):
    """The microseconds of a call in (C, Python), one pair for each round, by name of the call."""
    spent = {call: [] for call in CALLS}
    signature = {"obs": ((4,), np.float32), "action": ((), np.int32), "reward": ((), np.float32)}
    with relive.open("embed:") as store:
        table = store.create_table("replay", signature, CAPACITY, views=[relive.View()])
        with table.writer() as writer:
            fill(writer)
            calls, samplers = works(writer, table, options.seed)
            for window in range(options.rounds):
                for call, work in calls.items():
                    spent[call].append((in_c(options, call, window), in_python(options, work)))
                print("micro_binding: round %d of %d" % (window + 1, options.rounds), file=sys.stderr)
            for sampler in samplers:
                sampler.close()
    return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a window")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for call, pairs in measure(options).items():
        c, python = (statistics.median(column) for column in zip(*pairs))
        over = sorted(p - c for c, p in pairs)
        print(json.dumps({
            "bench": "micro_binding", "metric": call, "unit": "us", "python": round(python, 3),
            "c": round(c, 3), "over": round(statistics.median(over), 3), "least": round(over[0], 3),
            "most": round(over[-1], 3), "params": {"capacity": CAPACITY, "rounds": options.rounds,
                                                  "seed": options.seed}, "commit": commit()}))


if __name__ == "__main__":
    main()
