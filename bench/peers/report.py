#!/usr/bin/env python3
"""Makes Markdown tables and plots of what run.py measured, and the ratios of Relive to the best peer.

    report.py [--results FOLDER] [--plots]     plots need matplotlib
"""

import argparse
import json
import pathlib

OURS = ("relive", "relive_stored")
HIGHER = {"sample", "update", "mixed", "insert1", "insert64", "inserted", "learned"}
TITLES = {
    "w1": "W1: CartPole-shaped rows, capacity 2^20",
    "w2": "W2: Atari-shaped rows, capacity 2^14",
    "w3-cartpole": "W3: two actors and a learner, CartPole-shaped",
    "w3-atari": "W3: two actors and a learner, Atari-shaped",
}


def short(value):
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return "%.3g%s" % (value / size, unit)
    return "%.3g" % value


def cell(result):
    if result is None:
        return "-"
    if result["min"] == result["max"]:
        return short(result["median"])
    return "%s (%s-%s)" % tuple(short(result[k]) for k in ("median", "min", "max"))


def find(results, workload, peer, metric, **more):
    for result in results:
        if (result["workload"], result["peer"], result["metric"]) == (workload, peer, metric) and \
                all(result.get(k) == v for k, v in more.items()):
            return result
    return None


def unique(values):
    return list(dict.fromkeys(values))


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def workload_table(results, workload):
    mine = [r for r in results if r["workload"] == workload]
    peers, metrics = unique(r["peer"] for r in mine), unique(r["metric"] for r in mine)
    units = {r["metric"]: r["unit"] for r in mine}
    head = ["peer"] + ["%s, %s" % (m, units[m]) for m in metrics]
    rows = [[p] + [cell(find(mine, workload, p, m)) for m in metrics] for p in peers]
    return ["### " + TITLES[workload], ""] + table(head, rows)


def tree_table(results, metric):
    mine = [r for r in results if r["workload"] == "w4" and r["metric"] == metric]
    peers = unique(r["peer"] for r in mine)
    sizes = sorted({r["capacity"] for r in mine})
    rows = [["2^%d" % (size.bit_length() - 1)] +
            [cell(find(mine, "w4", p, metric, capacity=size)) for p in peers] for size in sizes]
    return ["### W4: ns of %s" % ("a draw" if metric == "draw" else "an update"), ""] + \
        table(["capacity"] + peers, rows)


def best_peer(results, workload, metric, **more):
    others = [r for r in results if r["workload"] == workload and r["metric"] == metric and
              r["peer"] not in OURS and all(r.get(k) == v for k, v in more.items())]
    if not others:
        return None
    pick = max if metric in HIGHER else min
    return pick(others, key=lambda r: r["median"])


def ratio_rows(results):
    keys = unique((r["workload"], r["metric"], r.get("capacity")) for r in results)
    for workload, metric, capacity in keys:
        more = {"capacity": capacity} if capacity else {}
        best = best_peer(results, workload, metric, **more)
        for ours in OURS:
            mine = find(results, workload, ours, metric, **more)
            if not best or not mine:
                continue
            ratio = mine["median"] / best["median"]
            what = metric + (" 2^%d" % (capacity.bit_length() - 1) if capacity else "")
            yield [workload, what, ours, cell(mine), "%s %s" % (best["peer"], cell(best)),
                   "%.2f" % (ratio if metric in HIGHER else 1 / ratio)]


def markdown(data):
    results = data["results"]
    machine = data["machine"]
    lines = ["# Replay buffers side by side", "",
             "%s, %d cores, %d GiB, Python %s; commit %s; median (min-max) of %d windows that "
             "alternate between the peers." % (machine["cpu"], machine["cores"],
                                               machine["memory_gib"], machine["python"],
                                               data["commit"], data["rounds"]), "",
             "Repeat: `make bench-peers`. What is measured stands in `bench/peers/workloads.py`, "
             "how each peer is called in `bench/peers/peers/`.", ""]
    lines += ["## Relive against the best of the others", "",
              "More than 1 = Relive is faster, or smaller.", ""]
    lines += table(["workload", "what", "form", "Relive", "best peer", "ratio"],
                   list(ratio_rows(results)))
    lines += ["## All figures", ""]
    for workload in TITLES:
        if any(r["workload"] == workload for r in results):
            lines += workload_table(results, workload)
    if any(r["workload"] == "w4" for r in results):
        lines += tree_table(results, "draw") + tree_table(results, "update")
    lines += ["## Versions", ""] + table(["peer", "version"], [list(v) for v in
                                                                data["versions"].items()])
    if data["missing"]:
        lines += ["## Not measured", ""] + table(["what", "why"], [list(v) for v in
                                                                    data["missing"].items()])
    return "\n".join(lines)


# -------- plots --------

def plot_bars(plt, results, workload, out):
    mine = [r for r in results if r["workload"] == workload and r["metric"] != "memory"]
    metrics = unique(r["metric"] for r in mine)
    figure, axes = plt.subplots(1, len(metrics), figsize=(3.2 * len(metrics), 3.2))
    for axis, metric in zip([axes] if len(metrics) == 1 else axes, metrics):
        rows = sorted((r for r in mine if r["metric"] == metric), key=lambda r: r["median"])
        colours = ["tab:red" if r["peer"] in OURS else "tab:gray" for r in rows]
        axis.barh([r["peer"] for r in rows], [r["median"] for r in rows], color=colours)
        axis.set_xscale("log")
        axis.set_title("%s, %s" % (metric, rows[0]["unit"]), fontsize=9)
        axis.tick_params(labelsize=7)
    figure.suptitle(TITLES[workload], fontsize=10)
    figure.tight_layout()
    figure.savefig(out / ("peers-%s.png" % workload), dpi=110)
    plt.close(figure)


def plot_trees(plt, results, out):
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4))
    for axis, metric in zip(axes, ("draw", "update")):
        mine = [r for r in results if r["workload"] == "w4" and r["metric"] == metric]
        for peer in unique(r["peer"] for r in mine):
            rows = sorted((r for r in mine if r["peer"] == peer), key=lambda r: r["capacity"])
            axis.plot([r["capacity"] for r in rows], [r["median"] for r in rows], marker="o",
                      markersize=3, label=peer, linewidth=2 if peer in OURS else 1)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("capacity")
        axis.set_title("ns of a%s" % (" draw" if metric == "draw" else "n update"), fontsize=9)
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out / "peers-w4.png", dpi=110)
    plt.close(figure)


def plots(data, out):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    results = data["results"]
    for workload in TITLES:
        if any(r["workload"] == workload for r in results):
            plot_bars(plt, results, workload, out)
    if any(r["workload"] == "w4" for r in results):
        plot_trees(plt, results, out)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path,
                        default=root / "build" / "peers" / "results")
    parser.add_argument("--plots", action="store_true", help="PNGs beside the tables")
    args = parser.parse_args()
    data = json.loads((args.results / "peers.json").read_text())
    (args.results / "peers.md").write_text(markdown(data) + "\n")
    if args.plots:
        plots(data, args.results)
    print(args.results / "peers.md")


if __name__ == "__main__":
    main()
