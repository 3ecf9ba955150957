"""The workloads: shapes, sizes and the loop of one window."""

import time

import numpy as np

from sizes import ALPHA, BATCH, BETA, CHUNK, FEED  # noqa: F401  (for the peers)

EPISODE = 200

# next_obs is stored, as most peers have it; what a peer can read from the next row it may.
COLUMNS = {
    "cartpole": {
        "obs": ((4,), np.float32),
        "action": ((), np.int64),
        "reward": ((), np.float32),
        "next_obs": ((4,), np.float32),
        "done": ((), np.uint8),
    },
    "atari": {
        "obs": ((84, 84, 4), np.uint8),
        "action": ((), np.int64),
        "reward": ((), np.float32),
        "next_obs": ((84, 84, 4), np.uint8),
        "done": ((), np.uint8),
    },
}


def row_bytes(columns):
    return sum(int(np.prod(dims)) * np.dtype(dtype).itemsize for dims, dtype in columns.values())


def make_rows(shape, n, seed):
    """n random rows; episodes of 200 steps end with done."""
    rng = np.random.default_rng(seed)
    rows = {}
    for name, (dims, dtype) in COLUMNS[shape].items():
        size = (n, *dims)
        if np.dtype(dtype).kind == "f":
            rows[name] = rng.standard_normal(size, dtype=dtype)
        else:
            rows[name] = rng.integers(0, 2 if not dims else 256, size).astype(dtype)
    rows["done"] = (np.arange(n) % EPISODE == EPISODE - 1).astype(np.uint8)
    return rows


class Feeder:
    """Rows to insert, round and round, one by one and in chunks, cut before the clock starts.

    ``cut`` makes of all rows what the peer's users hold in their place: a frame and not the stack
    it is in, say. The chunks are in order, so that each row is followed by the next.
    """

    def __init__(self, shape, seed, cut=None):
        n = FEED[shape]
        self.rows = make_rows(shape, n, seed)
        rows = cut(shape, self.rows) if cut else self.rows
        self.chunks = [{k: v[i:i + CHUNK] for k, v in rows.items()} for i in range(0, n, CHUNK)]
        self.singles = [{k: v[i] for k, v in rows.items()} for i in range(CHUNK)]
        self._chunk = self._single = -1

    def chunk(self):
        self._chunk = (self._chunk + 1) % len(self.chunks)
        return self.chunks[self._chunk]

    def single(self):
        self._single = (self._single + 1) % len(self.singles)
        return self.singles[self._single]


def new_priorities(seed, n=64):
    """Absolute TD errors of n updates."""
    rng = np.random.default_rng(seed)
    return [rng.random(BATCH, dtype=np.float32) + np.float32(0.01) for _ in range(n)]


def loop_of(peer, operation, feeder, priorities):
    """Returns a function that runs the operation once and returns the number of rows, batches, calls or
    loops."""
    turn = [0]

    def td():
        turn[0] = (turn[0] + 1) % len(priorities)
        return priorities[turn[0]]

    def insert1():
        peer.insert1(feeder.single())
        return 1

    def insert64():
        peer.insert(feeder.chunk())
        return CHUNK

    def sample():
        peer.sample()
        return 1

    held = peer.sample() if operation == "update" else None

    def update():
        peer.update(held, td())
        return 1

    def mixed():
        peer.insert(feeder.chunk())
        peer.update(peer.sample(), td())
        return 1

    return {"insert1": insert1, "insert64": insert64, "sample": sample, "update": update,
            "mixed": mixed}[operation]


def run_window(fn, seconds):
    """Runs fn for so many seconds, after two calls to warm up; returns its count per second, and the share
    of a core that this process used."""
    done = 0
    fn()
    fn()  # JAX compiles again for what the first call made of the state
    cpu, start = time.process_time(), time.perf_counter()
    end = start + seconds
    now = start
    while now < end:
        done += fn()
        now = time.perf_counter()
    return done / (now - start), (time.process_time() - cpu) / (now - start)


def per_item(before, timed, seconds):
    """Nanoseconds per item of ``timed``, a call of which handles BATCH items. ``before``, or None, runs
    before each call and is not counted. Both get the number of the call. Ends after `seconds` of timed
    calls, or ten times as long in all."""
    calls, spent, start = 0, 0.0, time.perf_counter()
    while True:
        if before:
            before(calls)
        began = time.perf_counter()
        timed(calls)
        now = time.perf_counter()
        spent += now - began
        calls += 1
        if spent >= seconds or now - start >= 10 * seconds:
            return spent / calls / BATCH * 1e9


def run_role(peer, role, feeder, rank, start, end):
    """W3: runs an actor or a learner from `start` to `end` (time.time()), beside others; returns rows or
    batches a second."""
    priorities = new_priorities(rank)
    done = turn = 0
    while time.time() < start:
        time.sleep(0.001)
    began = now = time.time()
    while now < end:
        if role == "actor":
            peer.insert(feeder.chunk())
            done += CHUNK
        else:
            turn += 1
            peer.update(peer.sample(), priorities[turn % len(priorities)])
            done += 1
        now = time.time()
    return done / (now - began) if done else 0.0
