"""Time of calls that take many items at once."""

import time

from workloads import BATCH


def per_item(fn, seconds, items=BATCH):
    """Nanoseconds of one item; fn is given the number of the call."""
    fn(0)
    calls, start = 0, time.perf_counter()
    while True:
        fn(calls)
        calls += 1
        spent = time.perf_counter() - start
        if spent >= seconds:
            return spent / calls / items * 1e9
