"""Weights: trees of tensors that are published and fetched."""

import gc
import threading

import numpy as np
import pytest

import relive
from relive import safetensors


@pytest.fixture
def store():
    with relive.open("embed:") as store:
        yield store


def tree(seed):
    rng = np.random.default_rng(seed)
    return {"encoder": {"kernel": rng.standard_normal((70, 33)).astype(np.float32),
                        "bias": rng.standard_normal(33)},
            "heads": [np.arange(5, dtype=np.int64) * seed, np.float16(seed)],
            "mask": rng.random(17) < 0.5, "empty": np.zeros((0, 3), np.uint8)}


NAMES = ["encoder/kernel", "encoder/bias", "heads/0", "heads/1", "mask", "empty"]


def expect(generation, seed):
    want = tree(seed)
    assert generation.version == seed
    assert list(generation) == NAMES
    leaves = [*want["encoder"].values(), *want["heads"], want["mask"], want["empty"]]
    for found, leaf in zip(generation.values(), leaves):
        assert found.dtype == leaf.dtype and found.shape == np.shape(leaf)
        assert found.tobytes() == leaf.tobytes()


def test_round_trip(store):
    learner = store.create_weights("policy", 1 << 20, prefault=True)
    actor = store.weights("policy")
    assert actor.fetch() is None
    with pytest.raises(relive.Timeout):
        actor.watch(timeout=0)
    for version in range(1, 12):
        learner.publish(tree(version), version)
        assert actor.watch(version - 1, timeout=0) == version
        generation = actor.fetch(newer_than=version - 1)
        expect(generation, version)
        assert actor.fetch(newer_than=version) is None
    assert set(generation.nested()["encoder"]) == {"kernel", "bias"}
    expect(actor.get(11), 11)
    with pytest.raises(relive.NotFound):
        actor.get(3)
    with pytest.raises(ValueError):
        generation["mask"][0] = True


def test_a_bound_on_bytes_under_way(store):
    weights = store.create_weights("policy", 1 << 20, anchor_every=1)
    weights.limit(4096)
    weights.publish({"x": np.arange(100_000)}, 1)
    assert np.array_equal(weights.fetch()["x"], np.arange(100_000))
    weights.limit(0)
    for bytes in (4095, -1, 2**64):
        with pytest.raises(relive.InvalidArgument):
            weights.limit(bytes)


def test_deltas(store):
    learner = store.create_weights("policy", 1 << 20, anchor_every=8)
    actor = store.weights("policy")
    values = np.zeros(100_000, np.float32)
    for version in range(1, 17):
        values[version * 1000] = version
        learner.publish({"x": values}, version)
        found = actor.fetch()
        assert np.array_equal(found["x"], values)
        assert found.deltas == min(version - 1, 2)  # two buffers take turns, also over anchors
    assert learner.info()["anchors"] == 2
    assert actor.info()["deltas"] == 1 + 14 * 2


def test_arrays_outlive_the_handle(store):
    learner = store.create_weights("policy", 1 << 20)
    kept = []
    for version in range(1, 6):
        learner.publish(tree(version), version)
        kept.append(learner.fetch(version - 1))
    array = kept[2]["encoder/kernel"]
    learner.close()
    del kept
    gc.collect()
    assert np.array_equal(array, tree(3)["encoder"]["kernel"])


def test_what_is_refused(store):
    weights = store.create_weights("policy", 1 << 20)
    weights.publish({"x": np.ones(3)}, 5)
    with pytest.raises(relive.AlreadyExists, match="version 5"):
        weights.publish({"x": np.ones(3)}, 5)
    with pytest.raises(relive.InvalidArgument, match="RLV_PUBLISH_NEW_TREE"):
        weights.publish({"x": np.ones(4)}, 6)
    with pytest.raises(relive.InvalidArgument, match="NaN"):
        weights.publish({"x": np.array([1, np.nan, 2])}, 6, finite=True)
    with pytest.raises(relive.InvalidArgument, match="x: dtype complex128"):
        weights.publish({"x": np.ones(3, complex)}, 6)
    with pytest.raises(relive.InvalidArgument, match="want a dict"):
        weights.publish(np.ones(3), 6)
    with pytest.raises(relive.InvalidArgument, match="dtype 'int8'"):
        weights.publish({"x": np.ones(3)}, 6, dtype="int8")
    with pytest.raises(relive.InvalidArgument, match="bytes"):
        weights.publish({"x": np.ones(200_000)}, 6, new_tree=True)
    weights.publish({"x": np.ones(4)}, 6, new_tree=True)
    with pytest.raises(relive.AlreadyExists):
        store.create_weights("policy", 2 << 20)
    with pytest.raises(relive.NotFound):
        store.weights("other")
    store.create_kv("values")
    with pytest.raises(relive.NotFound, match="no weights"):
        store.weights("values")
    weights.close()
    with pytest.raises(relive.Closed):
        weights.fetch()


def test_conversion(store):
    weights = store.create_weights("policy", 1 << 20)
    floats = np.linspace(-3, 3, 1000, dtype=np.float32)
    counts = np.arange(9)
    weights.publish({"x": floats, "n": counts}, 1, dtype="float16")
    found = weights.fetch()
    assert np.array_equal(found["x"], floats.astype(np.float16))
    assert np.array_equal(found["n"], counts)
    weights.publish({"x": floats}, 2, dtype="bfloat16", new_tree=True)
    bits = weights.fetch()["x"].view(np.uint16).astype(np.uint32) << 16
    assert np.allclose(bits.view(np.float32), floats, rtol=1 / 256, atol=0)
    weights.publish({"x": weights.fetch()["x"]}, 3)
    assert np.array_equal(weights.fetch()["x"].view(np.uint16), bits >> 16)


def test_tied_arrays_are_stored_once(store, tmp_path):
    weights = store.create_weights("policy", 40_000)  # which one of them takes
    embed = np.arange(9_000, dtype=np.float32)
    weights.publish({"embed": embed, "head": embed.reshape(90, 100)}, 1)
    embed[7] = -1
    weights.publish({"embed": embed, "head": embed.reshape(90, 100)}, 2)
    found = weights.fetch()
    assert np.array_equal(found["embed"], embed)
    assert np.array_equal(found["head"], embed.reshape(90, 100))
    assert np.shares_memory(found["embed"], found["head"])
    safetensors.save(tmp_path / "file", found)
    loaded = safetensors.load(tmp_path / "file")
    assert np.array_equal(loaded["embed"], embed) and np.array_equal(loaded["head"], found["head"])
    with pytest.raises(relive.InvalidArgument, match="bytes"):  # they are not tied any more
        weights.publish(loaded, 3)


def test_tied_arrays_are_converted_once(store, monkeypatch):
    weights = store.create_weights("policy", 20_000)
    calls = []
    bits = relive._bfloat16.bits
    monkeypatch.setattr(relive._bfloat16, "bits", lambda *args: calls.append(1) or bits(*args))
    embed = np.arange(9_000, dtype=np.float32)
    tree = {"embed": embed, "head": embed[:], "step": 7.0, "rate": 8.0}
    for version in range(1, 4):
        embed += 1
        weights.publish(tree, version, dtype="bfloat16")
        found = weights.fetch()
        assert len(calls) == 3 * version
        assert np.shares_memory(found["embed"], found["head"])
        assert np.array_equal(found["head"].view(np.uint16), bits(embed, "embed"))
        assert found["step"].view(np.uint16) != found["rate"].view(np.uint16)


def test_tied_parameters_of_torch(store):
    torch = pytest.importorskip("torch")
    weights = store.create_weights("policy", 8_000)
    model = torch.nn.Sequential(torch.nn.Embedding(100, 10), torch.nn.Linear(10, 100, bias=False))
    model[1].weight = model[0].weight
    for version, dtype in enumerate((None, "bfloat16"), 1):
        weights.publish(model.state_dict(), version, dtype=dtype, new_tree=True)
        found = weights.fetch()
        assert np.shares_memory(found["0.weight"], found["1.weight"])
        other = torch.nn.Sequential(torch.nn.Embedding(100, 10), torch.nn.Linear(10, 100, bias=False))
        other[1].weight = other[0].weight
        weights.fetch(into=other.state_dict())
        want = model[0].weight.to(torch.bfloat16).float() if dtype else model[0].weight
        assert torch.equal(other[1].weight, want)


def test_full_checks(store):
    weights = store.create_weights("policy", 1 << 20)
    actor = store.weights("policy")
    actor.check("full")
    array = np.arange(50_000, dtype=np.float32)
    for version in range(1, 12):
        array[version * 7] += 1
        weights.publish({"x": array}, version)
        found = actor.fetch()
        assert np.array_equal(found["x"], array) and not found.repaired
    assert actor.info()["deltas"] > 5
    with store.shards("ranks", world=2, bytes=1 << 20) as shards:
        shards.check("full")
        shards.check("changes")
    with pytest.raises(relive.InvalidArgument, match="want \"changes\" or \"full\""):
        actor.check("all")


def test_layouts(store):
    weights = store.create_weights("policy", 1 << 20)
    array = np.arange(24.0).reshape(4, 6)
    weights.publish({"t": array.T, "s": array[::2, 1::2], "big": array.astype(">f8")}, 1)
    found = weights.fetch()
    assert np.array_equal(found["t"], array.T)
    assert np.array_equal(found["s"], array[::2, 1::2])
    assert np.array_equal(found["big"], array)


def test_torch(store):
    torch = pytest.importorskip("torch")
    weights = store.create_weights("policy", 1 << 20)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 2).to(torch.bfloat16))
    weights.publish(model.state_dict(), 1)
    other = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 2).to(torch.bfloat16))
    other.load_state_dict(weights.fetch().torch())
    for mine, theirs in zip(model.state_dict().values(), other.state_dict().values()):
        assert mine.dtype == theirs.dtype and torch.equal(mine, theirs)


def test_a_waiting_reader(store):
    learner = store.create_weights("policy", 1 << 20)
    actor = store.weights("policy")
    found = []
    thread = threading.Thread(target=lambda: found.append(actor.fetch(timeout=30)))
    thread.start()
    learner.publish(tree(1), 1)
    thread.join(30)
    expect(found[0], 1)


def test_fetch_into_arrays(store):
    weights = store.create_weights("policy", 1 << 20)
    weights.publish(tree(1), 1)
    mine = {"encoder": {"bias": np.zeros(33), "kernel": np.zeros((70, 33), np.float16)},
            "heads": [np.zeros(5, np.int64)]}
    generation = weights.fetch(into=mine)
    assert generation.version == 1
    assert np.array_equal(mine["encoder"]["bias"], tree(1)["encoder"]["bias"])
    assert np.array_equal(mine["encoder"]["kernel"], tree(1)["encoder"]["kernel"].astype(np.float16))
    assert np.array_equal(mine["heads"][0], np.arange(5))
    strided = np.zeros((66, 140), np.float32)[::2, ::2].T
    generation.copy_to({"encoder/kernel": strided})
    assert np.array_equal(strided, tree(1)["encoder"]["kernel"])
    bias = np.zeros(33)
    for other, message in ((np.zeros(6, np.int64), "shape"), (np.zeros(5), "float64"),
                           (np.zeros(5, np.int32), "int32"), (generation["heads/0"], "read-only"),
                           ([1] * 5, "heads/0/0")):
        with pytest.raises(relive.InvalidArgument, match=message):
            weights.fetch(into={"encoder": {"bias": bias}, "heads": [other]})
    with pytest.raises(relive.InvalidArgument, match="no tensor tail"):
        weights.fetch(into={"encoder": {"bias": bias}, "tail": np.zeros(3)})
    assert not bias.any()
    assert weights.fetch(newer_than=1, into={"tail": bias}) is None


def test_fetch_into_bfloat16(store):
    weights = store.create_weights("policy", 1 << 20)
    floats = np.linspace(-3, 3, 1000, dtype=np.float32)
    weights.publish({"x": floats}, 1, dtype="bfloat16")
    exact = weights.fetch()["x"].view(np.uint16)
    wide, same = np.zeros(1000), np.zeros(1000, relive._bfloat16.numpy_dtype())
    weights.fetch(into={"x": wide})
    assert np.array_equal(wide, (exact.astype(np.uint32) << 16).view(np.float32))
    weights.fetch(into={"x": same})
    assert np.array_equal(same.view(np.uint16), exact)
    weights.publish({"x": floats}, 2, new_tree=True)
    weights.fetch(into={"x": same})
    assert np.array_equal(same.view(np.uint16), exact)


def test_fetch_into_a_state_dict(store):
    torch = pytest.importorskip("torch")
    weights = store.create_weights("policy", 1 << 20)

    def make():
        return torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 2).to(torch.bfloat16))

    model, other = make(), make()
    weights.publish(model.state_dict(), 1)
    places = [parameter.data_ptr() for parameter in other.parameters()]
    weights.fetch(into=other.state_dict())
    assert [parameter.data_ptr() for parameter in other.parameters()] == places
    for mine, theirs in zip(model.parameters(), other.parameters()):
        assert torch.equal(mine, theirs)
    weights.publish(model.state_dict(), 2, dtype="bfloat16", new_tree=True)
    weights.fetch(into=other.state_dict())
    for mine, theirs in zip(model.parameters(), other.parameters()):
        assert torch.equal(mine.to(torch.bfloat16), theirs.to(torch.bfloat16))


def test_staleness_and_publish_lag(store):
    """Actors append with the version that they act on; the learner sees how old its batches are."""
    learner, actor = store.create_weights("policy", 1 << 20, keep=4), store.weights("policy")
    table = store.create_table("replay", {"obs": "float32"}, capacity=1024)
    with table.writer() as writer, table.sampler(32) as sampler:
        for version in range(1, 6):
            learner.publish({"x": np.full(4, version)}, version)
            assert actor.info()["publish_lag"] == (1 if version == 1 else version - 1)
            if version == 1:
                acts_on = actor.fetch().version
                assert actor.info()["publish_lag"] == 0
            writer.append(obs=version, terminated=True, policy_version=acts_on)
        writer.append(obs=9, terminated=True, policy_version=actor.fetch().version)
        batch = sampler.sample()
        stats = sampler.stats()
    assert actor.info()["publish_lag"] == 0
    assert stats["policy_version"] == 5 and stats["staleness_max"] == 4
    assert stats["staleness"] == (5 - batch.policy_version.astype(int)).sum()


def test_shards(store):
    """A version is there when all ranks have published it; ranks have tensors of their own."""
    ranks = [store.shards("policy", 2, rank, bytes=1 << 20, keep=3) for rank in range(2)]
    reader = store.shards("policy", 2, bytes=1 << 20, keep=3)
    ranks[0].publish(tree(1), 1)
    assert reader.newest() == 0 and reader.fetch() is None
    ranks[1].publish({"x": np.arange(9)}, 1)
    first, second = reader.fetch()
    expect(first, 1)
    assert second.version == 1 and np.array_equal(second["x"], np.arange(9))
    for version in (2, 3):
        ranks[0].publish(tree(version), version)
    with pytest.raises(relive.Busy, match="rank 1 is at version 1"):
        ranks[0].publish(tree(4), 4)
    assert reader.newest() == 1 and reader.fetch(newer_than=1, timeout=0.01) is None
    ranks[1].publish({"x": np.arange(9) * 3}, 3)
    ranks[1].close()
    found = reader.fetch(newer_than=1)
    assert [one.version for one in found] == [3, 3]
    array = found[1]["x"]
    with pytest.raises(relive.InvalidArgument, match="NO_RANK"):
        reader.publish({"x": np.arange(9)}, 4)
    reader.close()
    with pytest.raises(relive.Closed):
        reader.newest()
    assert np.array_equal(array, np.arange(9) * 3)
    for world, rank in ((0, 0), (65, 0), (2, 2), (2, -1)):
        with pytest.raises(relive.InvalidArgument):
            store.shards("policy", world, rank)
    assert store.kvs() == ["policy.0-of-2", "policy.1-of-2"]


def test_mapped_arrays_stay_while_others_publish(tmp_path):
    def values(version):
        odd = {str(i): np.full(1 + i * 137 % 2000, version * 100 + i, np.float32) for i in range(100)}
        return odd | {"7": np.full(40_001, version * 100 + 7, np.float32)}  # longer than two chunks of the store

    with relive.open("embed:%s" % (tmp_path / "pool")) as store:
        learner = store.create_weights("policy", 1 << 20, anchor_every=1)
        actor = store.weights("policy")
        assert actor.map() is None
        learner.publish(values(1), 1)
        first = actor.map()
        assert first.mapped == set(first) == set(values(1))
        assert not first["0"].flags.writeable
        kept = [first[name] for name in first]
        del first
        for version in range(2, 20):
            learner.publish(values(version), version)
            assert all((array == 100 + i).all() for i, array in enumerate(kept))
        with pytest.raises(relive.Busy):
            actor.close()
        assert (actor.map(newer_than=1)["7"] == 1907).all()
        assert not actor.fetch(newer_than=1).mapped
        kept.clear()
        gc.collect()
        actor.close()
        learner.close()


def test_map_of_an_embedded_store(store):
    weights = store.create_weights("policy", 1 << 20, anchor_every=1)
    weights.publish({"x": np.zeros(100_000)}, 1)
    with pytest.raises(relive.Unsupported):
        weights.map()
    weights.close()
def layers(version):
    return {"layers/%d" % i: np.full(30_000, version * 100 + i, np.float32) for i in range(12)}


def first_number(name):
    return int(name.split("/")[1])


def test_stream(store):
    """A stream gives every tensor of one version, in order."""
    learner = store.create_weights("policy", 2 << 20, anchor_every=8)
    actor = store.weights("policy")
    actor.limit(1 << 16)
    nothing = actor.stream()
    assert nothing.version is None and list(nothing) == [] and len(nothing) == 0
    learner.publish(layers(1), 1)
    stream = actor.stream()
    assert stream.version == 1 and len(stream) == 12
    given = list(stream)
    assert [name for name, _ in given] == list(layers(1))
    for name, array in given:
        assert np.array_equal(array, layers(1)[name]) and not array.flags.writeable
    assert actor.info()["fetched"] == 1
    again = actor.fetch()
    assert np.shares_memory(again["layers/0"], given[0][1])
    changed = layers(1)
    changed["layers/3"][7] = 0
    learner.publish(changed, 2)
    assert np.array_equal(dict(actor.stream(newer_than=1))["layers/3"], changed["layers/3"])
    assert actor.info()["deltas"] == 1
    assert list(actor.stream(newer_than=2, timeout=0.01)) == []


def test_stream_of_a_version_that_is_dropped(store):
    learner = store.create_weights("policy", 2 << 20, keep=1, anchor_every=1)
    actor = store.weights("policy")
    actor.limit(1 << 16)
    learner.publish(layers(1), 1)
    stream = actor.stream()
    first = [next(stream) for _ in range(2)]
    for version in range(2, 8):
        learner.publish(layers(version), version)
    with pytest.raises(relive.Busy, match="dropped"):
        first += stream
    assert 2 <= len(first) < 12
    for name, array in first:
        assert np.array_equal(array, layers(1)[name])
    with pytest.raises(relive.Busy, match="dropped"):
        next(stream)
    new = actor.stream()
    arrays = dict(new)
    assert new.version == 7 and np.array_equal(arrays["layers/11"], layers(7)["layers/11"])
    actor.close()
    assert np.array_equal(first[0][1], layers(1)["layers/0"])
    with pytest.raises(relive.Closed):
        next(stream)


def test_priority(store):
    weights = store.create_weights("policy", 2 << 20)
    by_name = dict(sorted(layers(1).items()))
    assert list(by_name)[1] == "layers/1" and list(by_name)[2] == "layers/10"
    weights.publish(by_name, 1, priority=first_number)
    assert list(weights.fetch()) == ["layers/%d" % i for i in range(12)]
    assert [name for name, _ in weights.stream()] == list(layers(1))
    with pytest.raises(relive.InvalidArgument, match="order"):
        weights.publish(by_name, 2)
    weights.publish(by_name, 2, priority=lambda name: -first_number(name), new_tree=True)
    assert next(iter(weights.fetch())) == "layers/11"
    weights.publish(by_name, 3, priority=lambda name: first_number(name) % 2 == 0, new_tree=True)
    assert list(weights.fetch())[:3] == ["layers/1", "layers/11", "layers/3"]  # equal ones in their order


def test_stream_of_shards(store):
    """Arrays come rank by rank, the first ones first, when all ranks have published the version."""
    ranks = [store.shards("policy", 2, rank, bytes=2 << 20, keep=2, anchor_every=1) for rank in range(2)]
    reader = store.shards("policy", 2, bytes=2 << 20, keep=2, anchor_every=1)
    reader.limit(1 << 16)
    ranks[0].publish(layers(1), 1)
    nothing = reader.stream()
    assert nothing.version is None and list(nothing) == [] and len(nothing) == 0
    short = {name: array for name, array in layers(5).items() if first_number(name) < 3}
    ranks[1].publish(short, 1)
    stream = reader.stream()
    assert stream.version == 1 and len(stream) == 15
    given = list(stream)
    order = sorted([(first_number(name), 0, name) for name in layers(1)]
                   + [(first_number(name), 1, name) for name in short])
    assert [(rank, name) for rank, name, _ in given] == [(rank, name) for _, rank, name in order]
    for rank, name, array in given:
        assert np.array_equal(array, (short if rank else layers(1))[name]) and not array.flags.writeable
    ranks[0].publish(layers(2), 2)
    ranks[1].publish(short, 2)
    stream = reader.stream(newer_than=1)
    first = next(stream)
    for version in range(3, 6):
        ranks[1].publish(short, version)
        ranks[0].publish(layers(version), version)
    with pytest.raises(relive.Busy, match="rank [01]: .*dropped"):
        list(stream)
    assert np.array_equal(first[2], layers(2)["layers/0"])
    for shards in (*ranks, reader):
        shards.close()
