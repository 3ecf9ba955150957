"""Recorded experience in tables: datasets of Minari, and dicts in D4RL's form."""

import io
import sys
import types

import numpy as np
import pytest

import relive
from relive import datasets


def d4rl(n=60, **more):
    """Episodes of 10 steps: the first ends in a terminal state, the next by a timeout, and so on."""
    ids = np.arange(n)
    return {"observations": np.repeat(ids[:, None], 3, 1).astype("f4"), "actions": ids * 2,
            "rewards": (ids % 7).astype("f4"), "terminals": ids % 20 == 9, "timeouts": ids % 20 == 19,
            "next_observations": np.repeat(ids[:, None], 3, 1).astype("f4") + 0.5,
            "metadata/algorithm": "none", "infos": {"qpos": np.zeros(n)}, **more}


class Minari:
    """As Minari's MinariDataset: an episode has one observation more than actions."""

    spec = types.SimpleNamespace(dataset_id="D4RL/door/human-v2")
    total_episodes, total_steps = 5, 50

    def iterate_episodes(self):
        for episode in range(5):
            ids = np.arange(11) + 10.0 * episode
            end = np.arange(10) == 9
            yield types.SimpleNamespace(
                observations={"position": ids, "pose": (np.stack([ids, -ids], 1),)}, actions=ids[:10].astype("i4"),
                rewards=ids[:10], terminations=end & (episode % 2 == 0), truncations=end & (episode == 1))


def sampled(table, n=4096):
    batch = table.sample(n, n_step=1)
    first = np.unique(batch.action, return_index=True)[1]
    return types.SimpleNamespace(**{name: batch[name][first] for name in ("action", "reward", "discount")},
                                 obs=batch.obs, next_obs=batch.next_obs, first=first)


def test_from_d4rl__has_every_step():
    table = relive.from_d4rl(d4rl(), views=relive.View(n_step=3, alpha=1.0))
    assert [(c.name, c.shape, c.dtype) for c in table.columns] == [
        ("obs", (3,), "float32"), ("action", (), "int64"), ("reward", (), "float32")]
    got = sampled(table)
    ids = np.arange(60)
    np.testing.assert_array_equal(got.action, 2 * ids)
    np.testing.assert_array_equal(got.reward, ids % 7)
    np.testing.assert_array_equal(got.discount == 0, ids % 20 == 9)
    after = np.where(ids % 20 == 19, ids + 0.5, ids + 1)
    known = ids % 20 != 9
    np.testing.assert_array_equal(got.next_obs[got.first][known, 0], after[known])
    assert len(table) == 60 == table.info().views[0].inserted and table.verify().problems == 0
    table.store.close()


def test_from_d4rl__without_next_observations_timeouts_are_lost():
    dataset = d4rl()
    del dataset["next_observations"]
    with pytest.warns(UserWarning, match="truncated step without a final observation"):
        table = relive.from_d4rl(dataset)
    np.testing.assert_array_equal(sampled(table).action, [2 * i for i in range(60) if i % 20 != 19])
    table.store.close()


def test_from_d4rl__the_last_row_ends_an_episode(store):
    table = relive.from_d4rl(d4rl(55), store, "t")
    assert len(table) == 55 and table.store is store
    assert sampled(table).next_obs.max() == 54.5


def test_extend__goes_by_the_names_of_the_columns(make_table):
    table = make_table({"next_observation": ((3,), "f8"), "observation": ((3,), "f8"), "infos2": "f4",
                        "reward": "f8", "actions": "i4"})
    dataset = d4rl(infos2=np.arange(60.0))
    assert table.extend(dataset) == 60 and table.extend(dataset) == 60
    batch = table.sample(512)
    np.testing.assert_array_equal(batch.actions, 2 * batch.infos2)
    np.testing.assert_array_equal(batch.next_observation, batch.observation + 0.5)
    assert table.info().views[0].inserted == 120


def test_extend__numbers_the_steps_of_sequences(store):
    signature = relive.sequence.signature({"obs": ((3,), "f4"), "action": "i8", "reward": "f4"})
    table = store.create_table("t", signature, 4096, views=relive.View(stack=4))
    assert table.extend(d4rl()) == 60
    batch = relive.sequence.of(table.sample(512))
    assert len(np.unique(batch.action[:, -1])) == 60
    np.testing.assert_array_equal(batch.step[:, -1], batch.action[:, -1] // 2 % 10)
    np.testing.assert_array_equal(batch.action[:, 2][batch.mask[:, 2]] + 2, batch.action[:, 3][batch.mask[:, 2]])
    timed_out = batch.action[:, -1] // 2 % 20 == 19
    np.testing.assert_array_equal(batch.next_obs[timed_out, -1, 0], batch.action[timed_out, -1] / 2 + 0.5)


def test_extend__takes_open_files(make_table, tmp_path):
    arrays = {name: value for name, value in d4rl().items() if isinstance(value, np.ndarray)}
    np.savez(tmp_path / "data.npz", **arrays)
    table = make_table({"obs": ((3,), "f4"), "action": int})
    with np.load(tmp_path / "data.npz") as file:
        assert table.extend(file) == 60
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        for name, value in arrays.items():
            file[name] = value
        file["metadata/algorithm"] = "none"
        assert table.extend(file) == 60
    assert len(table) == 120


def test_from_minari__nested_observations(store):
    table = relive.from_minari(Minari(), store)
    assert table.name == "D4RL-door-human-v2"
    assert {c.name: (c.shape, c.dtype) for c in table.columns} == {
        "obs__position": ((), "float64"), "obs__pose__0": ((2,), "float64"), "action": ((), "int32"),
        "reward": ((), "float64")}
    got = sampled(table)
    ids = np.arange(50)
    np.testing.assert_array_equal(got.action, ids)
    np.testing.assert_array_equal(got.discount == 0, ids % 20 == 9)
    known = got.first[ids % 20 != 9]
    np.testing.assert_array_equal(got.next_obs["position"][known], got.obs["position"][known] + 1)
    np.testing.assert_array_equal(got.next_obs["pose"]["0"][known, 1], -got.next_obs["position"][known])
    with pytest.raises(relive.AlreadyExists, match=r"table.extend\(dataset\)"):
        relive.from_minari(Minari(), store)


def test_from_minari__by_name_and_into_other_dtypes(monkeypatch, store):
    asked = []
    monkeypatch.setitem(sys.modules, "minari", types.SimpleNamespace(
        load_dataset=lambda name, download: asked.append((name, download)) or Minari()))
    table = relive.from_minari("D4RL/door/human-v2", store, "mine", capacity=1e3, signature={
        "obs": {"position": "f4"}, "next_obs": {"position": "f4"}, "reward": "f4"})
    assert asked == [("D4RL/door/human-v2", True)] and table.name == "mine"
    batch = table.sample(64)
    np.testing.assert_array_equal(batch.next_obs["position"], batch.obs["position"] + 1)


@pytest.mark.parametrize("dataset, told", [
    (5, "want a Minari dataset, or a dict of arrays"),
    ({"observations": np.zeros(3)}, "no rewards in"),
    (d4rl(actions=np.zeros(5)), "actions has 5 rows, rewards have 60"),
    (d4rl(timeouts=np.zeros(5)), "timeouts has 5 rows"),
    ({"rewards": np.zeros(3), "actions": np.zeros(3)}, "nothing for column obs; it has rewards, actions"),
    (d4rl(observations=np.zeros((60, 4))), "obs: shape"),
])
def test_extend__what_is_no_dataset(make_table, dataset, told):
    table = make_table({"obs": ((3,), "f4"), "action": int})
    with pytest.raises(relive.InvalidArgument, match=told):
        table.extend(dataset)
    assert len(table) == 0
    table.writer().close()


def test_from_d4rl__of_no_step_wants_a_signature(store):
    with pytest.raises(relive.InvalidArgument, match="signature="):
        relive.from_d4rl({"rewards": []}, store)
    assert store.tables() == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("seconds, stream, shown", [(1, Terminal, False), (3, io.StringIO, False), (3, Terminal, True)])
def test_progress__is_shown_on_a_terminal_after_two_seconds(monkeypatch, make_table, seconds, stream, shown):
    now = [0.0]

    def clock():
        now[0] += seconds / 6
        return now[0]

    monkeypatch.setattr(datasets.time, "monotonic", clock)
    monkeypatch.setattr(sys, "stderr", stream())
    make_table({"obs": ((3,), "f4")}).extend(d4rl())
    text = sys.stderr.getvalue()
    assert ("extend: [###" in text and "of 60 steps" in text and text.endswith("\r\x1b[K")) == shown
    assert shown or not text
