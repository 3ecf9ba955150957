"""Tables that are saved and loaded."""

import threading

import numpy as np
import pytest

import relive

SIGNATURE = {"obs": ((4,), "float32"), "reward": "float32", "step": "int64"}


def fill(table, n, first=0):
    step = np.arange(first, first + n)
    with table.writer() as writer:
        writer.extend(obs=np.repeat(step[:, None], 4, 1), reward=step, step=step)


def prioritized(store, n=1000, **options):
    table = store.create_table("replay", SIGNATURE, capacity=4096, **options)
    fill(table, n)
    batch = table.sample(512)
    table.update_priorities(batch.key, batch.step % 7 + 1)
    return table


def priorities(table):
    """All items: priority by step."""
    found = {}
    while len(found) < len(table):
        batch = table.sample(1024)
        found.update(zip(batch.step.tolist(), batch.priority.tolist()))
    return found


def test_the_same_items_and_priorities(tmp_path):
    with relive.open() as store, relive.open() as other:
        table = prioritized(store)
        saved = table.save(tmp_path / "replay.rlvs")
        assert saved.table == "replay" and saved.items == (len(table),)
        assert saved.bytes == (tmp_path / "replay.rlvs").stat().st_size
        there = other.load_table(tmp_path / "replay.rlvs", "copy", shards=3)
        assert there.name == "copy" and there.info().shards == 3
        assert priorities(there) == priorities(table)
        fill(there, 10, first=5000)
        assert len(there) > len(table)


def test_upon_an_earlier_file(tmp_path):
    path = str(tmp_path / "replay.rlvs")
    with relive.open() as store:
        table = prioritized(store)
        assert table.save(path).reused_bytes == 0
        fill(table, 100, first=1000)
        assert table.save(path, base=path).reused_bytes > 0
        again = store.load_table(path, "again")
        assert priorities(again) == priorities(table)


def test_compressed(tmp_path):
    path = tmp_path / "replay.rlvs"
    with relive.open() as store:
        table = prioritized(store)
        plain = table.save(path)
        try:
            packed = table.save(path, compress=3)
        except relive.Unsupported:
            pytest.skip("no libzstd here")
        assert packed.bytes < plain.bytes
        assert priorities(store.load_table(path, "again")) == priorities(table)


def test_while_others_use_the_table(tmp_path):
    path = tmp_path / "replay.rlvs"
    with relive.open() as store:
        table = prioritized(store, n=4000)
        ended = threading.Event()

        def append():
            first = 4000
            while not ended.is_set():
                fill(table, 64, first)
                first += 64

        thread = threading.Thread(target=append)
        thread.start()
        try:
            for _ in range(3):
                table.save(path)
                again = store.load_table(path, "again", replace=True)
                batch = again.sample(512)
                np.testing.assert_array_equal(batch.obs[:, 0], batch.step)
                again.close()
        finally:
            ended.set()
            thread.join()


def test_replace_leaves_the_earlier_one_in_use(tmp_path):
    path = tmp_path / "replay.rlvs"
    with relive.open() as store:
        table = prioritized(store)
        table.save(path)
        fill(table, 64, 5000)
        items = len(table)
        with table.sampler(32) as sampler:
            path.write_bytes(path.read_bytes()[:-100])
            with pytest.raises(relive.ProtocolError):
                store.load_table(path, replace=True)
            next(sampler)
            assert store.tables() == [table.name] and len(store.table(table.name)) == items
            table.save(path)
            fill(table, 64, 6000)
            again = store.load_table(path, replace=True)
            with pytest.raises(relive.TableDropped):
                for _ in range(100):
                    next(sampler)
        assert len(again) == items < items + 64
        again.close()
    with relive.open(pool_bytes=12 << 20) as store:
        store.load_table(path).close()
        with pytest.raises(relive.NoSpace, match="drop it first, or add memory"):
            store.load_table(path, replace=True)
        assert len(store.table(table.name)) == items


def test_mistakes(tmp_path):
    path = tmp_path / "replay.rlvs"
    with relive.open() as store:
        table = prioritized(store)
        table.save(path)
        with pytest.raises(relive.AlreadyExists, match="give another opts.name"):
            store.load_table(path)
        with pytest.raises(relive.InvalidArgument, match="save: path"):
            table.save(3)
        with pytest.raises(relive.InvalidArgument, match="compress"):
            table.save(path, compress=20)
        with pytest.raises(relive.NotFound):
            table.save(tmp_path / "nowhere" / "replay.rlvs")
        with pytest.raises(relive.ProtocolError, match="not a saved table"):
            store.load_table(__file__, "other")
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(relive.ProtocolError, match="damaged or cut"):
            store.load_table(path, "other")
        assert store.tables() == ["replay"]


def test_an_interrupt_ends_it(tmp_path, monkeypatch):
    from relive import _saving

    path = tmp_path / "replay.rlvs"
    with relive.open() as store:
        table = prioritized(store)
        table.save(path)
        before = path.read_bytes()

        def interrupt(self, done, total):
            raise KeyboardInterrupt

        monkeypatch.setattr(_saving._Bar, "__call__", interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.save(path)
        assert path.read_bytes() == before
        with pytest.raises(KeyboardInterrupt):
            store.load_table(path, "other")
        assert store.tables() == ["replay"] and len(table.sample(8).key) == 8
