"""Q-learning on a corridor of ten cells, with prioritized replay: one process, no daemon."""

import numpy as np

import relive

CELLS, LEFT, RIGHT = 10, 0, 1


class Corridor:
    """The agent starts in cell 0; the last cell ends the episode with reward 1."""

    def reset(self):
        self.cell = 0
        return self.cell

    def step(self, action):
        self.cell = max(0, self.cell + (1 if action == RIGHT else -1))
        terminated = self.cell == CELLS - 1
        return self.cell, float(terminated), terminated


store = relive.open("embed:")
table = store.create_table(
    "replay",
    {"obs": "int64", "action": "int64", "reward": "float32"},  # one step: no next_obs, no done
    capacity=10_000,
    rate_limiter=relive.RateLimiter.of_min_size(500))          # nothing is sampled before

# The actor: a random policy, which is enough here.
env, rng = Corridor(), np.random.default_rng(1)
with table.writer() as writer:
    obs = env.reset()
    for _ in range(5_000):
        action = int(rng.integers(2))
        next_obs, reward, terminated = env.step(action)
        writer.append(obs=obs, action=action, reward=reward, terminated=terminated)
        obs = env.reset() if terminated else next_obs

# The learner: sample, update the Q-table, give the TD errors back as priorities.
q = np.zeros((CELLS, 2))
with table.sampler(batch_size=64, gamma=0.95, beta=0.4) as sampler:
    for batch, _ in zip(sampler, range(500)):
        target = batch.reward + batch.discount * q[batch.next_obs].max(axis=1)
        td_error = target - q[batch.obs, batch.action]
        np.add.at(q, (batch.obs, batch.action), 0.2 * batch.weight * td_error)
        sampler.update_priorities(batch.key, td_error)

print("items", len(table), "policy", "".join("<>"[a] for a in q[:-1].argmax(axis=1)))
assert (q[:-1].argmax(axis=1) == RIGHT).all()
store.close()
