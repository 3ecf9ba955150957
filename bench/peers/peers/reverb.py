"""Reverb: one item for each step by a TrajectoryWriter, at most 64 unacknowledged; samples by its
dataset, which keeps 512 in flight. In one process its client skips gRPC for sampling."""

import importlib.metadata
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import reverb  # noqa: E402
import tensorflow as tf  # noqa: E402

from peers import prefill  # noqa: E402
from workloads import ALPHA, BATCH, BETA, row_bytes  # noqa: E402

TABLE = "replay"
UNACKNOWLEDGED = 64


def version():
    return importlib.metadata.version("dm-reverb")


def serve(columns, capacity):
    signature = {n: tf.TensorSpec((1, *d), np.dtype(t)) for n, (d, t) in columns.items()}
    return reverb.Server([reverb.Table(
        name=TABLE, sampler=reverb.selectors.Prioritized(ALPHA), remover=reverb.selectors.Fifo(),
        max_size=capacity, rate_limiter=reverb.rate_limiters.MinSize(1), signature=signature)],
        port=None)


class Client:
    def __init__(self, address, columns):
        self._step = row_bytes(columns)
        self._address = address
        self._client = reverb.Client(address)
        self._writer = None
        self._batches = None

    def _put(self, row):
        if self._writer is None:
            self._writer = self._client.trajectory_writer(num_keep_alive_refs=1)
        self._writer.append(row)
        self._writer.create_item(TABLE, 1.0,
                                 {k: v[-1:] for k, v in self._writer.history.items()})

    def insert1(self, row):
        self._put(row)
        self._writer.flush(block_until_num_items=UNACKNOWLEDGED)

    def insert(self, rows):
        for i in range(len(rows["done"])):
            self._put({k: v[i] for k, v in rows.items()})
        self._writer.flush(block_until_num_items=UNACKNOWLEDGED)

    def sample(self):
        if self._batches is None:
            dataset = reverb.TrajectoryDataset.from_table_signature(
                self._address, TABLE, max_in_flight_samples_per_worker=2 * BATCH)
            self._batches = dataset.batch(BATCH).as_numpy_iterator()
        batch = next(self._batches)
        weight = np.power(batch.info.probability.ravel(), -BETA)
        return batch, weight / weight.max()

    def update(self, drawn, td_error):
        keys = drawn[0].info.key.ravel()
        self._client.mutate_priorities(
            TABLE, dict(zip(keys.tolist(), np.asarray(td_error, float).tolist())))

    def view(self, drawn):
        columns = {name: value[:, 0] for name, value in drawn[0].data.items()}
        return {**columns, "weight": drawn[1]}

    def bytes_per_step(self):
        return self._step

    def close(self):
        if self._writer is not None:
            self._writer.close()


class Peer(Client):
    def __init__(self, shape, columns, capacity):
        self._server = serve(columns, capacity)
        super().__init__("localhost:%d" % self._server.port, columns)

    def close(self):
        super().close()
        self._server.stop()


class Host:
    def __init__(self, shape, columns, capacity):
        self._server = serve(columns, capacity)
        self.address = "%s:%d" % (os.environ.get("PEERS_HOST", "localhost"), self._server.port)
        self._columns = columns

    def prefill(self, feeder, steps):
        client = Client(self.address, self._columns)
        prefill(client, feeder, steps)
        client.close()

    def close(self):
        self._server.stop()


def join(address, role, shape, columns):
    return Client(address, columns)
