"""Rate limiters: a fixed ratio, a queue, and a wait that names its reason."""

import threading

import relive

SIGNATURE = {"obs": "float32", "reward": "float32"}
store = relive.open("embed:")

# 1. Four samples for each insert, from 200 items on, within a buffer of 400 samples to either side.
#    Actor and learner run as fast as they can; whoever is ahead waits.
ratio = relive.RateLimiter.sample_to_insert(samples_per_insert=4, min_size=200, error_buffer=400)
table = store.create_table("ratio", SIGNATURE, capacity=10_000, rate_limiter=ratio)


def act():
    with table.writer() as writer:
        for i in range(2_000):
            writer.append(obs=float(i), reward=0.0, terminated=i % 100 == 99)


actor = threading.Thread(target=act)
actor.start()
with table.sampler(50, prefetch=0) as sampler:
    for _ in range(140):
        sampler.sample()
actor.join(10)
view = table.info().views[0]
print("inserted %d, sampled %d: 4 x %d inserts - samples = %d" % (
    view.inserted, view.sampled, view.inserted, 4 * view.inserted - view.sampled))
assert view.inserted == 2_000 and view.sampled == 140 * 50

# 2. Who waits too long gets an error that says what is missing.
try:
    table.sample(700, timeout=0.1)
except relive.Timeout as error:
    print("timeout:", error)
else:
    raise AssertionError("700 more samples were admitted")

# 3. A queue: each item goes to one sampler, once; the writer is at most 8 items ahead.
queue = store.create_table(
    "queue", SIGNATURE, capacity=1_000,
    views=[relive.View(selector="fifo", max_times_sampled=1,
                       rate_limiter=relive.RateLimiter.queue(8))])
taken = []


def consume():
    with queue.sampler(4, prefetch=0) as sampler:
        while len(taken) < 100:
            taken.extend(sampler.sample().obs.tolist())


consumer = threading.Thread(target=consume)
consumer.start()
with queue.writer() as writer:
    for i in range(100):
        writer.append(obs=float(i), reward=0.0, terminated=i == 99)
consumer.join(10)
print("the queue gave", taken[:5], "...", taken[-1])
assert taken == [float(i) for i in range(100)]
store.close()
