"""Appended values: dtypes, shapes, conversions, flags, and refusals."""

import collections
import sys
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import relive
from relive import _convert
from conftest import SIGNATURE, step_values

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
          "float16", "float32", "float64"]


@st.composite
def signatures(draw):
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True))
    return {"c_" + name: (draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=5)),
                          draw(st.sampled_from(DTYPES))) for name in names}


def random_values(rng, n, shape, dtype):
    raw = rng.integers(0, 2 if dtype == "bool" else 256,
                       (n, *shape, np.dtype(dtype).itemsize), dtype=np.uint8)
    values = raw.view(dtype).reshape((n, *shape))
    return np.nan_to_num(values) if values.dtype.kind == "f" else values


def all_rows(table, n):
    """Columns of all rows by their `id`."""
    batch = table.sample(n)
    order = np.argsort(batch.id)
    assert batch.id[order].tolist() == list(range(n))
    return {name: batch[name][order] for name in batch.names}


def uniform_of_all(make_table, signature, **options):
    """A table whose sample of n gives each of n items once."""
    view = relive.View(selector="fifo")
    return make_table({**signature, "id": "uint64"}, capacity=2048, views=[view], **options)


@settings(max_examples=40, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(signature=signatures(), n=st.integers(1, 40), seed=st.integers(0, 2**32 - 1),
       how=st.sampled_from(["append", "extend", "vector", "strided", "list"]))
def test_append__every_dtype_and_shape_comes_back(make_table, signature, n, seed, how):
    rng = np.random.default_rng(seed)
    table = uniform_of_all(make_table, signature, max_writers=40)
    values = {name: random_values(rng, n, *spec) for name, spec in signature.items()}
    ids = np.arange(n, dtype=np.uint64)
    with table.writer(num_envs=n if how == "vector" else None) as writer:
        if how == "vector":
            writer.append(**values, id=ids)
        elif how == "extend":
            writer.extend(**values, id=ids)
        elif how == "strided":
            twice = {name: np.repeat(value, 2, axis=0)[::2] for name, value in values.items()}
            writer.extend(**twice, id=ids)
        else:
            for i in range(n):
                row = {name: value[i] for name, value in values.items()}
                if how == "list":
                    row = {name: value.tolist() for name, value in row.items()}
                writer.append(**row, id=i)
    got = all_rows(table, n)
    for name, (shape, dtype) in signature.items():
        assert got[name].dtype == dtype and got[name].shape == (n, *shape)
        np.testing.assert_array_equal(got[name], values[name])
    table.close()


@pytest.mark.parametrize("value,dtype,want", [
    (np.float64(1.5), "float32", 1.5), (3, "float32", 3.0), (True, "int64", 1), (7, "uint8", 7),
    (np.int64(7), "uint8", 7), (np.uint64(2**40), "int64", 2**40), (np.float16(0.5), "float64", 0.5),
    (-1, "int16", -1), (2**63, "uint64", 2**63), (1, "bool", True), (np.bool_(True), "bool", True),
    ([1, 2, 3], ((3,), "int32"), [1, 2, 3]), (np.array([1, 2], ">i4"), ((2,), "int32"), [1, 2]),
    (np.array([[1.0, 2.0]]).T, ((2, 1), "float32"), [[1.0], [2.0]]),
])
def test_append__converts_what_fits(make_table, value, dtype, want):
    table = uniform_of_all(make_table, {"a": dtype})
    with table.writer() as writer:
        writer.append(a=value, id=0)
    np.testing.assert_array_equal(table.sample(1).a[0], want)


@pytest.mark.parametrize("value,dtype", [
    (300, "uint8"), (-1, "uint8"), (1.5, "int64"), (np.float32(2), "int32"), (2**64, "uint64"),
    (2, "bool"), ("text", "float32"), (None, "int64"), (1j, "float32"), ([1, 2], "int64"),
    (np.zeros(3), ((4,), "float32")), (np.zeros((1, 4)), ((4,), "float32")),
    ([[1], [2, 3]], ((2, 1), "int64")), (object(), "float64"),
])
def test_append__refuses_what_does_not_fit(make_table, value, dtype):
    table = uniform_of_all(make_table, {"a": dtype})
    with table.writer() as writer:
        with pytest.raises(relive.InvalidArgument, match="a"):
            writer.append(a=value, id=0)
        assert writer.stats()["steps"] == 0


class OwnArray(np.ndarray):
    pass


def test_append__arrays_of_every_layout_are_stored_and_given_back(make_table):
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    fixed = plain.copy()
    fixed.flags.writeable = False
    arrays = [plain, fixed, np.asfortranarray(plain), plain[::-1][::-1], np.repeat(plain, 2, axis=1)[:, ::2],
              plain.astype(">f4"), np.frombuffer(b"x" + plain.tobytes(), np.float32, offset=1).reshape(3, 4),
              plain.view(OwnArray), plain.astype(np.longdouble), plain.astype(np.int16), plain.astype(np.float16)]
    table = uniform_of_all(make_table, {"a": ((3, 4), "float32")})
    with table.writer() as writer:
        for i, array in enumerate(arrays):
            references = sys.getrefcount(array)
            writer.append({"a": array, "id": i})
            assert sys.getrefcount(array) == references
    np.testing.assert_array_equal(all_rows(table, len(arrays))["a"], [plain] * len(arrays))


class Backwards(dict):
    def __iter__(self):
        return reversed(list(super().__iter__()))


def test_append__a_dict_that_iterates_in_another_order_keeps_each_value_with_its_name(make_table):
    moved = collections.OrderedDict(a=1.0, b=2.0, id=0)
    moved.move_to_end("a")
    table = uniform_of_all(make_table, {"a": "float32", "b": "float32"})
    with table.writer() as writer:
        writer.append(moved)
        writer.append(Backwards(a=1.0, b=2.0, id=1))
        writer.append({"b": 2.0, "id": 2, "a": 1.0})
    rows = all_rows(table, 3)
    assert (rows["a"].tolist(), rows["b"].tolist()) == ([1] * 3, [2] * 3)


def as_numpy(values, dtype):
    """The values as numpy converts them, or None where it refuses."""
    try:
        return _convert.column(values, dtype, values.shape, "a")
    except relive.InvalidArgument:
        return None


@pytest.mark.parametrize("number", [1, 200, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_extend__of_another_dtype_is_as_numpy_has_it(make_table, dtype, number):
    table = uniform_of_all(make_table, {"a": dtype})
    rows = [0]
    with table.writer() as writer:
        writer.append(a=0, id=0)
        for other in DTYPES:
            if number < 0 and other[0] in "ub":
                continue
            values = np.array([0, number, 1]).astype(other)
            want = as_numpy(values, dtype)
            ids = np.arange(len(rows), len(rows) + 3)
            if want is None:
                with pytest.raises(relive.InvalidArgument, match="a"):
                    writer.extend(a=values, id=ids)
            else:
                writer.extend(a=values, id=ids)
                rows += want.tolist()
    np.testing.assert_array_equal(all_rows(table, len(rows))["a"], rows)


def test_append__names_what_is_missing_or_unknown(make_table):
    with make_table().writer() as writer:
        with pytest.raises(relive.InvalidArgument, match="reward is missing"):
            writer.append(obs=[0, 0, 0], action=0, id=0)
        with pytest.raises(relive.InvalidArgument, match="'velocity'"):
            writer.append(velocity=1)
        with pytest.raises(TypeError):
            writer.append(1)
        with pytest.raises(relive.InvalidArgument, match="env"):
            writer.append(**step_values(0), env=0)
        with pytest.raises(relive.InvalidArgument, match="policy_version"):
            writer.append(**step_values(0), policy_version=-1)
        with pytest.raises(relive.InvalidArgument, match="td_error"):
            writer.append(**step_values(0), td_error=float("nan"))
        with pytest.raises(relive.InvalidArgument, match="env 1"):
            writer.extend(env=1, **{name: [0] for name in SIGNATURE})


def test_append__td_error_becomes_the_priority(make_table):
    table = make_table(views=[relive.View(alpha=1.0, eps=1e-6)])
    with table.writer() as writer:
        for i in range(8):
            writer.append(**step_values(i), td_error=-(i + 1.0))
        writer.append(**step_values(8))  # none: the running maximum
    batch = table.sample(64)
    want = np.minimum(batch.id + 1, 8)
    np.testing.assert_allclose(batch.priority, want, rtol=1e-3)


def test_append__policy_version_comes_back(make_table):
    table = make_table()
    with table.writer() as writer:
        for i in range(10):
            writer.append(**step_values(i), policy_version=np.int64(i // 3))
    batch = table.sample(64)
    np.testing.assert_array_equal(batch.policy_version, batch.id // 3)


def test_extend__nothing_is_nothing(make_table):
    table = make_table()
    with table.writer() as writer:
        writer.extend(obs=np.zeros((0, 3), "f4"), action=[], reward=[], id=[])
        assert writer.stats()["steps"] == 0


def test_extend__final_observations_are_rows(make_table):
    table = make_table()
    rows = dict(obs=np.zeros((3, 3)), action=[0] * 3, reward=[0] * 3, id=[0, 1, 2])
    with table.writer() as writer:
        with pytest.raises(relive.InvalidArgument, match="final_obs: extend"):
            writer.extend(**rows, truncated=[False, True, False], final_obs=np.ones((3, 3)))
        assert writer.stats()["steps"] == 0
        writer.extend(**rows, truncated=[False, True, False], final=[False, False, True],
                      final_obs=None)
    assert sorted(set(table.sample(64).id.tolist())) == [0, 1]


def test_end_episode__completes_what_waits(make_table):
    table = make_table(views=[relive.View(n_step=5)])
    with table.writer() as writer:
        for i in range(7):
            writer.append(**step_values(i))
        assert len(table) == 2
        writer.end_episode(obs=np.full(3, 7, "f4"))
        assert len(table) == 7
        batch = table.sample(64)
    np.testing.assert_array_equal(batch.steps, np.minimum(5, 7 - batch.id))
    np.testing.assert_array_equal(batch.next_obs[:, 0], batch.id + batch.steps)


def test_end_episode__takes_an_observation_or_none(make_table):
    table = make_table({"obs": {"image": ((2,), "uint8"), "speed": "float32"}, "action": "int64"})
    with table.writer() as writer:
        writer.append(obs={"image": [1, 2], "speed": 3}, action=4)
        with pytest.raises(relive.InvalidArgument, match="all or none"):
            writer.end_episode(obs={"image": [5, 6]})
        for given in ("action", "terminated", "td_error", "final", "policy_version"):
            with pytest.raises(relive.InvalidArgument, match="^" + given):
                writer.end_episode(**{given: 0})
        with pytest.raises(relive.InvalidArgument, match="^final_obs__image"):
            writer.end_episode(final_obs={"image": [5, 6], "speed": 7})
        assert writer.stats()["steps"] == 1
        writer.end_episode({"obs": {"image": [5, 6], "speed": 7}, "action": None}, env=0)
    batch = table.sample(1)
    assert batch.next_obs["image"].tolist() == [[5, 6]] and batch.next_obs["speed"].tolist() == [7]


def test_append__waits_for_the_rate_limiter(make_table):
    table = make_table(rate_limiter=relive.RateLimiter.sample_to_insert(1.0, 1, 10.0))
    with table.writer(timeout=0.2) as writer:
        with pytest.raises(relive.Timeout, match="limiter"):
            for i in range(100):
                writer.append(**step_values(i))
        done = writer.stats()["steps"]
        assert 10 <= done < 30
        table.sample(5)
        writer.append(**step_values(done))


def test_append__another_thread_in_the_writer_is_refused(make_table):
    table = make_table(rate_limiter=relive.RateLimiter.queue(1))
    writer = table.writer()
    ended = []

    def fill():
        try:
            for i in range(10):
                writer.append(**step_values(i))
        except relive.Closed as error:
            ended.append(error)

    thread = threading.Thread(target=fill)
    thread.start()
    while writer.stats()["limiter_waits"] == 0:
        thread.join(0.001)
    with pytest.raises(relive.Busy, match="another thread"):
        writer.append(**step_values(0))
    writer.close(wait=False)
    thread.join()
    assert len(ended) == 1


def test_writer__closed_is_closed(make_table):
    writer = make_table().writer()
    writer.close()
    writer.close()
    assert not writer.is_open
    with pytest.raises(relive.Closed):
        writer.append(**step_values(0))
    with pytest.raises(relive.Closed):
        writer.stats()


def test_append__values_in_a_dict(make_table):
    table = uniform_of_all(make_table, {"x": "float32"})
    with table.writer() as writer:
        for i in range(3):
            writer.append({"x": i, "id": i})
        writer.append({"x": 3.0}, id=3)
        writer.append({"x": -1, "id": 4}, x=4)  # the keyword counts
        writer.extend({"id": np.arange(5, 8), "x": np.arange(5, 8)}, env=0)
        writer.extend({}, x=np.arange(8, 10), id=np.arange(8, 10))
    rows = all_rows(table, 10)
    np.testing.assert_array_equal(rows["x"], np.arange(10))


@pytest.mark.parametrize("given", [3, [("x", 1)], None])
def test_append__what_is_no_dict(make_table, given):
    with make_table().writer() as writer, pytest.raises(TypeError, match="dict"):
        writer.append(given)


def test_append__names_of_a_dict_that_are_none(make_table):
    with make_table().writer() as writer:
        for names in ({"nobody": 1}, {3: 1}, {"id": 1, "nobody": 1}):
            with pytest.raises(relive.InvalidArgument, match="no column"):
                writer.append(names)
        with pytest.raises(relive.InvalidArgument, match="missing"):
            writer.append({})


def test_append__a_dict_that_changes_meanwhile(make_table):
    class Changes:
        def __array__(self, *_, **__):
            values.clear()
            return np.array(2, np.float32)

    table = uniform_of_all(make_table, {"x": "float32", "y": "float32"})
    with table.writer() as writer:
        values = {"x": Changes(), "y": np.full((), 1 << 16, np.int64), "id": np.full((), 0)}
        writer.append(values)
    rows = all_rows(table, 1)
    assert (rows["x"][0], rows["y"][0]) == (2, 1 << 16)


def test_append__nested_values_in_a_dict(make_table):
    table = make_table({"obs": {"image": ((2,), "uint8")}, "action": "int64"})
    with table.writer() as writer:
        writer.append({"obs": {"image": [1, 2]}}, action=3)
        writer.extend({"obs": {"image": [[3, 4]]}, "action": [5]})
    assert sorted(table.sample(2).action.tolist())


def test_append__tuples_of_nested_tables(make_table):
    table = make_table({
        "obs": {"image": ((2,), "uint8"), "pose": ((2,), "float32"),
                "ears": {"0": "uint8", "1": "uint8"}},
        "action": ((2,), "float32"), "reward": "float32"})
    obs = {"image": (1, 2), "pose": (3, 4), "ears": (5, 6)}
    with table.writer() as writer:
        writer.append(obs=obs, action=(0.5, 0.25), reward=1, truncated=True, final_obs=obs)
    with table.writer(2, autoreset="same_step") as writer:
        twice = {name: (value, value) for name, value in obs.items()}
        writer.append(obs={**twice, "ears": ((5, 5), (6, 6))}, action=((0.5, 0.25),) * 2,
                      reward=(1, 1), truncated=(True, False), final_obs=[obs, None])
    batch = table.sample(64)
    for at in (batch.obs, batch.next_obs):
        assert (at["image"] == (1, 2)).all() and (at["pose"] == (3, 4)).all()
        assert (at["ears"]["0"] == 5).all() and (at["ears"]["1"] == 6).all()
    assert (batch.action == (0.5, 0.25)).all() and len(table) == 2
