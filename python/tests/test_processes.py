"""Processes: fork, spawn and pickling, over a store of this host."""

import multiprocessing
import os
import pickle
import time

import numpy as np
import pytest

import relive
from conftest import SIGNATURE, step_values

def act(table, n):
    with table.writer() as writer:
        for i in range(n):
            writer.append(**step_values(i, terminated=i % 10 == 9))
    table.store.close()


def learn(sampler, queue):
    batch = next(sampler)
    sampler.update_priorities(batch.key, td_error=batch.reward)
    queue.put(batch)


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes__tables_and_samplers_are_sent(shm_store, method):
    context = multiprocessing.get_context(method)
    table = shm_store.create_table("t", SIGNATURE, 4096, max_writers=8)
    if method == "fork":  # inherited, not pickled: the child opens its own
        arguments = (pickle.dumps(table),)
        target = act_of_pickle
    else:
        arguments, target = (table,), act
    actors = [context.Process(target=target, args=(*arguments, 300)) for _ in range(2)]
    for actor in actors:
        actor.start()
    queue = context.Queue()
    sent = table.sampler(16)
    learner = context.Process(target=learn_of_pickle,
                              args=(pickle.dumps(sent), queue))
    learner.start()
    batch = queue.get(timeout=60)
    np.testing.assert_array_equal(batch.action, batch.id)
    for process in (*actors, learner):
        process.join(60)
        assert process.exitcode == 0
    assert len(table) == 600 and table.verify().problems == 0


def act_of_pickle(data, n):
    act(pickle.loads(data), n)


def learn_of_pickle(data, queue):
    learn(pickle.loads(data), queue)


def test_pickle__one_store_for_all_that_came(shm_store):
    tables = [shm_store.create_table(name, SIGNATURE, 500) for name in ("a", "b")]
    came = pickle.loads(pickle.dumps([*tables, shm_store]))
    assert came[0].store is came[1].store is came[2] and came[2] is not shm_store
    assert [table.name for table in came[:2]] == ["a", "b"]
    came[2].close()


def in_child(function):
    """Exit status of a forked child: 0 if the function returns true."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if function() else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hung"


def raises_forked(*uses):
    for use in uses:
        try:
            use()
        except relive.Forked:
            continue
        return False
    return True


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork__the_child_is_told(filled):
    writer, sampler = filled.writer(), filled.sampler(8, prefetch=1)
    batch = next(sampler)
    obs = batch.obs.copy()

    def child():
        told = raises_forked(lambda: writer.append(**step_values(0)), lambda: next(sampler),
                             sampler.sample, lambda: filled.sample(4), filled.info,
                             filled.store.info, lambda: filled.update_priorities(batch.key, obs[:, 0]))
        same = (batch.obs == obs).all()
        with relive.open("embed:") as own:
            table = own.create_table("t", SIGNATURE, 500)
            with table.writer() as other:
                other.append(**step_values(1, terminated=True))
            return told and same and len(table.sample(1)) == 1

    assert in_child(child) == 0
    writer.append(**step_values(0))
    assert len(next(sampler)) == 8


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork__the_child_lets_go_without_harm(filled):
    held = [filled.writer(), filled.sampler(8, prefetch=2)]
    held.append(next(held[1]))

    def child():
        held.clear()
        filled.store.close()
        return True

    assert in_child(child) in (0, 1, 2)  # close says Forked; it neither hangs nor crashes
    assert len(filled.sample(8)) == 8 and filled.verify().problems == 0
