#!/usr/bin/env python3
"""Measures replay buffers side by side, each through Python as its users call it.

Every peer lives in a virtual environment of its own, made from PyPI, and in a process of its own; all of
a workload's peers are filled first and checked: what they hand out must have gone in. Then windows
alternate between them, so that a slow second of the machine hits all. What does not install or run is
listed with the reason.

    run.py [--peers a,b] [--workloads w1,w2,w3,w4] [--rounds N] [--seconds S] [--out FOLDER]
    hosts 2 run.py --hosts ...   W3 alone, of the installed peers that have a server: the buffer on one
                       host of tests/support/hosts, the actors and the learner on the other one.
    run.py --quick     only checks the installed peers, with small windows: figures mean nothing.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

import report
import sizes
from workers import ANSWER_S, ROOT, Absent, Environments, Failed, Worker, say

SINGLE = {
    "w1": ["relive", "relive_stored", "cpprb", "flashbax", "tianshou", "torchrl", "reverb", "redis",
           "ray"],
    "w2": ["relive", "relive_dense", "relive_stored", "cpprb", "flashbax", "tianshou", "torchrl",
           "reverb", "redis", "ray"],
}
SHARED = ["relive", "cpprb", "redis", "reverb", "ray"]
BETWEEN_HOSTS = ["relive", "redis", "reverb"]
TREES = ["relive", "cpprb", "torchrl", "torchrl_sampler", "tianshou", "flashbax"]
NOT_OFFERED = {
    "w3 flashbax": "one process only",
    "w3 tianshou": "one process only",
    "w3 torchrl": "several processes by a Ray actor only: see ray",
    "w4 reverb, redis, ray": "no tree that a client could call",
    "w1, w2, w3, w4 id-echo": "a queue: steps are taken once, in order, without priorities or "
                               "weights; bench/corners/run.py queues measures it",
}
SHAPE = {"w1": "cartpole", "w2": "atari"}
UNITS = {"sample": "batches/s", "update": "calls/s", "mixed": "loops/s", "insert1": "rows/s",
         "insert64": "rows/s"}  # in this order: a full ring is inserted into last
VARIED = ("fanout", "evicted", "pages", "vector")  # by micro_sumtree, in pairs
ROLES = ("actor", "actor", "learner")
TROUBLE = (Failed, OSError, subprocess.SubprocessError)


class Bench:
    def __init__(self, args):
        self.args = args
        self.environments = Environments(args.environments, not args.quick and not args.hosts)
        self.shared_peers = BETWEEN_HOSTS if args.hosts else SHARED
        self.places = (1, 2) if args.hosts else (None, None)  # of the buffer, and of its users
        self.results = []
        self.versions = {}
        self.missing = {}
        self.failed = False

    def wanted(self, peers):
        return [p for p in peers if not self.args.peers or p in self.args.peers]

    def lose(self, workload, peer, error):
        say("%s %s: %s" % (workload, peer, error))
        self.missing.setdefault("%s %s" % (workload, peer), str(error))
        self.failed |= not isinstance(error, Absent)

    def add(self, workload, peer, metric, unit, values, **more):
        if not values:
            return
        self.results.append({
            "workload": workload, "peer": peer, "metric": metric, "unit": unit,
            "median": statistics.median(values), "min": min(values), "max": max(values),
            "values": values, **more})

    # -------- workers that take turns --------

    def gather(self, workload, peers, prepare):
        """Starts and prepares a worker of each peer; peers that fail are listed as missing."""
        workers = {}
        for peer in self.wanted(peers):
            worker = None
            try:
                worker = Worker(self.environments, peer)
                prepare(worker)
                workers[peer] = worker
            except TROUBLE as error:
                self.lose(workload, peer, error)
                if worker:
                    worker.end()
        return workers

    def turns(self, workload, workers, rounds, order):
        """Gives the order to each worker in turn, `rounds` times; returns the answers by peer. A peer that
        fails is listed as missing and ended."""
        answers = {peer: [] for peer in workers}
        for _ in range(rounds):
            for peer in list(workers):
                try:
                    answers[peer].append(workers[peer].ask(**order))
                except TROUBLE as error:
                    self.lose(workload, peer, error)
                    workers.pop(peer).end()
        return answers

    def size(self, shape, prefill):
        return sizes.QUICK[shape] if self.args.quick else (sizes.CAPACITY[shape], prefill[shape])

    # -------- W1 and W2: one process --------

    def open(self, workload, worker):
        shape = SHAPE[workload]
        capacity, prefill = self.size(shape, sizes.PREFILL)
        answer = worker.ask(op="open", shape=shape, seed=sizes.SEED, capacity=capacity,
                            prefill=prefill)
        worker.ask(op="check", priorities=self.args.quick)
        self.versions[worker.peer] = answer["version"]
        self.add(workload, worker.peer, "memory", "bytes/step", [answer["bytes_per_step"]])

    def single(self, workload):
        workers = self.gather(workload, SINGLE[workload], lambda w: self.open(workload, w))
        for what, unit in UNITS.items():
            say("%s %s" % (workload, what))
            answers = self.turns(workload, workers, self.args.rounds,
                                 {"op": "window", "what": what, "seconds": self.args.seconds})
            for peer, got in answers.items():
                self.add(workload, peer, what, unit, [a["value"] for a in got],
                         cpu=statistics.median([a["cpu"] for a in got] or [0]))
        for worker in workers.values():
            worker.end()

    # -------- W3: two actors and a learner --------

    def beside(self, peer, shape):
        """One round of W3 with one peer: returns rows inserted and batches learned per second."""
        capacity, prefill = self.size(shape, sizes.PREFILL_SHARED)
        workers = [Worker(self.environments, peer, self.places[0])]
        order = {"shape": shape, "seed": sizes.SEED}
        try:
            host = workers[0].ask(op="host", capacity=capacity, prefill=prefill, **order)
            self.versions.setdefault(peer, host["version"])
            if host["crew"]:
                start = time.time() + 2
                rates = workers[0].ask(op="crew", roles=ROLES, start=start, patience=ANSWER_S / 4,
                                       end=start + self.args.seconds_shared, **order)["values"]
            else:
                rates = self.roles(workers, host["address"], order)
        finally:
            for worker in reversed(workers):
                worker.end()
        return rates[0] + rates[1], rates[2]

    def roles(self, workers, address, order):
        crew = [Worker(self.environments, workers[0].peer, self.places[1]) for _ in ROLES]
        workers += crew
        for rank, (worker, role) in enumerate(zip(crew, ROLES)):
            worker.tell(op="join", address=address, role=role, rank=rank, **order)
        for worker in crew:
            worker.hear()
        start = time.time() + 0.5
        for rank, (worker, role) in enumerate(zip(crew, ROLES)):
            worker.tell(op="role", role=role, rank=rank, start=start,
                        end=start + self.args.seconds_shared)
        return [worker.hear()["value"] for worker in crew]

    def shared(self):
        for shape in SHAPE.values():
            name = "w3-" + shape
            rates = {peer: [] for peer in self.wanted(self.shared_peers)}
            for _ in range(self.args.rounds_shared):
                for peer in list(rates):
                    say("%s %s" % (name, peer))
                    try:
                        rates[peer].append(self.beside(peer, shape))
                    except TROUBLE as error:
                        self.lose(name, peer, error)
                        rates.pop(peer)
            for peer, got in rates.items():
                self.add(name, peer, "inserted", "rows/s", [rows for rows, _ in got])
                self.add(name, peer, "learned", "batches/s", [batches for _, batches in got])

    # -------- W4: the tree --------

    def plant(self, worker, capacity):
        answer = worker.ask(op="plant", capacity=capacity, seed=sizes.SEED)
        self.versions.setdefault(worker.peer, answer["version"])

    def trees(self):
        for bits in [10] if self.args.quick else sizes.TREE_BITS:
            capacity = 1 << bits
            say("w4 2^%d" % bits)
            workers = self.gather("w4", TREES, lambda w: self.plant(w, capacity))
            answers = self.turns("w4", workers, self.args.rounds,
                                 {"op": "tree", "seconds": self.args.seconds / 4})
            for peer, got in answers.items():
                for metric in got[0] if got else ():
                    self.add("w4", peer, metric, "ns", [a[metric] for a in got], capacity=capacity)
            for worker in workers.values():
                worker.end()
        if not self.args.peers:
            self.own_tree()

    def own_tree(self):
        """Adds results of Relive's tree alone, from the usual cases of its bench in C, micro_sumtree."""
        program = pathlib.Path(self.args.build) / "bin" / "micro_sumtree"
        if self.args.quick or not program.exists():
            self.lose("w4", "relive_tree", Absent("%s is not run" % program.name))
            return
        say("w4 micro_sumtree")
        answer = subprocess.run([str(program), "--json"], capture_output=True, text=True,
                                timeout=ANSWER_S)
        usual = None
        for line in answer.stdout.splitlines():
            result = json.loads(line)
            params = result["params"]
            metric = {"draw_ns": "draw", "update_ns": "update"}.get(result["metric"])
            if metric is None:
                continue
            usual = usual or {key: params[key] for key in VARIED}  # the first is
            if any(params[key] != usual[key] for key in VARIED):
                continue
            self.add("w4", "relive_tree", metric, "ns", [result["median"]],
                     capacity=params["leaves"])

    def run(self):
        for workload in self.args.workloads:
            if workload in SHAPE:
                self.single(workload)
            elif workload == "w3":
                self.shared()
            else:
                self.trees()


def machine():
    model = "unknown"
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": model, "cores": os.cpu_count(), "memory_gib": round(pages / 2**30),
            "kernel": platform.release().split("-")[0], "python": platform.python_version()}


def commit():
    git = shutil.which("git")
    if not git:
        return "unknown"
    answer = subprocess.run([git, "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True)
    return answer.stdout.strip() or "unknown"


def words(text):
    return [word for word in text.split(",") if word]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=words, default=[], help="only these, with commas")
    parser.add_argument("--workloads", type=words, default=["w1", "w2", "w3", "w4"])
    parser.add_argument("--rounds", type=int, default=7, help="windows of each peer (7)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a window (0.4)")
    parser.add_argument("--rounds-shared", type=int, default=3, help="of W3 (3)")
    parser.add_argument("--seconds-shared", type=float, default=4, help="of a round of W3 (4)")
    parser.add_argument("--hosts", action="store_true", help="W3 between two hosts: see above")
    parser.add_argument("--quick", action="store_true",
                        help="small windows of what is installed; exit 1 if an answer is wrong")
    parser.add_argument("--environments", help="where the virtual environments are made "
                        "($PEERS, or build/peers)",
                        default=os.environ.get("PEERS") or str(ROOT / "build" / "peers"))
    parser.add_argument("--build", default=str(ROOT / "build"), help="with bin/micro_sumtree")
    parser.add_argument("--out", default=str(ROOT / "build" / "peers" / "results"))
    args = parser.parse_args()
    if args.hosts:
        args.workloads, os.environ["PEERS_HOST"] = ["w3"], "10.78.0.1"
    if args.quick:
        args.rounds = args.rounds_shared = 1
        args.seconds, args.seconds_shared = 0.02, 0.2
    return args


def main():
    args = parse()
    bench = Bench(args)
    began = time.time()
    bench.run()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    data = {"commit": commit(), "machine": machine(), "seed": sizes.SEED, "quick": args.quick,
            "rounds": args.rounds, "rounds_shared": args.rounds_shared,
            "wall_s": round(time.time() - began),
            "sizes": {"batch": sizes.BATCH, "chunk": sizes.CHUNK, "capacity": sizes.CAPACITY,
                      "prefill": sizes.PREFILL, "prefill_shared": sizes.PREFILL_SHARED},
            "versions": bench.versions, "missing": {**NOT_OFFERED, **bench.missing},
            "results": bench.results}
    report.validate(data)
    (out / "peers.json").write_text(json.dumps(data, indent=1) + "\n")
    report.write(data, out)
    if not args.quick:
        plot(bench.environments, out)
    print(out / "peers.md")
    return 1 if args.quick and bench.failed else 0


def plot(environments, out):
    try:
        python = environments.python("plots")
        subprocess.run([str(python), str(pathlib.Path(report.__file__)), "--results", str(out),
                        "--plots"], check=True, stdout=subprocess.DEVNULL)
    except TROUBLE as error:
        say("no plots: %s" % error)


if __name__ == "__main__":
    sys.exit(main())
