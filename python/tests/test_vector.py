"""Vectors of environments and their autoreset modes: no transition goes across a reset."""

import numpy as np
import pytest

import relive

ENVS, STEPS = 4, 60
LENGTHS = (5, 7, 11, 13)  # an episode of environment i has LENGTHS[i] steps


class Counter:
    """A vector of environments whose observation says which one, which episode and which step;
    even episodes terminate, odd ones are truncated. Resets as gymnasium's vectors do."""

    def __init__(self, mode):
        self.mode = mode
        self.episode = np.zeros(ENVS, int)
        self.step_ = np.zeros(ENVS, int)
        self.ended = np.zeros(ENVS, bool)

    def obs(self):
        return np.stack([np.arange(ENVS), self.episode, self.step_], axis=1).astype("f4")

    def reset(self, which):
        self.episode[which] += 1
        self.step_[which] = 0

    def step(self):
        """obs, terminated, truncated, final observations by gymnasium's rules."""
        skip = self.ended.copy() if self.mode == "next_step" else np.zeros(ENVS, bool)
        self.reset(skip)
        self.step_[~skip] += 1
        self.ended = ~skip & (self.step_ == LENGTHS)
        terminated = self.ended & (self.episode % 2 == 0)
        final = None
        if self.mode != "next_step" and self.ended.any():
            final = np.full(ENVS, None, object)
            for i in np.flatnonzero(self.ended):
                final[i] = self.obs()[i]
        if self.mode == "same_step":
            self.reset(self.ended)
        return self.obs(), terminated, self.ended & ~terminated, final


def play(table, mode, give_finals=True):
    envs = Counter(mode)
    with table.writer(num_envs=ENVS, autoreset=mode) as writer:
        obs = envs.obs()
        for _ in range(STEPS):
            was = obs
            obs, terminated, truncated, final = envs.step()
            writer.append(obs=was, action=np.zeros(ENVS, int), reward=np.ones(ENVS),
                          terminated=terminated, truncated=truncated,
                          **({"final_obs": final} if final is not None and give_finals else {}))
            if mode == "disabled":
                envs.reset(envs.ended)
                obs = envs.obs()


SIGNATURE = {"obs": ((3,), "float32"), "action": "int64", "reward": "float32"}


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_append__no_transition_across_a_reset(make_table, mode, n_step):
    table = make_table(SIGNATURE, max_writers=ENVS, views=[relive.View(n_step=n_step)])
    play(table, mode)
    seen = set()
    for _ in range(40):
        batch = table.sample(256)
        np.testing.assert_array_equal(batch.obs[:, :2], batch.next_obs[:, :2])
        np.testing.assert_array_equal(batch.obs[:, 2] + batch.steps, batch.next_obs[:, 2])
        length = np.array(LENGTHS)[batch.obs[:, 0].astype(int)]
        ends = batch.next_obs[:, 2] == length
        terminates = ends & (batch.obs[:, 1] % 2 == 0)
        np.testing.assert_array_equal(batch.discount == 0, terminates)
        assert (batch.steps[~ends] <= n_step).all() and (batch.obs[:, 2] < length).all()
        seen.update(map(tuple, batch.obs.astype(int).tolist()))
    want = set()
    for env, length in enumerate(LENGTHS):
        rows = length + (mode == "next_step")  # of an episode
        want |= {(env, t // rows, t % rows) for t in range(STEPS) if t % rows < length}
        cut = (STEPS - 1) // rows, (STEPS - 1) % rows  # nobody knows what came after it
        if cut[1] < length - 1:
            want.discard((env, *cut))
    assert seen == want


def test_append__same_step_without_finals_drops_what_was_truncated(make_table):
    table = make_table(SIGNATURE, max_writers=ENVS)
    play(table, "same_step", give_finals=False)
    for _ in range(20):
        batch = table.sample(256)
        alive = batch.discount > 0
        np.testing.assert_array_equal(batch.obs[alive, :2], batch.next_obs[alive, :2])
        truncated = batch.obs[:, 1] % 2 == 1
        length = np.array(LENGTHS)[batch.obs[:, 0].astype(int)]
        assert (batch.obs[truncated, 2] < length[truncated] - 1).all()


def test_append__final_of_one_environment(make_table):
    table = make_table(SIGNATURE)
    with table.writer() as writer:
        for i in range(10):
            writer.append(obs=[i, 0, 0], action=0, reward=1.0, truncated=i % 5 == 4,
                          final_obs=[i + 1, 0, 0])
    batch = table.sample(64)
    np.testing.assert_array_equal(batch.next_obs[:, 0], batch.obs[:, 0] + 1)
    assert (batch.discount > 0).all() and len(table) == 10


def queue_of(make_table, size, **view):
    """A FIFO queue: each item is drawn once; at most `size` items wait."""
    return make_table(SIGNATURE, max_writers=ENVS, views=[relive.View(
        selector="fifo", max_times_sampled=1, rate_limiter=relive.RateLimiter.queue(size), **view)])


def drain(table, items):
    """Moves the (obs, next_obs) pairs that wait in the queue to `items`; returns their number."""
    before = len(items)
    while True:
        try:
            with table.sample(1, timeout=0) as batch:
                items.append((*batch.obs[0].tolist(), *batch.next_obs[0].tolist()))
        except relive.Timeout:
            return len(items) - before


def test_append__finals_that_time_out_wait_for_the_next_call(make_table):
    table, items = queue_of(make_table, 4), []
    step = dict(obs=np.zeros((2, 3), "f4"), action=[0, 0], reward=[0, 0])
    ends = dict(truncated=[True, True], final_obs=np.full((2, 3), 9, "f4"))
    with table.writer(2, autoreset="same_step", timeout=0.05) as writer:
        for _ in range(2):
            writer.append(**step)
        writer.append(**step, **ends)
        assert writer.stats()["steps"] == 6 and len(table) == 4  # the finals are not in
        for again in (lambda: writer.append(**step), lambda: writer.end_episode(env=1),
                      lambda: writer.extend(obs=np.zeros((1, 3)), action=[0], reward=[0])):
            with pytest.raises(relive.Timeout):
                again()
        assert writer.stats()["steps"] == 6
        assert drain(table, items) == 4
        writer.append(**step)
        assert drain(table, items) == 2 and items[4:] == [(0, 0, 0, 9, 9, 9)] * 2
        assert writer.stats()["steps"] == 10


def test_close__finals_that_time_out_go_in(make_table):
    table, items = queue_of(make_table, 1), []
    writer = table.writer(timeout=0)
    for i in range(2):
        writer.append(obs=[i] * 3, action=0, reward=0, truncated=i == 1, final_obs=[2] * 3)
    assert writer.stats()["steps"] == 2
    assert drain(table, items) == 1
    writer.close()
    assert drain(table, items) == 1 and items == [(0, 0, 0, 1, 1, 1), (1, 1, 1, 2, 2, 2)]


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_append__a_step_that_timed_out_is_appended_once_more(make_table, mode, n_step):
    table, items = queue_of(make_table, 6 * n_step, n_step=n_step), []
    envs, rng, tries = Counter(mode), np.random.default_rng(1), 0
    with table.writer(ENVS, autoreset=mode, timeout=0) as writer:
        for _ in range(4 * STEPS):
            was = envs.obs()
            _, terminated, truncated, final = envs.step()
            while True:
                try:
                    writer.append(obs=was, action=np.zeros(ENVS, int), reward=np.ones(ENVS),
                                  terminated=terminated, truncated=truncated, final_obs=final)
                    break
                except relive.Timeout:
                    tries += 1
                    for _ in range(rng.integers(1, 4)):
                        with table.sample(1, timeout=0) as batch:
                            items.append((*batch.obs[0].tolist(), *batch.next_obs[0].tolist()))
            if mode == "disabled":
                envs.reset(envs.ended)
        drain(table, items)
    for i, length in enumerate(LENGTHS):
        whole = 4 * STEPS // length - 1  # episodes whose items are all complete
        got = sorted(item for item in items if item[0] == i and item[1] < whole)
        assert got == [(i, episode, step, i, episode, min(step + n_step, length))
                       for episode in range(whole) for step in range(length)]
    assert tries > STEPS


def test_extend__goes_on_after_the_steps_that_are_in(make_table):
    table, items = queue_of(make_table, 3), []
    envs, rows, length = Counter("next_step"), [], LENGTHS[0]
    for _ in range(20 * (length + 1)):
        was = envs.obs()[0]
        _, terminated, truncated, _ = envs.step()
        rows.append((was, terminated[0], truncated[0]))
    obs, terminated, truncated = map(np.array, zip(*rows))
    zeros, tries = np.zeros(len(rows), int), 0
    with table.writer(1, timeout=0) as writer:
        while (done := writer.stats()["steps"]) < len(rows):
            part = slice(done, done + 10)
            try:
                writer.extend(obs=obs[part], action=zeros[part], reward=zeros[part],
                              terminated=terminated[part], truncated=truncated[part])
            except relive.Timeout:
                tries += writer.stats()["steps"] > done
                drain(table, items)
        drain(table, items)
    assert tries > 10
    assert items == [(0, episode, step, 0, episode, step + 1)
                     for episode in range(20) for step in range(length)]


def test_append__wrong_finals_are_refused(make_table):
    two = {"obs": ((3,), "float32"), "goal": relive.Column("goal", (), "float32", "obs"),
           "action": "int64", "reward": "float32"}
    table = make_table(two, max_writers=8)
    values = dict(obs=np.zeros((2, 3), "f4"), goal=np.zeros(2, "f4"), action=[0, 0], reward=[0, 0],
                  truncated=[True, False])
    finals = dict(final_obs=np.zeros((2, 3)), final_goal=np.zeros(2))
    with table.writer(num_envs=2, autoreset="same_step") as writer:
        with pytest.raises(relive.InvalidArgument, match="all or none"):
            writer.append(**values, final_obs=finals["final_obs"])
        with pytest.raises(relive.InvalidArgument, match="None"):
            writer.append(**values, final_obs=[None, None], final_goal=[0, 0])
        with pytest.raises(relive.InvalidArgument, match="shape"):
            writer.append(**values, final_obs=np.zeros((2, 4)), final_goal=[0, 0])
        with pytest.raises(relive.InvalidArgument, match="final_action"):
            writer.append(**values, final_action=[0, 0])
        assert writer.stats()["steps"] == 0
        writer.append(**values, **finals)
    with table.writer(num_envs=2) as writer:
        with pytest.raises(relive.InvalidArgument, match="next_step"):
            writer.append(**values, **finals)


def test_writer__autoreset_modes_by_any_name(make_table):
    table = make_table(max_writers=16)
    for mode in ("next_step", "NextStep", "same_step", "SameStep", "disabled", "Disabled"):
        table.writer(num_envs=1, autoreset=mode).close()
    with pytest.raises(relive.InvalidArgument, match="autoreset"):
        table.writer(num_envs=1, autoreset="later")
    for number in (0, -1, 2**32 + 2, 2.0):
        with pytest.raises(relive.InvalidArgument, match="num_envs"):
            table.writer(number)
    with pytest.raises(relive.NoSpace, match="max_writers"):
        table.writer(num_envs=17)


def test_append__vector_needs_the_batch_dimension(make_table):
    table = make_table(SIGNATURE)
    with table.writer(num_envs=1) as writer:
        with pytest.raises(relive.InvalidArgument, match="obs: shape"):
            writer.append(obs=np.zeros(3, "f4"), action=[0], reward=[0])
        writer.append(obs=np.zeros((1, 3), "f4"), action=[0], reward=[0])


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_append__a_vector_of_gymnasium(make_table, mode):
    gym = pytest.importorskip("gymnasium")
    mode = gym.vector.AutoresetMode[mode]
    envs = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync",
                        vector_kwargs={"autoreset_mode": mode})
    table = make_table(relive.signature.of_env(envs), max_writers=3)
    obs, _ = envs.reset(seed=1)
    envs.action_space.seed(1)
    with table.writer(num_envs=3, autoreset=mode) as writer:
        for _ in range(200):
            action = envs.action_space.sample()
            following, reward, terminated, truncated, infos = envs.step(action)
            writer.append(obs=obs, action=action, reward=reward, terminated=terminated,
                          truncated=truncated,
                          **({"final_obs": infos.get("final_obs")}
                             if mode is gym.vector.AutoresetMode.SAME_STEP else {}))
            obs = following
    envs.close()
    for _ in range(10):  # CartPole's own law: position moves by velocity * 0.02
        batch = table.sample(256)
        np.testing.assert_allclose(batch.next_obs[:, 0], batch.obs[:, 0] + 0.02 * batch.obs[:, 1],
                                   rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(
            batch.discount == 0,
            (np.abs(batch.next_obs[:, 2]) > 0.2095) | (np.abs(batch.next_obs[:, 0]) > 2.4))


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_append__nested_observations_of_gymnasium(make_table, mode):
    gym = pytest.importorskip("gymnasium")
    mode = gym.vector.AutoresetMode[mode]

    class Nested(gym.Env):
        """An environment that truncates after five steps; `at` counts steps over all episodes."""

        observation_space = gym.spaces.Dict({
            "image": gym.spaces.Box(0, 255, (2, 2), np.uint8),
            "at": gym.spaces.Tuple([gym.spaces.Box(-1e9, 1e9, (), np.float32)])})
        action_space = gym.spaces.Discrete(2)
        at, left = 0, 0

        def observe(self):
            return {"image": np.full((2, 2), self.left, np.uint8), "at": (np.float32(self.at),)}

        def reset(self, *, seed=None, options=None):
            self.at, self.left = self.at + 100, 5
            return self.observe(), {}

        def step(self, action):
            self.at, self.left = self.at + 1, self.left - 1
            return self.observe(), 1.0, False, self.left == 0, {}

    envs = gym.vector.SyncVectorEnv([Nested] * 3, autoreset_mode=mode)
    table = make_table(relive.signature.of_env(envs), max_writers=3)
    obs, _ = envs.reset()
    with table.writer(3, autoreset=mode) as writer:
        for _ in range(30):
            action = envs.action_space.sample()
            following, reward, terminated, truncated, infos = envs.step(action)
            final = {"SAME_STEP": infos.get("final_obs"), "DISABLED": following}.get(mode.name)
            writer.append(obs=obs, action=action, reward=reward, terminated=terminated,
                          truncated=truncated, final_obs=final)
            obs = following
            if mode.name == "DISABLED" and truncated.any():
                obs, _ = envs.reset(options={"reset_mask": truncated})
    envs.close()
    assert len(table) == (75 if mode.name == "NEXT_STEP" else 90)
    batch = table.sample(256)
    np.testing.assert_array_equal(batch.next_obs["at"]["0"], batch.obs["at"]["0"] + 1)
    np.testing.assert_array_equal(batch.next_obs["image"], batch.obs["image"] - 1)
