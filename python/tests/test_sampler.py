"""Samplers: iteration, batches sampled ahead, shares of data-parallel learners, memory given."""

import pickle
import threading
import time

import numpy as np
import pytest

import relive
from relive import _nested
from conftest import step_values
from support.daemons import until


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_next__gives_batches(filled, prefetch):
    with filled.sampler(64, prefetch=prefetch) as sampler:
        for _, batch in zip(range(50), sampler):
            ids = batch.id.astype(int)
            np.testing.assert_array_equal(batch.obs[:, 0], ids)
            sampler.update_priorities(batch.key, td_error=batch.reward)
    assert not sampler.is_open


def test_next__keeps_batches_ahead(make_table):
    """Where a draw takes longer than to wake the thread."""
    table = make_table({"frame": ((8192,), "uint8")}, capacity=512, views=[relive.View(selector="uniform")])
    with table.writer() as writer:
        writer.extend(frame=np.zeros((256, 8192), np.uint8))
    with table.sampler(256, prefetch=3) as sampler:
        taken, deadline = 0, time.monotonic() + 20
        while taken == 0 or sampler.stats()["calls"] < taken + 3 and time.monotonic() < deadline:
            next(sampler)
            taken += 1
            time.sleep(0.01)
        assert sampler.stats()["calls"] == taken + 3


def test_next__waits_for_steps_and_times_out(make_table):
    table = make_table()
    sampler = table.sampler(4, timeout=0.1)
    with pytest.raises(relive.Timeout):
        next(sampler)
    with table.writer() as writer:
        for i in range(10):
            writer.append(**step_values(i))
    until(lambda: comes(sampler))


def comes(sampler):
    """A batch of 4; on a busy host the thread that draws it may be late."""
    try:
        return len(next(sampler)) == 4
    except relive.Timeout:
        return False


def test_columns__only_those(filled):
    with filled.sampler(32, columns=("id", "obs"), seed=3) as some, \
            filled.sampler(32, seed=3) as whole:
        batch, want = next(some), next(whole)
        assert batch.names[:5] == ("obs", "next_obs", "id", "discount", "steps")
        for name in batch.names:
            np.testing.assert_array_equal(batch[name], want[name])


def test_columns__none_are_keys_and_weights(filled):
    with filled.sampler(32, columns=(), seed=3) as keys, filled.sampler(32, seed=3) as whole:
        batch, want = next(keys), next(whole)
        assert batch.names == ("key", "weight", "probability", "priority")
        for name in batch.names:
            np.testing.assert_array_equal(batch[name], want[name])
        assert batch.copy().names == batch.names
        assert keys.update_priorities(batch.key, td_error=np.ones(32)).updated == 32


def test_columns__of_a_nested_one(make_table):
    table = make_table({"obs": {"image": ((2,), "uint8"), "speed": "float32"}, "action": "int64"})
    with table.writer() as writer:
        for i in range(10):
            writer.append(obs={"image": np.full(2, i, np.uint8), "speed": i}, action=i)
    with table.sampler(4, columns=["obs"]) as sampler:
        batch = next(sampler)
    np.testing.assert_array_equal(batch.obs["image"][:, 1], batch.obs["speed"])
    assert "action" not in batch.names


@pytest.mark.parametrize("columns", [("nobody",), "obs", ("obs", "next_obs")])
def test_columns__wrong_names(filled, columns):
    with pytest.raises(relive.InvalidArgument):
        filled.sampler(columns=columns)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_next__held_batches_are_busy(filled, prefetch):
    sampler = filled.sampler(8, prefetch=prefetch, batches=prefetch + 2)
    held = []
    with pytest.raises(relive.Busy):
        for batch in sampler:
            held.append(batch)
    assert len(held) == prefetch + 2
    values = [batch.id.copy() for batch in held]
    del batch
    held.pop()
    values.pop()
    next(sampler)
    for batch, value in zip(held, values):
        np.testing.assert_array_equal(batch.id, value)


def test_close__wakes_who_waits(make_table):
    sampler = make_table().sampler(4)
    failure = []

    def wait():
        try:
            next(sampler)
        except relive.Error as error:
            failure.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    sampler.close()
    thread.join(60)
    assert isinstance(failure[0], relive.Closed)


def test_close__arrays_stay(make_table, store):
    table = make_table()
    with table.writer() as writer:
        for i in range(100):
            writer.append(**step_values(i))
    sampler = table.sampler(64, prefetch=2)
    batch = next(sampler)
    obs, ids = batch.obs, batch.id.copy()
    store.close()
    np.testing.assert_array_equal(obs[:, 0], ids)
    np.testing.assert_array_equal(batch.action, ids)
    with pytest.raises(relive.Closed):
        next(sampler)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_close__while_the_first_batch_is_wrapped(filled, prefetch, monkeypatch):
    sampler, index = filled.sampler(64, prefetch=prefetch), _nested.index

    def close_and_index(names):
        sampler.close()
        junk.extend(np.full(1 << 14, 255, np.uint8) for _ in range(50))
        return index(names)

    junk = []
    monkeypatch.setattr(_nested, "index", close_and_index)
    batch = next(sampler)
    assert junk and not sampler.is_open
    assert len(batch) == 64 and batch.table_size == 500
    np.testing.assert_array_equal(batch.obs[:, 2], batch.id)


def test_next__while_the_first_batch_is_wrapped(filled, monkeypatch):
    sampler, index = filled.sampler(64, prefetch=0), _nested.index

    def sample_and_index(names):
        monkeypatch.undo()
        batches.append(next(sampler))
        return index(names)

    batches = []
    monkeypatch.setattr(_nested, "index", sample_and_index)
    batches.append(next(sampler))
    for batch in batches:
        np.testing.assert_array_equal(batch.obs[:, 2], batch.id)


def test_beta__can_be_set(filled):
    filled.update_priorities(filled.sample(256).key, td_error=np.linspace(0.01, 5, 256))
    sampler = filled.sampler(128, prefetch=0, beta=0)
    assert sampler.beta == 0 and (next(sampler).weight == 1).all()
    sampler.beta = 1.0
    batch = next(sampler)
    want = 1 / batch.probability
    np.testing.assert_allclose(batch.weight, want / want.max(), rtol=1e-4)
    with pytest.raises(relive.InvalidArgument):
        sampler.beta = -1
    assert sampler.beta == 1.0


def test_weights__raw(filled):
    batch = next(filled.sampler(128, prefetch=0, weights="raw", beta=1.0))
    np.testing.assert_allclose(batch.weight, 1 / (500 * batch.probability), rtol=1e-4)


def test_seed__repeats_the_draws(filled):
    draws = [next(filled.sampler(64, prefetch=0, seed=seed)).key.tolist()
             for seed in (0, 0, 7, None)]
    assert draws[0] == draws[1] and draws[0] != draws[2] != draws[3]


def test_rank__disjoint_strata_of_one_draw(filled):
    """Each of 4 learners draws from its own quarter of every stratum: together they cover all."""
    samplers = [filled.sampler(25, prefetch=0, rank=rank, world_size=4, seed=3) for rank in range(4)]
    for _ in range(10):
        rows = np.sort(np.concatenate([next(s).id.astype(int) for s in samplers]))
        assert np.bincount(rows // 5, minlength=100).max() == 1  # 500 equal items, 100 strata


def test_allocator__batches_lie_in_memory_given(filled):
    given = []

    def allocator(nbytes):
        buffer = np.zeros(nbytes + 64, np.uint8)
        shift = -buffer.ctypes.data % 64
        given.append(buffer)
        return buffer[shift:shift + nbytes]

    sampler = filled.sampler(32, prefetch=0, batches=2, allocator=allocator)
    assert len(given) == 2
    obs = next(sampler).obs
    assert any(np.shares_memory(obs, buffer) for buffer in given)
    sampler.close()
    given.clear()
    assert np.isfinite(obs).all()


@pytest.mark.parametrize("allocator,error", [
    (lambda nbytes: None, TypeError), (lambda nbytes: 1 / 0, ZeroDivisionError),
    (lambda nbytes: bytearray(8), relive.InvalidArgument),
    (lambda nbytes: bytes(nbytes), BufferError),
])
def test_allocator__what_it_raises_gets_through(filled, allocator, error):
    with pytest.raises(error):
        filled.sampler(32, allocator=allocator)


def test_pickle__embed_is_of_its_process(filled):
    for thing in (filled, filled.store, filled.sampler(8)):
        with pytest.raises(TypeError, match="embed:"):
            pickle.dumps(thing)
    with pytest.raises(TypeError, match="writer"):
        pickle.dumps(filled.writer())
