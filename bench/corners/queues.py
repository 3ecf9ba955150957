"""A queue beside id-echo's, in one process: steps of CartPole go in one by one, and come out in their order, as one
batch. id-echo's client over TCP is measured too, on this host."""

import numpy as np
import relive

from pair import Pair, case, open_table

BATCH, CAPACITY = 256, 1 << 12


def open_ours(stack, step):
    """A function that sends a batch of the step through a queue."""
    columns = [relive.Column(name, value.shape, value.dtype.name, "plain") for name, value in step.items()]
    view = relive.View(selector="fifo", max_times_sampled=1, rate_limiter=relive.RateLimiter.queue(CAPACITY))
    table = open_table(stack, columns, CAPACITY, views=[view])
    writer = stack.enter_context(table.writer())
    sampler = stack.enter_context(table.sampler(BATCH, prefetch=0))
    last = {**step, "terminated": True}  # so that the step can be drawn

    def send():
        for _ in range(BATCH):
            writer.append(last)
        with sampler.sample() as batch:
            return [batch[name].copy() for name in step]
    return send


def open_theirs(stack, step, is_remote):
    import echo

    server = echo.Server(step, BATCH, transport=echo.TcpTransport(0) if is_remote else None)
    stack.callback(server.close)
    put = server.submit
    if is_remote:
        server.start()
        client = echo.TcpClient("localhost", server.port, step)
        stack.callback(client.close)
        put = client.send

    def send():
        for _ in range(BATCH):
            put(step)
        return {name: value.copy() for name, value in server.sample().batch.items()}
    return send


@case("queues.echo_256", "queues.echo_tcp_256")
def queues(stack, seed):
    step = {"obs": np.random.default_rng(seed).standard_normal(4, np.float32), "action": np.array(1, np.int64),
            "reward": np.array(1, np.float32)}
    peers = [open_theirs(stack, step, is_remote) for is_remote in (False, True)]
    ours = open_ours(stack, step)
    return [Pair(name, 1, ours, peer, {"batch": BATCH, "capacity": CAPACITY})
            for name, peer in zip(("queues.echo_256", "queues.echo_tcp_256"), peers)]


CASES = [queues]
