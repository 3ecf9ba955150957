"""Stores: opening, tables, files, information, errors."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import relive
from conftest import SIGNATURE, step_values


@pytest.mark.parametrize("uri", ["", "embed", "http://x", "shm:", "shm:a/b", "relive://h:0", "é:"])
def test_open__bad_uris(uri):
    with pytest.raises(relive.InvalidArgument, match="uri"):
        relive.open(uri)


def test_open__who_is_not_there():
    if not relive.build_info()["remote"]:
        with pytest.raises(relive.Unsupported, match="embed: only"):
            relive.open("shm:nobody-runs-this-store")
        pytest.skip("this build has embed: only")
    with pytest.raises((relive.NotFound, relive.Disconnected)):
        relive.open("shm:nobody-runs-this-store")
    with pytest.raises((relive.Disconnected, relive.Timeout)):
        relive.open("relive://127.0.0.1:1", timeout=0.5, token="0" * 64)


@pytest.mark.parametrize("options", [dict(pages="large"), dict(what=1)])
def test_open__bad_options(options):
    with pytest.raises((relive.InvalidArgument, TypeError)):
        relive.open("embed:", **options)


def test_open__a_file_survives(tmp_path):
    uri = "embed:%s" % (tmp_path / "store")
    with relive.open(uri, pool_bytes=64 << 20) as store:
        table = store.create_table("t", SIGNATURE, 2000)
        with table.writer() as writer:
            for i in range(100):
                writer.append(**step_values(i))
        store.persist()
        with pytest.raises(relive.Busy):
            relive.open(uri)
    with relive.open(uri) as store:
        assert store.tables() == ["t"]
        batch = store.table("t").sample(64)
        np.testing.assert_array_equal(batch.action, batch.id)


def test_open__read_only_looks(tmp_path):
    uri = "embed:%s" % (tmp_path / "store")
    with relive.open(uri, pool_bytes=64 << 20) as store:
        with store.create_table("t", SIGNATURE, 2000).writer() as writer:
            for i in range(100):
                writer.append(**step_values(i))
    with relive.open(uri, read_only=True) as store:
        table = store.table("t")
        batch = table.sample(8)
        with pytest.raises(relive.AccessDenied):
            table.writer()
        with pytest.raises(relive.AccessDenied):
            table.update_priorities(batch.key, td_error=np.ones(8))
        with pytest.raises(relive.AccessDenied):
            store.create_table("u", SIGNATURE, 2000)


def test_open__of_another_format(tmp_path):
    (tmp_path / "store").write_bytes(b"nothing of ours" * 10_000)
    with pytest.raises(relive.ProtocolError):
        relive.open("embed:%s" % (tmp_path / "store"))


def test_tables__names_and_drop(store):
    names = ["t-%02d" % i for i in range(20)]
    for name in names:
        store.create_table(name, SIGNATURE, 500)
    assert store.tables() == names
    table = store.table("t-03")
    store.drop_table("t-03")
    assert store.tables() == names[:3] + names[4:]
    with pytest.raises(relive.NotFound):
        store.table("t-03")
    with pytest.raises(relive.TableDropped):
        table.writer()


@pytest.fixture(params=["embed", "shm"])
def any_store(request):
    if request.param == "shm":
        return request.getfixturevalue("shm_store")
    return request.getfixturevalue("store")


def with_pending_items(store, name, **options):
    """A new table with a sampler, and a writer whose last steps are not items yet."""
    table = store.create_table(name, SIGNATURE, 500, views=[relive.View(n_step=3, **options)])
    writer = table.writer(timeout=0.1)
    for i in range(5):
        writer.append(**step_values(i))
    return table, writer, table.sampler(8)


def test_drop_table__with_open_handles_they_close_in_peace(any_store):
    with any_store as store:
        table, *handles = with_pending_items(store, "t")
        table.sample(2)
        store.drop_table("t")
        with pytest.raises(relive.TableDropped):
            handles[0].append(**step_values(5))
    assert not any(handle.is_open for handle in handles)
    assert not table._core.is_open and not store._core.is_open


def test_close__goes_on_where_a_table_fails(store):
    stuck = relive.RateLimiter.queue(3)
    first = with_pending_items(store, "a", rate_limiter=stuck)
    second = with_pending_items(store, "b", rate_limiter=stuck)
    with pytest.raises(relive.Timeout, match="append"):
        store.close()
    for table, *handles in (first, second):
        assert not any(handle.is_open for handle in handles) and not table._core.is_open
    assert not store._core.is_open
    store.close()


def test_exit__keeps_the_exception_of_its_body(shm_store):
    with pytest.raises(KeyError, match="mine"):
        with relive.open(shm_store.uri, timeout=1) as store:
            table, *handles = with_pending_items(store, "t")
            programs = relive.build_info()["programs"]
            subprocess.run([programs["relive"], "down", "--force", "--store",
                            store.uri.partition(":")[2]],
                           check=True, stdout=subprocess.DEVNULL, timeout=60)
            raise KeyError("mine")
    assert not any(handle.is_open for handle in handles)
    assert not table._core.is_open and not store._core.is_open


def test_create__the_same_again_opens(store):
    first = store.create_table("t", SIGNATURE, 500, views=[relive.View(n_step=2)])
    again = store.create_table("t", SIGNATURE, 500, views=[relive.View(n_step=2)])
    with first.writer() as writer:
        for i in range(10):
            writer.append(**step_values(i))
    assert len(again) == 9
    with pytest.raises(relive.AlreadyExists):
        store.create_table("t", SIGNATURE, 501, views=[relive.View(n_step=2)])
    with pytest.raises(relive.AlreadyExists):
        store.create_table("t", {**SIGNATURE, "more": "int8"}, 500, views=[relive.View(n_step=2)])


@pytest.mark.parametrize("change", [
    dict(capacity=0), dict(name="a/b"), dict(name="x" * 64), dict(shards=10_000),
    dict(max_writers=1000), dict(views=[relive.View()] * 9), dict(views=[relive.View(alpha=9)]),
    dict(signature={"c%d" % i: "int8" for i in range(257)}), dict(signature={}),
    dict(signature={"a-b": "int8"}), dict(signature={"a": ((1,) * 7, "int8")}),
    dict(signature={"a": ((0,), "int8")}),
])
def test_create__wrong_arguments(store, change):
    with pytest.raises(relive.InvalidArgument):
        store.create_table(**{"name": "t", "signature": SIGNATURE, "capacity": 1000, **change})


@pytest.mark.parametrize("number", [-1, 2**64 + 1000, 1000.5])
@pytest.mark.parametrize("name", ["capacity", "shards", "max_writers", "max_clients", "block"])
def test_create__integers_that_do_not_fit(store, name, number):
    with pytest.raises(relive.InvalidArgument, match="%s %r" % (name, number)):
        store.create_table("t", **{"signature": SIGNATURE, "capacity": 1000, name: number})
    with pytest.raises(relive.InvalidArgument, match="pool_bytes"):
        relive.open("embed:", pool_bytes=number)


@pytest.mark.parametrize("name", ["stack", "n_step", "period", "max_times_sampled",
                                  "max_staleness"])
def test_view__integers_that_do_not_fit(name):
    for number in (-1, 2**32 + 2, 2.0):
        with pytest.raises(relive.InvalidArgument, match="view: %s %r" % (name, number)):
            relive.View(**{name: number})


@pytest.mark.parametrize("make", [
    lambda size: relive.RateLimiter(min_size=size), relive.RateLimiter.of_min_size,
    lambda size: relive.RateLimiter.sample_to_insert(1.0, size, 10.0), relive.RateLimiter.queue,
    relive.RateLimiter.stack,
])
def test_rate_limiter__integers_that_do_not_fit(make):
    for size in (-1, 2**64 + 2, 2.0):
        with pytest.raises(relive.InvalidArgument, match="size %r" % size):
            make(size)


def test_info__of_a_store(store):
    store.create_table("t", SIGNATURE, 500)
    info = store.info()
    assert info.uri == "embed:" and info.tables == 1 and info.nodes[0].up
    assert 0 < info.nodes[0].used_bytes < info.nodes[0].pool_bytes
    assert pickle.loads(pickle.dumps(info)) == info


def test_info__of_a_table(store):
    limiter = relive.RateLimiter.of_min_size(7)
    views = [relive.View(n_step=3, alpha=0.5, rate_limiter=limiter), relive.View(selector="fifo")]
    table = store.create_table("t", SIGNATURE, 500, views=views, max_writers=2)
    with table.writer() as writer:
        for i in range(20):
            writer.append(**step_values(i))
    table.sample(8)
    info = table.info()
    assert (info.name, info.capacity, info.shards, info.max_writers) == ("t", 500, 1, 2)
    assert info.columns == table.columns == relive.signature.columns_of(SIGNATURE)
    assert [v.view.selector for v in info.views] == ["prioritized", "fifo"]
    assert info.views[0].view.rate_limiter.min_size == 7
    first = info.views[0]
    assert (first.items, first.inserted, first.sampled) == (19, 19, 8) and len(table) == 19
    assert first.priority_sum == pytest.approx(19, rel=1e-3)
    assert info.slots >= 500 and info.rows_bytes >= info.slots * info.row_bytes
    assert pickle.loads(pickle.dumps(info)) == info
    assert table.verify().problems == 0


def test_close__closes_what_came_of_it(store):
    table = store.create_table("t", SIGNATURE, 500)
    writer, sampler = table.writer(), table.sampler(8)
    store.close()
    store.close()
    for use in (lambda: table.sample(1), writer.stats, sampler.stats, table.info, store.info,
                store.tables, lambda: store.table("t")):
        with pytest.raises(relive.Closed):
            use()
    assert "closed" in repr(store) and "closed" in repr(table)


def test_shards__share_one_distribution(store):
    table = store.create_table("t", SIGNATURE, 4000, shards=4)
    with table.writer() as writer:
        for i in range(2000):
            writer.append(**step_values(i), td_error=1.0 + i % 5)
    batch = table.sample(256)
    np.testing.assert_array_equal(batch.action, batch.id)
    np.testing.assert_allclose(batch.probability / batch.priority,
                               batch.probability[0] / batch.priority[0], rtol=1e-4)


def test_error__is_what_one_expects():
    error = relive.errors.of_code(-110, "too late")
    assert type(error) is relive.Timeout and error.code == -110 and str(error) == "too late"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is relive.Timeout and str(again) == "too late" and again.errno == 110
    assert type(relive.errors.of_code(-5, "x")) is relive.Error


def test_build_info__says_what_is_in():
    info = relive.build_info()
    assert info["version"] == relive.__version__ and isinstance(info["remote"], bool)
    assert set(info["programs"]) <= {"relive", "relive-memnode", "relive-metad",
                                     "relive-poold"}


def test_trust__opens_what_was_not_closed_and_has_no_checksums(tmp_path):
    uri = "embed:%s" % (tmp_path / "pool")
    script = """if True:
        import os, sys, relive
        store = relive.open(sys.argv[1], pool_bytes=1 << 26)
        table = store.create_table("t", {"x": "float32"}, capacity=1000, row_crc=False)
        writer = table.writer()
        writer.append(x=1.0)
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", script, uri], check=True)
    with pytest.raises(relive.ProtocolError, match="table t shard 0: .*trust=True"):
        relive.open(uri)
    with relive.open(uri, trust=True) as store:
        assert store.tables() == ["t"]
    relive.open(uri).close()


COLUMNS = {"obs": ((4,), "float32"), "action": "int64", "reward": "float32"}


def test_create__a_capacity_of_1e6_and_a_view_alone(store):
    info = store.create_table("a", COLUMNS, 1e6, views=relive.View(n_step=3)).info()
    assert info.capacity == 1_000_000 and [view.view.n_step for view in info.views] == [3]


@pytest.mark.parametrize("change, told", [
    (dict(capacity=5000), "capacity: it has 4000, not 5000"),
    (dict(signature={**COLUMNS, "x": "int8"}), r"column x: it has none, not int8 \(\) \(plain\)"),
    (dict(signature={**COLUMNS, "action": "int32"}), "column action: it has int64 .*, not int32"),
    (dict(views=[relive.View(n_step=3)]), r"views\[0\].n_step: it has 1, not 3"),
    (dict(rate_limiter=relive.RateLimiter.of_min_size(5)), r"views\[0\].rate_limiter: it has \(1, 0"),
    (dict(max_writers=8), "max_writers: it has 4, not 8"),
    (dict(block=16), "block or row_crc"),
])
def test_create__names_what_differs(store, change, told):
    store.create_table("a", COLUMNS, 4000)
    options = dict(signature=COLUMNS, capacity=4000)
    store.create_table("a", **options)
    with pytest.raises(relive.AlreadyExists, match=told):
        store.create_table("a", **{**options, **change})


def test_create__warns_of_a_column_for_ends(store):
    with pytest.warns(UserWarning, match="(?s)column done is stored as it is.*terminated=terminated") as warned:
        store.create_table("a", {**COLUMNS, "done": "bool"}, 4000)
    assert warned[0].filename == __file__


def test_writer__of_more_environments_than_writers(store):
    table = store.create_table("a", COLUMNS, 4000)
    with pytest.raises(relive.NoSpace, match="create it with max_writers 8 or more"):
        table.writer(8)
