"""Heaps: values under keys."""

import threading

import numpy as np
import pytest

import relive


@pytest.fixture
def kv():
    with relive.open("embed:") as store:
        with store.create_kv("h", keys=1000, bytes=8 << 20, extent_bytes=64 << 10) as kv:
            yield kv
            assert kv.verify()["problems"] == 0


def test_put_get_delete(kv):
    assert kv.put("a", b"one") == 1
    assert kv.put(b"a", bytearray(b"two")) == 2
    assert kv.get("a") == (b"two", 2)
    array = np.arange(1000, dtype=np.float32)
    kv.put("array", array)
    assert np.array_equal(np.frombuffer(kv.get("array")[0], np.float32), array)
    assert kv.put("empty", b"") == 1
    assert kv.get("empty") == (b"", 1)
    assert kv.delete("a") == 3
    with pytest.raises(relive.NotFound):
        kv.get("a")
    with pytest.raises(relive.NotFound):
        kv.delete("a")
    assert sorted(kv.keys()) == [b"array", b"empty"]


def test_expected_versions(kv):
    assert kv.put("a", b"1", expected=0) == 1
    with pytest.raises(relive.VersionChanged):
        kv.put("a", b"2", expected=0)
    assert kv.put("a", b"2", expected=1) == 2
    assert kv.get("a") == (b"2", 2)


def test_newer_and_watch(kv):
    assert kv.get_newer("a", 0) is None
    with pytest.raises(relive.Timeout):
        kv.watch("a", timeout=0.01)
    other = kv.store.kv("h")
    timer = threading.Timer(0.02, lambda: other.put("a", b"x"))
    timer.start()
    assert kv.watch("a", timeout=10) == 1
    timer.join()
    assert kv.get_newer("a", 0) == (b"x", 1)
    assert kv.get_newer("a", 1) is None
    other.close()


def test_names_and_errors(kv):
    store = kv.store
    assert store.kvs() == ["h"] and store.tables() == []
    with pytest.raises(relive.NotFound):
        store.kv("none")
    with pytest.raises(relive.AlreadyExists):
        store.create_kv("h", keys=5)
    with pytest.raises(relive.InvalidArgument):
        kv.put(b"", b"x")
    with pytest.raises(relive.InvalidArgument):
        kv.put("big", bytes(65536))
    with pytest.raises(TypeError):
        kv.put("a", 1)
    other = store.create_kv("gone")
    other.put("a", b"x")
    store.drop_kv("gone")
    with pytest.raises(relive.TableDropped):
        other.put("a", b"x")
    with pytest.raises(relive.TableDropped):
        other.put("a", b"x", expected=1)
    other.close()
    with pytest.raises(relive.Closed):
        other.get("a")


def test_threads_share_a_handle(kv):
    def work(name):
        for i in range(300):
            kv.put("k", name)
            assert kv.get("k")[0] in (b"1" * 500, b"2" * 500)

    threads = [threading.Thread(target=work, args=(name * 500,)) for name in (b"1", b"2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kv.get("k")[1] == 600


@pytest.mark.parametrize("mode", ["clover", "direct", "central"])
def test_modes(mode):
    with relive.open("embed:") as store:
        room = 64 << 10 if mode == "clover" else 1024
        with store.create_kv("h", keys=100, extent_bytes=room, mode=mode) as kv:
            assert kv.info()["mode"] == mode
            assert kv.put("a", b"one") == 1
            assert kv.put("a", b"two", expected=1) == 2
            with pytest.raises(relive.VersionChanged):
                kv.put("a", b"three", expected=1)
            assert kv.get("a") == (b"two", 2)
            assert list(kv.keys()) == [b"a"]
            assert kv.delete("a") == 3
            with pytest.raises(relive.NotFound):
                kv.get("a")
            assert kv.verify()["problems"] == 0
        with pytest.raises(relive.InvalidArgument):
            store.create_kv("x", mode="other")
