"""The autoreset mode of a vector: taken from the environments, or refuted by their steps."""

import enum

import numpy as np
import pytest

import relive
from relive import sequence

SIGNATURE = {"obs": ((3,), "float32"), "action": "int64", "reward": "float32"}


class Mode(enum.Enum):
    """Stands in for gymnasium's AutoresetMode."""

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"
    DISABLED = "Disabled"


class Envs:
    """Two environments whose observation is which one, which episode and which step. Resets as
    gymnasium's vectors do in each mode: same_step gives final observations in infos, and the step that
    only resets has no reward. `reward` is that of each other step; episodes are of `length` steps, the
    first one of environment 1 of one more."""

    num_envs = 2

    def __init__(self, mode, length=3, reward=1.0, episodes_differ=True):
        self.metadata = {"render_modes": [], "autoreset_mode": mode}
        self.mode = str(getattr(mode, "value", mode)).replace("_", "").lower()
        self.reward, self.episodes_differ = reward, episodes_differ
        self.length = np.array([length, length + 1])
        self.episode, self.at = np.zeros(2, int), np.zeros(2, int)
        self.ended = np.zeros(2, bool)

    def obs(self):
        episode = self.episode * self.episodes_differ
        return np.stack([np.arange(2), episode, self.at], 1).astype("f4")

    def reset(self, which):
        self.episode[which] += 1
        self.at[which] = 0
        self.length[which] = self.length[0]

    def step(self):
        resets = self.ended & (self.mode == "nextstep")
        self.reset(resets)
        self.at[~resets] += 1
        self.ended = ~resets & (self.at >= self.length)
        infos = {}
        if self.ended.any() and self.mode == "samestep":
            infos["final_obs"] = np.full(2, None, object)
            for i in np.flatnonzero(self.ended):
                infos["final_obs"][i] = self.obs()[i]
            self.reset(self.ended)
        return self.obs(), np.where(resets, 0, self.reward), self.ended, np.zeros(2, bool), infos


def play(writer, envs, steps=30, **options):
    """An actor's loop that passes no autoreset mode."""
    obs = envs.obs()
    for _ in range(steps):
        was = obs
        obs, reward, terminated, truncated, infos = envs.step()
        writer.append(obs=was, action=[0, 0], reward=reward, terminated=terminated,
                      truncated=truncated, **{name: take(infos) for name, take in options.items()})


def check_items(table):
    """No transition goes over a reset, and none is lost."""
    seen = set()
    for _ in range(10):
        batch = table.sample(256)
        np.testing.assert_array_equal(batch.obs[:, :2], batch.next_obs[:, :2])
        np.testing.assert_array_equal(batch.obs[:, 2] + 1, batch.next_obs[:, 2])
        seen.update(map(tuple, batch.obs.astype(int).tolist()))
    assert {(0, 0, 2), (1, 0, 3), (0, 1, 0), (0, 1, 2)} <= seen


@pytest.mark.parametrize("mode", [*Mode, "NextStep", "SameStep", "next_step", "SAME_STEP"])
def test_writer__takes_the_vector_and_its_mode(make_table, mode):
    table, envs = make_table(SIGNATURE), Envs(mode)
    with table.writer(envs) as writer:
        assert writer.num_envs == 2
        assert writer.autoreset.replace("_", "") == envs.mode
        if envs.mode != "disabled":
            play(writer, envs, infos=lambda infos: infos)
            check_items(table)


def test_writer__of_a_vector_that_says_no_mode(make_table):
    table, envs = make_table(SIGNATURE), Envs("same_step")
    with pytest.raises(relive.InvalidArgument, match="is same_step by its metadata"):
        table.writer(envs, autoreset="next_step")
    table.writer(envs, autoreset="same_step").close()
    del envs.metadata["autoreset_mode"]
    with pytest.raises(relive.InvalidArgument, match="autoreset_mode.*same_step"):
        table.writer(envs)
    with table.writer(envs, autoreset="same_step") as writer:
        assert writer.num_envs == 2 and writer.autoreset == "same_step"
    with pytest.raises(relive.InvalidArgument, match="num_envs"):
        table.writer(object())


@pytest.mark.parametrize("how", ["a reward", "an end", "its first observation"])
def test_append__a_reset_in_the_same_step_refutes_the_default(make_table, how):
    """The step after an end is a step of the next episode, by its reward, end or observation."""
    length = 1 if how == "an end" else 3
    envs = Envs("same_step", length, float(how == "a reward"),
                episodes_differ=how != "its first observation")
    table = make_table(SIGNATURE)
    with table.writer(num_envs=2) as writer:
        with pytest.raises(relive.InvalidArgument,
                           match="environment 0.*has %s.*autoreset=\"same_step\"" % how):
            play(writer, envs)
        assert writer.stats()["steps"] == 2 * length  # and no wrong row
    with table.writer(num_envs=2, autoreset="next_step") as writer:  # said: trusted
        play(writer, Envs("same_step", length))


def test_extend__a_reset_in_the_same_step_refutes_the_default(make_table):
    table = make_table(SIGNATURE)
    steps = dict(obs=np.zeros((4, 3), "f4"), action=[0] * 4, reward=[1] * 4)
    with table.writer(num_envs=2) as writer:
        with pytest.raises(relive.InvalidArgument, match="environment 1.*a reward.*same_step"):
            writer.extend(**steps, terminated=[False, True, False, False], env=1)
        writer.extend(**steps, terminated=[False] * 3 + [True], env=1)
        with pytest.raises(relive.InvalidArgument, match="environment 1.*a reward.*same_step"):
            writer.extend(**steps, env=1)
        writer.extend(**steps, terminated=[False] * 3 + [True], env=0)
        writer.extend(**steps, final=[True, False, False, False], env=0)  # the row says what it is
        assert writer.stats()["steps"] == 12


def test_append__what_next_step_environments_do_refutes_nothing(make_table):
    """No refutation if all observations are equal, or an episode's first one occurs again."""
    for reward, episodes_differ, length in ((1, True, 3), (0, False, 3), (0, False, 1)):
        table = make_table(SIGNATURE)
        with table.writer(num_envs=2) as writer:
            play(writer, Envs("next_step", length, reward, episodes_differ))
    table = make_table(SIGNATURE)
    with table.writer(num_envs=2) as writer:
        for i in range(20):
            writer.append(obs=np.zeros((2, 3)), action=[0, 0], reward=[0, 0],
                          terminated=[i % 4 == 2] * 2)


@pytest.mark.parametrize("option", [
    dict(infos=lambda infos: infos), dict(final_obs=lambda infos: infos.get("final_obs"))])
@pytest.mark.parametrize("mode", [None, "next_step", "disabled"])
def test_append__a_final_observation_refutes_other_modes(make_table, mode, option):
    if mode == "disabled" and "final_obs" in option:
        return  # takes them: the user resets
    table = make_table(SIGNATURE)
    with table.writer(num_envs=2, autoreset=mode) as writer:
        with pytest.raises(relive.InvalidArgument, match="autoreset=\"same_step\""):
            play(writer, Envs("same_step"), **option)
        assert writer.stats()["steps"] == 4


@pytest.mark.parametrize("option", [
    dict(infos=lambda infos: infos), dict(final_obs=lambda infos: infos.get("final_obs"))])
def test_append__no_final_observation_refutes_same_step(make_table, option):
    table = make_table(SIGNATURE)
    with table.writer(num_envs=2, autoreset="same_step") as writer:
        with pytest.raises(relive.InvalidArgument,
                           match="environment 0.*autoreset=\"next_step\""):
            play(writer, Envs("next_step"), **option)
        assert writer.stats()["steps"] == 4


def test_append__infos_of_nested_observations(make_table):
    table = make_table({"obs": {"which": "float32", "at": ((2,), "float32")}, "reward": "float32"})
    envs = Envs("same_step")

    def nested(obs):
        return None if obs is None else {"which": obs[..., 0], "at": obs[..., 1:]}

    with table.writer(envs) as writer:
        for _ in range(10):
            was = envs.obs()
            _, reward, terminated, _, infos = envs.step()
            final = [nested(one) for one in infos.get("final_obs", ())]
            writer.append(obs=nested(was), reward=reward, terminated=terminated,
                          infos={"final_obs": final} if final else {})
    batch = table.sample(256)
    np.testing.assert_array_equal(batch.obs["at"][:, 1] + 1, batch.next_obs["at"][:, 1])


def test_sequences__of_the_vector(store):
    table = store.create_table("t", sequence.signature(SIGNATURE), 4096,
                               views=[relive.View(stack=2)])
    with sequence.Writer(table, Envs(Mode.SAME_STEP)) as writer:
        play(writer, Envs("same_step"), infos=lambda infos: infos)
    batch = sequence.of(table.sample(256))
    np.testing.assert_array_equal(batch.step, np.where(batch.mask, batch.obs[..., 2], 0))
    np.testing.assert_array_equal(batch.next_obs[:, -1, 2], batch.obs[:, -1, 2] + 1)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_writer__of_a_vector_of_gymnasium(make_table, mode):
    """CartPole's own law: position moves by velocity * 0.02, over each transition."""
    gym = pytest.importorskip("gymnasium")
    envs = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync",
                        vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode[mode]})
    table = make_table(relive.signature.of_env(envs), max_writers=3)
    obs, _ = envs.reset(seed=1)
    envs.action_space.seed(1)
    with table.writer(envs) as writer:
        for _ in range(300):
            action = envs.action_space.sample()
            following, reward, terminated, truncated, infos = envs.step(action)
            writer.append(obs=obs, action=action, reward=reward, terminated=terminated,
                          truncated=truncated, infos=infos)
            obs = following
    envs.close()
    for _ in range(10):
        batch = table.sample(256)
        np.testing.assert_allclose(batch.next_obs[:, 0], batch.obs[:, 0] + 0.02 * batch.obs[:, 1],
                                   rtol=1e-4, atol=1e-6)


def test_append__gymnasium_in_same_step_refutes_the_default(make_table):
    gym = pytest.importorskip("gymnasium")
    envs = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync",
                        vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP})
    table = make_table(relive.signature.of_env(envs), max_writers=3)
    obs, _ = envs.reset(seed=1)
    envs.action_space.seed(1)
    with table.writer(num_envs=3) as writer:
        with pytest.raises(relive.InvalidArgument, match="autoreset=\"same_step\""):
            for _ in range(300):
                action = envs.action_space.sample()
                following, reward, terminated, truncated, _ = envs.step(action)
                writer.append(obs=obs, action=action, reward=reward, terminated=terminated,
                              truncated=truncated)
                obs = following
    envs.close()
