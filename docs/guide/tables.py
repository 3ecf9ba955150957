"""The rows of a table and the batches sampled from it, on numbers that can be checked by eye."""

import numpy as np

import relive

store = relive.open("embed:")
table = store.create_table(
    "frames",
    {"obs": ((2, 2), "uint8"), "action": "int64", "reward": "float32"},
    capacity=1_000,
    views=[relive.View(),                                 # view 0: single transitions
           relive.View(stack=4, n_step=3, alpha=0.7)])    # view 1: four frames, 3-step returns


def frame(number):
    return np.full((2, 2), number, np.uint8)


# Episode 1: steps 0 to 9, terminated. Episode 2: steps 20 to 29, truncated, with its last observation.
with table.writer() as writer:
    for t in range(10):
        writer.append(obs=frame(t), action=t, reward=1.0, terminated=t == 9)
    for t in range(20, 30):
        writer.append(obs=frame(t), action=t, reward=1.0, truncated=t == 29,
                      final_obs=frame(30) if t == 29 else None)

# View 0: obs, and next_obs read from the next row.
batch = table.sample(256)
assert batch.obs.shape == batch.next_obs.shape == (256, 2, 2)
going_on = batch.action != 9
assert (batch.next_obs[going_on] == batch.obs[going_on] + 1).all()   # 29 -> 30, the final observation
assert (batch.discount[batch.action == 9] == 0).all()                # terminated: no bootstrap
assert np.allclose(batch.discount[batch.action == 29], 0.99)         # truncated: bootstrap
assert set(batch.action.tolist()) == {*range(10), *range(20, 30)}    # each step is one item

# View 1: the same rows, in windows.
batch = table.sample(256, view=1, gamma=0.5)
assert batch.obs.shape == batch.next_obs.shape == (256, 4, 2, 2)


def item(step):
    """Prints frames, next frames, return, discount and length of one step's item."""
    i = int(np.flatnonzero(batch.action == step)[0])
    return (batch.obs[i, :, 0, 0].tolist(), batch.next_obs[i, :, 0, 0].tolist(),
            float(batch.reward[i]), float(batch.discount[i]), int(batch.steps[i]))


print("step  obs           next_obs      return  discount  steps")
for step in (0, 1, 5, 28, 29):
    print("%4d  %-12s  %-12s  %6.2f  %8.3f  %5d" % (step, *item(step)))
assert item(0) == ([0, 0, 0, 0], [0, 1, 2, 3], 1.75, 0.125, 3)       # padded with the first frame
assert item(5) == ([2, 3, 4, 5], [5, 6, 7, 8], 1.75, 0.125, 3)
assert item(28) == ([25, 26, 27, 28], [27, 28, 29, 30], 1.5, 0.25, 2)  # the episode ends: 2 steps
assert item(29) == ([26, 27, 28, 29], [27, 28, 29, 30], 1.0, 0.5, 1)

# A ring: beyond the capacity the oldest block of steps goes.
with table.writer() as writer:
    for t in range(3_000):
        writer.append(obs=frame(t % 256), action=t, reward=0.0, terminated=t % 100 == 99)
arrays = table.to_numpy(["action"])                                  # all items, from the oldest
assert (np.diff(arrays["action"]) == 1).all() and arrays["action"][-1] == 2_999
newest = table[arrays["key"][-1]]                                    # one item, a dict
assert newest["action"] == 2_999 and (newest["obs"] == frame(2_999 % 256)).all()
info = table.info()
print("capacity %d steps, %d rows of %d B in blocks of %d; %d items now, %d ever" % (
    info.capacity, info.slots, info.row_bytes, info.block, info.views[0].items,
    info.views[0].inserted))
assert info.capacity <= info.views[0].items <= info.slots
assert 3_000 - table.sample(1024).action.min() <= info.slots         # the newest ones are there
store.close()
