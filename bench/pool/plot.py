#!/usr/bin/env python3
"""Draws the memory of jobs over time, as `relive pool simulate --memory FILE` writes it.

Usage: plot.py FILE PICTURE [--budget BYTES] [--from S] [--to S]
"""

import argparse
import csv


def samples(path, begin, end):
    """Returns the times, and for each job its bytes at each of them."""
    with open(path, encoding="ascii") as file:
        rows = [(float(row["seconds"]), int(row["job"]), int(row["bytes"])) for row in csv.DictReader(file)]
    jobs = sorted({job for _, job, _ in rows})
    held, times, series = dict.fromkeys(jobs, 0), [], {job: [] for job in jobs}
    for at, job, size in rows:
        if times and at > times[-1] and begin <= at <= end:
            times.append(at)
        elif not times:
            times.append(begin)
        held[job] = size
        for name in jobs:
            del series[name][len(times) - 1:]
            series[name].append(held[name])
    return times, series


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("file")
    parser.add_argument("picture")
    parser.add_argument("--budget", type=float, help="bytes, drawn as a line")
    parser.add_argument("--from", type=float, default=0, dest="begin")
    parser.add_argument("--to", type=float, default=float("inf"), dest="end")
    args = parser.parse_args()
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # pylint: disable=import-outside-toplevel
    times, series = samples(args.file, args.begin, args.end)
    figure, axes = plt.subplots(figsize=(8, 3.5), dpi=100)
    axes.stackplot(times, [[size / 2**30 for size in sizes] for sizes in series.values()],
                   labels=["job %d" % job for job in series], step="post", lw=0)
    if args.budget:
        axes.axhline(args.budget / 2**30, color="k", lw=0.8, ls=":")
    axes.set(xlabel="seconds", ylabel="GiB", xlim=(times[0], times[-1]))
    if len(series) <= 10:
        axes.legend(loc="upper right", fontsize="small")
    figure.tight_layout()
    figure.savefig(args.picture)


if __name__ == "__main__":
    main()
