"""The replay buffers that learn side by side: what they are given and what they give is the same.

`add` takes a step of each environment as gymnasium's vectors return it; where `live` is false the
environment only reset, and nothing happened. `sample` gives arrays by name and a handle on what was
drawn, which `update` takes back with the TD errors.
"""

import numpy as np

ALPHA, EPS, GAMMA = 0.6, 1e-6, 0.99
NAMES = ("obs", "action", "reward", "next_obs", "discount", "weight")


class Relive:
    """relive, prioritized: next observations are read from the next rows, not stored."""

    selector = "prioritized"

    def __init__(self, envs, capacity, batch, seed):
        import relive
        self._store = relive.open("embed:")
        table = self._store.create_table(
            "replay", relive.signature.of_env(envs), capacity, max_writers=envs.num_envs,
            views=[relive.View(selector=self.selector, alpha=ALPHA, eps=EPS)])
        self._writer = table.writer(envs)
        self._sampler = table.sampler(batch, gamma=GAMMA, prefetch=0, seed=seed)

    def add(self, obs, action, reward, next_obs, terminated, truncated, live):
        self._writer.append(obs=obs, action=action, reward=reward, terminated=terminated,
                            truncated=truncated)

    def sample(self, beta):
        batch = self._sampler.sample(beta=beta)
        return {name: batch[name] for name in NAMES}, batch.key

    def update(self, key, td_error):
        self._sampler.update_priorities(key, td_error=td_error)


class Uniform(Relive):
    """relive without priorities."""

    selector = "uniform"

    def update(self, key, td_error):
        pass


class Cpprb:
    """cpprb by its own interface: whole transitions, of the environments that stepped."""

    def __init__(self, envs, capacity, batch, seed):
        import cpprb
        np.random.seed(seed)
        shape = envs.single_observation_space.shape
        self._batch = batch
        self._buffer = cpprb.PrioritizedReplayBuffer(
            capacity, {"obs": {"shape": shape}, "next_obs": {"shape": shape},
                       "action": {"dtype": np.int64}, "reward": {}, "done": {}},
            alpha=ALPHA, eps=EPS)

    def add(self, obs, action, reward, next_obs, terminated, truncated, live):
        if live.any():
            self._buffer.add(obs=obs[live], action=action[live], reward=reward[live],
                             next_obs=next_obs[live], done=terminated[live])

    def sample(self, beta):
        drawn = self._buffer.sample(self._batch, beta)
        values = (drawn["obs"], drawn["action"][:, 0], drawn["reward"][:, 0], drawn["next_obs"],
                  GAMMA * (1 - drawn["done"][:, 0]), drawn["weights"].astype(np.float32))
        return dict(zip(NAMES, values)), drawn["indexes"]

    def update(self, indexes, td_error):
        self._buffer.update_priorities(indexes, np.abs(td_error))


BUFFERS = {"relive": Relive, "cpprb": Cpprb, "uniform": Uniform}
