"""Two actor processes and a learner process on one store of this host; one actor is killed."""

import multiprocessing
import os
import signal
import subprocess
import tempfile
import time

import numpy as np

import relive

NAME = "guide"
SIGNATURE = {"obs": ((4,), "float32"), "action": "int64", "reward": "float32"}
ENVS = 8                                     # environments of each actor


def act(seed, stop):
    """An actor: opens the store by its name, and the existing table."""
    rng, version = np.random.default_rng(seed), 1
    with relive.open("shm:" + NAME) as store, \
            store.table("replay").writer(ENVS, autoreset="same_step") as writer:
        while not stop.value:
            ended = rng.random(ENVS) < 0.05
            obs = rng.random((ENVS, 4), np.float32)
            writer.append(obs=obs, action=rng.integers(0, 2, ENVS), reward=obs[:, 0],
                          terminated=ended, truncated=np.zeros(ENVS, bool), policy_version=version)


def learn(batches, results):
    """The learner: two batches are always drawn ahead by a thread."""
    with relive.open("shm:" + NAME) as store, \
            store.table("replay").sampler(256, prefetch=2) as sampler:
        for batch, _ in zip(sampler, range(batches)):
            td_error = batch.reward + batch.discount * batch.next_obs[:, 0] - batch.obs[:, 0]
            sampler.update_priorities(batch.key, td_error)
        results.put(sampler.stats())


def main():
    context = multiprocessing.get_context("spawn")        # handles do not survive a fork
    with relive.open("shm:" + NAME) as store:
        table = store.create_table("replay", SIGNATURE, capacity=50_000, max_writers=4 * ENVS,
                                   rate_limiter=relive.RateLimiter.of_min_size(5_000))
        stop = context.RawValue("b", 0)       # an Event has a lock, which a killed actor may hold
        results = context.Queue()
        actors = [context.Process(target=act, args=(seed, stop)) for seed in (1, 2)]
        learner = context.Process(target=learn, args=(300, results))
        for process in (*actors, learner):
            process.start()
        while len(table) < 10_000:
            time.sleep(0.01)
        actors[0].kill()                                  # SIGKILL, in the middle of an append
        stats = results.get(timeout=60)                   # the learner goes on
        stop.value = 1
        for process in (*actors, learner):
            process.join(60)
        print("learner: %(calls)d batches, %(items)d items, %(updates)d priorities set" % stats)
        assert stats["calls"] >= 300 and learner.exitcode == 0 == actors[1].exitcode
        assert actors[0].exitcode == -signal.SIGKILL

        deadline = time.monotonic() + 30                  # what the dead actor held is given back
        while table.verify().problems and time.monotonic() < deadline:
            time.sleep(0.1)
        assert table.verify().problems == 0
        print("table: %d items, %d inserted, every invariant holds"
              % (len(table), table.info().views[0].inserted))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RELIVE_RUNTIME_DIR"] = folder         # sockets, logs and the token of the store
        subprocess.run(["relive", "up", "--store", NAME, "--size", "64M"], check=True)
        try:
            main()
        finally:
            subprocess.run(["relive", "down", "--store", NAME, "--force"], check=True)
