"""Options of tables and samplers: what each of them does."""

import numpy as np
import pytest

import relive
from conftest import SIGNATURE, step_values

# -------- of tables --------


def test_block__is_the_rows_of_a_claim(make_table):
    table = make_table(block=128, max_writers=1)
    assert table.info().block == 128
    with table.writer() as writer:
        for i in range(129):
            writer.append(**step_values(i))
        assert writer.stats()["blocks_claimed"] == 2


def test_max_clients__counts_what_is_open(make_table):
    table = make_table(max_clients=2)
    assert table.info().max_clients == 2
    writer, sampler = table.writer(), table.sampler(8)
    for another in (table.writer, table.sampler):
        with pytest.raises(relive.NoSpace, match="client slots"):
            another()
    writer.close()
    table.sampler(8).close()
    sampler.close()


@pytest.mark.parametrize("row_crc,torn", [(True, True), (None, True), (False, False)])
def test_row_crc__finds_a_row_of_a_file_that_changed(tmp_path, row_crc, torn):
    first = 0x1234567890abcd00
    uri = "embed:%s" % (tmp_path / "pool")
    with relive.open(uri, pool_bytes=1 << 24) as store:
        table = store.create_table("t", SIGNATURE, 1000, row_crc=row_crc)
        with table.writer() as writer:
            for i in range(20):
                writer.append(**{**step_values(i), "id": first + i})
    pool = (tmp_path / "pool").read_bytes()
    row = (first + 5).to_bytes(8, "little")
    assert pool.count(row) == 1
    with open(tmp_path / "pool", "r+b") as file:
        file.seek(pool.find(row))
        file.write(b"\xff")
    with relive.open(uri, pool_bytes=1 << 24) as store:
        assert (store.table("t").verify().wrong_rows > 0) == torn


# -------- of views --------


def append_versions(table, *rows):
    """Items of (policy version, number of steps)."""
    with table.writer() as writer:
        for version, n in rows:
            for i in range(n):
                writer.append(**step_values(i), policy_version=version)


def test_max_staleness__leaves_old_policies_out(make_table):
    """A sampler knows the newest policy version from its first batch on."""
    table = make_table(views=[relive.View(max_staleness=2)])
    append_versions(table, *((version, 50) for version in range(1, 7)))
    sampler = table.sampler(128, prefetch=0, seed=1)
    assert set(next(sampler).policy_version) == {1, 2, 3, 4, 5, 6}
    for _ in range(5):
        assert set(next(sampler).policy_version) == {4, 5, 6}
    assert sampler.stats()["redraws"] > 0


# -------- of samplers --------


@pytest.mark.parametrize("short_batch", [False, True])
def test_short_batch__gives_what_there_is(make_table, short_batch):
    """Too few items are recent enough to fill a batch."""
    table = make_table(views=[relive.View(max_staleness=1, selector="uniform")])
    append_versions(table, (1, 490), (9, 11))
    sampler = table.sampler(256, prefetch=0, seed=1, short_batch=short_batch)
    assert len(sampler.sample()) == 256
    if short_batch:
        batch = sampler.sample(timeout=10)
        assert 0 < len(batch) == len(batch.obs) < 256
        assert set(batch.policy_version) == {9}
    else:
        with pytest.raises(relive.Timeout):
            sampler.sample(timeout=0.1)


def test_independent__draws_are_of_no_strata(filled):
    """500 equal items, drawn in 100 strata of 5 each, or independently."""
    def most_of_a_stratum(**options):
        with filled.sampler(100, prefetch=0, seed=3, **options) as sampler:
            return max(np.bincount(next(sampler).id.astype(int) // 5).max() for _ in range(10))

    assert most_of_a_stratum() == 1
    assert most_of_a_stratum(independent=True) > 1


def test_defer_updates__is_accepted_and_changes_nothing(filled):
    def total():
        return filled.info().views[0].priority_sum

    with filled.sampler(64, prefetch=0, defer_updates=4) as sampler:
        keys, before = np.unique(next(sampler).key), total()
        sampler.update_priorities(keys, priorities=np.full(len(keys), 2.0))
        assert total() == pytest.approx(before + len(keys))
        sampler.flush()
        assert total() == pytest.approx(before + len(keys))
    assert filled.verify().problems == 0
