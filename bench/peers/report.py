#!/usr/bin/env python3
"""Makes Markdown tables and plots of what run.py measured, and the ratios of Relive to the best peer.

    report.py [--results FOLDER] [--plots]     plots need matplotlib
"""

import argparse
import json
import pathlib

OURS = ("relive", "relive_dense", "relive_stored", "relive_tree")
LOWER = ("bytes/step", "ns")  # units of what is better when it is less
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


KINDS = {"workload": str, "peer": str, "metric": str, "unit": str, "median": (int, float),
         "min": (int, float), "max": (int, float), "values": list}
PARTS = {"commit": str, "machine": dict, "seed": int, "quick": bool, "rounds": int,
         "rounds_shared": int, "wall_s": int, "sizes": dict, "versions": dict, "missing": dict,
         "results": list}


def validate(data):
    """Checks the data of a file of results; raises ValueError if it has another format."""
    for name, kind in PARTS.items():
        if not isinstance(data.get(name), kind):
            raise ValueError("peers.json: %s is %r" % (name, data.get(name)))
    for result in data["results"]:
        for name, kind in KINDS.items():
            if not isinstance(result.get(name), kind):
                raise ValueError("peers.json: %s of %r" % (name, result))
        if not result["min"] <= result["median"] <= result["max"]:
            raise ValueError("peers.json: no median: %r" % result)
        if result["workload"] == "w4" and "capacity" not in result:
            raise ValueError("peers.json: no capacity: %r" % result)


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
    return ["### W4: ns of one of a batch: %s" % metric, ""] + table(["capacity"] + peers, rows)


def best_peer(results, mine):
    """The best result of a peer other than Relive for the same workload, metric and capacity; None if
    there is none."""
    others = [r for r in results if (r["workload"], r["metric"], r.get("capacity")) ==
              (mine["workload"], mine["metric"], mine.get("capacity")) and r["peer"] not in OURS]
    pick = min if mine["unit"] in LOWER else max
    return pick(others, key=lambda r: r["median"], default=None)


def ratio_rows(results):
    for mine in results:
        best = best_peer(results, mine) if mine["peer"] in OURS else None
        if not best or not best["median"] or not mine["median"]:
            continue
        ratio = mine["median"] / best["median"]
        what = mine["metric"]
        if "capacity" in mine:
            what += " 2^%d" % (mine["capacity"].bit_length() - 1)
        yield [mine["workload"], what, mine["peer"], cell(mine),
               "%s %s" % (best["peer"], cell(best)),
               "%.2f" % (1 / ratio if mine["unit"] in LOWER else ratio)]


def markdown(data):
    results = data["results"]
    machine = data["machine"]
    lines = ["# Replay buffers side by side", "",
             "%s, %d cores, %d GiB, Python %s; commit %s; seed %d; median (min-max) of %d windows "
             "that alternate between the peers, of %d rounds in W3; %d minutes in all." %
             (machine["cpu"], machine["cores"], machine["memory_gib"], machine["python"],
              data["commit"], data["seed"], data["rounds"], data["rounds_shared"],
              data["wall_s"] / 60), "",
             "Repeat: `make bench-peers`. What is measured stands in `bench/peers/workloads.py`, "
             "how each peer is called in `bench/peers/peers/`. Batches are of 256 rows with all "
             "columns, weights and keys. Peers that are libraries are pinned to one core in W1, W2 "
             "and W4, those with a server have all. In W4 cpprb and torchrl_sampler draw whole "
             "samples of rows of one byte, relive keys and weights without rows (columns=()), the "
             "others trees alone; relive_tree is "
             "`build/bin/micro_sumtree`, not interleaved with the others.", ""]
    if data["quick"]:
        lines += ["**A quick run: the figures mean nothing.**", ""]
    lines += ["## Relive against the best of the others", "",
              "More than 1 = Relive is faster, or smaller.", ""]
    lines += table(["workload", "what", "form", "Relive", "best peer", "ratio"],
                   list(ratio_rows(results)))
    lines += ["## All figures", ""]
    for workload in TITLES:
        if any(r["workload"] == workload for r in results):
            lines += workload_table(results, workload)
    for metric in unique(r["metric"] for r in results if r["workload"] == "w4"):
        lines += tree_table(results, metric)
    lines += ["## Versions", ""] + table(["peer", "version"], [list(v) for v in
                                                                data["versions"].items()])
    if data["missing"]:
        lines += ["## Not measured", ""] + table(["what", "why"], [list(v) for v in
                                                                    data["missing"].items()])
    return "\n".join(lines)


def write(data, out):
    (out / "peers.md").write_text(markdown(data) + "\n")


# -------- plots --------

def plot_metric(plt, axis, rows):
    """Plots each peer's median of a metric as a point, the greatest on top, with its spread and value."""
    rows = sorted(rows, key=lambda r: r["median"])
    for at, row in enumerate(rows):
        spread = [[row["median"] - row["min"]], [row["max"] - row["median"]]]
        colour = "tab:red" if row["peer"] in OURS else "tab:gray"
        axis.errorbar([row["median"]], [at], xerr=spread, fmt="o", color=colour, capsize=2)
        axis.annotate(short(row["median"]), (row["median"], at), xytext=(0, 5), fontsize=6,
                      textcoords="offset points", ha="center")
    axis.set_yticks(range(len(rows)), [row["peer"] for row in rows])
    axis.set_ylim(-0.6, len(rows) - 0.2)
    axis.set_xscale("log")
    axis.set_xlim(rows[0]["min"] / 3 or None, rows[-1]["max"] * 3)
    axis.xaxis.set_minor_formatter(plt.NullFormatter())
    axis.set_title("%s, %s" % (rows[0]["metric"], rows[0]["unit"]), fontsize=9)
    axis.tick_params(labelsize=7)
    axis.grid(axis="x", linewidth=0.3)


def plot_workload(plt, results, workload, out):
    mine = [r for r in results if r["workload"] == workload and r["metric"] != "memory"]
    metrics = unique(r["metric"] for r in mine)
    figure, axes = plt.subplots(1, len(metrics), figsize=(3.2 * len(metrics), 3.2), squeeze=False)
    for axis, metric in zip(axes[0], metrics):
        plot_metric(plt, axis, [r for r in mine if r["metric"] == metric])
    figure.suptitle(TITLES[workload], fontsize=10)
    figure.tight_layout()
    figure.savefig(out / ("peers-%s.png" % workload), dpi=110)
    plt.close(figure)


def plot_trees(plt, results, out):
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4))
    for axis, metric in zip(axes, ("draw", "update")):
        mine = [r for r in results if r["workload"] == "w4" and r["metric"].startswith(metric)]
        for peer, form in unique((r["peer"], r["metric"]) for r in mine):
            rows = sorted((r for r in mine if (r["peer"], r["metric"]) == (peer, form)),
                          key=lambda r: r["capacity"])
            axis.plot([r["capacity"] for r in rows], [r["median"] for r in rows], marker="o",
                      markersize=3, label=peer + form[len(metric):],
                      linewidth=2 if peer in OURS else 1)
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
            plot_workload(plt, results, workload, out)
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
    validate(data)
    write(data, args.results)
    if args.plots:
        plots(data, args.results)
    print(args.results / "peers.md")


if __name__ == "__main__":
    main()
