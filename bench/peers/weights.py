#!/usr/bin/env python3
"""Weights from a learner to an actor in another process, of this store and by Ray's object store, in rounds that alternate; and
memcpy of as many bytes. Both as their users call them: a dict of tensors is published, and the actor has it in memory of its
own. Ray hands out mapped memory, so its time includes one copy; this store's fetch is that copy.

    build/bin/relive up --store peers --size 8G
    PYTHONPATH=build/python VENV_WITH_RAY/bin/python bench/peers/weights.py shm:peers
"""

import argparse
import json
import statistics
import time

import numpy as np
import ray

import relive

TENSORS = 16
WARM = 3


@ray.remote
class Actor:
    def __init__(self, uri, size):
        self.weights = relive.open(uri).weights("peers-weights")
        self.mine = [np.ones(size // TENSORS, np.uint8) for _ in range(TENSORS)]

    def by_store(self, version):
        start = time.monotonic()
        found = self.weights.fetch(newer_than=version - 1, timeout=60)
        seconds = time.monotonic() - start
        assert found.version == version and found["layer.3"][-1] == version % 256
        return seconds

    def by_ray(self, objects, version):
        start = time.monotonic()
        found = ray.get(objects[0])
        for to, array in zip(self.mine, found.values()):
            np.copyto(to, array)
        seconds = time.monotonic() - start
        assert self.mine[3][-1] == version % 256
        return seconds


def timed(call, *args, **options):
    start = time.monotonic()
    result = call(*args, **options)
    return time.monotonic() - start, result


def measure(uri, size, rounds):
    """Returns the seconds of each round, by what was done."""
    tensors = {"layer.%d" % i: np.ones(size // TENSORS, np.uint8) for i in range(TENSORS)}
    to = {name: np.zeros_like(array) for name, array in tensors.items()}
    found = {"relive publish": [], "relive fetch": [], "ray put": [], "ray get and copy": [], "memcpy": []}
    with relive.open(uri) as store:
        if "peers-weights" in store.kvs():
            store.drop_kv("peers-weights")
        weights = store.create_weights("peers-weights", size + (1 << 20), anchor_every=1, prefault=True)
        actor = Actor.remote(uri, size)
        for version in range(1, WARM + rounds + 1):
            for array in tensors.values():
                array[-1] = version % 256
            seconds, _ = timed(weights.publish, tensors, version)
            found["relive publish"].append(seconds)
            found["relive fetch"].append(ray.get(actor.by_store.remote(version)))
            seconds, reference = timed(ray.put, tensors)
            found["ray put"].append(seconds)
            found["ray get and copy"].append(ray.get(actor.by_ray.remote([reference], version)))
            seconds, _ = timed(lambda: [np.copyto(to[name], array) for name, array in tensors.items()])
            found["memcpy"].append(seconds)
        ray.kill(actor)
    return {name: times[WARM:] for name, times in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uri")
    parser.add_argument("--mib", type=int, default=1024, help="of the weights")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    size = args.mib << 20
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=3 * size + (64 << 20))
    found = measure(args.uri, size, args.rounds)
    ray.shutdown()
    print(json.dumps({"bench": "weights_peers", "bytes": size, "rounds": args.rounds, "ray": ray.__version__,
                      "gbps": {name: size / statistics.median(times) / 1e9 for name, times in found.items()}}))


if __name__ == "__main__":
    main()
