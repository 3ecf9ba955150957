"""Threads: one store, many handles; the interpreter goes on while a call waits; ^C gets through."""

import asyncio
import functools
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import relive
from conftest import SIGNATURE, step_values


def run_all(*functions):
    failures = []

    def guarded(function):
        try:
            function()
        except BaseException as error:  # handed to the test below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads__actors_and_learners(make_table):
    table = make_table(capacity=8192, views=[relive.View(n_step=2)])
    stop = time.monotonic() + 1.5

    def act():
        with table.writer() as writer:
            i = 0
            while i < 200 or time.monotonic() < stop:  # learners wait for the first ones
                writer.append(**step_values(i, terminated=i % 10 == 9))
                i += 1

    def learn():
        with table.sampler(64, prefetch=1) as sampler:
            while time.monotonic() < stop:
                batch = next(sampler)
                np.testing.assert_array_equal(batch.obs[:, 2], batch.id)
                np.testing.assert_array_equal(batch.action, batch.id)
                sampler.update_priorities(batch.key, td_error=batch.reward)

    def look():
        while time.monotonic() < stop:
            batch = table.sample(32)
            np.testing.assert_array_equal(batch.obs[:, 0], batch.id)
            table.update_priorities(batch.key, td_error=batch.reward)
            table.info()

    run_all(act, act, learn, learn, look, look)
    assert table.verify().problems == 0


def test_threads__one_sampler_for_many(filled):
    sampler = filled.sampler(32, prefetch=2, batches=32)

    def learn():
        for _ in range(200):
            batch = next(sampler)
            np.testing.assert_array_equal(batch.obs[:, 1], batch.id)
            sampler.update_priorities(batch.key, td_error=np.ones(32, "f4"))

    run_all(learn, learn, learn, learn)
    assert sampler.stats()["calls"] >= 800


def check(batch):
    np.testing.assert_array_equal(batch.obs[:, 2], batch.id)
    np.testing.assert_array_equal(batch.action, batch.id)


@pytest.mark.parametrize("draw", ["table", "sampler", "prefetch"])
@pytest.mark.parametrize("n_threads", [4, 40])
def test_threads__each_holds_the_batch_before(filled, draw, n_threads):
    sampler = None if draw == "table" else filled.sampler(32, prefetch=2 * (draw == "prefetch"))

    def learn():
        batch = None
        for _ in range(20):
            before, copy = batch, batch and batch.copy()
            batch = next(sampler) if sampler else filled.sample(32)
            check(batch)
            if before is not None:
                np.testing.assert_array_equal(before.key, copy.key)
                check(before)

    run_all(*[learn] * n_threads)


def test_sample__gathered(filled):
    async def gather():
        return await asyncio.gather(*(asyncio.to_thread(filled.sample, 32) for _ in range(50)))

    for batch in asyncio.run(gather()):
        check(batch)


def test_sample__many_that_wait_leave_others_their_turn(make_table):
    table = make_table(rate_limiter=relive.RateLimiter.of_min_size(20))
    got = []
    threads = [threading.Thread(target=lambda: got.append(table.sample(4))) for _ in range(8)]
    for thread in threads:
        thread.start()
    while not table._samplers:
        time.sleep(0.001)
    for _ in range(100):
        with pytest.raises(relive.Empty):
            table.sample(2, timeout=0)
    with table.writer() as writer:
        for i in range(25):
            writer.append(**step_values(i))
    for thread in threads:
        thread.join(60)
    assert len(got) == 8


def test_threads__closing_while_others_sample(filled):
    sampler = filled.sampler(32, prefetch=0, batches=32)
    closed = []

    def learn():
        try:
            while True:
                sampler.sample().obs
        except relive.Closed as error:
            closed.append(error)

    def close():
        time.sleep(0.1)
        sampler.close()

    run_all(learn, learn, learn, close)
    assert len(closed) == 3


@pytest.mark.parametrize("prefetch", [1, 4])
def test_threads__closing_while_batches_are_ahead(filled, prefetch):
    """Closes a sampler from two threads while it draws its first batch."""
    samplers = []

    def renew():
        samplers[:] = [filled.sampler(8, prefetch=prefetch, batches=prefetch + 8)]

    begin, end = threading.Barrier(5, action=renew), threading.Barrier(5)

    def turn(batches, closes):
        try:
            for _ in range(batches):
                with next(samplers[0]) as batch:
                    np.testing.assert_array_equal(batch.obs[:, 0], batch.id)
        except relive.Closed:
            pass
        if closes:
            samplers[0].close()
            assert not samplers[0].is_open

    def turns(*args):
        try:
            for _ in range(500):
                begin.wait(20)
                turn(*args)
                end.wait(20)
        except BaseException:
            begin.abort()
            end.abort()
            raise

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        run_all(*(functools.partial(turns, *args) for args in
                  ((20, False), (20, False), (20, False), (0, True), (1, True))))
    finally:
        sys.setswitchinterval(interval)


def test_close__comes_between_those_who_wait(make_table):
    for _ in range(4):
        sampler = make_table().sampler(4, prefetch=0)
        threads = [threading.Thread(target=pytest.raises, args=(relive.Closed, sampler.sample))
                   for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        began = time.monotonic()
        sampler.close()
        assert time.monotonic() - began < 30  # they would wait for a minute
        for thread in threads:
            thread.join()


def test_sample__others_run_while_it_waits(make_table):
    table = make_table()
    got = []
    thread = threading.Thread(target=lambda: got.append(table.sample(8, timeout=60)))
    thread.start()
    for _ in range(20):
        time.sleep(0.001)
    assert thread.is_alive() and not got
    with table.writer() as writer:
        for i in range(20):
            writer.append(**step_values(i))
    thread.join(60)
    assert len(got[0]) == 8


def test_sample__a_larger_one_leaves_those_who_wait(make_table):
    table = make_table()
    got = []
    waits = threading.Thread(target=lambda: got.append(table.sample(4, timeout=60)))
    waits.start()
    while not table._samplers:
        time.sleep(0.001)
    with pytest.raises(relive.Empty):
        table.sample(8, timeout=0)
    with table.writer() as writer:
        for i in range(20):
            writer.append(**step_values(i))
    waits.join(60)
    assert len(got[0]) == 4


def test_sample__sizes_of_many_threads(filled):
    for _ in range(5):
        with filled.store.table(filled.name) as table:
            def learn():
                for n in range(1, 300, 7):
                    with table.sample(n) as batch:
                        assert len(batch) == n
                        table.update_priorities(batch.key, td_error=batch.reward)

            run_all(learn, learn, learn)


STEP = "w.append(obs=[0] * 3, action=0, reward=0, id=0)"
WAITS = {
    "sample": "table.sample(2)",
    "next": "next(table.sampler(2))",
    "next without prefetch": "next(table.sampler(2, prefetch=0))",
    "append": "with table.writer() as w:\n        while True: " + STEP,
    "close": "w = table.writer()\n    for i in range(5): " + STEP + "\n    w.close()",
    "exit": "with table.writer() as w:\n        for i in range(5): " + STEP,
}
CODE = """
import signal
import relive
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs tests may ignore it
store = relive.open("embed:")
view = relive.View(n_step=3, rate_limiter=relive.RateLimiter.queue(2))
table = store.create_table("t", %r, 4096, views=[view])
try:
    print("ready", flush=True)
    %s
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("what", WAITS)
def test_interrupt__ends_every_wait(what):
    code = CODE % (SIGNATURE, WAITS[what])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        try:
            rest, _ = child.communicate(timeout=40)  # it would wait for a minute
        finally:
            child.kill()
        assert child.returncode == 0, rest
    assert "interrupted" in rest


def test_signal_handler__may_use_the_store(make_table):
    table = make_table()
    writer = table.writer()

    def fill(*_):
        for i in range(20):
            writer.append(**step_values(i))

    before = signal.signal(signal.SIGALRM, fill)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert len(table.sample(8, timeout=60)) == 8
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
