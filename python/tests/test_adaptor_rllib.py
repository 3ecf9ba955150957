"""RLlib's own episode buffers and relive.adaptors.rllib give the same transitions."""

import numpy as np
import pytest

import relive

pytest.importorskip("ray", reason="no RLlib: make check-adaptors compares with it")
pytest.importorskip("ray.rllib", reason="no RLlib: make check-adaptors compares with it")

import gymnasium as gym
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers import PrioritizedEpisodeReplayBuffer

from relive.adaptors.rllib import ReliveEpisodeReplayBuffer

OURS = "relive.adaptors.rllib.ReliveEpisodeReplayBuffer"


@pytest.fixture
def make_ours(store):
    made = []

    def make(**options):
        made.append(None)
        return ReliveEpisodeReplayBuffer(**{"capacity": 4000, "store": store,
                                            "name": "t%d" % len(made), **options})

    return make


def episode(first, n, terminated=False, truncated=False, episode_id=None):
    """An episode of steps whose observations are consecutive numbers from `first` on."""
    number = np.arange(first, first + n + 1)
    return SingleAgentEpisode(
        id_=episode_id, observations=list(np.stack([number, -number], 1).astype(np.float32)),
        actions=list(number[:-1] % 5), rewards=list((number[:-1] % 7).astype(float)),
        terminated=terminated, truncated=truncated, len_lookback_buffer=0,
        t_started=first % 1000, observation_space=gym.spaces.Box(-1e6, 1e6, (2,), np.float32),
        action_space=gym.spaces.Discrete(5))


def fill(buffers, rng, episodes=20):
    """Adds whole episodes, and episodes in parts that alternate."""
    ends = {}
    for e in range(episodes):
        first, parts = 1000 * e, int(rng.integers(1, 4))
        terminated = bool(rng.integers(2))
        at = first
        for part in range(parts):
            n, last = int(rng.integers(1, 9)), part == parts - 1
            for buffer in buffers:
                buffer.add(episode(at, n, last and terminated, last and not terminated, "e%d" % e))
            at += n
        ends[e] = (at, terminated)
    return ends


def transitions(buffer, n_step, rounds=30):
    """Samples until all is drawn: {step number: its other columns}."""
    found = {}
    for _ in range(rounds):
        for drawn in buffer.sample(num_items=128, n_step=n_step, gamma=0.9):
            before, after = drawn.get_observations([0, 1])
            found[int(before[0])] = (int(after[0]), int(drawn.get_actions(0)),
                                     round(float(drawn.get_rewards(0)), 4), drawn.is_terminated,
                                     int(drawn.get_extra_model_outputs("n_step", 0)))
    return found


@pytest.mark.parametrize("n_step", [1, 3])
def test_sample__gives_the_same_transitions(make_ours, n_step):
    ours, theirs = make_ours(n_step=n_step), PrioritizedEpisodeReplayBuffer(4000)
    ends = fill([ours, theirs], np.random.default_rng(3))
    drawn, want = transitions(ours, n_step), transitions(theirs, n_step)
    assert set(want) <= set(drawn)
    for number, values in want.items():
        assert drawn[number] == pytest.approx(values, abs=1e-3), number
    for number in set(drawn) - set(want):  # shorter returns, which RLlib does not draw
        end, terminated = ends[number // 1000]
        after, _, _, ended, steps = drawn[number]
        assert (after, ended, steps) == (end, terminated, end - number)
        assert steps < n_step


def test_sample__of_a_range_of_steps(make_ours):
    ours = make_ours(n_step=4)
    ours.add(episode(0, 100, terminated=True))
    drawn = [one for _ in range(40) for one in ours.sample(num_items=8, n_step=(2, 5))]
    steps = {int(one.get_extra_model_outputs("n_step", 0)) for one in drawn if drawn_of(one) < 90}
    assert steps == {2, 3, 4}


def test_add__an_episode_that_goes_on_is_one(make_ours):
    """A part's last step becomes an item when the next part is added."""
    ours = make_ours()
    ours.add(episode(0, 5, episode_id="a"))
    assert len(ours) == 4
    ours.add([episode(50, 5, episode_id="b"), episode(5, 3, episode_id="a")])
    assert len(ours) == 4 + 4 + 3
    found = transitions(ours, 1)
    assert found[4][0] == 5
    assert 7 not in found and 54 not in found


def test_add__too_many_that_go_on_end_the_oldest(make_ours):
    ours = make_ours(max_episodes=2)
    for e in range(4):
        ours.add(episode(100 * e, 5, episode_id="e%d" % e))
    found = transitions(ours, 1)
    assert {104: 105, 4: 5} == {number: found[number][0] for number in (104, 4)}
    assert 204 not in found and 304 not in found


def test_update_priorities__decides_how_often(make_ours):
    ours = make_ours(alpha=1.0)
    ours.add(episode(0, 4, terminated=True))
    for _ in range(20):
        drawn = ours.sample(num_items=32, n_step=1, beta=0.5)
        ours.update_priorities([1.0 + drawn_of(one) for one in drawn])
    numbers = np.array([drawn_of(one) for _ in range(40)
                        for one in ours.sample(num_items=128, n_step=1)])
    share = np.bincount(numbers, minlength=4) / len(numbers)
    np.testing.assert_allclose(share, np.array([1, 2, 3, 4]) / 10, atol=0.03)
    drawn = ours.sample(num_items=128, n_step=1, beta=1.0)
    weights = {drawn_of(one): float(one.get_extra_model_outputs("weights", 0)) for one in drawn}
    for number, weight in weights.items():
        assert weight == pytest.approx(1 / (1 + number), rel=1e-3)
    with pytest.raises(ValueError, match="priorities"):
        ours.update_priorities([1.0])


def drawn_of(one):
    return int(one.get_observations(0)[0])


def test_add__of_dicts(make_ours):
    ours = make_ours()
    observations = [{"place": np.full(2, i, np.float32), "kind": np.int64(i)} for i in range(6)]
    ours.add(SingleAgentEpisode(observations=observations, actions=[0] * 5, rewards=[1.0] * 5,
                                terminated=True, len_lookback_buffer=0))
    for one in ours.sample(num_items=16, n_step=1):
        before, after = one.get_observations(0), one.get_observations(1)
        np.testing.assert_array_equal(after["place"], before["place"] + 1)
        assert after["kind"] == before["place"][0] + 1


def test_metrics__are_counted(make_ours):
    ours, theirs = make_ours(), PrioritizedEpisodeReplayBuffer(4000)
    fill([ours, theirs], np.random.default_rng(3))
    for buffer in (ours, theirs):
        buffer.sample(num_items=32, n_step=1)
    assert ours.get_added_timesteps() == theirs.get_added_timesteps()
    assert ours.get_num_timesteps() == theirs.get_num_timesteps()
    assert ours.get_num_episodes() == theirs.get_num_episodes()
    assert ours.get_sampled_timesteps() == theirs.get_sampled_timesteps() == 32
    assert set(ours.get_metrics()) == set(theirs.get_metrics())


def test_uncovered__says_what_to_use(make_ours):
    ours = make_ours()
    with pytest.raises(relive.Empty):
        ours.sample(num_items=1)
    ours.add(episode(0, 5, terminated=True))
    for call in (lambda: ours.sample(num_items=1, batch_length_T=4),
                 lambda: ours.sample(num_items=1, include_infos=True), ours.get_state):
        with pytest.raises(NotImplementedError, match="use"):
            call()
    with pytest.raises(relive.InvalidArgument, match="n_step"):
        ours.sample(num_items=1, n_step=3)


def test_state__leads_to_the_same_steps(tmp_path):
    with relive.open("embed:%s" % (tmp_path / "pool"), pool_bytes=1 << 26) as store:
        ours = ReliveEpisodeReplayBuffer(4000, store=store)
        ours.add(episode(0, 50, terminated=True))
        state = ours.get_state()
        again = ReliveEpisodeReplayBuffer(4000, store=store)
        again.set_state(state)
        assert (len(again), again.get_num_episodes(), again.get_added_timesteps()) == (50, 1, 50)
        assert set(transitions(again, 1)) == set(range(50))
        with pytest.raises(ValueError, match="state of"):
            ReliveEpisodeReplayBuffer(4000, store=store, name="other").set_state(state)


def test_dqn__trains():
    import ray
    from ray.rllib.algorithms.dqn import DQNConfig
    config = (DQNConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
              .training(n_step=2, train_batch_size=32, num_steps_sampled_before_learning_starts=60,
                        replay_buffer_config={"type": OURS, "capacity": 5000, "alpha": 0.6,
                                              "beta": 0.4, "n_step": 2})
              .reporting(min_sample_timesteps_per_iteration=150, min_time_s_per_iteration=0))
    ray.init(num_cpus=1, include_dashboard=False, ignore_reinit_error=True, log_to_driver=False)
    try:
        algorithm = config.build_algo()
        for _ in range(2):
            algorithm.train()
        buffer = algorithm.local_replay_buffer
        assert isinstance(buffer, ReliveEpisodeReplayBuffer)
        assert buffer.get_added_timesteps() >= 300
        assert buffer.get_sampled_timesteps() > 1000
        view = buffer.table.info().views[0]
        assert view.priority_sum != pytest.approx(view.items * view.max_priority)  # updated
        assert buffer.table.verify().problems == 0
        algorithm.stop()
    finally:
        ray.shutdown()
