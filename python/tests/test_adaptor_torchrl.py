"""The same operations on TorchRL's own classes and on relive.adaptors.torchrl, with the same
outcome."""

import pickle

import numpy as np
import pytest

import relive

torch = pytest.importorskip("torch", reason="no torch: make check-adaptors has TorchRL")
pytest.importorskip("torchrl", reason="no TorchRL: make check-adaptors compares with it")

from tensordict import TensorDict
from torchrl.data import (LazyTensorStorage, PrioritizedSampler, RandomSampler, ReplayBuffer,
                          TensorDictReplayBuffer)
from torchrl.data.replay_buffers.writers import RoundRobinWriter, TensorDictRoundRobinWriter

from relive.adaptors import torchrl as ours

pytestmark = pytest.mark.filterwarnings("ignore:Got conflicting batch_sizes")

SIZE = 1000


def parts_of_ours(prioritized, alpha, beta, tensordict):
    sampler = (ours.RelivePrioritizedSampler(SIZE, alpha=alpha, beta=beta) if prioritized
               else ours.ReliveSampler())
    return dict(storage=ours.ReliveStorage(SIZE), sampler=sampler, writer=ours.ReliveWriter())


def parts_of_ours_and_defaults(prioritized, alpha, beta, tensordict):
    parts = parts_of_ours(prioritized, alpha, beta, tensordict)
    del parts["writer"]
    if not prioritized:
        del parts["sampler"]
    return parts


def parts_of_theirs(prioritized, alpha, beta, tensordict):
    sampler = (PrioritizedSampler(SIZE, alpha=alpha, beta=beta) if prioritized
               else RandomSampler())
    writer = TensorDictRoundRobinWriter() if tensordict else RoundRobinWriter()
    return dict(storage=LazyTensorStorage(SIZE), sampler=sampler, writer=writer)


@pytest.fixture(params=[parts_of_ours, parts_of_ours_and_defaults, parts_of_theirs],
                ids=["relive", "storage", "torchrl"])
def make_buffer(request):
    made = []

    def make(prioritized=True, alpha=0.7, beta=0.5, kind=TensorDictReplayBuffer, **options):
        parts = request.param(prioritized, alpha, beta, kind is TensorDictReplayBuffer)
        made.append(kind(**parts, batch_size=64, **options))
        return made[-1]

    yield make
    for buffer in made:
        if isinstance(buffer.storage, ours.ReliveStorage):
            buffer.storage.close()


def steps(n, start=0, **more):
    number = torch.arange(start, start + n)
    return TensorDict({
        "obs": number[:, None].float() * torch.ones(3), "id": number,
        "next": {"reward": number.float() / 2, "done": number % 5 == 4}, **more,
    }, batch_size=[n])


def check(sample):
    """Checks that each element is an inserted one, unchanged."""
    ids = sample["id"]
    torch.testing.assert_close(sample["obs"], ids[:, None].float() * torch.ones(3))
    torch.testing.assert_close(sample["next", "reward"], ids.float() / 2)
    assert torch.equal(sample["next", "done"], ids % 5 == 4)


# -------- in and out --------


def test_extend__is_sampled(make_buffer):
    buffer = make_buffer()
    buffer.extend(steps(100))
    assert len(buffer) == 100
    sample = buffer.sample()
    assert sample.batch_size == torch.Size([64])
    assert sample["obs"].dtype == torch.float32
    assert sample["next", "done"].dtype == torch.bool
    check(sample)


def test_add__is_sampled(make_buffer):
    buffer = make_buffer()
    for i in range(5):
        buffer.add(steps(1, i)[0])
    assert len(buffer) == 5
    assert buffer.write_count == 5
    check(buffer.sample(20))


def test_sample__of_tensors(make_buffer):
    buffer = make_buffer(prioritized=False, kind=ReplayBuffer)
    buffer.extend(torch.arange(50))
    sample, info = buffer.sample(30, return_info=True)
    assert sample.dtype == torch.int64
    assert set(sample.tolist()) <= set(range(50))
    assert info["index"].shape == (30,)


def test_sample__of_several_sizes(make_buffer):
    buffer = make_buffer()
    buffer.extend(steps(100))
    for n in (1, 7, 64, 300):
        sample = buffer.sample(n)
        assert len(sample) == n
        check(sample)


def test_sample__keeps_dimensions_of_time(make_buffer):
    buffer = make_buffer(prioritized=False)
    data = TensorDict({"obs": torch.arange(60).reshape(6, 10)}, batch_size=[6, 10])
    buffer.extend(data)
    sample = buffer.sample(4)
    assert sample.batch_size == torch.Size([4, 10])
    torch.testing.assert_close(sample["obs"] - sample["obs"][:, :1],
                               torch.arange(10).expand(4, 10))


def test_sample__from_nothing_is_an_error(make_buffer):
    with pytest.raises(RuntimeError, match="empty"):
        make_buffer().sample(4)


def test_sample__is_the_callers_own(make_buffer):
    buffer = make_buffer()
    buffer.extend(steps(10))
    samples = [buffer.sample(8) for _ in range(20)]
    for sample in samples:
        check(sample)
        sample["obs"].zero_()
    check(buffer.sample(8))


def test_buffer__prefetches(make_buffer):
    buffer = make_buffer(prefetch=3)
    buffer.extend(steps(100))
    for _ in range(20):
        check(buffer.sample())


def test_buffer__transforms(make_buffer):
    from torchrl.envs.transforms import RewardScaling
    buffer = make_buffer(transform=RewardScaling(0, 10.0, in_keys=[("next", "reward")],
                                                 standard_normal=False))
    buffer.extend(steps(20))
    sample = buffer.sample(16)
    torch.testing.assert_close(sample["next", "reward"], sample["id"].float() * 5)


def test_buffer__is_iterated(make_buffer):
    buffer = make_buffer(prioritized=False)
    buffer.extend(steps(100))
    for i, sample in enumerate(buffer):
        check(sample)
        if i == 3:
            break


def test_buffer__is_full_of_the_newest(make_buffer):
    """The adaptor keeps up to a block more for each writer."""
    buffer = make_buffer(prioritized=False)
    for start in range(0, 5000, 100):
        buffer.extend(steps(100, start))
    assert len(buffer) == SIZE
    assert min(buffer.sample(500)["id"]) >= 5000 - 1.3 * SIZE


def test_empty__empties(make_buffer):
    buffer = make_buffer()
    buffer.extend(steps(10))
    buffer.empty()
    assert len(buffer) == 0
    buffer.extend(steps(3, 50))
    assert len(buffer) == 3
    assert min(buffer.sample(8)["id"]) >= 50


# -------- priorities --------


def shares(buffer, n, rounds=40):
    """How often each of n elements was drawn."""
    ids = torch.cat([buffer.sample(256)["id"] for _ in range(rounds)])
    return np.bincount(ids.numpy(), minlength=n) / len(ids)


def prioritize(buffer, priorities):
    """Updates priorities of drawn elements, as learners do."""
    unseen = set(range(len(priorities)))
    while unseen:
        sample = buffer.sample(64)
        sample["td_error"] = priorities[sample["id"]]
        buffer.update_tensordict_priority(sample)
        unseen -= set(sample["id"].tolist())


@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_update_priority__decides_how_often(make_buffer, alpha):
    buffer = make_buffer(alpha=alpha)
    buffer.extend(steps(6))
    priorities = torch.tensor([0.1, 0.5, 1.0, 2.0, 4.0, 0.3])
    prioritize(buffer, priorities)
    want = (priorities + 1e-8)**alpha
    want = (want / want.sum()).numpy()
    np.testing.assert_allclose(shares(buffer, 6), want,
                               atol=6 * np.sqrt(want.max() / (40 * 256)))


def test_priority_weight__is_by_probability(make_buffer):
    """Weights are equal up to a constant factor in each batch."""
    buffer = make_buffer(alpha=0.7, beta=0.5)
    buffer.extend(steps(4))
    priorities = torch.tensor([0.5, 1.0, 2.0, 4.0])
    prioritize(buffer, priorities)
    sample = buffer.sample(256)
    weights = dict(zip(sample["id"].tolist(), sample["priority_weight"].tolist()))
    assert set(weights) == {0, 1, 2, 3}
    want = priorities**(-0.7 * 0.5)
    for i in range(4):
        assert weights[i] / weights[0] == pytest.approx(float(want[i] / want[0]), rel=1e-4)
    assert max(weights.values()) == pytest.approx(1)


def test_update_priority__by_index(make_buffer):
    buffer = make_buffer(kind=ReplayBuffer, alpha=1.0)
    buffer.extend(steps(2))
    index = {}
    while len(index) < 2:
        sample, info = buffer.sample(16, return_info=True)
        index.update(zip(sample["id"].tolist(), info["index"]))
    buffer.update_priority(torch.stack([index[0], index[1]]), torch.tensor([3.0, 1.0]))
    drawn = torch.cat([buffer.sample(256)["id"] for _ in range(20)])
    assert float((drawn == 0).float().mean()) == pytest.approx(0.75, abs=0.04)
    buffer.update_priority(index[1], 3.0)
    drawn = torch.cat([buffer.sample(256)["id"] for _ in range(20)])
    assert float((drawn == 0).float().mean()) == pytest.approx(0.5, abs=0.05)


def test_extend__takes_priorities_from_the_data(make_buffer):
    buffer = make_buffer(alpha=1.0)
    buffer.extend(steps(2, td_error=torch.tensor([3.0, 1.0])))
    drawn = torch.cat([buffer.sample(256)["id"] for _ in range(20)])
    assert float((drawn == 0).float().mean()) == pytest.approx(0.75, abs=0.04)


def test_extend__new_elements_are_as_important_as_any(make_buffer):
    buffer = make_buffer(alpha=1.0)
    buffer.extend(steps(1))
    prioritize(buffer, torch.tensor([4.0]))
    buffer.extend(steps(1, 1))
    assert buffer.sampler.default_priority == pytest.approx(4, rel=1e-4)
    drawn = torch.cat([buffer.sample(256)["id"] for _ in range(20)])
    assert float((drawn == 0).float().mean()) == pytest.approx(0.5, abs=0.05)


def test_sampler__refuses_what_makes_no_sense(make_buffer):
    buffer = make_buffer()
    kind = type(buffer.sampler)
    with pytest.raises(ValueError):
        kind(10, alpha=0.5, beta=-1.0)
    buffer.extend(steps(4))
    sample = buffer.sample(4)
    with pytest.raises(RuntimeError):
        buffer.update_priority(sample["index"], torch.ones(3))


# -------- ours alone --------


def on(store, **options):
    parts = parts_of_ours(True, 0.7, 0.5, True)
    parts["storage"].close()
    return TensorDictReplayBuffer(**{**parts, "storage": ours.ReliveStorage(SIZE, store)},
                                  batch_size=32, **options)


def test_buffer__two_share_a_store(store):
    first = on(store)
    first.extend(steps(20))
    prioritize(first, torch.arange(20.0))
    second = on(store)
    assert len(second) == 20
    check(second.sample())
    assert second.sampler.default_priority == pytest.approx(19, rel=1e-3)
    second.extend(steps(20, 20))
    assert len(first) == 40


def test_update_priority__of_what_is_gone_hits_nothing(store):
    buffer = on(store)
    buffer.extend(steps(100))
    old = buffer.sample(32)
    for start in range(100, 5000, 100):
        buffer.extend(steps(100, start))
    before = buffer.storage.table.info().views[0].priority_sum
    old["td_error"] = torch.full((32,), 1000.0)
    buffer.update_tensordict_priority(old)
    assert buffer.storage.table.info().views[0].priority_sum == before


def test_uncovered__says_what_to_use(store):
    buffer = on(store)
    buffer.extend(steps(10))
    for call in (lambda: buffer[0], lambda: buffer.__setitem__(0, steps(1)[0]),
                 lambda: ours.RelivePrioritizedSampler(10, alpha=0.0, beta=0.5),
                 lambda: buffer.storage.contains(0), lambda: buffer.state_dict(),
                 lambda: buffer.writer.extend({"a": torch.zeros(3)})):
        with pytest.raises(NotImplementedError, match="use"):
            call()


def test_sampler__of_theirs_says_what_to_use(store):
    buffer = ReplayBuffer(storage=ours.ReliveStorage(SIZE, store), batch_size=4,
                          sampler=PrioritizedSampler(SIZE, alpha=0.7, beta=0.5))
    buffer.extend(torch.arange(10))
    with pytest.raises(NotImplementedError, match="RelivePrioritizedSampler"):
        buffer.sample()


def test_writer__of_theirs_stores_no_count_of_its_own(store):
    buffer = TensorDictReplayBuffer(storage=ours.ReliveStorage(SIZE, store), batch_size=4)
    buffer.extend(steps(10))
    assert "data__index" not in [column.name for column in buffer.storage.table.columns]


def test_state__leads_to_the_same_elements(tmp_path):
    with relive.open("embed:%s" % (tmp_path / "pool"), pool_bytes=1 << 26) as store:
        buffer = on(store)
        buffer.extend(steps(30))
        buffer.sampler.beta = 0.9
        state = buffer.state_dict()
        buffer.dumps(tmp_path / "dump")
    with relive.open("embed:%s" % (tmp_path / "pool"), pool_bytes=1 << 26) as store:
        for load in (lambda b: b.load_state_dict(state), lambda b: b.loads(tmp_path / "dump")):
            again = on(store)
            load(again)
            assert (len(again), again.sampler.beta, again.write_count) == (30, 0.9, 30)
            check(again.sample())
        with pytest.raises(ValueError, match="state of"):
            ours.ReliveStorage(SIZE, store, "other").load_state_dict(state["_storage"])


def test_storage__is_pickled_between_processes(shm_store):
    buffer = on(shm_store)
    buffer.extend(steps(10))
    storage = pickle.loads(pickle.dumps(buffer.storage))
    assert len(storage) == 10
    assert storage.name == "replay"
