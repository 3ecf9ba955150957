"""Relive itself, as its users call it: embed: in one process, shm: for several. CartPole's next_obs is
read from the next step; of Atari's stacks only the newest frame goes in, and comes out in windows."""

import os
import subprocess
import sys
import uuid

import numpy as np

import relive

from peers import prefill
from workloads import ALPHA, BATCH, BETA


def version():
    return relive.__version__


def cut(shape, rows):
    """The rows as an actor holds them: action, reward, whether the episode ended, and the observation, of
    Atari only the newest frame."""
    kept = {"action": rows["action"], "reward": rows["reward"], "terminated": rows["done"]}
    kept["obs"] = np.ascontiguousarray(rows["obs"][..., 3]) if shape == "atari" else rows["obs"]
    return kept


def create(store, shape, columns, capacity, max_writers=2):
    signature = {n: (d, t) for n, (d, t) in columns.items() if n not in ("done", "next_obs")}
    if shape == "atari":
        signature["obs"] = ((84, 84), np.uint8)
    return store.create_table(
        "replay", signature, capacity, max_writers=max_writers,
        views=[relive.View(stack=4 if shape == "atari" else 1, alpha=ALPHA)])


class Client:
    """An actor, a learner or both, as `role` says; samples are the arrays that a learner reads."""

    def __init__(self, table, layout="dense", role=None):
        self._table = table
        self._arrays = list(dict.fromkeys(
            [c.name for c in table.columns] + ["next_obs", "discount", "key", "weight"]))
        self._writer = table.writer() if role != "learner" else None
        self._sampler = None
        if role != "actor":
            self._sampler = table.sampler(BATCH, beta=BETA, prefetch=0, layout=layout)

    def insert1(self, row):
        self._writer.append(row)

    def insert(self, rows):
        self._writer.extend(rows)

    def sample(self):
        batch = self._sampler.sample()
        return {name: batch[name] for name in self._arrays}

    def update(self, arrays, td_error):
        self._sampler.update_priorities(arrays["key"], td_error)

    def view(self, arrays):
        if arrays["obs"].ndim == 2:
            return arrays
        view = {name: arrays[name] for name in ("action", "reward", "weight")}
        return {**view, "frame": arrays["obs"][:, 3]}

    def close(self):
        if self._writer is not None:
            self._writer.close()
        if self._sampler is not None:
            self._sampler.close()


class Peer(Client):
    def __init__(self, shape, columns, capacity, make=create, layout=None):
        self._store = relive.open("embed:")
        table = make(self._store, shape, columns, capacity)
        info = table.info()
        self._step = (info.rows_bytes + info.tree_bytes) / capacity
        super().__init__(table, layout or ("window" if shape == "atari" else "dense"))

    def bytes_per_step(self):
        return self._step

    def close(self):
        super().close()
        self._store.close()


class Tree:
    """Relive's tree, by sampling without columns: batches have keys, probabilities, priorities and
    weights, and no row is read. In C the tree is measured alone: bench/micro_sumtree.c. Updates are of
    the keys of the last batch, as a learner makes them."""

    def __init__(self, capacity, seed):
        rng = np.random.default_rng(seed)
        self._store = relive.open("embed:")
        table = self._store.create_table("tree", {"x": "uint8"}, capacity,
                                         shards=2 if capacity >= 1 << 24 else 1,
                                         views=[relive.View(alpha=ALPHA)], max_writers=1)
        n = 1 << 16
        with table.writer() as writer:
            for start in range(0, capacity, n):
                m = min(n, capacity - start)
                writer.extend(x=np.zeros(m, np.uint8), td_error=rng.random(m) + 0.01)
        self._sampler = table.sampler(BATCH, beta=BETA, prefetch=0, columns=())
        self._td = [rng.random(BATCH, dtype=np.float32) for _ in range(64)]

    def _updates(self):
        last = [None]

        def sample(i):
            last[0] = self._sampler.sample()

        def update(i):
            self._sampler.update_priorities(last[0].key, self._td[i % 64])
        return sample, update

    def calls(self):
        return {"draw": (lambda i: None, lambda i: self._sampler.sample()),
                "update": self._updates()}

    def close(self):
        self._sampler.close()
        self._store.close()


class Host:
    def __init__(self, shape, columns, capacity):
        self._name = "peers-" + uuid.uuid4().hex[:8]
        host, local = os.environ.get("PEERS_HOST"), "shm:" + self._name
        file = os.path.join(os.environ.get("RLV_HOSTS", ""), self._name)  # that all hosts see
        self._run("up", "--size", "2G",
                  *(("--listen", host + ":0", "--announce", file) if host else ()))
        self.address = "relive://@" + file if host else local
        self._store = relive.open(local)
        self._table = create(self._store, shape, columns, capacity, max_writers=4)

    def _run(self, command, *options):
        subprocess.run([sys.executable, "-m", "relive", command, "--store", self._name, *options],
                       check=True, stdout=subprocess.DEVNULL)

    def prefill(self, feeder, steps):
        client = Client(self._table, role="actor")
        prefill(client, feeder, steps)
        client.close()

    def close(self):
        self._store.close()
        self._run("down", "--force")


def join(address, role, shape, columns):
    return Client(relive.open(address).table("replay"),
                  "window" if shape == "atari" else "dense", role)
