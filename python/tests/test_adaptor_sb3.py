"""Stable-Baselines3's own buffers and relive.adaptors.sb3 give the same transitions."""

import numpy as np
import pytest

import relive

pytest.importorskip("torch", reason="no torch: make check-adaptors has Stable-Baselines3")
pytest.importorskip("stable_baselines3",
                    reason="no Stable-Baselines3: make check-adaptors compares with it")

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from relive.adaptors.sb3 import ReliveReplayBuffer

BOX = spaces.Box(-1e6, 1e6, (2,), np.float32)
ACTIONS = spaces.Discrete(9)


@pytest.fixture
def make_ours():
    made = []

    def make(obs_space=BOX, n_envs=1, size=4000, **options):
        made.append(ReliveReplayBuffer(size, obs_space, ACTIONS, "cpu", n_envs, **options))
        return made[-1]

    yield make
    for buffer in made:
        buffer.store.close()


def observation(space, number):
    """Observations made of step numbers, one for each environment."""
    if isinstance(space, spaces.Dict):
        return {key: observation(part, number) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Discrete):
        return number.astype(space.dtype)
    return np.broadcast_to(number[(...,) + (None,) * len(space.shape)],
                           (len(number), *space.shape)).astype(space.dtype)


def play(buffers, space, n_envs, steps, seed=5, gap=None):
    """The same steps into each buffer. Episodes end in one of two ways; with gap, all environments
    are reset by hand at that step."""
    rng = np.random.default_rng(seed)
    number = np.arange(n_envs) * 10_000
    for step in range(steps):
        if step == gap:
            number = number + 500
        ended = rng.random(n_envs) < 0.15
        timeout = ended & (rng.random(n_envs) < 0.5)
        values = [rng.integers(0, 9, (n_envs, 1)), rng.normal(size=n_envs).astype(np.float32)]
        infos = [{"TimeLimit.truncated": bool(late)} for late in timeout]
        for buffer in buffers:
            buffer.add(observation(space, number), observation(space, number + 1), *values,
                       ended, infos)
        number = number + np.where(ended, 100, 1)


def first_number(obs):
    if isinstance(obs, dict):
        return first_number(obs[sorted(obs)[0]])
    return obs.reshape(len(obs), -1)[:, 0].numpy().astype(int)


def transitions(buffer, rounds):
    """Samples until all is drawn: {step number: its other columns}."""
    found = {}
    for _ in range(rounds):
        sample = buffer.sample(512)
        numbers, following = first_number(sample.observations), first_number(
            sample.next_observations)
        columns = [sample.actions, sample.rewards, sample.dones]
        columns += [sample.discounts] if sample.discounts is not None else []
        rows = np.concatenate([column.numpy().reshape(512, -1) for column in columns], axis=1)
        for i, number in enumerate(numbers):
            found[number] = (following[i], *np.round(rows[i], 4).tolist())
    return found


def compare(ours, theirs, pending):
    """Both buffers hold the same items, except those that wait for later steps."""
    drawn, want = transitions(ours, 40), transitions(theirs, 40)
    assert set(drawn) <= set(want)
    assert len(want) - len(drawn) <= pending
    assert len(drawn) == ours.size()
    for number, values in drawn.items():
        assert values == pytest.approx(want[number], abs=2e-4), number


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("handle_timeout", [True, False])
def test_sample__gives_the_same_transitions(make_ours, n_envs, handle_timeout):
    ours = make_ours(n_envs=n_envs, handle_timeout_termination=handle_timeout)
    theirs = ReplayBuffer(4000, BOX, ACTIONS, "cpu", n_envs,
                          handle_timeout_termination=handle_timeout)
    play([ours, theirs], BOX, n_envs, 200)
    compare(ours, theirs, n_envs)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("n_steps", [2, 3, 5])
def test_sample__gives_the_same_returns(make_ours, n_envs, n_steps):
    ours = make_ours(n_envs=n_envs, n_steps=n_steps, gamma=0.9)
    theirs = NStepReplayBuffer(4000, BOX, ACTIONS, "cpu", n_envs, n_steps=n_steps, gamma=0.9)
    play([ours, theirs], BOX, n_envs, 200)
    compare(ours, theirs, n_envs * n_steps)


def test_sample__of_dicts(make_ours):
    space = spaces.Dict({"place": BOX, "goal": spaces.Box(0, 255, (2, 2), np.uint8),
                         "kind": spaces.Discrete(50_000)})
    ours = make_ours(space, n_envs=2)
    theirs = DictReplayBuffer(4000, space, ACTIONS, "cpu", 2)
    play([ours, theirs], space, 2, 100)
    mine, other = ours.sample(64), theirs.sample(64)
    for key in space.spaces:
        for side in ("observations", "next_observations"):
            a, b = getattr(mine, side)[key], getattr(other, side)[key]
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
    drawn = mine.observations
    np.testing.assert_array_equal(drawn["goal"].numpy()[:, 1, 1],
                                  drawn["place"].numpy()[:, 0].astype(np.int64) % 256)


@pytest.mark.parametrize("space", [spaces.Discrete(50_000), spaces.Box(0, 255, (3, 4), np.uint8),
                                   spaces.MultiBinary(3)])
def test_sample__types_are_as_theirs(make_ours, space):
    ours, theirs = make_ours(space), ReplayBuffer(4000, space, ACTIONS, "cpu")
    play([ours, theirs], space, 1, 30)
    mine, other = ours.sample(16), theirs.sample(16)
    for a, b in zip(mine[:5], other[:5]):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


def test_sample__normalizes(make_ours):
    ours = make_ours()
    play([ours], BOX, 1, 50)
    env = VecNormalize(make_vec_env("Pendulum-v1"))
    env.observation_space = BOX
    env.obs_rms.mean, env.obs_rms.var = np.full(2, 20.0), np.full(2, 400.0)
    env.ret_rms.var = np.array(9.0)
    plain, sample = ours.sample(256), ours.sample(256, env)
    rewards = dict(zip(first_number(plain.observations).tolist(), plain.rewards.flatten().tolist()))
    scaled = {round(k * 20 + 20): v for k, v in zip(sample.observations[:, 0].tolist(),
                                                    sample.rewards.flatten().tolist()) if k < 9.9}
    assert scaled
    for number, reward in scaled.items():
        if number in rewards:
            assert reward == pytest.approx(rewards[number] / 3, abs=1e-3)


def test_add__after_a_reset_by_hand_begins_an_episode(make_ours):
    """learn() resets the environments without a done; the next observation is not the next row."""
    ours, theirs = make_ours(n_envs=2), ReplayBuffer(4000, BOX, ACTIONS, "cpu", 2)
    play([ours, theirs], BOX, 2, 60, gap=30)
    compare(ours, theirs, 2)


def test_sample__before_a_transition_is_complete_says_why(make_ours):
    ours = make_ours(n_steps=3, timeout=0.05)
    play([ours], BOX, 1, 1)
    with pytest.raises(relive.Timeout, match="learning_starts"):
        ours.sample(4)


def test_buffer__keeps_the_newest(make_ours):
    """Capacity in rows: the last observation of an episode takes one."""
    ours = make_ours(size=500)
    play([ours], BOX, 1, 3000)
    assert 500 / 1.2 <= ours.size() <= 700
    assert ours.full
    assert min(transitions(ours, 10)) >= 3000 * (1 - 0.15)


def test_buffer__is_shared_by_processes(shm_store):
    """Two writers have environments of their own; both sample from all."""
    options = dict(buffer_size=4000, observation_space=BOX, action_space=ACTIONS, device="cpu",
                   store=shm_store.uri, max_writers=2)
    first, second = ReliveReplayBuffer(**options), ReliveReplayBuffer(**options)
    theirs = ReplayBuffer(4000, BOX, ACTIONS, "cpu")
    play([first, theirs], BOX, 1, 50)
    number = np.array([5_000])
    for _ in range(30):
        second.add(observation(BOX, number), observation(BOX, number + 1), np.zeros((1, 1)),
                   np.zeros(1), np.zeros(1), [{}])
        number += 1
    drawn = transitions(first, 20)
    assert set(drawn) == set(transitions(second, 20))
    assert set(range(5_000, 5_029)) < set(drawn)
    assert first.size() == second.size() == len(drawn)
    for buffer in (first, second):
        buffer.store.close()


def test_reset__empties(make_ours):
    ours = make_ours()
    play([ours], BOX, 1, 50)
    ours.reset()
    assert (ours.size(), ours.pos, ours.full) == (0, 0, False)
    play([ours], BOX, 1, 50)
    assert ours.size() >= 49


def test_buffer__refuses_what_makes_no_sense(make_ours):
    with pytest.raises(ValueError, match="stored once"):
        make_ours(optimize_memory_usage=True)
    with pytest.raises(TypeError, match="use"):
        make_ours().__getstate__()


# -------- training --------


def learns(model, steps):
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(steps)
    changed = [bool((a != b).any()) for a, b in zip(before, model.policy.parameters())]
    assert any(changed)
    assert all(bool(p.isfinite().all()) for p in model.policy.parameters())


@pytest.mark.parametrize("n_envs,n_steps", [(1, 1), (4, 3)])
def test_dqn__trains(n_envs, n_steps):
    with relive.open("embed:") as store:
        model = DQN("MlpPolicy", make_vec_env("CartPole-v1", n_envs, seed=1), learning_starts=50,
                    buffer_size=2000, replay_buffer_class=ReliveReplayBuffer, device="cpu",
                    replay_buffer_kwargs=dict(store=store, n_steps=n_steps, gamma=0.99))
        learns(model, 400)
        assert 400 - n_envs * n_steps <= model.replay_buffer.size() <= 400
        learns(model, 200)  # resets the environments
        assert len(model.replay_buffer.table) > 500
        report = model.replay_buffer.table.verify()
        assert report.problems == 0, report.first_problem


def test_sac__trains():
    with relive.open("embed:") as store:
        env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=1))
        model = SAC("MlpPolicy", env, learning_starts=50, buffer_size=2000, device="cpu",
                    replay_buffer_class=ReliveReplayBuffer,
                    replay_buffer_kwargs=dict(store=store))
        learns(model, 450)  # past the time limit of 200 steps
        sample = model.replay_buffer.sample(256)
        assert not sample.dones.any()  # Pendulum only runs out of time


def test_dqn__of_dicts_trains():
    class Pair(gym.ObservationWrapper):
        """CartPole's observation in two parts."""

        def __init__(self, env):
            super().__init__(env)
            half = spaces.Box(-np.inf, np.inf, (2,), np.float32)
            self.observation_space = spaces.Dict({"cart": half, "pole": half})

        def observation(self, observation):
            return {"cart": observation[:2], "pole": observation[2:]}

    env = make_vec_env(lambda: Pair(gym.make("CartPole-v1")), 2, seed=1)
    with relive.open("embed:") as store:
        model = DQN("MultiInputPolicy", env, learning_starts=50, buffer_size=2000, device="cpu",
                    replay_buffer_class=ReliveReplayBuffer, replay_buffer_kwargs=dict(store=store))
        learns(model, 200)


def test_save_replay_buffer__leads_to_the_same_transitions(tmp_path):
    uri = "embed:%s" % (tmp_path / "pool")
    options = dict(learning_starts=50, buffer_size=2000, device="cpu",
                   replay_buffer_class=ReliveReplayBuffer)
    model = DQN("MlpPolicy", make_vec_env("CartPole-v1", seed=1), **options,
                replay_buffer_kwargs=dict(store=uri, pool_bytes=1 << 26))
    model.learn(100)
    model.save_replay_buffer(tmp_path / "buffer")
    size = model.replay_buffer.size()
    model.replay_buffer.store.close()
    again = DQN("MlpPolicy", make_vec_env("CartPole-v1", seed=1), **options)
    again.load_replay_buffer(tmp_path / "buffer")
    assert again.replay_buffer.size() in (size, size + 1)  # closing completes what it can
    learns(again, 100)
    again.replay_buffer.store.close()
