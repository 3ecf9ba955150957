"""Samplers over a wire: the library draws batches ahead, and the thread only where that is faster."""

import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

import relive
from conftest import SIGNATURE, step_values

STEPS = 500
MOST_AHEAD = 4  # of the samplers here
DEADLINE = 30  # seconds, for what takes milliseconds


@pytest.fixture
def folder(runtime, monkeypatch):
    """The files of a store whose node is reached by TCP alone: its socket on this host is taken away."""
    if not any((pathlib.Path(relive.build_info()["programs"]["relive"]).parents[1] / "lib").glob("*ofi*")):
        pytest.skip("built without libfabric")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % listener.getsockname()[1]
    monkeypatch.setenv("RELIVE_TOKEN", "%064d" % 7)
    command = relive.build_info()["programs"]["relive"]
    subprocess.run([command, "up", "--store", "wire", "--size", "128M", "--listen", address, "--transport", "ofi"],
                   check=True, stdout=subprocess.DEVNULL, timeout=60)
    (runtime / "wire" / "memnode-0.sock").unlink()
    monkeypatch.setenv("TEST_URI", "relive://" + address)
    yield runtime / "wire"
    subprocess.run([command, "down", "--force", "--store", "wire"], check=False, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=60)


@pytest.fixture
def store(folder):
    with relive.open(os.environ["TEST_URI"]) as opened:
        yield opened


def fill(table):
    with table.writer() as writer:
        writer.extend(**{name: np.array([step_values(i)[name] for i in range(STEPS)]) for name in SIGNATURE})


@pytest.fixture
def table(store):
    made = store.create_table("t", SIGNATURE, 4096)
    fill(made)
    return made


def check(batch):
    np.testing.assert_array_equal(batch.obs[:, 2], batch.id)
    np.testing.assert_array_equal(batch.action, batch.id)


def keys(sampler, n, pause=0.0):
    got = []
    drawn = sampler.stats()["calls"]
    for i in range(n):
        with next(sampler) as batch:
            check(batch)
            got.append(batch.key.tolist())
        time.sleep(pause)
        by_thread = sampler.stats()["calls"] - drawn - i - 1  # then the library's: the thread may take one of those
        assert by_thread + sampler._ahead <= MOST_AHEAD
    return got


def threads():
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("depth", [1, 3])
def test_next__the_library_draws_ahead(table, depth):
    before = threads()
    with table.sampler(32, prefetch=depth) as sampler:
        for i in range(10):
            with next(sampler) as batch:
                check(batch)
                assert sampler._ahead == depth
                sampler.update_priorities(batch.key, td_error=batch.reward)
            time.sleep(0.002)
            assert sampler.stats()["calls"] == i + 1  # none was drawn and counted ahead
        assert threads() == before


def test_next__without_prefetch_there_are_none(table):
    with table.sampler(32, prefetch=0) as sampler:
        keys(sampler, 3)
        assert sampler._ahead == 0


def allocator(nbytes):
    buffer = np.zeros(nbytes + 64, np.uint8)
    shift = -buffer.ctypes.data % 64
    return buffer[shift:shift + nbytes]


@pytest.mark.parametrize("options", [{"batches": 5}, {"allocator": allocator}])
def test_next__bounded_buffers_are_no_more(table, options):
    """The library's batches ahead would have buffers beside them."""
    with table.sampler(32, prefetch=2, **options) as sampler:
        held = [next(sampler) for _ in range(5)]
        assert sampler._ahead == 0
        with pytest.raises(relive.Busy):
            next(sampler)
        for batch in held:
            check(batch)


@pytest.mark.parametrize("selector", ["fifo", "lifo"])
def test_next__of_views_in_order(store, selector):
    table = store.create_table("t", SIGNATURE, 4096, views=[relive.View(selector=selector)])
    fill(table)
    with table.sampler(32, prefetch=2) as sampler:
        keys(sampler, 4)
        assert sampler._ahead == 0


def test_next__batches_are_those_of_the_seed(table):
    """Whoever draws them: the thread is tried, too, from batches on that depend on prefetch."""
    with table.sampler(32, prefetch=1, seed=5) as sampler:
        want = keys(sampler, 160, 0.002)
    before = threads()
    with table.sampler(32, prefetch=MOST_AHEAD, seed=5) as sampler:
        assert keys(sampler, 160, 0.002) == want
        assert threads() == before + 1


def test_sample__leaves_batches_ahead_to_the_iterator(table):
    with table.sampler(32, prefetch=3, seed=5) as sampler:
        want = keys(sampler, 4)
    with table.sampler(32, prefetch=3, seed=5) as sampler:
        assert keys(sampler, 1) == want[:1]
        for n in (32, 5, None):
            batch = sampler.sample(n)
            check(batch)
            assert len(batch) == (n or 32) and batch.key.tolist() not in want
            assert sampler._ahead == 3
        assert keys(sampler, 3) == want[1:]


def test_sample__sees_updates_that_batches_ahead_do_not(table):
    with table.sampler(32, prefetch=2, seed=5) as sampler:
        first = next(sampler)
        other = np.setdiff1d(table.sample(32).key, first.key)
        sampler.update_priorities(other[:1], priorities=np.full(1, 1e6, "f4"))
        assert (sampler.sample().key == other[0]).mean() > 0.9
        assert sampler._ahead == 2


def test_next__another_return_begins_anew(table):
    with table.sampler(32, prefetch=2) as sampler:
        keys(sampler, 2)
        check(sampler.sample(gamma=0.5))
        assert sampler._ahead == 0
        keys(sampler, 2)
        assert sampler._ahead == 2


def test_next__waits_for_an_empty_table(store):
    table = store.create_table("t", SIGNATURE, 4096)
    with table.sampler(32, prefetch=3, timeout=0.2) as sampler:
        with pytest.raises(relive.Timeout):
            next(sampler)
        with pytest.raises(relive.Empty):
            sampler.sample(timeout=0)
        fill(table)
        keys(sampler, 5)
        assert sampler._ahead == 3


def test_next__counts_what_it_returned(store):
    limiter = relive.RateLimiter(min_size=1, samples_per_insert=1.0, min_diff=-2000, max_diff=2000)
    table = store.create_table("t", SIGNATURE, 4096, views=[relive.View(rate_limiter=limiter)])
    fill(table)
    with table.sampler(32, prefetch=4) as sampler:
        keys(sampler, 7)
        assert sampler._ahead == 4
        assert sampler.stats()["calls"] == 7 and sampler.stats()["items"] == 7 * 32
    assert table.info().views[0].sampled == 7 * 32


def test_close__gives_items_ahead_back(store):
    """Batches ahead of a view whose items are sampled once are still there for others."""
    table = store.create_table("t", SIGNATURE, 4096, views=[relive.View(max_times_sampled=1)])
    fill(table)
    with table.sampler(32, prefetch=4, timeout=1) as sampler:
        taken = sum(len(key) for key in keys(sampler, 3))
    items = table.info().views[0].inserted
    with table.sampler(32, prefetch=4, short_batch=True, timeout=0.5) as sampler:
        while taken < items:
            taken += len(next(sampler))
        with pytest.raises(relive.Timeout):
            next(sampler)
    assert taken == items


@pytest.mark.parametrize("way", ["close", "del", "store"])
def test_close__while_batches_are_ahead(store, table, way):
    sampler = table.sampler(64, prefetch=4)
    batch = next(sampler)
    assert sampler._ahead == 4
    if way == "close":
        sampler.close()
    elif way == "store":
        store.close()
    else:
        del sampler
    check(batch)
    if way != "del":
        with pytest.raises(relive.Closed):
            next(sampler)


def test_next__table_dropped(store, table):
    """As without batches ahead: the client learns of it, or finds a view without items until the timeout."""
    with table.sampler(32, prefetch=2, timeout=2) as sampler:
        keys(sampler, 3)
        store.drop_table("t")
        with pytest.raises((relive.TableDropped, relive.Timeout)):
            keys(sampler, 10_000)
    assert not sampler.is_open


@pytest.mark.parametrize("pause", [0, 0.002])
def test_next__node_killed(folder, table, pause):
    sampler = table.sampler(32, prefetch=3, timeout=2)
    keys(sampler, 100, pause)
    os.kill(int((folder / "memnode-0.pid").read_text().split()[0]), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(relive.NodeDown):
        keys(sampler, 10_000)
    sampler.close()
    assert time.monotonic() - began < DEADLINE


def test_threads__share_a_sampler(table):
    sampler, failures = table.sampler(32, prefetch=3), []

    def learn():
        try:
            for _ in range(50):
                with next(sampler) as batch:
                    check(batch)
                    sampler.update_priorities(batch.key, td_error=batch.reward)
                check(sampler.sample(9))
        except BaseException as error:  # handed to the test below
            failures.append(error)

    learners = [threading.Thread(target=learn) for _ in range(4)]
    for learner in learners:
        learner.start()
    for learner in learners:
        learner.join()
    assert not failures
    assert sampler.stats()["calls"] >= 400
    sampler.close()


def test_fork__the_child_does_not_touch_them(table):
    with table.sampler(32, prefetch=3) as sampler:
        keys(sampler, 2)
        child = os.fork()
        if child == 0:
            try:
                next(sampler)
            except relive.Forked:
                del sampler
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        keys(sampler, 5)


def test_next__in_place_the_library_draws_none(shm_store):
    table = shm_store.create_table("t", SIGNATURE, 4096)
    fill(table)
    with table.sampler(32, prefetch=3) as sampler:
        keys(sampler, 5)
        assert sampler._ahead == 0
