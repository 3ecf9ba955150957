"""Reading a table without drawing from it: scan, to_numpy, gather, iteration, table[key]."""

import gc
import itertools

import numpy as np
import pytest

import relive
from conftest import SIGNATURE, step_values
from relive import _scan


def append(table, first, n, **options):
    with table.writer(**options) as writer:
        for i in range(first, first + n):
            writer.append(**step_values(i, terminated=i % 20 == 19))


def ids_of(batches):
    return [int(number) for batch in batches for number in batch.id]


# -------- scan --------

def test_scan__all_items_in_order_of_insertion(filled):
    sizes = []
    at = 0
    for batch in filled.scan(batch=64):
        sizes.append(batch.n)
        np.testing.assert_array_equal(batch.id, np.arange(at, at + batch.n))
        np.testing.assert_array_equal(batch.obs[:, 0], batch.id)
        assert (batch.weight == 1).all() and (batch.probability == 1).all() and (batch.priority > 0).all()
        at += batch.n
    assert at == 500 and sizes == [64] * 7 + [52]


def test_scan__columns_and_options_of_a_sampler(make_table):
    table = make_table(views=[relive.View(n_step=3, stack=2), relive.View(selector="fifo")])
    append(table, 0, 100)
    batch = next(table.scan(["action"], 10))
    assert batch.names == ("action", "discount", "steps", "key", "weight", "probability", "priority", "policy_version")
    assert next(table.scan((), 10)).names == ("key", "weight", "probability", "priority")
    assert next(table.scan(layout="window")).obs.shape == (100, 2, 3)
    one = next(table.scan(n_step=1, gamma=0.5))
    np.testing.assert_allclose(one.reward, np.arange(100) % 7)
    assert set(one.discount) == {0, 0.5}
    assert next(table.scan(view=1)).obs.shape == (100, 3)


def test_scan__streams_of_a_vector_each_in_order(make_table):
    table = make_table(max_writers=4)
    with table.writer(4, autoreset="disabled") as writer:
        for i in range(200):
            writer.append(obs=np.full((4, 3), i), action=np.arange(4), reward=np.zeros(4),
                          id=4 * i + np.arange(4), terminated=np.full(4, i % 20 == 19))
    ids = np.array(ids_of(table.scan()))
    assert sorted(ids) == list(range(800))
    for stream in range(4):
        of_stream = ids[ids % 4 == stream]
        assert (np.diff(of_stream) == 4).all()


def test_scan__consumes_nothing(make_table):
    queue = relive.View(selector="fifo", max_times_sampled=1, rate_limiter=relive.RateLimiter.queue(1000))
    table = make_table(views=queue)
    append(table, 0, 100)
    for _ in range(3):
        assert ids_of(table.scan()) == list(range(100))
    info = table.info().views[0]
    assert info.sampled == 0 and info.items == 100
    assert ids_of([table.sample(40)]) == list(range(40))
    assert ids_of(table.scan()) == list(range(40, 100))


def test_scan__says_how_often_items_were_sampled(make_table):
    table = make_table(views=relive.View(selector="fifo", max_times_sampled=2))
    append(table, 0, 100)
    drawn = table.sample(30)
    assert "times_sampled" not in drawn.names
    times = np.concatenate([batch.times_sampled for batch in table.scan(batch=64)])
    np.testing.assert_array_equal(times, np.arange(100) < 30)


def test_scan__what_stays_is_seen_and_what_goes_is_not(make_table):
    table = make_table(capacity=2048)
    append(table, 0, 300)
    batches = table.scan(batch=50)
    ids = ids_of([next(batches)])
    append(table, 300, 100)
    ids += ids_of(batches)
    assert ids[:300] == list(range(300)) and set(ids[300:]) <= set(range(300, 400))
    batches = table.scan(batch=50)
    next(batches)
    append(table, 400, 20000)
    assert ids_of(batches) == []


def test_scan__ends_with_its_slot_given_back(make_table):
    table = make_table(max_clients=2)
    append(table, 0, 100)
    for _ in range(10):
        for _item in table:
            break
        next(table.scan())
        table.scan()
    first, second = table.scan(), table.scan()
    next(first)
    with pytest.raises(relive.NoSpace):
        table.scan()
    del first, second
    gc.collect()
    assert len(list(table.scan(batch=10))) == 10


def test_scan__of_a_closed_table(make_table):
    table = make_table()
    append(table, 0, 100)
    batches = table.scan(batch=10)
    batch = next(batches)
    table.close()
    with pytest.raises(relive.Closed):
        next(batches)
    np.testing.assert_array_equal(batch.id, np.arange(10))


def test_scan__batches_that_are_kept_stay_as_they_are(filled):
    kept = list(filled.scan(batch=10))
    assert ids_of(kept) == list(range(500))


# -------- to_numpy --------

def test_to_numpy__is_what_was_appended(filled):
    arrays = filled.to_numpy()
    assert list(arrays) == ["obs", "next_obs", "action", "reward", "id", "discount", "steps", "key", "priority",
                            "policy_version"]
    np.testing.assert_array_equal(arrays["id"], np.arange(500))
    np.testing.assert_array_equal(arrays["obs"], np.repeat(np.arange(500, dtype="f4"), 3).reshape(500, 3))
    assert arrays["action"].dtype == np.int64 and arrays["obs"].dtype == np.float32
    assert list(filled.to_numpy(["action"])) == ["action", "discount", "steps", "key", "priority", "policy_version"]


def test_to_numpy__grows_with_what_comes_meanwhile(filled):
    arrays = _scan.to_numpy(filled.scan(batch=7), 3)
    np.testing.assert_array_equal(arrays["id"], np.arange(500))


def test_to_numpy__nested_columns_are_dicts(make_table):
    table = make_table({"obs": {"image": ((2, 2), "uint8"), "speed": "float32"}, "action": "int64"})
    with table.writer() as writer:
        for i in range(50):
            writer.append(obs={"image": np.full((2, 2), i), "speed": i}, action=i, terminated=i % 10 == 9)
    arrays = table.to_numpy()
    assert arrays["obs"]["image"].shape == (50, 2, 2)
    np.testing.assert_array_equal(arrays["obs"]["speed"], np.arange(50))
    item = next(iter(table))
    assert item["obs"]["image"].shape == (2, 2) and item["next_obs"]["speed"] == 1


def test_to_numpy__of_an_empty_table(make_table):
    table = make_table()
    assert table.to_numpy() == {} and list(table) == [] and list(table.scan()) == []


# -------- items --------

def test_table__iterates_over_items(filled):
    for i, item in enumerate(filled):
        assert item["id"] == i and (item["obs"] == i).all() and item["action"] == i
    assert i == 499
    assert len(list(itertools.islice(filled, 3))) == 3


def test_getitem__the_item_of_a_key(filled, make_table):
    batch = filled.sample(20)
    for i in range(20):
        item = filled[batch.key[i]]
        assert item["id"] == batch.id[i] and item["key"] == batch.key[i] and "weight" not in item
        assert batch.key[i] in filled and filled[int(batch.key[i])]["id"] == batch.id[i]
    other = make_table()
    for key in (0, -1, 2**64, 2**70, int(batch.key[0]) + 2**24):
        assert key not in filled
        with pytest.raises(KeyError, match="table.dataset"):
            filled[key]
    with pytest.raises(KeyError):
        other[batch.key[0]]


def test_gather__in_the_order_of_the_keys(filled):
    keys = filled.to_numpy([])["key"]
    order = np.random.default_rng(1).permutation(500)
    batch = filled.gather(keys[order])
    np.testing.assert_array_equal(batch.id, order)
    np.testing.assert_array_equal(filled.gather(keys.view(np.int64)[:7]).id, np.arange(7))
    np.testing.assert_array_equal(filled.gather([int(key) for key in keys[:3]]).id, np.arange(3))


def test_gather__absent_items_have_no_key(make_table):
    table = make_table(capacity=2048)
    append(table, 0, 300)
    old = table.to_numpy()["key"]
    append(table, 300, 20000)
    new = table.to_numpy()["key"]
    batch = table.gather(np.concatenate([old[:5], new[-5:]]))
    np.testing.assert_array_equal(batch.key != 0, [False] * 5 + [True] * 5)
    np.testing.assert_array_equal(batch.priority > 0, batch.key != 0)
    np.testing.assert_array_equal(batch.id, [0] * 5 + list(range(20295, 20300)))


def test_scan__over_processes(shm_store):
    table = shm_store.create_table("t", SIGNATURE, 4096)
    append(table, 0, 300)
    with relive.open(shm_store.uri) as other:
        again = other.table("t")
        np.testing.assert_array_equal(again.to_numpy()["id"], np.arange(300))
        key = again.to_numpy([])["key"][7]
        assert table[key]["id"] == 7
