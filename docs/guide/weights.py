"""Weights: a learner publishes, actors fetch whole versions."""

import threading

import numpy as np

import relive

store = relive.open("embed:")
weights = store.create_weights("policy", bytes=8 << 20, keep=2)

# 1. A learner publishes versions of a nested dict; an actor takes the newest one when it likes.
params = {"encoder": {"kernel": np.zeros((512, 512), np.float32), "bias": np.zeros(512, np.float32)},
          "head": np.zeros((512, 4), np.float32)}
weights.publish(params, version=1)
whole = []


def act():
    have = 0
    with store.weights("policy") as mine:
        while have < 20:
            new = mine.fetch(newer_than=have, timeout=10)
            step = new["head"][0, 0]  # the same in all tensors
            whole.append(new["encoder/kernel"][0, 0] == new.nested()["encoder"]["bias"][0] == step)
            have = new.version


actor = threading.Thread(target=act)
actor.start()
for version in range(2, 21):
    for layer in (params["encoder"]["kernel"], params["encoder"]["bias"], params["head"]):
        layer[0] = version  # few elements change
    weights.publish(params, version)
actor.join()
print("the actor saw only whole versions:", bool(all(whole)))

# 2. An actor that joins later needs no publish.
with store.weights("policy") as late:
    print("an actor that came later: version", late.fetch().version)

# 3. Only changed elements were stored, but for each eighth version.
info = weights.info()
print("deltas were sent:", info["anchors"] < info["published"])

# 4. Half the bytes: floats are rounded as they are published.
half = store.create_weights("half", bytes=4 << 20)
half.publish(params, version=1, dtype="float16")
print("on the wire as float16:", half.fetch()["head"].dtype)
store.close()
