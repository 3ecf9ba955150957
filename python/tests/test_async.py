"""Coroutines that sample: they leave the event loop free, and let go when they are cancelled."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

import relive
from conftest import step_values
from relive._async import draw


def append(table, steps):
    with table.writer() as writer:
        for i in range(steps):
            writer.append(**step_values(i, terminated=i == steps - 1))


@pytest.mark.parametrize("kind", ["table", "sampler"])
def test_sample_async__waits_beside_the_loop(make_table, kind):
    table = make_table()
    source = table if kind == "table" else table.sampler(4)

    async def run():
        drawing = asyncio.create_task(source.sample_async(4, 0.5, timeout=60))
        await asyncio.sleep(0.15)
        assert not drawing.done()
        await asyncio.to_thread(append, table, 20)
        return await drawing

    assert len(asyncio.run(run())) == 4


def test_sample_async__raises_what_sample_raises(make_table):
    table = make_table()
    for timeout, error in ((0, relive.Empty), (0.15, relive.Timeout)):
        with pytest.raises(error):
            asyncio.run(table.sample_async(4, timeout=timeout))
    append(table, 20)
    with pytest.raises(relive.InvalidArgument, match="beta"):
        asyncio.run(table.sample_async(4, 99))
    assert asyncio.run(table.sample_async(4, view=0, layout="window")).n == 4


def test_draw__is_over_where_a_slice_ends_late():
    waits = []

    def sample(timeout):
        waits.append(timeout)
        time.sleep(0.2)
        raise relive.Timeout

    with pytest.raises(relive.Timeout):
        asyncio.run(draw(sample, 0.15))
    assert waits == [0.1]  # never 0, which does not wait and raises Empty


def test_sample_async__cancelled_lets_go(make_table):
    table = make_table()

    async def run():
        drawing = [asyncio.create_task(table.sample_async(4)) for _ in range(3)]
        await asyncio.sleep(0.05)
        for task in drawing:
            task.cancel()
        done = await asyncio.gather(*drawing, return_exceptions=True)
        assert {type(error) for error in done} == {asyncio.CancelledError}

    threads = threading.active_count()
    asyncio.run(run())  # joins the threads that waited
    assert threading.active_count() == threads
    append(table, 20)
    assert table.sample(4, timeout=20).n == 4


def test_sample_async__does_not_hold_up_the_end_of_the_process():
    program = """
import asyncio, relive
table = relive.open("embed:").create_table("t", {"obs": ((3,), "float32"), "reward": "float32"}, 1000)
async def run():
    await asyncio.wait([asyncio.create_task(table.sample_async(4))], timeout=0.05)
asyncio.run(run())
print("ended")
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                            env={"PYTHONPATH": ":".join(sys.path)})
    assert (answer.stdout, answer.returncode) == ("ended\n", 0), answer.stderr


def test_sample_async__ends_when_the_store_is_closed(make_table, store):
    table = make_table()

    async def run():
        drawing = asyncio.create_task(table.sample_async(4))
        await asyncio.sleep(0.05)
        start = time.monotonic()
        store.close()
        with pytest.raises(relive.Closed):
            await drawing
        return time.monotonic() - start

    assert asyncio.run(run()) < 20
