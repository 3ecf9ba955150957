"""One peer in one process: does what it is told on stdin, answers a line of JSON for each order.

    {"op": "open", "peer": "cpprb", "shape": "cartpole", "capacity": 8192, "prefill": 4096, "seed": 1}
    {"op": "window", "what": "sample", "seconds": 0.3}
    {"op": "check", "priorities": true}   {"op": "tree", ...}   {"op": "host", ...}   {"op": "quit"}
"""

import importlib
import json
import multiprocessing
import os
import sys
import time
import traceback

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import answers  # noqa: E402  (after the numbers of threads are set)
import workloads as w  # noqa: E402


WITH_SERVER = ("redis", "reverb", "ray")


def pin(peer):
    """Pins a library to one core before it counts cores for its threads; peers with a server get all."""
    if peer not in WITH_SERVER:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Worker:
    def __init__(self):
        self.peer = self.feeder = self.priorities = self.module = None
        self.calls = {}

    def open(self, order):
        """W1, W2: opens a peer's buffer and fills it; answers its version and bytes per step."""
        pin(order["peer"])
        self.module = importlib.import_module("peers." + order["peer"])
        self.feeder = self._feeder(order["shape"], order["seed"])
        self.priorities = w.new_priorities(order["seed"])
        self.peer = self.module.Peer(order["shape"], w.COLUMNS[order["shape"]], order["capacity"])
        for _ in range(0, order["prefill"], w.CHUNK):
            self.peer.insert(self.feeder.chunk())
        return {"version": self.module.version(), "bytes_per_step": self.peer.bytes_per_step()}

    def _feeder(self, shape, seed):
        return w.Feeder(shape, seed, getattr(self.module, "cut", None))

    def window(self, order):
        fn = w.loop_of(self.peer, order["what"], self.feeder, self.priorities)
        rate, cpu = w.run_window(fn, order["seconds"])
        return {"value": rate, "cpu": cpu}

    def check(self, order):
        """Checks that the peer hands out what went in and, if asked, that priorities count; that leaves a
        few rows that are drawn all the time."""
        answers.check_rows(self.peer, self.feeder, 4)
        if order["priorities"]:
            answers.check_priorities(self.peer, self.feeder, 4)
        return {}

    # -------- W4 --------

    def plant(self, order):
        """Builds the peer's tree alone and calls each metric twice; answers the names of the metrics."""
        pin(order["peer"])
        self.calls = {}
        self.peer = None  # the last one's memory goes first
        self.module = importlib.import_module("peers." + order["peer"])
        self.peer = self.module.Tree(order["capacity"], order["seed"])
        self.calls = self.peer.calls()
        for before, timed in 2 * list(self.calls.values()):
            w.per_item(before, timed, 0)  # JAX compiles, and again for an updated state
        return {"metrics": list(self.calls), "version": self.module.version()}

    def tree(self, order):
        """Measures the tree: nanoseconds per item of each metric."""
        return {name: w.per_item(before, timed, order["seconds"])
                for name, (before, timed) in self.calls.items()}

    # -------- W3 --------

    def host(self, order):
        """Opens and fills a buffer that others join; answers its address, and as `crew` whether only
        forked children can join."""
        self.module = importlib.import_module("peers." + order["peer"])
        self.peer = self.module.Host(order["shape"], w.COLUMNS[order["shape"]], order["capacity"])
        self.peer.prefill(self._feeder(order["shape"], 7), order["prefill"])
        return {"address": self.peer.address, "crew": hasattr(self.peer, "client"),
                "version": self.module.version()}

    def join(self, order):
        """Joins another worker's buffer as an actor or a learner; a learner makes one update."""
        self.module = importlib.import_module("peers." + order["peer"])
        self.feeder = self._feeder(order["shape"], order["rank"])
        self.peer = self.module.join(order["address"], order["role"], order["shape"],
                                     w.COLUMNS[order["shape"]])
        if order["role"] == "learner":
            self.peer.update(self.peer.sample(), w.new_priorities(order["rank"])[0])
        return {}

    def role(self, order):
        return {"value": w.run_role(self.peer, order["role"], self.feeder, order["rank"],
                                    order["start"], order["end"])}

    def crew(self, order):
        """Runs all roles in forked children of the host; answers their rates."""
        context = multiprocessing.get_context("fork")
        crew = []
        for rank, role in enumerate(order["roles"]):
            here, there = context.Pipe()
            child = context.Process(target=self._child, args=(there, rank, role, order))
            child.start()
            crew.append((child, here))
        try:
            return {"values": [self._rate(here, order["patience"]) for _, here in crew]}
        finally:
            for child, _ in crew:
                child.kill()
                child.join()

    @staticmethod
    def _rate(pipe, seconds):
        if not pipe.poll(seconds):
            raise TimeoutError("a child gave no answer in %d s" % seconds)
        return pipe.recv()

    def _child(self, pipe, rank, role, order):
        client = self.peer.client(role)
        pipe.send(w.run_role(client, role, self._feeder(order["shape"], rank), rank,
                             order["start"], order["end"]))

    # -------- values under keys --------

    def store(self, order):
        """Opens a peer's store of values; 1000 keys have one."""
        self.module = importlib.import_module("peers." + order["peer"])
        self.peer = self.module.Values(order["value"])
        self.puts = 0
        self._put_values(1000)
        return {"version": self.module.version()}

    def _put_values(self, n):
        for _ in range(n):
            self.peer.put(self.puts)
            self.puts += 1

    def stored(self, order):
        """Operations a second; gets are of the newest thousand keys, in turn."""
        end, done, start = time.perf_counter() + order["seconds"], 0, time.perf_counter()
        while time.perf_counter() < end:
            for i in range(64):
                if order["what"] == "put":
                    self._put_values(1)
                else:
                    self.peer.get(self.puts - 1 - (done + i) % 1000)
            done += 64
        return {"value": done / (time.perf_counter() - start)}

    def quit(self, _order):
        if hasattr(self.peer, "close"):
            self.peer.close()
        return {}


def main():
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is not an answer
    worker = Worker()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order["op"])(order)
        except Exception as error:  # an answer, too: the run goes on without this peer
            traceback.print_exc()
            answer = {"error": "%s: %s" % (type(error).__name__, str(error)[:300])}
        print(json.dumps(answer), file=out)
        if order["op"] == "quit":
            return


if __name__ == "__main__":
    main()
