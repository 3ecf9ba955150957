#!/usr/bin/env python3
"""A table over the nodes of a store, from Python: an actor puts steps in, a learner samples them with
batches kept ahead and updates priorities. All bytes are checked. Usage: learner.py URI BATCHES
"""

import json
import sys

import numpy as np

import relive

STEPS, ENVS, BATCH = 4096, 4, 256


def observation(number):
    return np.stack([number, -number, 2 * number], -1).astype(np.float32)


def act(table):
    with table.writer(num_envs=ENVS, autoreset="same_step") as writer:
        for first in range(0, STEPS, ENVS):
            number = np.arange(first, first + ENVS)
            writer.append(obs=observation(number), reward=number.astype(np.float32),
                          terminated=number % 64 >= 64 - ENVS, truncated=np.zeros(ENVS, bool))


def check(batch):
    number = batch.reward.astype(np.int64)
    np.testing.assert_array_equal(batch.obs, observation(number))
    going_on = batch.discount > 0
    np.testing.assert_array_equal(batch.next_obs[going_on], observation(number + ENVS)[going_on])


def learn(table, batches):
    with table.sampler(BATCH, prefetch=2, timeout=30.0, seed=1) as sampler:
        for _, batch in zip(range(batches), sampler):
            check(batch)
            sampler.update_priorities(batch.key, td_error=1 + batch.reward % 7)
        return sampler.stats()


def main():
    uri, batches = sys.argv[1], int(sys.argv[2])
    signature = {"obs": ((3,), np.float32), "reward": ((), np.float32)}
    with relive.open(uri, timeout=30.0) as store:
        table = store.create_table("python", signature, 1 << 13, shards=2, views=[relive.View()])
        act(table)
        stats = learn(table, batches)
        items = len(table)
        table.close()
        store.drop_table("python")
    print(json.dumps({"table": items, **stats}))
    assert items > STEPS // 2 and stats["reads"] > batches, "not over the wire"


if __name__ == "__main__":
    main()
