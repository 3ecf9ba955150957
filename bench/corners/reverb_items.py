"""The adaptor for Reverb beside Reverb's own client and server in one process: a step of CartPole, an item of it, and
items of the last three steps. Reverb's threads send items after a call returns: both flush after every 64 items."""

import itertools

import numpy as np

from pair import Pair, case

CAPACITY, STEPS, FLUSH = 1 << 16, 3, 64


def step_of(rng):
    return {"obs": rng.standard_normal(4, np.float32), "action": np.int64(0), "reward": np.float32(0)}


def open_client(stack, library, address=None):
    """A client of either library, with a table for items of one step and one for items of several."""
    tables = [library.Table(name, sampler=library.selectors.Prioritized(0.6), remover=library.selectors.Fifo(),
                            max_size=CAPACITY, rate_limiter=library.rate_limiters.MinSize(1))
              for name in ("steps", "items")]
    server = library.Server(tables, port=None)
    stack.callback(server.stop)
    return library.Client("localhost:%d" % server.port)


def keep_writing(stack, client, step):
    """Functions that append a step, and that create an item of the last steps, both of one writer."""
    writer = client.trajectory_writer(num_keep_alive_refs=STEPS)
    stack.callback(writer.close)
    count = itertools.count(1)

    def append():
        writer.append(step)

    def create():
        history = writer.history
        writer.create_item("items", 1.0, {name: history[name][-STEPS:] for name in step})
        if next(count) % FLUSH == 0:
            writer.flush()

    for _ in range(STEPS):
        append()
    return append, create


@case("reverb.insert", "reverb.append", "reverb.create_item")
def clients(stack, seed):
    import reverb as theirs
    from relive.adaptors import reverb as ours

    step = step_of(np.random.default_rng(seed))
    clients = [open_client(stack, library) for library in (ours, theirs)]
    works = [keep_writing(stack, client, step) for client in clients]
    inserts = [lambda client=client: client.insert(step, {"steps": 1.0}) for client in clients]
    calls = {"insert": (5, inserts), "append": (8, [append for append, _ in works]),
             "create_item": (8, [create for _, create in works])}
    params = {"capacity": CAPACITY, "steps": STEPS, "flush": FLUSH}
    return [Pair("reverb." + name, 1, mine, other, params, limit) for name, (limit, (mine, other)) in calls.items()]


CASES = [clients]
