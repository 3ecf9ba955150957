#!/usr/bin/env python3
"""What a learner's batches lose while an actor fetches weights: the rate of batches in the time of each fetch, by that in
an equally long time just before it, alternately; by the clock, and by the learner's CPU time, which other programs on the machine
do not change.

    build/bin/relive up --store beside --size 8G
    PYTHONPATH=build/python bench/weights_beside.py shm:beside
"""

import argparse
import json
import multiprocessing
import statistics
import time

import numpy as np

import relive

TENSORS = 16
WARM = 3  # versions that fill buffers


class Counts:
    """Batches of the learner, and its CPU time until then. Of two reads the second one is subtracted from."""

    def __init__(self, context):
        self.batches = context.Value("Q", lock=False)
        self.cpu = context.Value("d", lock=False)

    def read(self):
        return np.array([time.monotonic(), self.cpu.value, self.batches.value])


def sample(uri, counts, stop):
    with relive.open(uri) as store:
        sampler = store.table("beside").sampler(256)
        while not stop.value:
            sampler.sample()
            counts.cpu.value = time.process_time()
            counts.batches.value += 1


def act(uri, counts, pipe):
    """Fetches each version that it is told of; answers with what was counted meanwhile."""
    with relive.open(uri) as store:
        weights = store.weights("beside-weights")
        for version in iter(pipe.recv, None):
            before = counts.read()
            found = weights.fetch(newer_than=version - 1, timeout=60)
            pipe.send(counts.read() - before)
            assert found.version == version


def measure(store, size, pairs, pipe, counts):
    """Returns for each pair what was counted while nothing was fetched, and meanwhile."""
    rows = []
    weights = store.weights("beside-weights")
    tensors = {"layer.%d" % i: np.ones(size // TENSORS, np.uint8) for i in range(TENSORS)}
    seconds = 0.2
    for version in range(1, pairs + WARM + 1):
        weights.publish(tensors, version)
        before = counts.read()
        time.sleep(seconds)
        idle = counts.read() - before
        pipe.send(version)
        busy = pipe.recv()
        seconds = busy[0]
        rows.append((idle, busy))
    weights.close()
    return np.array(rows[WARM:])


def run(uri, size, pairs):
    context = multiprocessing.get_context("spawn")
    counts, stop = Counts(context), context.Value("b", lock=False)
    mine, theirs = context.Pipe()
    with relive.open(uri) as store:
        if "beside-weights" in store.kvs():
            store.drop_kv("beside-weights")
        table = store.create_table("beside", {"obs": ("float32", (64,))}, capacity=1 << 16)
        with table.writer() as writer:
            for _ in range(1 << 16):
                writer.append(obs=np.zeros(64, np.float32))
        store.create_weights("beside-weights", size + (1 << 20), anchor_every=1, prefault=True).close()
        others = [context.Process(target=sample, args=(uri, counts, stop), daemon=True),
                  context.Process(target=act, args=(uri, counts, theirs), daemon=True)]
        for other in others:
            other.start()
        while counts.batches.value < 1000:
            time.sleep(0.01)
        found = measure(store, size, pairs, mine, counts)
        mine.send(None)
        stop.value = 1
        for other in others:
            other.join()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uri")
    parser.add_argument("--mib", type=int, default=1024, help="of the weights")
    parser.add_argument("--pairs", type=int, default=15)
    args = parser.parse_args()
    idle, busy = run(args.uri, args.mib << 20, args.pairs).transpose(1, 2, 0)
    clock, cpu = ((busy[2] / busy[i]) / (idle[2] / idle[i]) for i in range(2))
    print(json.dumps({
        "bench": "weights_beside", "bytes": args.mib << 20, "pairs": args.pairs,
        "batches_per_s": statistics.median(idle[2] / idle[0]), "of_idle": statistics.median(clock),
        "of_idle_by_cpu": statistics.median(cpu), "least_by_cpu": min(cpu), "most_by_cpu": max(cpu),
        "fetch_gbps": statistics.median((args.mib << 20) / busy[0] / 1e9)}))


if __name__ == "__main__":
    main()
