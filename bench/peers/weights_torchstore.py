#!/usr/bin/env python3
"""Weights by this store and by TorchStore, in rounds that alternate, and memcpy of as many bytes: a dict of tensors is published, and
read into tensors of the reader's own. TorchStore's volume is another process; publisher and reader are this one, for both.

    build/bin/relive up --store peers --size 8G
    PYTHONPATH=build/python VENV_WITH_TORCHSTORE/bin/python bench/peers/weights_torchstore.py shm:peers

Its actors link libcuda: on a machine without one, LD_LIBRARY_PATH as tools/check-adaptors sets it.
"""

import argparse
import asyncio
import json
import statistics
import time
from importlib import metadata

import torch
import torchstore

import relive

TENSORS = 16
WARM = 2


async def measure(uri, size, rounds):
    """Returns the seconds of each round, by what was done."""
    tensors = {"layer.%d" % i: torch.ones(size // TENSORS, dtype=torch.uint8) for i in range(TENSORS)}
    mine = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    found = {name: [] for name in ("relive publish", "relive fetch", "torchstore put", "torchstore get", "memcpy")}
    await torchstore.initialize()
    with relive.open(uri) as store:
        if "peers-weights" in store.kvs():
            store.drop_kv("peers-weights")
        weights = store.create_weights("peers-weights", size + (1 << 20), anchor_every=1, prefault=True)
        actor = store.weights("peers-weights")
        for version in range(1, WARM + rounds + 1):
            for tensor in tensors.values():
                tensor[-1] = version % 256
            times = [time.monotonic()]
            weights.publish(tensors, version)
            times.append(time.monotonic())
            generation = actor.fetch(newer_than=version - 1, timeout=60)
            times.append(time.monotonic())
            assert generation.version == version and generation["layer.3"][-1] == version % 256
            await torchstore.put_state_dict(tensors, "peers")
            times.append(time.monotonic())
            await torchstore.get_state_dict("peers", mine)
            times.append(time.monotonic())
            assert mine["layer.3"][-1] == version % 256
            for name, tensor in tensors.items():
                mine[name].copy_(tensor)
            times.append(time.monotonic())
            for i, name in enumerate(found):
                found[name].append(times[i + 1] - times[i])
    await torchstore.shutdown()
    return {name: times[WARM:] for name, times in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uri")
    parser.add_argument("--mib", type=int, default=1024, help="of the weights")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    found = asyncio.run(measure(args.uri, args.mib << 20, args.rounds))
    print(json.dumps({"bench": "weights_torchstore", "bytes": args.mib << 20, "rounds": args.rounds,
                      "torchstore": metadata.version("torchstore"), "torch": torch.__version__,
                      "gbps": {name: (args.mib << 20) / statistics.median(times) / 1e9
                               for name, times in found.items()}}))


if __name__ == "__main__":
    main()
