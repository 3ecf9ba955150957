"""Numbers of the workloads."""

SEED = 1
ALPHA, BETA = 0.6, 0.4
BATCH = 256
CHUNK = 64

CAPACITY = {"cartpole": 1 << 20, "atari": 1 << 14}
PREFILL = {"cartpole": 1 << 17, "atari": 1 << 14}
FEED = {"cartpole": 4096, "atari": 512}  # different rows
PREFILL_SHARED = {"cartpole": 1 << 15, "atari": 1 << 13}
QUICK = {"cartpole": (8192, 4096), "atari": (1024, 512)}  # capacity, prefill
TREE_BITS = range(10, 25, 2)
