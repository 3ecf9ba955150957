"""Batches: arrays, shapes, weights, waits and limits."""

import pickle
import time

import numpy as np
import pytest

import relive
from conftest import step_values


def test_sample__arrays_by_attribute_and_item(filled):
    batch = filled.sample(32)
    assert batch.names == ("obs", "next_obs", "action", "reward", "id", "discount", "steps", "key",
                           "weight", "probability", "priority", "policy_version")
    want = {"obs": ("float32", (32, 3)), "next_obs": ("float32", (32, 3)),
            "action": ("int64", (32,)), "reward": ("float32", (32,)), "id": ("uint64", (32,)),
            "discount": ("float32", (32,)), "steps": ("uint32", (32,)), "key": ("uint64", (32,)),
            "weight": ("float32", (32,)), "probability": ("float64", (32,)),
            "priority": ("float32", (32,)), "policy_version": ("uint32", (32,))}
    for name, (dtype, shape) in want.items():
        array = batch[name]
        assert array is getattr(batch, name)
        assert array.dtype == dtype and array.shape == shape
        assert array.flags.writeable == (name != "key")
    assert len(batch) == batch.n == 32 and batch.table_size == 500
    with pytest.raises(KeyError):
        batch["nothing"]
    with pytest.raises(AttributeError):
        batch.nothing


def test_sample__values_are_those_of_the_rows(filled):
    batch = filled.sample(256)
    ids = batch.id.astype(int)
    np.testing.assert_array_equal(batch.obs, np.repeat(ids[:, None], 3, axis=1))
    np.testing.assert_array_equal(batch.action, ids)
    np.testing.assert_array_equal(batch.reward, ids % 7)
    np.testing.assert_array_equal(batch.discount == 0, ids % 20 == 19)


def test_sample__window_layout_shares_frames(make_table):
    table = make_table(views=[relive.View(stack=4)])
    with table.writer() as writer:
        for i in range(300):
            writer.append(**step_values(i))
    batch = table.sample(64, layout="window")
    dense = table.sample(64)
    assert batch.obs.shape == dense.obs.shape == (64, 4, 3)
    assert np.shares_memory(batch.obs, batch.next_obs)
    assert not np.shares_memory(dense.obs, dense.next_obs)
    np.testing.assert_array_equal(batch.obs[:, 1:], batch.next_obs[:, :-1])


def test_sample__beta_of_each_call(filled):
    filled.update_priorities(filled.sample(256).key, td_error=np.linspace(0.01, 5, 256))
    for beta in (0, 0.3, 1.0, None):
        batch = filled.sample(256, beta=beta)
        want = (500 * batch.probability)**-(0.4 if beta is None else beta)
        np.testing.assert_allclose(batch.weight, want / want.max(), rtol=1e-4)


@pytest.mark.parametrize("gamma", [0, 0.5, 1.0])
def test_sample__discount_is_gamma_to_the_steps(make_table, gamma):
    table = make_table(views=[relive.View(n_step=3)])
    with table.writer() as writer:
        for i in range(100):
            writer.append(**step_values(i))
    batch = table.sample(64, gamma=gamma)
    np.testing.assert_allclose(batch.discount, gamma**batch.steps.astype(float), rtol=1e-6)


@pytest.mark.parametrize("layout", ["dense", "window"])
def test_sample__other_returns_take_no_slot(make_table, layout):
    """One slot, which the writer has given back, for more options than a table has slots."""
    table = make_table(views=[relive.View(n_step=3, stack=2)], max_clients=1)
    with table.writer() as writer:
        for i in range(200):
            writer.append(**step_values(i, terminated=i % 20 == 19))
    held = []
    for gamma in np.linspace(0, 1, 25):
        for n_step in (1, 3, 2, None):
            batch = table.sample(16, gamma=gamma, n_step=n_step, beta=gamma, layout=layout)
            ids, steps = batch.id.astype(int), batch.steps.astype(int)
            np.testing.assert_array_equal(steps, np.minimum(n_step or 3, 20 - ids % 20))
            goes_on = (ids + steps) % 20 != 0
            np.testing.assert_allclose(batch.discount, np.where(goes_on, gamma**steps, 0),
                                       rtol=1e-6)
            np.testing.assert_array_equal(batch.obs[:, 1, 0], ids)
            np.testing.assert_array_equal(batch.next_obs[goes_on, 1, 0], (ids + steps)[goes_on])
            want = [sum(gamma**j * ((i + j) % 7) for j in range(k)) for i, k in zip(ids, steps)]
            np.testing.assert_allclose(batch.reward, want, rtol=1e-5)
            np.testing.assert_allclose(
                batch.weight, (batch.probability / batch.probability.min())**-gamma, rtol=1e-4)
            held = held[-3:] + [(batch, batch.next_obs.copy())]
    for batch, copy in held:
        np.testing.assert_array_equal(batch.next_obs, copy)


@pytest.mark.parametrize("options", [
    dict(n=0), dict(n=70_000), dict(beta=-1), dict(beta=float("nan")), dict(beta=9),
    dict(timeout=-1), dict(view=1), dict(n_step=2), dict(n_step=0), dict(gamma=1.5),
    dict(gamma=-0.1), dict(layout="sideways"),
])
def test_sample__wrong_options(filled, options):
    with pytest.raises(relive.InvalidArgument):
        filled.sample(**{"n": 8, **options})


@pytest.mark.parametrize("options", [
    dict(batch_size=0), dict(beta=-0.1), dict(weights="some"), dict(layout="x"), dict(rank=1),
    dict(world_size=0), dict(batches=65), dict(prefetch=70),
])
def test_sampler__wrong_options(filled, options):
    with pytest.raises(relive.InvalidArgument):
        filled.sampler(**options)


@pytest.mark.parametrize("value", [-1, -2**32 + 8, 2**32 + 8, 2**64 + 8, 8.0, "8"])
@pytest.mark.parametrize("name", ["batch_size", "view", "n_step", "prefetch", "batches", "rank",
                                  "world_size", "defer_updates"])
def test_sampler__integers_that_do_not_fit(filled, name, value):
    with pytest.raises(relive.InvalidArgument, match="%s %r" % (name, value)):
        filled.sampler(**{name: value})


def test_sampler__integers_of_numpy(filled):
    options = dict(batch_size=8, prefetch=1, batches=9, n_step=1, seed=3)
    with filled.sampler(**{name: np.int64(value) for name, value in options.items()}) as some, \
            filled.sampler(**options) as same:
        assert next(some).key.tolist() == next(same).key.tolist()


def test_sample__nothing_there(make_table):
    table = make_table()
    with pytest.raises(relive.Empty):
        table.sample(8, timeout=0)
    began = time.monotonic()
    with pytest.raises(relive.Timeout, match="0 items inserted") as caught:
        table.sample(8, timeout=0.15)
    assert 0.14 < time.monotonic() - began < 5
    assert isinstance(caught.value, TimeoutError) and caught.value.code < 0


def test_sample__waits_for_min_size(make_table):
    table = make_table(rate_limiter=relive.RateLimiter.of_min_size(50))
    with table.writer() as writer:
        for i in range(50):
            writer.append(**step_values(i))
            if 0 < i < 48:
                with pytest.raises(relive.Empty, match="min_size 50"):
                    table.sample(1, timeout=0)
        writer.append(**step_values(50))
        assert len(table.sample(8, timeout=0)) == 8


def test_sample__queue_gives_each_once_and_in_order(make_table):
    view = relive.View(selector="fifo", max_times_sampled=1,
                       rate_limiter=relive.RateLimiter.queue(100))
    table = make_table(views=[view])
    with table.writer() as writer:
        for i in range(60):
            writer.append(**step_values(i))
        writer.end_episode(obs=np.zeros(3, "f4"))
    got = [table.sample(25, timeout=1).id.tolist() for _ in range(2)]
    assert got == [list(range(25)), list(range(25, 50))]
    assert table.sample(10, timeout=1).id.tolist() == list(range(50, 60))
    with pytest.raises(relive.Error):
        table.sample(1, timeout=0)


def test_sample__held_batches_are_never_filled_again(filled):
    held = [filled.sample(16) for _ in range(100)]
    values = [batch.obs.copy() for batch in held]
    arrays = [batch.obs for batch in held]
    del held
    for _ in range(100):
        filled.sample(16)
    for array, value in zip(arrays, values):
        np.testing.assert_array_equal(array, value)


def test_sample__memory_is_used_again(filled):
    held = [filled.sample(16) for _ in range(10)]
    places = {batch.obs.ctypes.data for batch in held}
    assert len(places) == 10
    held.clear()
    assert {filled.sample(16).obs.ctypes.data for _ in range(50)} <= places


def test_sample__larger_batches_than_before(filled):
    small = filled.sample(8)
    obs = small.obs.copy()
    assert len(filled.sample(300)) == 300
    np.testing.assert_array_equal(small.obs, obs)


def test_sample__of_too_many_leaves_all_as_it_was(filled):
    batch = filled.sample(256)
    with pytest.raises(relive.InvalidArgument):
        filled.sample(70_000)
    assert filled.update_priorities(batch.key, td_error=np.ones(256)).updated > 0
    assert len(filled.sample(256)) == 256


def test_release__lets_the_batch_go(filled):
    for _ in range(20):
        with filled.sample(16) as batch:
            batch.obs  # a temporary array
        with pytest.raises(relive.Closed):
            batch["obs"]
    batch.release()
    with pytest.raises(relive.Closed):
        batch.names


def test_copy__has_memory_of_its_own(filled):
    batch = filled.sample(16)
    copies = [batch.copy(), pickle.loads(pickle.dumps(batch)), batch.copy().copy()]
    for copy in copies:
        assert isinstance(copy, relive.BatchCopy)
        assert copy.names == batch.names and len(copy) == copy.n == 16
        assert copy.table_size == batch.table_size
        for name in batch.names:
            np.testing.assert_array_equal(copy[name], batch[name])
            assert not np.shares_memory(copy[name], batch[name])
        with pytest.raises(AttributeError, match="obs"):
            copy.nothing
    assert filled.update_priorities(copies[1].key, td_error=np.ones(16)).updated > 0
