"""One peer in one process: does what it is told on stdin, answers a line of JSON for each order.

    {"op": "open", "peer": "cpprb", "shape": "cartpole", "seed": 1}
    {"op": "window", "what": "sample", "seconds": 0.3}
    {"op": "tree", ...}   {"op": "shared", ...}   {"op": "quit"}
"""

import importlib
import json
import os
import sys
import time
import traceback

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import workloads as w  # noqa: E402  (after the numbers of threads are set)


class Worker:
    def __init__(self):
        self.peer = None
        self.module = None

    def open(self, order):
        shape = w.SHAPES[order["shape"]]
        self.module = importlib.import_module("peers." + order["peer"])
        self.seed = order.get("seed", 1)
        self.feeder = w.Feeder(order["shape"], self.seed)
        self.priorities = w.new_priorities(self.seed)
        self.peer = self.module.Peer(order["shape"], shape["columns"],
                                     order.get("capacity", shape["capacity"]))
        for _ in range(0, order.get("prefill", shape["prefill"]), w.CHUNK):
            self.peer.insert(self.feeder.chunk())
        return {"version": self.module.version(), "bytes_per_step": self.peer.bytes_per_step()}

    def window(self, order):
        fn = w.loop_of(self.peer, order["what"], self.feeder, self.priorities)
        rate, cpu = w.run_window(fn, order["seconds"])
        return {"value": rate, "cpu": cpu}

    def tree(self, order):
        """W4: nanoseconds of a draw and of an update at a capacity."""
        module = importlib.import_module("peers." + order["peer"])
        if not hasattr(module, "Tree"):
            return {"none": True}
        tree = module.Tree(order["capacity"], order.get("seed", 1))
        return {"draw_ns": tree.draw_ns(order["seconds"]),
                "update_ns": tree.update_ns(order["seconds"])}

    def role(self, order):
        """W3: an actor or a learner beside others, from the time `start` until `end`."""
        module = importlib.import_module("peers." + order["peer"])
        feeder = w.Feeder(order["shape"], self.seed if self.peer else order["rank"])
        priorities = w.new_priorities(order["rank"])
        peer = module.join(order["address"], order["role"], order["shape"],
                           w.SHAPES[order["shape"]]["columns"])
        turn = 0
        done = 0
        while time.time() < order["start"]:
            time.sleep(0.001)
        began = time.time()
        while time.time() < order["end"]:
            if order["role"] == "actor":
                peer.insert(feeder.chunk())
                done += w.CHUNK
            else:
                peer.update(peer.sample(), priorities[turn % len(priorities)])
                turn += 1
                done += 1
        rate = done / (time.time() - began)
        peer.close()
        return {"value": rate}

    def host(self, order):
        """W3: what others join; gives the address."""
        module = importlib.import_module("peers." + order["peer"])
        if not hasattr(module, "Host"):
            return {"none": True}
        shape = w.SHAPES[order["shape"]]
        self.peer = module.Host(order["shape"], shape["columns"], order["capacity"])
        feeder = w.Feeder(order["shape"], 7)
        self.peer.prefill(feeder, order["prefill"])
        return {"address": self.peer.address}

    def quit(self, _order):
        if self.peer is not None:
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
