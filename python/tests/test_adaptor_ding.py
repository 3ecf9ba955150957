"""DI-engine's DequeBuffer and relive.adaptors.ding take and give the same transitions."""

import collections
import types

import numpy as np
import pytest

import relive

pytest.importorskip("torch", reason="no torch: make check-adaptors has DI-engine")
pytest.importorskip("ding", reason="no DI-engine: make check-adaptors compares with it")

import torch
import treetensor.torch as ttorch
from ding.data.buffer import Buffer, DequeBuffer
from ding.data.buffer.middleware import PriorityExperienceReplay, clone_object
from ding.framework.middleware.functional.data_processor import data_pusher, offpolicy_data_fetcher
from easydict import EasyDict

from relive.adaptors.ding import ReliveBuffer


@pytest.fixture
def make():
    made = []

    def make_one(size=1000, *arguments, **options):
        made.append(ReliveBuffer(size, *arguments, **options))
        return made[-1]

    yield make_one
    for buffer in made:
        buffer.close()


def transition(number):
    return {"obs": {"image": torch.full((2, 3), number, dtype=torch.uint8), "speed": torch.tensor(float(number))},
            "action": torch.tensor([number]), "reward": np.float32(number / 2), "done": number % 5 == 0}


def numbers(items):
    return [int(item.data["action"][0]) for item in items]


def expect_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert torch.equal(ours["obs"]["image"], theirs["obs"]["image"])
    assert torch.equal(ours["obs"]["speed"], theirs["obs"]["speed"])
    assert torch.equal(ours["action"], theirs["action"])
    assert float(ours["reward"]) == float(theirs["reward"]) and bool(ours["done"]) == bool(theirs["done"])


def test_the_same_transitions(make):
    ours, theirs = make(), DequeBuffer(1000)
    for buffer in (ours, theirs):
        for number in range(200):
            buffer.push(transition(number))
    assert isinstance(ours, Buffer) and len(ours) == len(theirs) == 200
    by_number = dict(zip(numbers(theirs), theirs))
    seen = set()
    for _ in range(30):
        for item in ours.sample(64):
            expect_same(item.data, by_number[int(item.data["action"][0])].data)
            seen.add(int(item.data["action"][0]))
    assert seen == set(range(200))


def test_sample_answers_as_theirs_does(make):
    for buffer in (make(), DequeBuffer(1000)):
        with pytest.raises(ValueError, match="less than 1 records"):
            buffer.sample(1)
        for number in range(20):
            buffer.push(transition(number))
        with pytest.raises(ValueError, match="less than 21 records"):
            buffer.sample(21)
        with pytest.raises(AssertionError):
            buffer.sample()
        assert len(buffer.sample(40, replace=True)) == 40
        drawn = buffer.sample(3)
        indices = [item.index for item in drawn][::-1]
        assert numbers(buffer.sample(indices=indices)) == numbers(drawn)[::-1]
        assert numbers([buffer.get_by_index(indices[0])]) == numbers(drawn)[2:]
        with pytest.raises(AssertionError):
            buffer.sample(2, indices=indices)
        drawn[0].data["obs"]["image"][:] = 255  # ours has a copy
        buffer.clear()
        assert buffer.count() == 0
        with pytest.raises(KeyError):
            buffer.sample(indices=indices)
    assert make(name="empty").sample(5, ignore_insufficient=True) == []


def test_a_draw_is_a_copy(make):
    buffer = make()
    for number in range(20):
        buffer.push(transition(number))
    for item in buffer.sample(16):
        item.data["obs"]["image"][:] = 255
    assert all(int(item.data["obs"]["image"].max()) < 20 for item in buffer.sample(16))


def test_priorities_draw_as_their_middleware_does(make):
    """The rates of transitions whose priorities were set through update."""
    ours, theirs = make(priority=True, alpha=0.6, beta=0.4), DequeBuffer(64)
    theirs.use(PriorityExperienceReplay(theirs, priority_power_factor=0.6, IS_weight_power_factor=0.4,
                                        IS_weight_anneal_train_iter=10**9))
    rates = []
    for buffer in (ours, theirs):
        for number in range(64):
            buffer.push(transition(number))
        for _ in range(20):
            for item in buffer.sample(32):
                item.meta["priority"] = float(item.data["action"][0] % 4 + 1)
                buffer.update(item.index, None, item.meta)
        count, weights = collections.Counter(), {}
        for _ in range(300):
            for item in buffer.sample(32):
                count[int(item.data["action"][0]) % 4] += 1
                weights[int(item.data["action"][0]) % 4] = float(item.data["priority_IS"][0])
        rates.append(np.array([count[kind] for kind in range(4)]) / sum(count.values()))
        want = (np.arange(1, 5) / 1.0)**(-0.6 * 0.4)
        np.testing.assert_allclose([weights[kind] for kind in range(4)], want, rtol=0.02)
    np.testing.assert_allclose(rates[0], rates[1], atol=0.03)


@pytest.mark.parametrize("priority", [False, True])
def test_the_loop_of_di_engine(make, priority):
    """Their pusher and fetcher, with tree tensors as collectors make them."""
    cfg = EasyDict(policy=dict(collect=dict(unroll_len=1), learn=dict(batch_size=8)))
    buffer = make(priority=priority)
    task = types.SimpleNamespace(router=types.SimpleNamespace(is_active=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ding.framework.middleware.functional.data_processor.task", task)
        push, fetch = data_pusher(cfg, buffer), offpolicy_data_fetcher(cfg, buffer)
    context = types.SimpleNamespace(trajectories=[ttorch.tensor(transition(n)) for n in range(40)], episodes=None)
    push(context)
    assert context.trajectories is None and buffer.count() == 40
    step = fetch(context)
    next(step)
    assert len(context.train_data) == 8 and isinstance(context.train_data[0], ttorch.Tensor)
    assert context.train_data[0].obs.image.shape == (2, 3)
    context.train_output = {"priority": [7.0] * 8}
    with pytest.raises(StopIteration):
        next(step)
    drawn = {item.index: item for item in buffer.sample(32)}
    if priority:
        assert max(item.meta["priority"] for item in drawn.values()) == pytest.approx(7.0, rel=1e-3)


def test_processes_share_it_and_files_keep_it(make, tmp_path):
    with relive.open("embed:") as store:
        ours, view = make(1000, store), make(1000, store)
        view.use(clone_object())
        for number in range(50):
            ours.push(transition(number))
        assert view.count() == ours.view().count() == 50
        assert set(numbers(view.sample(50))) <= set(range(50))
        ours.save_data(str(tmp_path / "data"))
        ours.clear()
        ours.load_data(str(tmp_path / "data"))
        assert ours.count() == 50 and set(numbers(ours.sample(40))) <= set(range(50))


def test_what_is_not_covered_says_what_to_do(make):
    buffer = make()
    buffer.push(transition(1))
    for call, words in ((lambda: buffer.sample(1, groupby="env"), "View"), (lambda: buffer.delete("1"), "clear"),
                        (lambda: buffer.get(0), "get_by_index"), (lambda: buffer.update("1", transition(2)), "push"),
                        (lambda: buffer.push(transition(2), {"env": 1}), "into the data")):
        with pytest.raises(NotImplementedError, match=words):
            call()
