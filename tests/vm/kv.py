#!/usr/bin/env python3
"""Values with two copies on the nodes of a store, from Python. Usage: kv.py URI put|check|repair|drop ROUND.
`put` puts those of a round, `check` finds each key with the value of that round, `repair` makes all copies whole.
"""

import sys
import time

import numpy as np

import relive

KEYS, LONG = 64, 8
SECONDS = 30.0


def value(key, round_):
    """A long one, of several extents, under each eighth key."""
    return np.full(50_000 if key % LONG == 0 else 25, 1000 * round_ + key, np.int32)


def put(kv, round_):
    for key in range(KEYS):
        kv.put("key-%d" % key, value(key, round_))


def check(kv, round_):
    for key in range(KEYS):
        got, _ = kv.get("key-%d" % key)
        np.testing.assert_array_equal(got, value(key, round_))
    report = kv.verify()
    assert report["problems"] == 0 and report["keys"] == KEYS, report


def repair(kv, _):
    until = time.monotonic() + SECONDS
    while kv.info()["copies"] < kv.info()["copies_wanted"]:
        assert time.monotonic() < until, kv.info()
        kv.repair()
        time.sleep(0.1)


def drop(kv, _):
    kv.close()
    kv.store.drop_kv("values")


def main():
    uri, what, round_ = sys.argv[1:]
    with relive.open(uri, timeout=SECONDS) as store:
        kv = store.create_kv("values", keys=1000, bytes=8 << 20, extent_bytes=1 << 16, parts=2, copies=2)
        print(kv.info())
        {"put": put, "check": check, "repair": repair, "drop": drop}[what](kv, int(round_))


if __name__ == "__main__":
    main()
