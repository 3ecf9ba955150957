"""Heaps: values under keys."""

import os
import subprocess
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
    assert np.array_equal(kv.get("array")[0], array)
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


@pytest.mark.parametrize("value", [
    np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.zeros((0, 5), np.uint8), np.array(7.5),
    np.array([True, False]), np.array([1 + 2j]), np.array(["ab", "c"]), np.array(3, ">i4"),
    np.array(["2026-11-26"], "datetime64[D]"), np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(20)[::3], np.int64(5), np.random.default_rng(1).random(50_000),
])
def test_arrays_keep_dtype_and_shape(kv, value):
    kv["k"] = value
    got = kv["k"]
    assert got.dtype == np.asarray(value).dtype and got.shape == np.shape(value)
    assert np.array_equal(got, value)
    assert not got.flags.writeable and got.flags.aligned
    (many, version), = kv.get_many(["k"])
    assert np.array_equal(many, value) and version == kv.get("k")[1]


def test_put_many(kv):
    values = {"key%d" % i: np.arange(i) for i in range(100)}
    assert kv.put_many(values) == [1] * 100
    kv.update({"key3": b"bytes", "new": b""})
    assert kv.put_many([("key3", b"a"), ("key3", b"b")]) == [3, 4]
    assert kv.put_many([("p", {"a": 1})], pickle=True) == [1]
    assert kv["key3"] == b"b" and kv["new"] == b"" and kv.get("p", pickle=True)[0] == {"a": 1}
    assert np.array_equal(kv["key99"], np.arange(99))
    assert kv.put_many({}) == []
    with pytest.raises(relive.InvalidArgument, match="items"):
        kv.put_many({"ok": b"1", "": b"2"})
    assert "ok" not in kv
    with pytest.raises(ValueError, match="values"):
        kv._core.put_many([b"a", b"b"], [b"1"])
    with pytest.raises(TypeError):
        kv._core.put_many([b"a"], [1])


def test_get_range(kv):
    data = bytes(range(256)) * 1000  # in several chunks
    kv.put("a", data)
    assert kv.get_range("a", 65_000, 1000) == (data[65_000:66_000], 1)
    assert kv.get_range("a", len(data) - 5, 1 << 40) == (data[-5:], 1)
    assert kv.get_range("a", len(data), 1) == (b"", 1)
    kv.put("a", b"short")
    assert kv.get_range(b"a", 1, 3) == (b"hor", 2)
    for offset, length in (-1, 1), (0, -1), (1 << 64, 1):
        with pytest.raises(relive.InvalidArgument, match="get_range: offset"):
            kv.get_range("a", offset, length)
    with pytest.raises(relive.NotFound):
        kv.get_range("none", 0, 1)


def test_bytes_are_stored_as_they_are(kv):
    for value in (b"", b"x", b"\xf7RLV", b"\xf7RLV" + bytes(100), b"\xf7RL"):
        kv["k"] = value
        assert kv["k"] == value
    kv["k"] = b"plain"
    assert kv._core.get(b"k", 0)[0] == b"plain"


def test_pickles_by_choice(kv):
    value = {"step": 3, "list": [1, "two", None]}
    with pytest.raises(TypeError, match="pickle=True"):
        kv.put("k", value)
    kv.put("k", value, pickle=True)
    with pytest.raises(relive.InvalidArgument, match="pickle=True"):
        kv.get("k")
    assert kv.get("k", pickle=True) == (value, 1)
    assert kv.get_newer("k", 0, pickle=True) == (value, 1)
    assert kv.get_many(["k"], pickle=True) == [(value, 1)]
    assert list(kv.items(pickle=True)) == [(b"k", value)]
    kv.put("plain", b"bytes", pickle=True)
    assert kv.get("plain") == (b"bytes", 1)
    objects = np.array([{}, None], dtype=object)
    with pytest.raises(relive.InvalidArgument, match="pickle=True"):
        kv.put("k", objects)
    kv.put("k", objects, pickle=True)
    assert kv.get("k", pickle=True)[0].tolist() == [{}, None]


def test_headers_that_cannot_be(kv):
    good = kv._core
    kv["k"] = np.arange(6).reshape(2, 3)
    whole = good.get(b"k", 0)[0]
    for damaged in (whole[:8], whole[:64], whole[:-1], whole[:4] + b"\x09" + whole[5:],
                    whole[:5] + b"\x07" + whole[6:], whole[:6] + b"\xff\xff" + whole[8:],
                    whole[:8] + b"\x09" + whole[9:], whole[:16] + b"\xff" * 8 + whole[24:],
                    whole[:32] + b"?!" + whole[34:], whole[:32] + b"|O" + whole[34:]):
        good.put(b"k", damaged, -1)
        with pytest.raises(relive.ProtocolError):
            kv.get("k")


def test_mapping(kv):
    assert len(kv) == 0 and kv and "a" not in kv
    kv["a"] = b"1"
    kv[b"b"] = bytes(300_000)
    assert "a" in kv and b"b" in kv and "c" not in kv
    assert len(kv) == 2 and sorted(kv) == [b"a", b"b"]
    assert dict(kv.items()) == {b"a": b"1", b"b": bytes(300_000)}
    del kv["a"]
    assert "a" not in kv and len(kv) == 1
    with pytest.raises(relive.NotFound):
        kv["a"]
    with pytest.raises(relive.NotFound):
        del kv["a"]


def test_get_many(kv):
    values = {b"k%d" % i: bytes([i]) * (i * 97) for i in range(200)}
    for key, value in values.items():
        kv[key] = value
    kv["large"] = bytes(200_000)
    assert kv.get_many([]) == []
    assert kv.get_many(values) == [(value, 1) for value in values.values()]
    assert kv.get_many(["none", "large", "k3"]) == [None, (bytes(200_000), 1), (values[b"k3"], 1)]
    with pytest.raises(relive.InvalidArgument):
        kv.get_many(["k1", b""])
    with pytest.raises(TypeError):
        kv.get_many([1])


def test_stripes():
    """A value that is larger than a part lies in all of them."""
    with relive.open("embed:") as store:
        options = dict(keys=1000, bytes=12 << 20, extent_bytes=64 << 10, parts=4)
        with store.create_kv("h", stripe_bytes=128 << 10, **options) as kv, store.kv("h") as other:
            large = np.arange(1 << 20, dtype=np.int32)  # 4 MiB, and a part has 3
            assert kv.info()["stripe_bytes"] == 128 << 10
            assert kv.put("a", large) == 1
            value, version = other.get("a")
            assert version == 1 and np.array_equal(value, large)
            data = bytes(range(250)) * 5000
            other["b"] = data
            assert kv.get_range("b", 700_001, 3) == (b"\x01\x02\x03", 1)
            assert kv.get_many(["b", "none"]) == [(data, 1), None]
            assert kv.put("b", b"short", expected=1) == 2
            with pytest.raises(relive.VersionChanged):
                kv.put("b", data, expected=1)
            assert sorted(kv) == [b"a", b"b"] and len(other) == 2
            with pytest.raises(relive.NoSpace):
                kv["c"] = bytes(11 << 20)
            del kv["a"]
            kv["c"] = bytes(6 << 20)
            assert other["c"] == bytes(6 << 20)
            with pytest.raises(relive.InvalidArgument):
                kv.put(b"\xffRLvstr\0", b"")
            assert kv.verify()["problems"] == 0
        with pytest.raises(relive.AlreadyExists):
            store.create_kv("h", **options)
        with pytest.raises(relive.InvalidArgument, match="stripe_bytes 100"):
            store.create_kv("i", stripe_bytes=100)
        with pytest.raises(relive.InvalidArgument, match="one writer"):
            store.create_kv("i", stripe_bytes=2 << 20, copies=2)


def test_copies(runtime):
    """Another handle puts when the owner has given its parts back."""
    command = [relive.build_info()["programs"]["relive"]]
    name = "copies-%d" % os.getpid()
    up = ["up", "--store", name, "--nodes", "2", "--size", "32M"]
    subprocess.run(command + up, check=True, stdout=subprocess.DEVNULL, timeout=60)
    try:
        with relive.open("shm:" + name) as store:
            with store.create_kv("h", keys=100, bytes=4 << 20, extent_bytes=64 << 10,
                                 copies=2) as kv:
                assert kv.put("a", b"one") == 1
                with store.kv("h") as other:
                    with pytest.raises(relive.Busy):
                        other.put("a", b"two")
                    assert other.get("a") == (b"one", 1)
                    kv.release()
                    assert other.put("a", b"two") == 2
                    other.put("large", bytes(range(250)) * 1000)
                    for handle in kv, other:
                        assert handle.get_range("large", 70_001, 2) == (b"\x01\x02", 1)
                    assert other.put("large", b"short") == 2
                assert kv.repair() == 0
                assert (kv.info()["copies"], kv.info()["copies_wanted"]) == (2, 2)
            with store.create_kv("w", keys=100, bytes=4 << 20, extent_bytes=64 << 10, copies=2,
                                 writers="many") as kv, store.kv("w") as other:
                for version in range(1, 21, 2):
                    assert kv.put("a", b"one") == version
                    assert other.put("a", bytes(100_000)) == version + 1
                    assert kv.get("a") == (bytes(100_000), version + 1)
                kv.release()
                assert (kv.repair(), kv.verify()["problems"]) == (0, 0)
            with pytest.raises(relive.AlreadyExists):
                store.create_kv("w", keys=100, bytes=4 << 20, extent_bytes=64 << 10, copies=2)
            with pytest.raises(relive.AlreadyExists):  # weights have one writer
                store.create_weights("w", 1 << 20)
            with pytest.raises(relive.NotFound, match="no weights"):
                store.weights("w")
            with pytest.raises(relive.InvalidArgument, match="want one of one, many"):
                store.create_kv("i", copies=2, writers="some")
            with pytest.raises(relive.InvalidArgument):
                store.create_kv("i", copies=3)
    finally:
        subprocess.run(command + ["down", "--force", "--store", name], check=False,
                       stdout=subprocess.DEVNULL, timeout=60)
