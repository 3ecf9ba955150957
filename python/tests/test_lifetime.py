"""Lifetimes: batches, samplers, tables and stores keep each other alive; nothing leaks."""

import gc
import os
import weakref

import numpy as np
import pytest

import relive
from conftest import SIGNATURE, step_values

measured = pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""),
                              reason="the sanitizer keeps what was freed")


def resident_kib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def filled_table(store, name="t", n=200):
    table = store.create_table(name, SIGNATURE, 4096)
    with table.writer() as writer:
        for i in range(n):
            writer.append(**step_values(i))
    return table


def test_arrays__outlive_everything():
    store = relive.open("embed:")
    table = filled_table(store)
    view = table.sample(64).obs[10:20, 1]
    ids = table.sample(64).id
    copy, id_copy = view.copy(), ids.copy()
    del table, store
    gc.collect()
    junk = [np.full(4096, 255, np.uint8) for _ in range(100)]
    np.testing.assert_array_equal(view, copy)
    np.testing.assert_array_equal(ids, id_copy)
    del junk


def test_handles__keep_their_store_open():
    writer = filled_table(relive.open("embed:")).writer()
    gc.collect()
    for i in range(100):
        writer.append(**step_values(i))
    writer.close()


def test_close__what_was_dropped_unclosed(tmp_path):
    uri = "embed:%s" % (tmp_path / "store")
    for _ in range(3):  # a file has one opener: the second open fails if the first is not gone
        store = relive.open(uri, pool_bytes=64 << 20)
        table = store.create_table("t", SIGNATURE, 4096)
        writer, sampler = table.writer(), table.sampler(8)
        writer.append(**step_values(0))
        del writer, sampler, table, store
        gc.collect()


def test_close__in_any_order():
    store = relive.open("embed:")
    table = filled_table(store)
    sampler, writer = table.sampler(8), table.writer()
    batch = next(sampler)
    store.close()
    for thing in (writer, sampler, table, store):
        thing.close()
    assert len(batch.obs) == 8


def test_table__is_gone_with_its_last_reference(store):
    table = filled_table(store)
    table.sample(8)
    gone = weakref.ref(table)
    del table
    assert gone() is None


def test_sampler__goes_with_who_gave_its_memory(store):
    class Learner:
        def __init__(self, table):
            self.sampler = table.sampler(8, allocator=self.allocate)

        def allocate(self, nbytes):
            memory = np.zeros(nbytes + 64, np.uint8)
            at = -memory.ctypes.data % 64
            return memory[at:at + nbytes]

    learner = Learner(filled_table(store))
    assert len(next(learner.sampler)) == 8
    gone = weakref.ref(learner), weakref.ref(learner.sampler)
    del learner
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


@measured
def test_sample__no_leak_in_1e5_batches(store):
    table = filled_table(store)

    def loop(n):
        for _ in range(n):
            batch = table.sample(4)
            batch.obs, batch.next_obs, batch.weight
            table.update_priorities(batch.key, td_error=batch.reward)

    loop(2000)
    gc.collect()
    before, objects = resident_kib(), len(gc.get_objects())
    loop(100_000)
    gc.collect()
    assert len(gc.get_objects()) < objects + 100
    assert resident_kib() < before + 3000


@measured
def test_append__no_leak(store):
    table = store.create_table("t", {**SIGNATURE, "extra": ((2,), "float16")}, 4096)
    writer = table.writer()

    def loop(n):
        for i in range(n):
            writer.append(**step_values(i), extra=[1, 2])
            try:
                writer.append(**step_values(i), extra=[1])
            except relive.InvalidArgument:
                pass

    loop(500)
    gc.collect()
    before = resident_kib()
    loop(20_000)
    gc.collect()
    assert resident_kib() < before + 3000


@measured
def test_open_and_close__no_leak():
    def loop(n):
        for _ in range(n):
            with relive.open("embed:", pool_bytes=16 << 20) as store:
                table = filled_table(store, n=3)
                with table.sampler(8, prefetch=1) as sampler:
                    next(sampler).obs

    loop(20)
    gc.collect()
    before = resident_kib()
    loop(150)
    gc.collect()
    assert resident_kib() < before + 2048
