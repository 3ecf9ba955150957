"""Updates of priorities."""

import numpy as np
import pytest

import relive
from conftest import step_values


def priorities_by_id(table, view=0):
    found = {}
    for _ in range(60):
        batch = table.sample(256, view=view)
        found.update(zip(batch.id.tolist(), batch.priority.tolist()))
    return found


def test_update__absolute_td_errors(filled):
    batch = filled.sample(64)
    last = dict(zip(batch.id.tolist(), np.linspace(-3, 3, 64).astype("f4").tolist()))
    result = filled.update_priorities(batch.key, td_error=np.linspace(-3, 3, 64))
    assert result.stale == 0 and result.updated == len(last)
    found = priorities_by_id(filled)
    for row, td in last.items():
        if row in found:
            assert found[row] == pytest.approx((abs(td) + 1e-6)**0.6, rel=1e-3)


def test_update__ready_priorities(filled):
    batch = filled.sample(64)
    last = dict(zip(batch.id.tolist(), np.linspace(1, 3, 64).tolist()))
    filled.update_priorities(batch.key, priorities=np.linspace(1, 3, 64, dtype="f4"))
    found = priorities_by_id(filled)
    for row, priority in last.items():
        assert found[row] == pytest.approx(priority, rel=1e-3)


@pytest.mark.parametrize("convert", [
    lambda key: key, lambda key: key.tolist(), lambda key: key.view(np.int64),
    lambda key: np.repeat(key, 2)[::2],
])
def test_update__keys_of_any_kind(filled, convert):
    batch = filled.sample(32)
    values = [1.0] * 32
    result = filled.update_priorities(convert(batch.key), td_error=values)
    assert (result.updated, result.stale, result.clamped) == (len(set(batch.key.tolist())), 0, 0)


@pytest.mark.parametrize("values", [
    dict(priorities=[-1.0] * 8), dict(priorities=[float("nan")] * 8), dict(),
    dict(td_error=[float("nan")] * 8), dict(td_error=[float("inf")] * 8), dict(td_error=[1.0] * 7),
    dict(td_error=[1.0] * 8, priorities=[1.0] * 8), dict(td_error=["a"] * 8),
])
def test_update__refuses_and_changes_nothing(filled, values):
    batch = filled.sample(8)
    before = filled.info().views[0]
    with pytest.raises(relive.InvalidArgument):
        filled.update_priorities(batch.key, **values)
    assert filled.info().views[0].priority_sum == before.priority_sum


def test_update__foreign_keys_are_refused(filled, make_table):
    with pytest.raises(relive.InvalidArgument, match="keys"):
        filled.update_priorities(np.arange(8, dtype=np.uint64), td_error=np.ones(8))
    with pytest.raises(relive.InvalidArgument, match="not prioritized"):
        table = make_table(views=[relive.View(selector="uniform")])
        with table.writer() as writer:
            for i in range(8):
                writer.append(**step_values(i))
        table.update_priorities(table.sample(1).key, td_error=[1.0])


def test_update__stale_keys_drop_and_are_counted(make_table):
    table = make_table(capacity=256)
    with table.writer() as writer:
        for i in range(200):
            writer.append(**step_values(i))
        old = table.sample(32).copy()
        for i in range(2000):
            writer.append(**step_values(i))
        result = table.update_priorities(old.key, td_error=np.ones(32))
        assert result.updated == 0 and result.stale == len(set(old.key.tolist()))
        with pytest.raises(relive.StaleKey) as caught:
            table.update_priorities(old.key, td_error=np.ones(32), strict=True)
        assert caught.value.result == result
    assert table.verify().problems == 0


def test_update__many_keys_at_once(filled):
    keys = np.unique(np.concatenate([filled.sample(256).copy().key for _ in range(40)]))
    keys = np.tile(keys, 8)
    result = filled.update_priorities(keys, td_error=np.ones(len(keys), "f4"))
    assert result.stale == 0 and result.updated >= 400
