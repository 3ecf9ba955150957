"""Sequences against an oracle: lists of all steps of each episode."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relive
from relive import sequence

SPEC = {"obs": ((2,), "float32"), "action": "int64", "reward": "float64"}


def values_of(number, *more):
    """Values of numbers of steps."""
    number = np.asarray(number)
    return dict(obs=np.stack([number, -number], -1).astype(np.float32), action=number,
                reward=number / 4, *more)


class Oracle:
    """Episodes as lists of step numbers, and how each ended."""

    def __init__(self, length):
        self.length = length
        self.where = {}  # number -> (episode, step)

    def add(self, numbers):
        for step, number in enumerate(numbers):
            self.where[number] = (numbers, step)

    def sequence(self, number):
        numbers, step = self.where[number]
        steps = range(step - self.length + 1, step + 1)
        return [numbers[max(at, 0)] for at in steps], [at >= 0 for at in steps]

    def check(self, batch, terminated, final):
        for i, number in enumerate(batch.action[:, -1].tolist()):
            want, real = self.sequence(number)
            for name, value in values_of(want).items():
                np.testing.assert_array_equal(batch[name][i], value, err_msg=name)
            np.testing.assert_array_equal(batch.mask[i], real)
            numbers, step = self.where[number]
            ended = step == len(numbers) - 1 and number in terminated
            assert (batch.discount[i] == 0) == ended
            following = numbers[step + 1] if step + 1 < len(numbers) else final.get(number)
            if following is not None and not ended:
                np.testing.assert_array_equal(batch.next_obs[i, -1], [following, -following])


@settings(max_examples=30, deadline=None)
@given(length=st.integers(2, 9), episodes=st.lists(
    st.tuples(st.integers(1, 25), st.booleans(), st.booleans()), min_size=1, max_size=12),
    layout=st.sampled_from(["dense", "window"]))
def test_sequences__are_as_the_oracle_says(length, episodes, layout):
    """Episodes that end in termination, or by truncation with or without a final observation."""
    oracle, terminated, final, items = Oracle(length), set(), {}, 0
    with relive.open("embed:", pages="small") as store:
        table = store.create_table("t", sequence.signature(SPEC), 4096, max_writers=1,
                                   views=[relive.View(stack=length, selector="uniform")])
        with sequence.Writer(table) as writer:
            for e, (n, ends, known) in enumerate(episodes):
                numbers = list(range(100 * e, 100 * e + n))
                oracle.add(numbers)
                for number in numbers[:-1]:
                    writer.append(**values_of(number))
                after = {"final_obs": values_of(100 * e + n)["obs"]} if known else {}
                writer.append(**values_of(numbers[-1]), terminated=ends, truncated=not ends,
                              **after)
                items += n if ends or known else n - 1
                if ends:
                    terminated.add(numbers[-1])
                if known:
                    final[numbers[-1]] = 100 * e + n
        assert len(table) == items
        if items:
            oracle.check(sequence.of(table.sample(200, layout=layout)), terminated, final)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_sequences__of_vectors(store, autoreset):
    """Environments whose episodes end at different times, reset in each of gymnasium's ways."""
    envs, length = 3, 4
    table = store.create_table("t", sequence.signature(SPEC), 4096, max_writers=envs,
                               views=[relive.View(stack=length)])
    oracle, rng = Oracle(length), np.random.default_rng(1)
    number, current = np.arange(envs) * 10_000, [[] for _ in range(envs)]
    terminated, final, resetting = set(), {}, np.zeros(envs, bool)
    with sequence.Writer(table, envs, autoreset=autoreset) as writer:
        for _ in range(100):
            ended = (rng.random(envs) < 0.2) & ~resetting
            after = {"final_obs": values_of(number + 1)["obs"]} if autoreset != "next_step" else {}
            writer.append(**values_of(number), terminated=ended, **after)
            for e in np.flatnonzero(~resetting):
                current[e].append(int(number[e]))
            for e in np.flatnonzero(ended):
                oracle.add(current[e])
                terminated.add(current[e][-1])
                final[current[e][-1]] = current[e][-1] + 1
                current[e] = []
            resets = resetting if autoreset == "next_step" else ended
            number = number + np.where(resets, 100, 1)
            resetting = ended & (autoreset == "next_step")
        for episode in current:
            oracle.add(episode)
    for _ in range(4):
        oracle.check(sequence.of(table.sample(128)), terminated, final)


def test_end_episode__begins_again(store):
    table = store.create_table("t", sequence.signature(SPEC), 1000, views=[relive.View(stack=3)])
    with sequence.Writer(table) as writer:
        for number in (1, 2):
            writer.append(**values_of(number))
        writer.end_episode(obs=values_of(3)["obs"])
        writer.append(**values_of(10), terminated=True)
    batch = sequence.of(table.sample(100))
    rows = {row[-1]: (row, mask) for row, mask in zip(batch.action.tolist(), batch.mask.tolist())}
    assert rows == {1: ([1, 1, 1], [False, False, True]), 2: ([1, 1, 2], [False, True, True]),
                    10: ([10, 10, 10], [False, False, True])}


def test_writer__takes_dicts_and_counts(store):
    table = store.create_table("t", sequence.signature(SPEC), 1000, views=[relive.View(stack=3)])
    with sequence.Writer(table) as writer:
        writer.append(values_of(1))
        writer.append({**values_of(0), "terminated": False}, **values_of(2))
        writer.end_episode({"obs": values_of(3)["obs"]})
        assert writer.stats()["steps"] == 3  # the final one, too
    batch = sequence.of(table.sample(100))
    assert {tuple(row) for row in batch.action.tolist()} == {(1, 1, 1), (1, 1, 2)}


def test_batch__is_the_batch_with_a_mask(store):
    table = store.create_table("t", sequence.signature({"obs": {"a": "float32", "b": "uint8"}}),
                               1000, views=[relive.View(stack=3)])
    with sequence.Writer(table) as writer:
        for i in range(10):
            writer.append(obs={"a": i, "b": i}, terminated=i == 9)
    with sequence.of(table.sample(20)) as batch:
        assert len(batch) == batch.n == 20
        assert batch["mask"].shape == batch.obs["a"].shape == (20, 3)
        table.update_priorities(batch.key, td_error=np.ones(20))
        with pytest.raises(AttributeError):
            batch.nothing


def test_sequences__refuse_what_makes_no_sense(store):
    for spec in ({"obs": "float32", "step": "uint32"}, {"obs": "float32", "next_obs": "float32"}):
        with pytest.raises(relive.InvalidArgument, match="leave it out"):
            sequence.signature(spec)
    plain = store.create_table("plain", SPEC, 1000)
    short = store.create_table("short", sequence.signature(SPEC), 1000)
    for table, text in ((plain, "sequence.signature"), (short, "stack 1")):
        with table.writer() if table is plain else sequence.Writer(table) as writer:
            writer.append(**values_of(1), terminated=True)
        with pytest.raises(relive.InvalidArgument, match=text):
            sequence.of(table.sample(1))


def ends_of(table, **options):
    """Number of the last step of each sequence that is drawn."""
    return set(table.sample(512, **options).action[:, -1].tolist())


@pytest.mark.parametrize("how,last", [("terminated", 104), ("final", 104), ("cut", 103)])
def test_period__an_episode_ends_with_its_last_step(store, how, last):
    """40/20, 105 steps: 0-39, 20-59, 40-79, 60-99, and one shifted back to end with the episode."""
    table = store.create_table("t", sequence.signature(SPEC), 4096,
                               views=[relive.View(stack=40, period=20, selector="uniform")])
    with sequence.Writer(table) as writer:
        for number in range(104):
            writer.append(**values_of(number))
        writer.append(**values_of(104), terminated=how == "terminated",
                      truncated=how != "terminated",
                      final_obs=values_of(105)["obs"] if how == "final" else None)
    assert ends_of(table) == {39, 59, 79, 99, last}
    batch = sequence.of(table.sample(64))
    assert batch.mask.all()
    np.testing.assert_array_equal(np.diff(batch.action, axis=1), 1)
    np.testing.assert_array_equal(batch.discount == 0, (batch.action[:, -1] == 104)
                                  & (how == "terminated"))


@pytest.mark.parametrize("length", [1, 3, 7, 8, 9, 12, 13, 20])
def test_period__short_episodes_are_one_padded_sequence(store, length):
    """8/4: episodes of all lengths, one after the other."""
    table = store.create_table("t", sequence.signature(SPEC), 4096,
                               views=[relive.View(stack=8, period=4, selector="uniform")])
    with sequence.Writer(table) as writer:
        for episode in range(3):
            for step in range(length):
                writer.append(**values_of(100 * episode + step), terminated=step == length - 1)
    want = {*range(7, length, 4), length - 1}
    assert ends_of(table) == {100 * episode + end for episode in range(3) for end in want}
    batch = sequence.of(table.sample(128))
    np.testing.assert_array_equal(batch.mask.sum(1), min(length, 8))


def test_period__rewards_at_the_end_are_drawn(store):
    """R2D2's 120/40, a reward with each episode's last step: as many sequences hold one as end."""
    table = store.create_table("t", sequence.signature({"obs": "float32", "reward": "float32"}),
                               60_000, views=[relive.View(stack=120, period=40)])
    rng, episodes = np.random.default_rng(1), 40
    with sequence.Writer(table) as writer:
        for length in rng.integers(200, 1000, episodes):
            for step in range(length):
                ends = step == length - 1
                writer.append(obs=step, reward=float(ends), terminated=ends)
    rewarded = sum((table.sample(256).reward.any(1)).sum() for _ in range(20))
    share = episodes / len(table)
    assert abs(rewarded / 5120 - share) < 0.01 and share > 0.05
