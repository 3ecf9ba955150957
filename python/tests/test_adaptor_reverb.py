"""The same operations on dm-reverb and on relive.adaptors.reverb, with the same outcome.

The tests of dm-reverb run where it is installed; those of ours need nothing."""

import doctest
import importlib.util
import itertools

import numpy as np
import pytest

import relive
from relive.adaptors import _rows
from relive.adaptors import reverb as ours


class Ours:
    """relive.adaptors.reverb on embed:."""

    lib = ours
    timeout = relive.Timeout
    client = None

    def start(self, tables):
        self.client = ours.Client("embed:", tables)
        return self.client

    def spec(self, shape, dtype):
        return np.empty(shape, dtype)

    def can_sample(self, name, n):
        return self.client.can_sample(name, n)

    def stop(self):
        if self.client is not None:
            self.client.close()


class Theirs:
    """dm-reverb with a server in this process."""

    def __init__(self):
        import reverb
        import tensorflow
        self.lib, self._tensorflow, self._server = reverb, tensorflow, None
        self.timeout = reverb.DeadlineExceededError

    def start(self, tables):
        self._tables = {table.name: table for table in tables}
        self._server = self.lib.Server(tables)
        return self.lib.Client("localhost:%d" % self._server.port)

    def spec(self, shape, dtype):
        return self._tensorflow.TensorSpec(shape, dtype)

    def can_sample(self, name, n):
        return self._tables[name].can_sample(n)

    def stop(self):
        if self._server is not None:
            self._server.stop()


HAVE_THEIRS = importlib.util.find_spec("reverb") is not None


@pytest.fixture(params=[Ours, Theirs] if HAVE_THEIRS else [Ours])
def backend(request):
    started = request.param()
    yield started
    started.stop()


@pytest.fixture
def lib(backend):
    return backend.lib


def prioritized(lib, name="t", exponent=0.8, max_size=1000, **options):
    return lib.Table(name, lib.selectors.Prioritized(exponent), lib.selectors.Fifo(), max_size,
                     lib.rate_limiters.MinSize(1), **options)


def whole(client, table, n):
    """Inserts plain items."""
    return list(client.sample(table, n, emit_timesteps=False))


# -------- insert --------


@pytest.mark.skipif(not HAVE_THEIRS, reason="no dm-reverb: make check-adaptors compares with it")
def test_reverb__is_compared_with():
    assert HAVE_THEIRS


def test_insert__is_sampled_as_one_step(backend, lib):
    client = backend.start([prioritized(lib)])
    client.insert({"a": np.arange(3, dtype=np.float32), "b": np.int64(7)}, {"t": 2.0})
    (steps,) = client.sample("t", 1)
    assert len(steps) == 1
    np.testing.assert_array_equal(steps[0].data[0], [0, 1, 2])
    assert steps[0].data[1] == 7
    assert steps[0].data[1].dtype == np.int64
    assert steps[0].info.table_size == 1
    assert steps[0].info.probability == pytest.approx(1)
    assert steps[0].info.priority == pytest.approx(2)


def test_insert__whole_item_has_a_dimension_of_steps(backend, lib):
    client = backend.start([prioritized(lib)])
    client.insert([np.zeros((2, 2), np.uint8)], {"t": 1.0})
    (item,) = whole(client, "t", 1)
    assert item.data[0].shape == (1, 2, 2)
    assert item.data[0].dtype == np.uint8


def test_insert__goes_into_several_tables(backend, lib):
    client = backend.start([prioritized(lib, "one"), prioritized(lib, "two")])
    client.insert(np.int64(5), {"one": 1.0, "two": 3.0})
    for name, priority in (("one", 1.0), ("two", 3.0)):
        (item,) = whole(client, name, 1)
        assert item.data[0] == 5
        assert item.info.priority == pytest.approx(priority)


def test_insert__without_priorities_is_an_error(backend, lib):
    client = backend.start([prioritized(lib)])
    with pytest.raises(ValueError):
        client.insert(np.int64(5), {})


def test_sample__unpacks_as_the_signature_says(backend, lib):
    signature = {"b": backend.spec((3,), np.float32), "a": (backend.spec((), np.int64),)}
    client = backend.start([prioritized(lib, signature=signature)])
    client.insert({"b": np.ones(3, np.float32), "a": (np.int64(4),)}, {"t": 1.0})
    (item,) = client.sample("t", 1, emit_timesteps=False, unpack_as_table_signature=True)
    assert isinstance(item.data["a"], tuple)
    np.testing.assert_array_equal(item.data["a"][0], [4])
    np.testing.assert_array_equal(item.data["b"], np.ones((1, 3)))


# -------- writers --------


def test_writer__items_are_the_last_steps(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.writer(max_sequence_length=3) as writer:
        for i in range(5):
            writer.append({"x": np.int64(i)})
        writer.create_item("t", 3, 1.0)
    (item,) = whole(client, "t", 1)
    np.testing.assert_array_equal(item.data[0], [2, 3, 4])


def test_writer__append_sequence_is_append_of_each(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.writer(max_sequence_length=2) as writer:
        writer.append_sequence([np.array([[1, 2, 3], [4, 5, 6]])])
        writer.create_item("t", 2, 1.0)
    (item,) = whole(client, "t", 1)
    np.testing.assert_array_equal(item.data[0], [[1, 2, 3], [4, 5, 6]])


def test_writer__of_no_length_is_an_error(backend, lib):
    client = backend.start([prioritized(lib)])
    with pytest.raises(ValueError):
        client.writer(max_sequence_length=0)


def steps_of(n):
    return [{"obs": np.full(2, i, np.float32), "action": np.int64(10 * i)} for i in range(n)]


@pytest.mark.parametrize("cut,want", [
    (np.s_[-3:], [3, 4, 5]), (np.s_[-3:-1], [3, 4]), (np.s_[:], None), (np.s_[-1], 5),
    ([-1, -3], [5, 3]), (np.s_[3:], [3, 4, 5]), (np.s_[2:5], [2, 3, 4]),
])
def test_trajectory__is_cut_as_lists_are(backend, lib, cut, want):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=4) as writer:
        for step in steps_of(6):
            writer.append(step)
        if want is None:  # the first steps are forgotten
            with pytest.raises(ValueError):
                writer.history["action"][cut]
            return
        column = writer.history["action"][cut]
        np.testing.assert_array_equal(column.numpy(), 10 * np.array(want))
        assert column.shape == np.shape(want)
        writer.create_item("t", 1.5, {"action": column, "obs": writer.history["obs"][-1:]})
    (item,) = whole(client, "t", 1)
    np.testing.assert_array_equal(item.data[0], 10 * np.array(want))
    np.testing.assert_array_equal(item.data[1], [[5, 5]])
    assert item.info.priority == pytest.approx(1.5)


def test_trajectory__columns_of_different_lengths(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=5) as writer:
        for step in steps_of(8):
            writer.append(step)
            if writer.episode_steps >= 5:
                writer.create_item("t", 1.0, {"states": writer.history["obs"][-5:],
                                              "actions": writer.history["action"][-4:]})
    items = whole(client, "t", 40)
    assert {item.info.table_size for item in items} == {4}
    for item in items:
        actions, states = item.data
        last = actions[-1] // 10
        np.testing.assert_array_equal(actions, 10 * np.arange(last - 3, last + 1))
        np.testing.assert_array_equal(states[:, 0], np.arange(last - 4, last + 1))


def test_trajectory__of_different_lengths_are_no_time_steps(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=2) as writer:
        for step in steps_of(2):
            writer.append(step)
        writer.create_item("t", 1.0, {"a": writer.history["obs"][-2:],
                                      "b": writer.history["action"][-1:]})
    with pytest.raises(ValueError):
        list(client.sample("t", 1))


def test_trajectory__partial_step_is_completed(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=2) as writer:
        writer.append({"obs": np.float32(1)}, partial_step=True)
        assert writer.episode_steps == 0
        with pytest.raises(ValueError):
            writer.append({"obs": np.float32(1)})
        writer.append({"action": np.int64(2)})
        assert writer.episode_steps == 1
        writer.create_item("t", 1.0, {"o": writer.history["obs"][-1],
                                      "a": writer.history["action"][-1]})
    (item,) = whole(client, "t", 1)
    assert [value.tolist() for value in item.data] == [2, 1]


def test_trajectory__later_columns_begin_with_nothing(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        writer.append({"obs": np.float32(0)})
        writer.append({"obs": np.float32(1), "action": np.int64(1)})
        assert len(writer.history["action"]) == 2
        with pytest.raises(ValueError):
            writer.history["action"][-2:]
        writer.create_item("t", 1.0, {"a": writer.history["action"][-1:]})
    (item,) = whole(client, "t", 1)
    assert item.data[0].tolist() == [1]


def test_trajectory__end_of_episode_forgets(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in steps_of(3):
            writer.append(step)
        writer.end_episode()
        assert writer.episode_steps == 0
        assert len(writer.history["obs"]) == 0
        writer.append(steps_of(1)[0])
        assert writer.episode_steps == 1


def test_trajectory__history_before_the_first_step_is_an_error(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        with pytest.raises(RuntimeError):
            writer.history
        writer.append(np.int64(1))


def test_trajectory__of_another_signature_is_refused(backend, lib):
    signature = {"a": backend.spec((2, 3), np.float32)}
    client = backend.start([prioritized(lib, signature=signature)])
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append({"x": np.full(3, i, np.float32), "y": np.int64(i)})
        for wrong in ({"a": writer.history["x"][-1:]}, {"a": writer.history["y"][-2:]},
                      {"a": writer.history["x"][-2:], "b": writer.history["x"][-2:]}):
            with pytest.raises(ValueError):
                writer.create_item("t", 1.0, wrong)
        with pytest.raises(ValueError):
            writer.create_item("none", 1.0, {"a": writer.history["x"][-2:]})
        with pytest.raises(TypeError):
            writer.create_item("t", 1.0, {"a": np.zeros((2, 3), np.float32)})
        writer.create_item("t", 1.0, {"a": writer.history["x"][-2:]})
    assert len(whole(client, "t", 2)) == 2


def test_append__of_another_shape_is_refused(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        writer.append({"x": np.zeros(3, np.float32)})
        with pytest.raises(ValueError):
            writer.append({"x": np.zeros(4, np.float32)})


def test_append__copies(backend, lib):
    client = backend.start([prioritized(lib)])
    value = np.zeros(2, np.float32)
    with client.trajectory_writer(num_keep_alive_refs=2) as writer:
        for i in range(2000):
            value[:] = i
            writer.append({"x": value})
            if i in (4, 400, 1999):
                writer.create_item("t", 1.0, {"x": writer.history["x"][-2:]})
    value[:] = -1
    found = {tuple(item.data[0][:, 0].tolist()) for item in whole(client, "t", 100)}
    assert found == {(3, 4), (399, 400), (1998, 1999)}


def test_append__of_changing_columns(backend, lib):
    """Steps that lack a column, or nest it, between steps that have all."""
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=4) as writer:
        writer.append({"a": np.int64(0), "b": {"c": np.int64(0)}})
        writer.append({"a": np.int64(1), "b": {"c": np.int64(10)}})
        writer.append({"a": np.int64(2)})
        writer.append({"a": np.int64(3), "b": {"c": None}})
        writer.append({"a": np.int64(4), "b": {"c": np.int64(40)}})
        with pytest.raises(ValueError):
            writer.history["b"]["c"][-2:]
        writer.create_item("t", 1.0, {"a": writer.history["a"][-3:], "c": writer.history["b"]["c"][-1:]})
        writer.create_item("t", 1.0, {"a": writer.history["a"][-3:], "c": writer.history["b"]["c"][-1:]})
    for item in whole(client, "t", 8):
        assert [value.tolist() for value in item.data] == [[2, 3, 4], [40]]


def test_slices__stay_when_the_episode_ends(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in steps_of(3):
            writer.append(step)
        column = writer.history["action"][-2:]
        kept = column.numpy().tolist()
        writer.end_episode(clear_buffers=True)
        for step in steps_of(600):
            writer.append(step)
        assert len(writer.history["action"]) == 600
        assert writer.history["action"][-2:].numpy().tolist() == [5980, 5990]
        if lib is ours:
            assert column.numpy().tolist() == kept == [10, 20]


# -------- selectors, limiters --------


def test_queue__gives_each_once_in_order(backend, lib):
    client = backend.start([lib.Table.queue("q", 10)])
    for i in range(4):
        client.insert(np.int64(i), {"q": 1.0})
    samples = [item for (item,) in client.sample("q", 4)]
    assert [sample.data[0].item() for sample in samples] == [0, 1, 2, 3]
    assert {sample.info.times_sampled for sample in samples} == {1}
    assert not backend.can_sample("q", 1)
    client.insert(np.int64(9), {"q": 1.0})
    assert backend.can_sample("q", 1)


def test_stack__gives_each_once_the_newest_first(backend, lib):
    client = backend.start([lib.Table.stack("s", 10)])
    for i in range(4):
        client.insert(np.int64(i), {"s": 1.0})
    assert [item.data[0].item() for (item,) in client.sample("s", 4)] == [3, 2, 1, 0]
    assert not backend.can_sample("s", 1)


def test_queue__flush_waits_while_it_is_full(backend, lib):
    client = backend.start([lib.Table.queue("q", 2)])
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for i in range(3):
            writer.append(np.int64(i))
            writer.create_item("q", 1.0, writer.history[-1])
        with pytest.raises(backend.timeout):
            writer.flush(timeout_ms=200)
        assert whole(client, "q", 1)[0].data[0].item() == 0
        writer.flush()
        assert [item.data[0].item() for item in whole(client, "q", 2)] == [1, 2]


def test_min_size__is_waited_for(backend, lib):
    client = backend.start([lib.Table("t", lib.selectors.Uniform(), lib.selectors.Fifo(), 100,
                                      lib.rate_limiters.MinSize(3))])
    for i in range(3):
        assert not backend.can_sample("t", 1)
        client.insert(np.int64(i), {"t": 1.0})
    assert backend.can_sample("t", 1)
    assert backend.can_sample("t", 50)


@pytest.mark.parametrize("ratio,min_size,buffer", [(2.0, 4, 4.0), (0.5, 2, 3.0), (1.0, 3, (1, 9))])
def test_ratio__admits_what_reverb_admits(backend, lib, ratio, min_size, buffer):
    client = backend.start([lib.Table(
        "t", lib.selectors.Uniform(), lib.selectors.Fifo(), 100,
        lib.rate_limiters.SampleToInsertRatio(ratio, min_size, buffer))])
    low, high = buffer if isinstance(buffer, tuple) else (ratio * min_size - buffer,
                                                           ratio * min_size + buffer)
    inserted = sampled = 0
    for _ in range(4):
        while (inserted + 1) * ratio - sampled <= high:
            client.insert(np.int64(inserted), {"t": 1.0})
            inserted += 1
            for n in (1, 2, 3, 6):
                allowed = inserted >= min_size and inserted * ratio - sampled - n >= low
                assert backend.can_sample("t", n) == allowed, (inserted, sampled, n)
        if backend.can_sample("t", 2):
            assert len(whole(client, "t", 2)) == 2
            sampled += 2


@pytest.mark.parametrize("ratio,min_size,buffer", [(2.0, 4, 1.0), (0.0, 4, 8.0), (1.0, 0, 8.0),
                                                   (1.0, 2, (5, 9))])
def test_ratio__that_would_stop_for_ever_is_refused(lib, ratio, min_size, buffer):
    with pytest.raises(ValueError):
        lib.rate_limiters.SampleToInsertRatio(ratio, min_size, buffer)


# -------- priorities --------


def fill(client, priorities):
    for i, priority in enumerate(priorities):
        client.insert(np.int64(i), {"t": priority})


def shares(client, n=4000):
    """Frequencies of the items and the probability that was reported of each."""
    seen, told = {}, {}
    for item in whole(client, "t", n):
        i = item.data[0].item()
        seen[i] = seen.get(i, 0) + 1
        told[i] = item.info.probability
    return seen, told


@pytest.mark.parametrize("exponent", [0.6, 1.0, 2.0])
def test_priorities__decide_how_often(backend, lib, exponent):
    client = backend.start([prioritized(lib, exponent=exponent)])
    priorities = np.array([0.5, 1.0, 2.0, 3.0])
    fill(client, priorities)
    want = priorities**exponent / (priorities**exponent).sum()
    seen, told = shares(client)
    for i, share in enumerate(want):
        assert told[i] == pytest.approx(share, rel=1e-4)
        assert abs(seen[i] - 4000 * share) < 6 * np.sqrt(4000 * share)


def test_mutate_priorities__changes_how_often(backend, lib):
    client = backend.start([prioritized(lib, exponent=1.0)])
    fill(client, [1.0, 1.0, 1.0, 1.0])
    keys = {item.data[0].item(): item.info.key for item in whole(client, "t", 200)}
    client.mutate_priorities("t", {keys[0]: 6.0, keys[1]: 2.0, 12345: 9.0})
    _, told = shares(client, 400)
    assert [told[i] for i in range(4)] == pytest.approx([0.6, 0.2, 0.1, 0.1], rel=1e-4)
    priorities = {item.data[0].item(): item.info.priority for item in whole(client, "t", 400)}
    assert [priorities[i] for i in range(4)] == pytest.approx([6, 2, 1, 1], rel=1e-4)


def test_priority_zero__is_not_drawn(backend, lib):
    client = backend.start([prioritized(lib, exponent=1.0)])
    fill(client, [0.0, 1.0, 1.0])
    seen, _ = shares(client, 2000)
    # A priority of 0 is stored as the smallest one, 2^-20: one draw in a thousand such runs.
    assert set(seen) >= {1, 2} and seen.get(0, 0) <= 2


def test_uniform__takes_no_notice_of_priorities(backend, lib):
    client = backend.start([lib.Table("t", lib.selectors.Uniform(), lib.selectors.Fifo(), 100,
                                      lib.rate_limiters.MinSize(1))])
    fill(client, [1.0, 5.0, 9.0])
    key = whole(client, "t", 1)[0].info.key
    client.mutate_priorities("t", {key: 50.0})
    _, told = shares(client, 200)
    assert list(told.values()) == pytest.approx([1 / 3] * 3)


# -------- tables --------


def test_table__oldest_items_go(backend, lib):
    """The adaptor keeps a few more items than max_size, in whole blocks."""
    client = backend.start([prioritized(lib, max_size=600)])
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for i in range(3000):
            writer.append(np.int64(i))
            writer.create_item("t", 1.0, writer.history[-1])
            if i % 100 == 0:
                writer.flush()
    size = client.server_info()["t"].current_size
    assert 600 <= size <= 600 * 1.3
    assert min(item.data[0].item() for item in whole(client, "t", 300)) >= 3000 - size


def test_insert__fills_the_table(backend, lib):
    client = backend.start([prioritized(lib, max_size=300)])
    fill(client, [1.0] * 400)
    assert 300 <= client.server_info()["t"].current_size <= 400


def test_server_info__counts(backend, lib):
    client = backend.start([prioritized(lib, max_size=700), lib.Table.queue("q", 10)])
    fill(client, [1.0] * 5)
    assert len(whole(client, "t", 3)) == 3
    info = client.server_info()
    assert set(info) == {"t", "q"}
    assert (info["t"].name, info["t"].max_size, info["t"].max_times_sampled) == ("t", 700, 0)
    assert (info["t"].current_size, info["q"].current_size) == (5, 0)
    assert info["t"].rate_limiter_info.min_size_to_sample == 1
    assert info["q"].max_times_sampled == 1
    assert info["q"].rate_limiter_info.max_diff == 10


def test_reset__empties(backend, lib):
    client = backend.start([prioritized(lib)])
    fill(client, [1.0] * 5)
    client.reset("t")
    assert client.server_info()["t"].current_size == 0
    assert not backend.can_sample("t", 1)
    client.insert(np.int64(8), {"t": 1.0})
    assert whole(client, "t", 1)[0].data[0].item() == 8


def test_reset__writers_go_on(backend, lib):
    client = backend.start([prioritized(lib)])
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for i in range(4):
            writer.append(np.int64(i))
            writer.create_item("t", 1.0, writer.history[-1])
            writer.flush()
            if i == 1:
                client.reset("t")
    assert {item.data[0].item() for item in whole(client, "t", 40)} == {2, 3}


def test_table__without_a_name_or_room_is_an_error(lib):
    for name, size in (("", 10), ("t", 0)):
        with pytest.raises(ValueError):
            prioritized(lib, name, max_size=size)


# -------- ours alone --------


def test_uncovered__says_what_to_use():
    client = ours.Client("embed:", [prioritized(ours)])
    fill(client, [1.0, 1.0])
    for call in (lambda: client.structured_writer([]),
                 lambda: client.mutate_priorities("t", deletes=[1]),
                 lambda: ours.selectors.MaxHeap(), lambda: ours.selectors.Prioritized(0),
                 client.checkpoint, lambda: client.insert(np.zeros(3), {"t": 1.0}),
                 lambda: prioritized(ours, extensions=[object()]),
                 lambda: ours.Table("x", ours.selectors.Uniform(), ours.selectors.Lifo(), 5,
                                    ours.rate_limiters.MinSize(1))):
        with pytest.raises(NotImplementedError, match="use|priority"):
            call()
    client.close()


def test_client__others_find_the_tables(store):
    first = ours.Client(store, [prioritized(ours, exponent=0.5)])
    first.insert({"a": {"b": np.int64(1)}, "c": np.float32(2)}, {"t": 4.0})
    second = ours.Client(store)
    (item,) = second.sample("t", 1, emit_timesteps=False, unpack_as_table_signature=True)
    assert item.data["a"]["b"].tolist() == [1]
    assert item.info.priority == pytest.approx(4)
    assert second.server_info()["t"].sampler_options.priority_exponent == 0.5
    second.insert({"a": {"b": np.int64(2)}, "c": np.float32(3)}, {"t": 4.0})
    assert first.server_info()["t"].current_size == 2


def test_client__others_unpack_long_lists(store):
    first = ours.Client(store, [prioritized(ours)])
    first.insert([np.int64(i) for i in range(12)], {"t": 1.0})
    (item,) = ours.Client(store).sample("t", 1, emit_timesteps=False,
                                        unpack_as_table_signature=True)
    assert {key: value.item() for key, value in item.data.items()} == {
        str(i): i for i in range(12)}


def test_server__is_found_by_its_port():
    with ours.Server([prioritized(ours)], port=8123) as server, ours.Server([prioritized(ours)]) as other:
        assert server.port == 8123 != other.port
        ours.Client("localhost:8123").insert(np.int64(1), {"t": 1.0})
        client = ours.Client("127.0.0.1:%d" % server.port, [ours.Table.queue("q", 3)])
        client.insert(np.int64(2), {"t": 1.0, "q": 1.0})
        assert server.localhost_client().server_info()["t"].current_size == 2
        assert other.localhost_client().server_info()["t"].current_size == 0
        with pytest.raises(ValueError, match="8123"):
            ours.Server([], port=8123)
    server.wait()  # it is stopped
    with pytest.raises(relive.Closed):
        client.insert(np.int64(3), {"t": 1.0})
    with pytest.raises(ValueError, match="shm:NAME"):
        ours.Client("localhost:8123")
    with pytest.raises(NotImplementedError, match="use"):
        ours.Server([], checkpointer=object())


def test_client__timeout_ends_waits():
    with ours.Client("embed:", [ours.Table.queue("q", 1)], timeout=0.05) as client:
        with pytest.raises(relive.Timeout, match="no item"):
            next(client.sample("q"))
        client.insert(np.int64(1), {"q": 1.0})
        with pytest.raises(relive.Timeout, match="limiter"):
            client.insert(np.int64(2), {"q": 1.0})
        assert len(list(client.sample("q"))) == 1
        with pytest.raises(relive.Timeout):
            next(client.sample("q"))


def test_checkpoint__of_a_file_is_there_when_it_is_opened_again(tmp_path):
    uri = "embed:%s" % (tmp_path / "pool")
    with ours.Client(uri, [prioritized(ours)], pool_bytes=1 << 26) as client:
        fill(client, [1.0, 2.0, 3.0])
        assert client.checkpoint() == uri
    with ours.Client(uri) as client:
        seen = {item.data[0].item(): item.info.priority for item in whole(client, "t", 100)}
    assert seen == pytest.approx({0: 1.0, 1: 2.0, 2: 3.0}, rel=1e-4)


def test_client__is_pickled_between_processes(shm_store):
    import pickle
    client = ours.Client(shm_store.uri, [prioritized(ours)])
    client.insert(np.int64(3), {"t": 1.0})
    other = pickle.loads(pickle.dumps(client))
    assert whole(other, "t", 1)[0].data[0].item() == 3
    other.close()
    client.close()
    with ours.Client("embed:") as local, pytest.raises(TypeError, match="shm"):
        pickle.dumps(local)


def test_keys__that_columns_cannot_have_are_refused():
    with ours.Client("embed:", [prioritized(ours)]) as client:
        for key in ("Upper", "a__b", "_a", "a b"):
            with pytest.raises(relive.InvalidArgument, match="key"):
                client.insert({key: np.int64(1)}, {"t": 1.0})


def test_examples__of_rows_hold():
    assert doctest.testmod(_rows).failed == 0


def test_trees__are_as_dm_tree_orders_them():
    tree = pytest.importorskip("tree", reason="no dm-tree here: dm-reverb brings it")
    leaves = itertools.count()
    structure = {"z": [next(leaves), (next(leaves),)], "a": {"k": next(leaves), "b": next(leaves)}}
    pairs = _rows.flatten(structure)
    assert [path for path, _ in pairs] == [path for path, _ in tree.flatten_with_path(structure)]
    assert _rows.unflatten(structure, [leaf for _, leaf in pairs]) == structure
