#!/usr/bin/env python3
"""Learning with Relive's priorities, cpprb's and none: the same learner, the same seeds.

Usage: run.py [--seeds N] [--steps N] [--buffers A,B] [--results FILE] [--plot FILE]

Runs that the file of results has are not repeated. The file is written after each run, so that an
interrupted series goes on; remove it to begin anew. The seconds are those of the learner's loop without
its evaluations, and mean something only if nothing else ran; a run without seconds was not alone.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUFFERS = ("relive", "cpprb", "uniform")
TITLES = {"relive": "Relive, prioritized", "cpprb": "cpprb, prioritized", "uniform": "uniform"}
SOLVED = 475.0


def show(done, total, text):
    """Shows progress: a bar on a terminal, else a line."""
    end = "" if sys.stderr.isatty() else "\n"
    start = "\r\033[K" if sys.stderr.isatty() else ""
    print("%s[%-30s] %d/%d %s" % (start, "#" * (30 * done // total), done, total, text),
          end=end, file=sys.stderr, flush=True)


def learn(buffer, seed, steps, say):
    """Runs learner.py once; returns buffer, seed, the curve of [steps, return] and the seconds as a dict."""
    command = [sys.executable, str(HERE / "learner.py"), buffer, str(seed), str(steps)]
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    curve = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout:
            value = json.loads(line)
            if isinstance(value, dict):
                return {"buffer": buffer, "seed": seed, "curve": curve, **value}
            curve.append(value)
            say("%s, seed %d: return %.0f after %d steps" % (buffer, seed, value[1], value[0]))
    raise SystemExit("%s ended with %d" % (" ".join(command), process.returncode))


def run_missing(args, results):
    wanted = [(buffer, seed) for seed in range(1, args.seeds + 1) for buffer in args.buffers]
    have = {(run["buffer"], run["seed"]) for run in results["runs"]}
    for number, (buffer, seed) in enumerate(wanted):
        if (buffer, seed) in have:
            continue
        run = learn(buffer, seed, args.steps, lambda text: show(number, len(wanted), text))
        results["runs"].append(run)
        args.results.write_text(as_text(results))
    show(len(wanted), len(wanted), "done\n")


def as_text(results):
    """The results as JSON text with a line for each run."""
    runs = ",\n".join(json.dumps(run) for run in results["runs"])
    head = json.dumps({name: value for name, value in results.items() if name != "runs"})
    return '%s, "runs": [\n%s\n]}\n' % (head[:-1], runs)


def summary(results):
    """Yields a dict for each buffer: how many seeds solved CartPole, the median of steps and seconds, the
    mean return."""
    for buffer in BUFFERS:
        runs = [run for run in results["runs"] if run["buffer"] == buffer]
        if not runs:
            continue
        first = [next((at for at, score in run["curve"] if score >= SOLVED), None) for run in runs]
        solved = sorted(at for at in first if at is not None)
        means = [statistics.mean(score for _, score in run["curve"]) for run in runs]
        spread = statistics.stdev(means) if len(means) > 1 else 0.0
        seconds = [run["seconds"] for run in runs if "seconds" in run]
        yield {"buffer": buffer, "seeds": len(runs), "solved": len(solved),
               "steps_to_solve_median": statistics.median(solved) if solved else None,
               "mean_return": round(statistics.mean(means), 1), "spread": round(spread, 1),
               "seconds_median": statistics.median(seconds) if seconds else None}


def plot(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
    figure, axes = plt.subplots(figsize=(7, 4), dpi=110)
    for buffer, colour in zip(BUFFERS, ("C0", "C1", "C7")):
        curves = [run["curve"] for run in results["runs"] if run["buffer"] == buffer]
        if not curves:
            continue
        steps = np.array(curves[0])[:, 0]
        scores = np.array(curves)[:, :, 1]
        axes.plot(steps, scores.mean(0), colour, label="%s (%d seeds)" % (TITLES[buffer], len(curves)))
        axes.fill_between(steps, scores.min(0), scores.max(0), color=colour, alpha=0.12, lw=0)
    axes.axhline(SOLVED, color="k", lw=0.7, ls=":")
    axes.set(xlabel="steps of the environment", ylabel="mean return of 100 greedy episodes",
             title="CartPole-v1: mean over seeds, least and greatest shaded", ylim=(0, 510))
    axes.legend(loc="lower right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--buffers", type=lambda text: text.split(","), default=list(BUFFERS))
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results.json")
    parser.add_argument("--plot", type=pathlib.Path, default=HERE / "curves.png")
    args = parser.parse_args()
    results = {"environment": "CartPole-v1", "steps": args.steps, "runs": []}
    if args.results.exists():
        results = json.loads(args.results.read_text())
        if results["steps"] != args.steps:
            parser.error("%s has runs of %d steps" % (args.results, results["steps"]))
    run_missing(args, results)
    plot(results, args.plot)
    for row in summary(results):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
