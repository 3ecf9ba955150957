"""Relive itself, as its users call it: embed: in one process, shm: for several."""

import subprocess
import sys
import uuid

import numpy as np

import relive

from peers.timing import per_item
from workloads import ALPHA, BATCH, BETA

STORED = False  # next_obs stored, instead of read from the next step


def version():
    return relive.__version__


def create(store, shape, columns, capacity, stored, max_writers=2):
    signature = {n: (d, t) for n, (d, t) in columns.items()
                 if n != "done" and (stored or n != "next_obs")}
    stack = 1
    if shape == "atari" and not stored:  # a frame is stored once, whatever stacks it
        stack = 4
        signature["obs"] = ((84, 84), np.uint8)
    return store.create_table("replay", signature, capacity,
                              views=[relive.View(stack=stack, alpha=ALPHA)],
                              max_writers=max_writers)


class Client:
    """Rows of the workload go in as they are; with frames only the newest of the stack."""

    def __init__(self, table, shape, stored, role=None):
        self._table = table
        self._columns = [c.name for c in table.columns]
        self._frames = shape == "atari" and not stored
        self._writer = table.writer() if role != "learner" else None
        self._sampler = None
        if role != "actor":
            self._sampler = table.sampler(BATCH, beta=BETA, prefetch=0,
                                          layout="window" if self._frames else "dense")

    def _taken(self, rows):
        taken = {n: rows[n] for n in self._columns}
        if self._frames:
            taken["obs"] = np.ascontiguousarray(rows["obs"][..., 3])
        return taken

    def insert1(self, row):
        self._writer.append(terminated=row["done"], **self._taken(row))

    def insert(self, rows):
        self._writer.extend(terminated=rows["done"], **self._taken(rows))

    def sample(self):
        return self._sampler.sample()

    def update(self, batch, td_error):
        self._sampler.update_priorities(batch.key, td_error)

    def close(self):
        if self._writer is not None:
            self._writer.close()
        if self._sampler is not None:
            self._sampler.close()


class Peer(Client):
    def __init__(self, shape, columns, capacity, stored=STORED):
        self._store = relive.open("embed:")
        table = create(self._store, shape, columns, capacity, stored)
        info = table.info()
        self._step = (info.rows_bytes + info.tree_bytes) / capacity
        super().__init__(table, shape, stored)

    def bytes_per_step(self):
        return self._step

    def close(self):
        super().close()
        self._store.close()


class Tree:
    """Rows of one byte; draws are whole samples, with keys, weights and the byte."""

    def __init__(self, capacity, seed):
        rng = np.random.default_rng(seed)
        self._store = relive.open("embed:")
        table = self._store.create_table("tree", {"x": "uint8"}, capacity,
                                         views=[relive.View(alpha=ALPHA)], max_writers=1)
        n = 1 << 16
        with table.writer() as writer:
            for start in range(0, capacity, n):
                m = min(n, capacity - start)
                writer.extend(x=np.zeros(m, np.uint8), td_error=rng.random(m) + 0.01)
        self._plain = table.sampler(BATCH, beta=BETA, prefetch=0)
        self._held = table.sampler(BATCH, beta=BETA, prefetch=0, defer_updates=16)
        self._td = [rng.random(BATCH, dtype=np.float32) for _ in range(64)]

    def draw_ns(self, seconds):
        return per_item(lambda i: self._plain.sample(), seconds)

    def update_ns(self, seconds):
        keys = [self._held.sample().key.copy() for _ in range(64)]
        return per_item(lambda i: self._held.update_priorities(keys[i % 64], self._td[i % 64]),
                        seconds)


class Host:
    def __init__(self, shape, columns, capacity):
        self._name = "peers-" + uuid.uuid4().hex[:8]
        subprocess.run([sys.executable, "-m", "relive", "up", "--store", self._name,
                        "--size", "8G" if shape == "atari" else "1G"],
                       check=True, stdout=subprocess.DEVNULL)
        self.address = "shm:" + self._name
        self._store = relive.open(self.address)
        self._table = create(self._store, shape, columns, capacity, STORED, max_writers=4)
        self._shape = shape

    def prefill(self, feeder, steps):
        client = Client(self._table, self._shape, STORED, "actor")
        done = 0
        while done < steps:
            chunk = feeder.chunk()
            client.insert(chunk)
            done += len(chunk["done"])
        client.close()

    def close(self):
        self._store.close()
        subprocess.run([sys.executable, "-m", "relive", "down", "--store", self._name],
                       check=True, stdout=subprocess.DEVNULL)


def join(address, role, shape, columns):
    return Client(relive.open(address).table("replay"), shape, STORED, role)
