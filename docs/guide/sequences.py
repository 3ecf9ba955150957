"""Sequences for recurrent networks: 8 steps every 4, the first 2 for burn-in, R2D2's priorities."""

import numpy as np

import relive

LENGTH, PERIOD, BURN_IN, ETA = 8, 4, 2, 0.9
store = relive.open("embed:")
table = store.create_table(
    "replay",
    relive.sequence.signature({"obs": ((3,), "float32"), "action": "int64", "reward": "float32"}),
    capacity=4_000, views=[relive.View(stack=LENGTH, period=PERIOD)])

# Episodes of 19 steps, and one of 5, which is shorter than a sequence.
with relive.sequence.Writer(table) as writer:
    for length in (19, 19, 5):
        for t in range(length):
            writer.append(obs=np.full(3, t), action=t, reward=float(t), terminated=t == length - 1)

with table.sampler(256, layout="window", prefetch=0) as sampler:
    batch = relive.sequence.of(sampler.sample())
    assert batch.obs.shape == (256, LENGTH, 3) and batch.next_obs.shape == (256, LENGTH, 3)
    assert batch.action.shape == batch.reward.shape == batch.mask.shape == (256, LENGTH)

    starts = sorted({int(step[0]) for step, mask in zip(batch.step, batch.mask) if mask.all()})
    print("sequences begin with steps", starts)              # the last one is shifted back
    assert starts == [0, 4, 8, 11]
    short = ~batch.mask.all(axis=1)
    print("the short episode:", batch.reward[short][0].tolist(), batch.mask[short][0].tolist())
    assert batch.mask[short][0].tolist() == [False] * 3 + [True] * 5

    # What a learner does: unroll over all steps, learn from those behind the burn-in.
    learned = batch.mask & (np.arange(LENGTH) >= BURN_IN)
    td_error = np.where(learned, np.abs(batch.reward - batch.reward.mean()), 0.0)
    largest = td_error.max(axis=1)
    mean = td_error.sum(axis=1) / learned.sum(axis=1)
    result = sampler.update_priorities(batch.key, ETA * largest + (1 - ETA) * mean)
    assert result.stale == 0

print("%d sequences over %d rows of %d bytes: each step lies there once" % (
    len(table), 43, table.info().row_bytes))
store.close()
