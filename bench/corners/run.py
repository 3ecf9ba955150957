#!/usr/bin/env python3
"""Relive through Python in the places where numpy, memcpy or a library's own code is hard to beat: windows
of both alternate, and a line of JSON for each pair has the medians of their microseconds and the ratio.

Usage: run.py [--rounds N] [--seconds S] [--seed N]
              [--clock wall|cpu] [--list] [PAIR ...]

PAIR is a name, or the first part of one. `ratio` is the peer's time divided by Relive's, the median of the
rounds; `want` is what it should be at least, `limit` the most microseconds that Relive should take. Pairs
whose library is not installed are left out.
"""

import argparse
import contextlib
import importlib
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODULES = ("rows", "sequences", "vectors", "values", "sb3", "reverb_items", "queues", "ahead")


def commit():
    try:
        return subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def spent(work, calls, clock):
    """Microseconds of one of so many calls."""
    start = clock()
    for _ in range(calls):
        work()
    return (clock() - start) * 1e6 / calls


def calls_for(work, seconds, clock):
    """How many calls take so many seconds."""
    calls = 1
    while (us := spent(work, calls, clock)) * calls < seconds * 1e6 / 4:
        calls *= 2
    return max(1, int(seconds * 1e6 / us))


def measure(pair, options):
    """Returns (peer's us, ours) for each round."""
    works, clock = (pair.peer, pair.ours), CLOCKS[options.clock]
    calls = [calls_for(work, options.seconds, clock) for work in works]
    return [tuple(spent(work, n, clock) for work, n in zip(works, calls)) for _ in range(options.rounds)]


def report(pair, rounds, options):
    ratios = sorted(peer / ours for peer, ours in rounds)
    peer, ours = (statistics.median(column) for column in zip(*rounds))
    print(json.dumps({
        "bench": "corners", "metric": pair.name, "unit": "us", "relive": round(ours, 3),
        "peer": round(peer, 3), "ratio": round(statistics.median(ratios), 3), "least": round(ratios[0], 3),
        "most": round(ratios[-1], 3), "want": pair.want,
        **({"limit": pair.limit} if pair.limit else {}),
        "params": {**pair.params, "rounds": options.rounds, "seed": options.seed, "clock": options.clock},
        "commit": commit()}),
        flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*", metavar="PAIR")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a window")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: on a machine that others use, too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="only print the names of the pairs")
    options = parser.parse_args()
    for name in MODULES:
        for case in importlib.import_module(name).CASES:
            wanted = [n for n in case.names if not options.pairs or n.startswith(tuple(options.pairs))]
            if options.list:
                print(*wanted, sep="\n")
                continue
            if not wanted:
                continue
            with contextlib.ExitStack() as stack:
                try:
                    pairs = case(stack, options.seed)
                except ImportError as error:
                    print("corners: without %s: %s" % (", ".join(wanted), error), file=sys.stderr)
                    continue
                for pair in pairs:
                    if pair.name in wanted:
                        report(pair, measure(pair, options), options)


if __name__ == "__main__":
    main()
