"""Compares two settings of `relive bench replay`: alternated pairs, their median ratio and its interval.

    python3 ab.py [--pairs 15] [--role sample] -- COMMON OPTIONS -- OPTIONS OF A -- OPTIONS OF B

Without arguments: sampling by 64 against 256, briefly, in three pairs."""

import argparse
import json
import subprocess
import sys

QUICK = ["--capacity", "65536", "--actors", "0", "--seconds", "0.1", "--windows", "2"]


def measure(role, options):
    """Items a second in the best window of one run of the bench."""
    done = subprocess.run(["relive", "bench", "replay", "--json", *options], check=True,
                          capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return next(row["best"] for row in rows
                if row["metric"] == "items_per_s" and row["params"]["role"] == role)


def interval(ratios):
    """(low, median, high): order statistics that hold the true median with 95 %, by the sign test."""
    ratios, n, tail, term, cut = sorted(ratios), len(ratios), 0.0, 0.5 ** len(ratios), 0
    while tail + term <= 0.025:
        tail, term, cut = tail + term, term * (n - cut) / (cut + 1), cut + 1
    cut = max(0, cut - 1)
    return ratios[cut], ratios[n // 2], ratios[-1 - cut]


def main():
    parts = [[]]
    for word in sys.argv[1:]:
        parts.append([]) if word == "--" else parts[-1].append(word)
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--pairs", type=int, default=15 if parts[1:] else 3)
    parser.add_argument("--role", default="sample", choices=("insert", "sample", "update"))
    args = parser.parse_args(parts[0])
    common, a, b = parts[1:] or (QUICK, ["--batch", "64"], ["--batch", "256"])
    seen_a, seen_b = [], []
    for pair in range(args.pairs):      # who begins alternates, too
        for seen, options in [(seen_a, a), (seen_b, b)][::1 if pair % 2 else -1]:
            seen.append(measure(args.role, common + options))
    low, median, high = interval([after / before for before, after in zip(seen_a, seen_b)])
    for name, seen, options in (("A", seen_a, a), ("B", seen_b, b)):
        print("%s %-24s %8.3g items/s, %.3g to %.3g" % (
            name, " ".join(options), sorted(seen)[len(seen) // 2], min(seen), max(seen)))
    print("B/A %.2f (%.2f to %.2f, %d pairs)" % (median, low, high, args.pairs))


if __name__ == "__main__":
    main()
