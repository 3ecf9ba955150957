"""n-step returns, frame stacks and sequences of recorded trajectories against the oracle."""

import numpy as np
import pytest

import relive
from relive import sequence
from support.oracle import Oracle


def append_rows(table, trace, rows, by):
    """The recording's rows with their numbers, one by one or in runs."""
    ends = trace[:rows]
    assert ends.terminated.any() and ends.truncated.any() and ends.final.sum() >= 2
    with table.writer() as writer:
        for at in range(0, rows, by):
            to = min(rows, at + by)
            values = {name: column[at:to] for name, column in trace.columns.items()}
            writer.extend(**values, id=np.arange(at, to), terminated=trace.terminated[at:to],
                          truncated=trace.truncated[at:to], final=trace.final[at:to],
                          td_error=trace.priority[at:to])


def columns_of(trace):
    signature = {name: (column.shape[1:], column.dtype) for name, column in trace.columns.items()}
    return {**signature, "id": "uint64"}


@pytest.mark.parametrize("layout", ["dense", "window"])
@pytest.mark.parametrize("stack,n_step", [(1, 1), (1, 3), (4, 1), (3, 2), (2, 5)])
def test_sample__cartpole_is_as_the_oracle_says(store, cartpole, stack, n_step, layout):
    rows = 2000
    table = store.create_table("t", columns_of(cartpole), 10_000,
                               views=[relive.View(stack=stack, n_step=n_step)])
    oracle = Oracle(stack, n_step, 0.97)
    oracle.add_trace(cartpole, rows)
    append_rows(table, cartpole, rows, 64)
    assert len(table) == len(oracle.items())
    for _ in range(4):
        batch = table.sample(256, gamma=0.97, layout=layout)
        oracle.check(batch, stacked=stack > 1)


def test_sample__shorter_return_than_the_views(store, cartpole):
    table = store.create_table("t", columns_of(cartpole), 10_000, views=[relive.View(n_step=5)])
    append_rows(table, cartpole, 2000, 500)
    for n_step in (1, 2, 5):
        oracle = Oracle(1, n_step, 0.99)
        oracle.add_trace(cartpole, 2000)
        oracle.check(table.sample(256, n_step=n_step), stacked=False)


@pytest.mark.parametrize("layout", ["dense", "window"])
def test_sample__pong_frames_are_whole(store, pong, layout):
    table = store.create_table("t", columns_of(pong), 4000,
                               views=[relive.View(stack=4, n_step=3)])
    oracle = Oracle(4, 3, 0.99)
    oracle.add_trace(pong, len(pong))
    append_rows(table, pong, len(pong), 100)
    assert len(table) == len(oracle.items())
    for _ in range(4):
        batch = table.sample(64, layout=layout)
        assert batch.obs.shape == batch.next_obs.shape == (64, 4, 84, 84)
        oracle.check(batch, stacked=True)


def test_append__one_by_one_gives_what_extend_gives(store, cartpole):
    oracle = Oracle(1, 3, 0.99)
    oracle.add_trace(cartpole, 1200)
    table = store.create_table("t", columns_of(cartpole), 2000, views=[relive.View(n_step=3)])
    with table.writer() as writer:
        for i in range(1200):
            writer.append(**{name: column[i] for name, column in cartpole.columns.items()}, id=i,
                          terminated=cartpole.terminated[i], truncated=cartpole.truncated[i],
                          final=cartpole.final[i])
    assert len(table) == len(oracle.items())
    oracle.check(table.sample(256), stacked=False)


def test_sample__draws_by_priority(store, cartpole):
    """Frequencies follow (|td| + eps)^alpha; probabilities and weights follow from them."""
    table = store.create_table("t", columns_of(cartpole), 10_000, views=[relive.View(alpha=0.7)])
    append_rows(table, cartpole, 3000, 64)
    oracle = Oracle(1, 1, 0.99)
    oracle.add_trace(cartpole, 3000)
    items = oracle.items()
    weights = (np.abs(cartpole.priority[items].astype(np.float64)) + 1e-6)**0.7
    share = dict(zip(items, weights / weights.sum()))
    seen = dict.fromkeys(items, 0)
    for _ in range(400):
        batch = table.sample(256, beta=0.5)
        ids = batch.id.tolist()
        np.testing.assert_allclose(batch.probability, [share[i] for i in ids], rtol=1e-3)
        want = (len(items) * batch.probability)**-0.5
        np.testing.assert_allclose(batch.weight, want / want.max(), rtol=1e-4)
        for i in ids:
            seen[i] += 1
    n = 400 * 256
    large = [i for i in items if n * share[i] > 20]
    chi = sum((seen[i] - n * share[i])**2 / (n * share[i]) for i in large)
    assert chi < len(large) + 6 * np.sqrt(2 * len(large))  # stratified: less than independent


@pytest.mark.parametrize("stack,period", [(1, 4), (3, 2), (4, 4), (20, 10)])
def test_sample__period_takes_every_nth_step_and_the_last(store, cartpole, stack, period):
    view = relive.View(stack=stack, period=period, selector="uniform")
    table = store.create_table("t", columns_of(cartpole), 10_000, views=[view])
    append_rows(table, cartpole, 2000, 64)
    oracle = Oracle(stack, 1, 0.99, period)
    oracle.add_trace(cartpole, 2000)
    items = set(oracle.items())
    assert {i for i in items if oracle.rows[i].terminated} == set(
        np.flatnonzero(cartpole.terminated[:2000]))
    assert len(table) == len(items)
    for _ in range(40):
        batch = table.sample(512)
        items.difference_update(batch.id.tolist())
    assert not items
    oracle.check(batch, stacked=stack > 1)


def test_views__share_the_rows(store, cartpole):
    views = [relive.View(), relive.View(stack=4, selector="uniform"),
             relive.View(n_step=5, alpha=1.0)]
    table = store.create_table("t", columns_of(cartpole), 10_000, views=views)
    append_rows(table, cartpole, 2000, 64)
    for v, view in enumerate(views):
        oracle = Oracle(view.stack, view.n_step, 0.99)
        oracle.add_trace(cartpole, 2000)
        assert table.info().views[v].items == len(oracle.items())
        oracle.check(table.sample(128, view=v), stacked=view.stack > 1)


@pytest.mark.parametrize("layout", ["dense", "window"])
@pytest.mark.parametrize("length", [2, 20])
def test_sequence__of_a_recording(store, cartpole, length, layout):
    """Each column, against the rows of the episode up to the last step of each sequence."""
    rows = cartpole[:1800]
    table = store.create_table("t", sequence.signature(columns_of(cartpole)), 10_000,
                               views=[relive.View(stack=length)])
    begins, steps = np.zeros(len(rows), int), np.flatnonzero(~rows.final)
    with sequence.Writer(table) as writer:
        for i in range(len(rows)):
            begins[i] = i if i == 0 or rows.final[i - 1] else begins[i - 1]
            if not rows.final[i]:
                ends = rows.terminated[i] or rows.truncated[i]
                writer.append(**{name: column[i] for name, column in rows.columns.items()}, id=i,
                              terminated=rows.terminated[i], truncated=rows.truncated[i],
                              final_obs=rows.columns["obs"][i + 1] if ends else None)
    assert len(table) == len(steps) - 1  # the last one, of which nothing has followed
    seen = set()
    for _ in range(12):
        batch = sequence.of(table.sample(1024, gamma=0.97, layout=layout))
        last = batch.id[:, -1].astype(int)
        want = last[:, None] + np.arange(1 - length, 1)
        begin = begins[last][:, None]
        np.testing.assert_array_equal(batch.mask, want >= begin)
        np.testing.assert_array_equal(batch.id, np.maximum(want, begin))
        for name, column in rows.columns.items():
            np.testing.assert_array_equal(batch[name], column[np.maximum(want, begin)])
        np.testing.assert_array_equal(batch.next_obs,
                                      rows.columns["obs"][np.maximum(want + 1, begin)])
        np.testing.assert_allclose(batch.discount, np.where(rows.terminated[last], 0, 0.97))
        seen.update(last.tolist())
    assert rows.terminated[sorted(seen)].any() and rows.truncated[sorted(seen)].any()
