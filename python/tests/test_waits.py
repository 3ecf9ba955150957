"""Waits: their warnings, and when they give up."""

import threading
import time
import warnings

import pytest

import relive
from conftest import SIGNATURE, step_values

QUEUE = relive.RateLimiter.queue(3)


def append(table, n, **options):
    with table.writer(**options) as writer:
        for i in range(n):
            writer.append(**step_values(i))
        writer.close(wait=False)


def overfull(table):
    append(table, 10, timeout=5)


# What waits in vain for 5 s, of which a warning tells after 2: how, after how many steps, under which limiter; what it says.
WAITS = {
    "empty": (lambda table: table.sample(4, timeout=5), 0, None,
              "sample of 4 .*waits for 1 more insert.*0 items inserted"),
    "one_step": (lambda table: table.sample(4, timeout=5), 1, None,
                 "waits for 1 more insert.*0 items inserted"),
    "min_size": (lambda table: table.sample(4, timeout=5), 11,
                 relive.RateLimiter.of_min_size(32),
                 "view 0 of table min_size.*waits for 22 more inserts.*10 items.*min_size 32"),
    "queue": (lambda table: table.sample(4, timeout=5), 3, relive.RateLimiter.queue(9),
              "waits for 2 more inserts.*2 items inserted.*0 sampled"),
    "sampler": (lambda table: table.sampler(4, prefetch=0).sample(timeout=5), 0, None,
                "waits for 1 more insert"),
    "next": (lambda table: next(table.sampler(4, prefetch=0, timeout=5)), 0, None,
             "waits for 1 more insert"),
    "prefetch": (lambda table: next(table.sampler(4, prefetch=2, timeout=5)), 0, None,
                 "waits for 1 more insert"),
    "append": (overfull, 0, QUEUE,
               "append: .*waits for 1 more sample.*3 items inserted, 0 sampled.*max_diff 3"),
}


@pytest.fixture(scope="module")
def said():
    """Runs all calls at the same time; returns the warnings and the error of each."""
    def wait(name):
        try:
            WAITS[name][0](tables[name])
        except relive.Error as error:
            errors[name] = error

    errors, tables = {}, {}
    with relive.open("embed:") as store, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name, (_, n, limiter, _) in WAITS.items():
            tables[name] = store.create_table(name, SIGNATURE, 500, rate_limiter=limiter)
            append(tables[name], n)
        threads = [threading.Thread(target=wait, args=(name,)) for name in WAITS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    return {name: [warning for warning in caught if "table %s" % name in str(warning.message)]
            for name in WAITS}, errors


@pytest.mark.parametrize("name", WAITS)
def test_wait__warns_once_of_what_it_waits_for(said, name):
    caught, errors = said
    assert isinstance(errors[name], relive.Timeout)
    assert [warning.category for warning in caught[name]] == [RuntimeWarning]
    with pytest.raises(relive.Timeout, match=WAITS[name][3]):
        raise errors[name]
    with pytest.warns(RuntimeWarning, match=WAITS[name][3]):
        warnings.warn(caught[name][0].message)
    assert caught[name][0].filename == __file__


STALLS = {
    "sample": lambda table: table.sample(1),
    "sampler": lambda table: table.sampler(1, prefetch=0).sample(),
    "next": lambda table: next(table.sampler(1, prefetch=0)),
    "prefetch": lambda table: next(table.sampler(1)),
    "append": lambda table: append(table, 10),
}


@pytest.mark.parametrize("name", STALLS)
def test_wait__gives_up_where_nothing_moves(name):
    with relive.open("embed:", stall_timeout=0.3) as store:
        table = store.create_table("t", SIGNATURE, 500, rate_limiter=QUEUE)
        with pytest.raises(relive.Timeout, match="waits for 1 more.*no progress for 0.3 s"):
            STALLS[name](table)


def test_wait__goes_on_while_steps_come():
    """Appends single steps to a view with items of 40 steps: the first item is complete long after the stall limit."""
    with relive.open("embed:", stall_timeout=1.5) as store:
        table = store.create_table("t", SIGNATURE, 5000, views=[relive.View(stack=1, n_step=40)])
        got = []
        thread = threading.Thread(target=lambda: got.append(table.sample(4)))
        with table.writer() as writer:
            thread.start()
            for i in range(60):
                writer.append(**step_values(i))
                time.sleep(0.045)
        thread.join(60)
    assert len(got) == 1


def test_wait__for_ever_is_infinity(make_table):
    with relive.open("embed:", stall_timeout=0.1) as store:
        table = store.create_table("t", SIGNATURE, 500)
        got = []
        thread = threading.Thread(target=lambda: got.append(table.sample(4, timeout=float("inf"))))
        thread.start()
        with pytest.raises(relive.Timeout, match="no progress"):
            table.sample(4)
        assert thread.is_alive()
        append(table, 5)
        thread.join(60)
    assert len(got) == 1


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_open__wrong_stall_timeout(value):
    with pytest.raises(relive.InvalidArgument, match="stall_timeout"):
        relive.open("embed:", stall_timeout=value)
