"""Prioritized replay: the effects of alpha, beta and stale keys, and two learners on one table."""

import threading

import numpy as np

import relive

ALPHA, EPS = 0.6, 1e-6
store = relive.open("embed:")
table = store.create_table("replay", {"obs": "float32", "action": "int64", "reward": "float32"},
                           capacity=1_000, views=[relive.View(alpha=ALPHA, eps=EPS)])
with table.writer() as writer:
    for i in range(101):                              # 100 transitions: the 101st is the next_obs
        writer.append(obs=float(i), action=i, reward=0.0)
assert len(table) == 100

# 1. New items get the largest priority that any item has had, so each is likely to be seen once.
batch = table.sample(100)
assert (batch.priority == 1.0).all() and np.allclose(batch.probability, 1 / 100)

# 2. alpha: priority = (|TD error| + eps)^alpha, probability = priority / sum of priorities.
#    beta: weight = (N * probability)^-beta, divided by the largest weight of the batch.
with table.sampler(4096, prefetch=0, seed=1) as sampler:
    keys, first = np.unique(sampler.sample().key, return_index=True)
    assert len(keys) == 100                           # each item was drawn at least once
    td_error = np.where(np.arange(100) < 10, 5.0, 0.5)
    assert sampler.update_priorities(keys, td_error) == (100, 0, 0)   # updated, stale, clamped
    batch = sampler.sample(beta=0.5)
    priority = (td_error + EPS) ** ALPHA
    at = np.searchsorted(keys, batch.key)
    assert np.allclose(batch.priority, priority[at], rtol=1e-3)
    assert np.allclose(batch.probability, (priority / priority.sum())[at], rtol=1e-3)
    weight = (len(table) * batch.probability) ** -0.5
    assert np.allclose(batch.weight, weight / weight.max(), rtol=1e-3)
    print("share of the ten large errors: %.3f of the draws, %.3f expected"
          % ((at < 10).mean(), priority[:10].sum() / priority.sum()))

# 3. A key names one item for ever. Once the ring has overwritten it, an update of it hits nothing.
#    keys are those of step 2, as a learner holds them that was busy for long.
with table.writer() as writer:
    for i in range(5_000):
        writer.append(obs=float(i), action=i, reward=0.0, terminated=i % 50 == 49)
result = table.update_priorities(keys, td_error=np.ones(100))
print("late update:", result)
assert (result.updated, result.stale) == (0, 100)
try:
    table.update_priorities(keys, td_error=np.ones(100), strict=True)
except relive.StaleKey as error:
    print("strict:", error)

# 4. Two data-parallel learners: ranks draw from disjoint halves of the strata, so that both batches
#    together are one stratified draw; each learner sets the priorities of what it saw.
drawn = {}


def learn(rank):
    with table.sampler(64, rank=rank, world_size=2, beta=0.4, prefetch=0) as sampler:
        for _ in range(200):
            batch = sampler.sample()
            sampler.update_priorities(batch.key, np.abs(np.sin(batch.obs)) + 0.1)
        drawn[rank] = sampler.stats()


learners = [threading.Thread(target=learn, args=(rank,)) for rank in (0, 1)]
for learner in learners:
    learner.start()
for learner in learners:
    learner.join()
assert all(stats["items"] == 200 * 64 for stats in drawn.values())
assert table.verify().problems == 0
store.close()
