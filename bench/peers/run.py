#!/usr/bin/env python3
"""Measures replay buffers side by side, each through Python as its users call it.

Every peer lives in a virtual environment of its own, made from PyPI, and in a process of its own; all of
a workload's peers are filled first, then windows alternate between them, so that a slow second of the
machine hits all. What does not install or run is listed with the reason.

    run.py [--peers a,b] [--workloads w1,w2,w3,w4] [--rounds N] [--seconds S] [--out FOLDER]
"""

import argparse
import json
import os
import pathlib
import platform
import select
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PACKAGES = {
    "relive": [str(ROOT)],
    "cpprb": ["cpprb", "numpy"],
    "flashbax": ["flashbax"],
    "tianshou": ["tianshou"],
    "torchrl": ["torchrl", "torch", "tensordict", "numpy"],
    "reverb": ["dm-reverb[tensorflow]==0.14.0"],
    "redis": ["redis", "hiredis", "cpprb", "numpy"],
    "ray": ["ray", "cpprb", "numpy"],
    "plots": ["matplotlib"],
}
HOUSES = {"relive_stored": "relive"}  # peers that share another's environment
SINGLE = ["relive", "relive_stored", "cpprb", "flashbax", "tianshou", "torchrl", "reverb", "redis",
          "ray"]
SHARED = ["relive", "cpprb", "redis", "reverb", "ray"]
TREES = ["relive", "cpprb", "torchrl", "tianshou"]
SHAPE = {"w1": "cartpole", "w2": "atari"}
UNITS = {"sample": "batches/s", "update": "calls/s", "mixed": "loops/s", "insert1": "rows/s",
         "insert64": "rows/s"}  # in this order: a full ring is inserted into last
ANSWER_S = 300
INSTALL_S = 1800


class Failed(Exception):
    pass


def say(text):
    print(text, file=sys.stderr, flush=True)


# -------- environments --------

def environment(folder, peer):
    """The python of a peer's environment, made if it is not there."""
    house = HOUSES.get(peer, peer)
    home = folder / house
    python = home / "bin" / "python"
    done = home / "installed"
    if done.exists() and house != "relive":
        return python
    say("install %s" % house)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    log = home / "install.log"
    with open(log, "w") as out:
        code = subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES[house]],
                              stdout=out, stderr=out, timeout=INSTALL_S).returncode
    if code:
        lines = log.read_text().strip().splitlines()
        raise Failed("does not install: " + (lines[-1] if lines else "pip failed"))
    done.touch()
    return python


# -------- workers --------

class Worker:
    """A peer in its process; it is never waited for beyond ANSWER_S."""

    def __init__(self, python, peer):
        self.peer = peer
        self._log = open(pathlib.Path(python).parent.parent / ("%s.log" % peer), "a")
        self._process = subprocess.Popen([str(python), str(HERE / "worker.py")], cwd=HERE,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._log)

    def tell(self, **order):
        self._process.stdin.write((json.dumps(order) + "\n").encode())
        self._process.stdin.flush()

    def hear(self, seconds=ANSWER_S):
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise Failed("no answer in %d s" % seconds if not ready else "its process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def ask(self, **order):
        self.tell(**order)
        return self.hear()

    def end(self):
        try:
            self.ask(op="quit")
            self._process.wait(20)
        except (Failed, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._log.close()


class Bench:
    def __init__(self, args):
        self.args = args
        self.folder = pathlib.Path(args.environments)
        self.results = []
        self.versions = {}
        self.missing = {}
        self._pythons = {}

    def wanted(self, peers):
        return [p for p in peers if not self.args.peers or p in self.args.peers]

    def start(self, peer):
        if peer not in self._pythons:
            self._pythons[peer] = environment(self.folder, peer)
        return Worker(self._pythons[peer], peer)

    def lose(self, workload, peer, error):
        say("%s %s: %s" % (workload, peer, error))
        self.missing.setdefault("%s %s" % (workload, peer), str(error))

    def add(self, workload, peer, metric, unit, values, **more):
        if not values:
            return
        self.results.append({
            "workload": workload, "peer": peer, "metric": metric, "unit": unit,
            "median": statistics.median(values), "min": min(values), "max": max(values),
            "values": values, **more})

    # -------- W1 and W2: one process --------

    def open_all(self, workload):
        workers = {}
        for peer in self.wanted(SINGLE):
            try:
                worker = self.start(peer)
                workers[peer] = worker
                answer = worker.ask(op="open", peer=peer, shape=SHAPE[workload], seed=1)
            except (Failed, subprocess.SubprocessError, OSError) as error:
                self.lose(workload, peer, error)
                if peer in workers:
                    workers.pop(peer).end()
                continue
            self.versions[peer] = answer["version"]
            self.add(workload, peer, "memory", "bytes/step", [answer["bytes_per_step"]])
        return workers

    def single(self, workload):
        workers = self.open_all(workload)
        for what, unit in UNITS.items():
            values = {peer: [] for peer in workers}
            cpus = {peer: [] for peer in workers}
            for turn in range(self.args.rounds):
                say("%s %s round %d of %d" % (workload, what, turn + 1, self.args.rounds))
                for peer in list(workers):
                    try:
                        answer = workers[peer].ask(op="window", what=what,
                                                   seconds=self.args.seconds)
                    except (Failed, OSError) as error:
                        self.lose(workload, peer, error)
                        workers.pop(peer).end()
                        continue
                    values[peer].append(answer["value"])
                    cpus[peer].append(answer["cpu"])
            for peer, got in values.items():
                self.add(workload, peer, what, unit, got,
                         cpu=statistics.median(cpus[peer]) if got else 0)
        for worker in workers.values():
            worker.end()

    # -------- W3: two actors and a learner --------

    def beside(self, peer, shape):
        sizes = {"cartpole": (1 << 20, 1 << 15), "atari": (1 << 14, 1 << 13)}[shape]
        host = self.start(peer)
        others = []
        try:
            answer = host.ask(op="host", peer=peer, shape=shape, capacity=sizes[0],
                              prefill=sizes[1])
            if answer.get("none"):
                raise Failed("has no form for several processes here")
            start = time.time() + (12 if peer in ("reverb", "ray") else 4)
            for rank, role in enumerate(("actor", "actor", "learner")):
                worker = self.start(peer)
                others.append(worker)
                worker.tell(op="role", peer=peer, shape=shape, role=role, rank=rank,
                            address=answer["address"], start=start,
                            end=start + self.args.seconds_shared)
            rates = [worker.hear()["value"] for worker in others]
        finally:
            for worker in others:
                worker.end()
            host.end()
        return rates[0] + rates[1], rates[2]

    def shared(self):
        for shape in ("cartpole", "atari"):
            name = "w3-" + shape
            rows = {peer: [] for peer in self.wanted(SHARED)}
            batches = {peer: [] for peer in rows}
            for turn in range(self.args.rounds_shared):
                for peer in list(rows):
                    say("%s %s round %d of %d" % (name, peer, turn + 1, self.args.rounds_shared))
                    try:
                        inserted, sampled = self.beside(peer, shape)
                    except (Failed, subprocess.SubprocessError, OSError) as error:
                        self.lose(name, peer, error)
                        rows.pop(peer)
                        batches.pop(peer)
                        continue
                    rows[peer].append(inserted)
                    batches[peer].append(sampled)
            for peer in rows:
                self.add(name, peer, "inserted", "rows/s", rows[peer])
                self.add(name, peer, "learned", "batches/s", batches[peer])

    # -------- W4: the tree --------

    def trees(self):
        workers = {}
        for peer in self.wanted(TREES):
            try:
                workers[peer] = self.start(peer)
            except (Failed, subprocess.SubprocessError, OSError) as error:
                self.lose("w4", peer, error)
        for bits in range(10, 25, 2):
            draws = {peer: [] for peer in workers}
            updates = {peer: [] for peer in workers}
            for turn in range(self.args.rounds_shared):
                say("w4 2^%d round %d of %d" % (bits, turn + 1, self.args.rounds_shared))
                for peer in list(workers):
                    try:
                        answer = workers[peer].ask(op="tree", peer=peer, capacity=1 << bits,
                                                   seconds=self.args.seconds)
                    except (Failed, OSError) as error:
                        self.lose("w4", peer, error)
                        workers.pop(peer).end()
                        continue
                    draws[peer].append(answer["draw_ns"])
                    updates[peer].append(answer["update_ns"])
            for peer in draws:
                self.add("w4", peer, "draw", "ns", draws[peer], capacity=1 << bits)
                self.add("w4", peer, "update", "ns", updates[peer], capacity=1 << bits)
        for worker in workers.values():
            worker.end()

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=words, default=[], help="only these, with commas")
    parser.add_argument("--workloads", type=words, default=["w1", "w2", "w3", "w4"])
    parser.add_argument("--rounds", type=int, default=7, help="windows of each peer (7)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a window (0.4)")
    parser.add_argument("--rounds-shared", type=int, default=3, help="of W3 and W4 (3)")
    parser.add_argument("--seconds-shared", type=float, default=4, help="of a round of W3 (4)")
    parser.add_argument("--environments", default=str(ROOT / "build" / "peers"),
                        help="where the virtual environments are made")
    parser.add_argument("--out", default=str(ROOT / "build" / "peers" / "results"))
    args = parser.parse_args()
    bench = Bench(args)
    pathlib.Path(args.environments).mkdir(parents=True, exist_ok=True)
    bench.run()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    result = {"commit": commit(), "machine": machine(), "seed": 1, "rounds": args.rounds,
              "versions": bench.versions, "missing": bench.missing, "results": bench.results}
    (out / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(environment(bench.folder, "plots"), out)


def draw(python, out):
    subprocess.run([str(python), str(HERE / "report.py"), "--results", str(out), "--plots"],
                   check=True)


if __name__ == "__main__":
    main()
