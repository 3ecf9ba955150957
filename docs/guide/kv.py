"""Values under keys: weights for actors, small state for all, many keys at once."""

import threading

import numpy as np

import relive

store = relive.open("embed:")
kv = store.create_kv("shared", keys=1000, bytes=256 << 20)

# 1. A learner publishes weights; actors take only newer ones, whole, and wait without asking anybody.
weights = np.zeros((1000, 1000), np.float32)
version = kv.put("policy", weights)
seen = []


def act():
    have = version
    with store.kv("shared") as mine:
        while len(seen) < 3:
            have = mine.watch("policy", have, timeout=10)
            newest, have = mine.get("policy")
            assert (newest == newest[0, 0]).all()  # never half of one and half of the next
            seen.append(have)


actor = threading.Thread(target=act)
actor.start()
while actor.is_alive():
    weights += 1
    kv.put("policy", weights)
actor.join()
print("the actor took rising versions:", seen == sorted(set(seen)))

# 2. State that several processes change: put only if nobody was faster.
kv.put("steps", np.int64(0))


def count():
    with store.kv("shared") as mine:
        for _ in range(100):
            while True:
                steps, at = mine.get("steps")
                try:
                    mine.put("steps", steps + 1, expected=at)
                    break
                except relive.VersionChanged:
                    pass


threads = [threading.Thread(target=count) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("steps:", int(kv["steps"]))

# 3. A value may be longer than an extent, and of any type by choice; many keys are read at once.
kv["replay/mean"] = np.arange(16, dtype=np.float64)
kv["checkpoint"] = bytes(50_000_000)
kv.put("config", {"lr": 1e-4, "layers": [256, 256]}, pickle=True)
(mean, _), missing = kv.get_many(["replay/mean", "replay/variance"])
print("mean:", mean.dtype, mean.shape, "variance:", missing, "checkpoint:", len(kv["checkpoint"]))
print("config:", kv.get("config", pickle=True)[0])

# 4. Keys.
del kv["checkpoint"]
print("keys:", sorted(key.decode() for key in kv))
assert "checkpoint" not in kv and kv.verify()["problems"] == 0
store.close()
