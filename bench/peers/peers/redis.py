"""Redis over a unix socket, or between hosts over TCP; the learner keeps the tree (cpprb's), as the server has none."""

import importlib.metadata
import os
import shutil
import subprocess
import tempfile
import time

import cpprb
import numpy as np
import redis

from peers import prefill
from workloads import ALPHA, BATCH, BETA


def version():
    server = subprocess.run([server_path(), "--version"], capture_output=True, text=True, check=True)
    return "%s server %s" % (importlib.metadata.version("redis"), server.stdout.split()[2][2:])


def server_path():
    path = shutil.which("redis-server")
    if path is None:
        raise RuntimeError("redis-server is not installed (Debian: apt-get install redis-server)")
    return path


PORT = 7379


class Server:
    def __init__(self):
        program, host = server_path(), os.environ.get("PEERS_HOST")
        self._dir = tempfile.mkdtemp(prefix="relive-peers-redis.")
        socket = os.path.join(self._dir, "socket")
        listen = ["--bind", host, "--port", str(PORT), "--protected-mode", "no"] if host else \
            ["--port", "0"]
        self.address = {"host": host, "port": PORT} if host else {"unix_socket_path": socket}
        self._process = subprocess.Popen(
            [program, *listen, "--unixsocket", socket, "--save", "", "--appendonly", "no",
             "--dir", self._dir], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while not os.path.exists(socket):
            if time.monotonic() > end:
                raise RuntimeError("redis-server did not start")
            time.sleep(0.01)

    def close(self):
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._dir, ignore_errors=True)


class Client:
    """An actor or the learner. Rows are one packed record each, under a number that INCRBY gives out,
    modulo the capacity. After storing rows an actor pushes their first number and their count to the
    list `new`, which the learner reads into its tree."""

    def __init__(self, address, columns, capacity):
        self._r = redis.Redis(**address)
        self._dtype = np.dtype([(n, t, d) for n, (d, t) in columns.items()])
        self._capacity = capacity
        self._tree = None

    def insert(self, rows):
        n, size = len(rows["done"]), self._dtype.itemsize
        packed = np.empty(n, self._dtype)
        for name in self._dtype.names:
            packed[name] = rows[name]
        data = packed.tobytes()
        first = self._r.incrby("count", n) - n
        pipe = self._r.pipeline(transaction=False)
        pipe.mset({b"r%d" % ((first + i) % self._capacity): data[i * size:(i + 1) * size]
                   for i in range(n)})
        pipe.rpush("new", b"%d %d" % (first, n))
        pipe.execute()

    def insert1(self, row):
        self.insert({k: np.asarray(v)[None] for k, v in row.items()})

    def _catch_up(self):
        if self._tree is None:
            self._tree = cpprb.PrioritizedReplayBuffer(
                self._capacity, {"i": {"dtype": np.int64}}, alpha=ALPHA)
        new = self._r.lpop("new", 1 << 20)
        if new:
            ranges = [tuple(map(int, text.split())) for text in new]
            numbers = np.concatenate([np.arange(first, first + n) for first, n in ranges])
            self._tree.add(i=numbers % self._capacity)

    def sample(self):
        self._catch_up()
        drawn = self._tree.sample(BATCH, beta=BETA)
        keys = [b"r%d" % i for i in drawn["i"][:, 0]]
        rows = np.frombuffer(b"".join(self._r.mget(keys)), self._dtype)
        batch = {n: np.ascontiguousarray(rows[n]) for n in self._dtype.names}
        batch.update(weight=drawn["weights"], indexes=drawn["indexes"])
        return batch

    def update(self, batch, td_error):
        self._tree.update_priorities(batch["indexes"], td_error)

    def view(self, batch):
        return batch

    def bytes_per_step(self):
        return self._dtype.itemsize

    def close(self):
        self._r.close()


class Peer(Client):
    def __init__(self, shape, columns, capacity):
        self._server = Server()
        super().__init__(self._server.address, columns, capacity)

    def close(self):
        super().close()
        self._server.close()


class Host:
    def __init__(self, shape, columns, capacity):
        self._server = Server()
        self._client = Client(self._server.address, columns, capacity)
        self.address = [self._server.address, capacity]

    def prefill(self, feeder, steps):
        prefill(self._client, feeder, steps)

    def close(self):
        self._client.close()
        self._server.close()


def join(address, role, shape, columns):
    return Client(address[0], columns, address[1])
