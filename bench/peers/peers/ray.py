"""A Ray actor around cpprb's buffer: every call is a message; up to eight inserts or updates are on their
way at once."""

import importlib.metadata
import os

# A cluster that ray.init starts wants a token, of which only its own process knows.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray  # noqa: E402

from peers import prefill  # noqa: E402
from workloads import ALPHA, BATCH, BETA, row_bytes  # noqa: E402

AHEAD = 8


def version():
    return importlib.metadata.version("ray") + " cpprb " + importlib.metadata.version("cpprb")


@ray.remote(num_cpus=0)
class Buffer:
    def __init__(self, columns, capacity):
        import cpprb
        env = {n: {"shape": d or 1, "dtype": t} for n, (d, t) in columns.items()}
        self._rb = cpprb.PrioritizedReplayBuffer(capacity, env, alpha=ALPHA)

    def insert(self, rows):
        self._rb.add(**rows)

    def sample(self):
        return self._rb.sample(BATCH, beta=BETA)

    def update(self, indexes, td_error):
        self._rb.update_priorities(indexes, td_error)


class Client:
    def __init__(self, actor, columns):
        self._actor = actor
        self._step = row_bytes(columns)
        self._flying = []

    def _send(self, ref):
        self._flying.append(ref)
        if len(self._flying) >= AHEAD:
            ray.get(self._flying.pop(0))

    def insert1(self, row):
        self._send(self._actor.insert.remote(row))

    insert = insert1

    def sample(self):
        return ray.get(self._actor.sample.remote())

    def update(self, batch, td_error):
        self._send(self._actor.update.remote(batch["indexes"], td_error))

    def view(self, batch):
        return {**batch, "weight": batch["weights"]}

    def bytes_per_step(self):
        return self._step

    def close(self):
        ray.get(self._flying)
        ray.shutdown()


def start():
    return ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
                    object_store_memory=1 << 30, namespace="peers")


class Peer(Client):
    def __init__(self, shape, columns, capacity):
        start()
        super().__init__(Buffer.remote(columns, capacity), columns)


class Host:
    def __init__(self, shape, columns, capacity):
        info = start()
        self._client = Client(Buffer.options(name="buffer").remote(columns, capacity), columns)
        self.address = info.address_info["address"]

    def prefill(self, feeder, steps):
        prefill(self._client, feeder, steps)

    def close(self):
        self._client.close()


def join(address, role, shape, columns):
    ray.init(address=address, namespace="peers", log_to_driver=False)
    return Client(ray.get_actor("buffer"), columns)
