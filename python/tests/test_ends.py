"""Ends of episodes: when their last steps are drawable, and which of them is no item."""

import numpy as np
import pytest

import relive
from conftest import SIGNATURE, step_values


@pytest.mark.parametrize("n_step", [1, 3, 5])
@pytest.mark.parametrize("how", ["append", "append a dict", "extend", "final_obs", "final", "vector",
                                 "same_step", "next_step"])
def test_append__a_terminated_episode_is_drawable_at_once(make_table, how, n_step):
    """An episode with its last row: the final observation's row if one is given."""
    table = make_table(views=[relive.View(n_step=n_step)], max_writers=1)
    is_vector = how in ("vector", "same_step", "next_step")
    mode = "disabled" if how == "vector" else how if is_vector else None
    with table.writer(1 if is_vector else None, autoreset=mode) as writer:
        for episode in range(1, 4):
            for i in range(6):
                values = step_values(6 * episode + i, terminated=i == 5)
                if how == "extend":
                    continue
                if how == "final":
                    values["final"] = False
                if is_vector:
                    values = {name: np.asarray(value)[None] for name, value in values.items()}
                if how in ("final_obs", "same_step") and i == 5:
                    values["final_obs"] = np.full((1, 3)[not is_vector:], 99)
                if how == "append a dict":
                    writer.append(values)
                else:
                    writer.append(**values)
            if how == "extend":
                rows = [step_values(6 * episode + i) for i in range(6)]
                writer.extend({name: np.array([row[name] for row in rows]) for name in rows[0]},
                              terminated=[False] * 5 + [True])
            if how == "final":
                writer.append(**step_values(99), final=True)
            if how == "next_step":
                writer.append(**{name: np.asarray(value)[None]
                                 for name, value in step_values(99).items()})
            assert len(table) == 6 * episode
    batch = table.sample(256, n_step=n_step, gamma=0.5)
    last = batch.id % 6 == 5
    assert (batch.discount[last] == 0).all() and last.any()
    np.testing.assert_array_equal(batch.steps, np.minimum(6 - batch.id % 6, n_step))
    if how in ("final_obs", "final", "same_step", "next_step"):
        assert (batch.next_obs[last] == 99).all()


def test_append__a_limiter_that_refuses_the_last_items_does_not_hold_the_step(make_table):
    table = make_table(views=[relive.View(
        n_step=3, selector="fifo", max_times_sampled=1, rate_limiter=relive.RateLimiter.queue(4))])
    seen = []
    with table.writer(timeout=0) as writer:
        for i in range(6):
            writer.append(**step_values(i, terminated=i == 5))
        assert writer.stats()["steps"] == 6 and len(table) == 4
        seen += table.sample(4).id.tolist()
        writer.append(**step_values(6))
        writer.append(**step_values(7))
        seen += table.sample(2, timeout=0).id.tolist()
    assert seen == list(range(6))


@pytest.mark.parametrize("how", ["append", "extend", "same_step", "close", "end_episode"])
def test_append__a_truncation_without_a_final_observation_is_counted(make_table, how):
    table = make_table(max_writers=2)
    writer = table.writer(2 if how == "same_step" else None,
                          autoreset="same_step" if how == "same_step" else None)
    with pytest.warns(UserWarning, match="final_obs") as warned:
        for i in range(9):
            values = step_values(i, truncated=i % 3 == 2)
            if how == "extend":
                writer.extend({name: np.asarray(value)[None] for name, value in values.items()})
            elif how == "same_step":
                writer.append({name: np.repeat(np.asarray(value)[None], 2, 0)
                               for name, value in values.items()})
            else:
                writer.append(values)
        if how == "end_episode":
            writer.end_episode()
            assert writer.stats()["truncated_lost"] == 3
            writer.end_episode()
        lost = writer.stats()["truncated_lost"]
        writer.close()
    assert lost == {"same_step": 4, "end_episode": 3}.get(how, 2)
    assert len(warned) == 1 and len(table) == (12 if how == "same_step" else 6)


def test_append__what_is_known_of_a_truncation_is_not_counted(make_table, recwarn):
    table = make_table({**SIGNATURE, "after": relive.Column("after", (), "float32", "plain")})
    with table.writer() as writer:
        for how in ("final_obs", "final", "end_episode", "terminated"):
            values = step_values(0, after=0, truncated=True, terminated=how == "terminated")
            if how == "final_obs":
                values["final_obs"] = [1, 1, 1]
            writer.append(values)
            if how == "final":
                writer.append(step_values(1, after=0, final=True))
            if how == "end_episode":
                writer.end_episode(obs=[1, 1, 1])
        writer.append(step_values(1, after=0))
        assert writer.stats()["truncated_lost"] == 0
    stored = make_table({"state": "float32", "next_obs": "float32", "reward": "float32"})
    with stored.writer() as writer:
        for i in range(6):
            writer.append(state=i, next_obs=i + 1, reward=0, truncated=i % 2)
        assert writer.stats()["truncated_lost"] == 0 and len(stored) == 6
    assert not recwarn.list
