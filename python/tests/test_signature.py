"""Signatures from dicts, structured dtypes and spaces; nested observations."""

import numpy as np
import pytest

import relive
from relive.signature import Column, columns_of, of_env


def short(columns):
    return {c.name: (c.shape, c.dtype, c.role) for c in columns}


def test_columns__of_a_dict():
    assert short(columns_of({"obs": ((4, 4), np.uint8), "action": int, "reward": "f8",
                             "next_obs": ((4, 4), "u1"), "mask": (3, "?"),
                             "goal": Column("x", (2,), "f4", "obs")})) == {
        "obs": ((4, 4), "uint8", "plain"), "action": ((), "int64", "plain"),
        "reward": ((), "float64", "reward"), "next_obs": ((4, 4), "uint8", "next"),
        "mask": ((3,), "bool", "plain"), "goal": ((2,), "float32", "obs")}


def test_columns__of_a_structured_dtype():
    dtype = np.dtype([("obs", "f4", (4,)), ("action", ">i4"), ("reward", "f4"),
                      ("pose", [("x", "f8"), ("y", "f8")])])
    assert short(columns_of(dtype)) == {
        "obs": ((4,), "float32", "obs"), "action": ((), "int32", "plain"),
        "reward": ((), "float32", "reward"), "pose__x": ((), "float64", "plain"),
        "pose__y": ((), "float64", "plain")}


def test_columns__of_spaces():
    spaces = pytest.importorskip("gymnasium").spaces
    space = spaces.Dict({
        "obs": spaces.Dict({"image": spaces.Box(0, 255, (8, 8), np.uint8),
                            "pose": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))])}),
        "action": spaces.MultiDiscrete([2, 3]), "flags": spaces.MultiBinary(5)})
    assert short(columns_of(space)) == {
        "action": ((2,), "int64", "plain"), "flags": ((5,), "int8", "plain"),
        "obs__image": ((8, 8), "uint8", "obs"), "obs__pose__0": ((), "int64", "obs"),
        "obs__pose__1": ((2,), "float32", "obs")}


def test_of_env__of_one_and_of_a_vector():
    gym = pytest.importorskip("gymnasium")
    want = {"obs": ((4,), "float32", "obs"), "action": ((), "int64", "plain"),
            "reward": ((), "float32", "reward")}
    for env in (gym.make("CartPole-v1"), gym.make_vec("CartPole-v1", num_envs=2)):
        assert short(of_env(env)) == want
        env.close()


@pytest.mark.parametrize("spec", [
    5, "obs", {"a": "complex64"}, {"a": "O"}, {"a": "no dtype"}, {"a": ((2,), "f4", "x")},
    {"weight": "f4"}, {"terminated": "?"}, np.dtype("f4"), {"a": (None, "f4")},
    {"a": np.dtype("datetime64[s]")},
])
def test_columns__what_is_none(spec):
    with pytest.raises(relive.InvalidArgument):
        columns_of(spec)


@pytest.mark.parametrize("options", [
    dict(role="x"), dict(name="key"), dict(shape=object()),
])
def test_column__wrong(options):
    with pytest.raises(relive.InvalidArgument):
        Column(**{"name": "a", **options})


@pytest.mark.parametrize("options", [
    dict(selector="random"), dict(alpha=0), dict(stack=0), dict(n_step=0), dict(period=0),
    dict(eps=0),
])
def test_view__wrong(options):
    with pytest.raises(relive.InvalidArgument):
        relive.View(**options)


def test_nested__observations_come_back_nested(make_table):
    table = make_table({"obs": {"image": ((2, 2), "uint8"), "pose": {"0": "float32", "1": "int64"}},
                        "action": "int64", "reward": "float32"}, max_writers=4)

    def obs(i):
        return {"image": np.full((2, 2), i, np.uint8), "pose": (float(i), 2 * i)}

    with table.writer() as writer:
        for i in range(20):
            writer.append(obs=obs(i), action=i, reward=0.0)
        writer.end_episode(obs=obs(20))
    batch = table.sample(32)
    assert set(batch.obs) == set(batch.next_obs) == {"image", "pose"}
    np.testing.assert_array_equal(batch.obs["image"][:, 0, 1], batch.action)
    np.testing.assert_array_equal(batch.obs["pose"]["1"], 2 * batch.action)
    np.testing.assert_array_equal(batch.next_obs["pose"]["0"], batch.action + 1)
    assert batch.obs["image"] is batch.obs__image
    np.testing.assert_array_equal(batch.copy().obs["pose"]["1"], 2 * batch.action)
    with table.writer(num_envs=2, autoreset="same_step") as writer:
        both = {"image": np.zeros((2, 2, 2), "u1"), "pose": (np.zeros(2, "f4"), [1, 2])}
        writer.append(obs=both, action=[0, 0], reward=[0, 0], truncated=[True, False],
                      final_obs=both)
        writer.extend(env=1, obs=both, action=[0, 0], reward=[0, 0])


def test_nested__the_usual_values_and_all_others_append_alike(make_table):
    table = make_table({"obs": {"image": ((2,), "uint8"), "speed": "float32"}, "mask": ((2,), "int8"),
                        "reward": "float32"}, max_writers=8)
    obs = {"image": np.full(2, 5, np.uint8), "speed": 2.5}
    base = {"obs": obs, "mask": (1, 0), "reward": 1.0, "terminated": True}
    for step in (base, {**base, "td_error": None}, {**base, "infos": {}},
                 {"obs": {**obs, "image": [5, 5]}, "mask": [1, 0], "reward": 1, "terminated": True},
                 {"obs__image": obs["image"], "obs__speed": 2.5, "mask": (1, 0), "reward": 1.0,
                  "terminated": True}):
        with table.writer() as writer:
            writer.append(step)
    batch = table.sample(64)
    assert (batch.obs["image"] == 5).all() and (batch.obs["speed"] == 2.5).all()
    assert (batch["mask"] == [1, 0]).all() and table.info().views[0].items == 5
    with table.writer() as writer:
        for wrong, told in (({**obs, "speed": None}, "obs__speed"), ({"image": [5, 5]}, "obs__speed"),
                            ({**obs, "speed": {"x": 1}}, "obs__speed"), (5, "obs"),
                            ({**obs, "more": 1}, "obs__more"), ({**obs, "image": [1]}, "obs__image")):
            with pytest.raises(relive.InvalidArgument, match=told):
                writer.append({**base, "obs": wrong})
        assert writer.stats()["steps"] == 0


def test_columns__of_what_has_a_shape_and_a_dtype():
    assert short(columns_of({"a": np.zeros((4, 2), "float32"), "b": ("float32", (4,)),
                             "c": ("int8", 3), "d": [[4], "uint8"], "e": np.dtype(("f4", (2,)))})) == {
        "a": ((4, 2), "float32", "plain"), "b": ((4,), "float32", "plain"),
        "c": ((3,), "int8", "plain"), "d": ((4,), "uint8", "plain"), "e": ((2,), "float32", "plain")}


def test_columns__by_the_names_of_other_libraries():
    assert short(columns_of({"observation": ((4,), "f4"), "rewards": "f4", "Mixed.name": "f4"})) == {
        "observation": ((4,), "float32", "obs"), "rewards": ((), "float32", "reward"),
        "Mixed.name": ((), "float32", "plain")}


@pytest.mark.parametrize("spec, told", [
    ({"obs": (4,)}, r'write {"obs": \(\(4,\), "float32"\)}'),
    ({"obs": "floating"}, r'write {"obs": \(\(4,\), "float32"\)}'),
    ({"truncated": "bool"}, r"leave it out: append\(..., terminated=terminated"),
])
def test_columns__wrong_ones_with_a_cure(spec, told):
    with pytest.raises(relive.InvalidArgument, match=told):
        columns_of(spec)


@pytest.mark.parametrize("name", ["obs", "observation"])
def test_stored_next_observations__come_back(name):
    with relive.open("embed:") as store:
        table = store.create_table("t", {name: ((2,), "float32"), "next_" + name: ((2,), "float32"),
                                         "reward": "float32"}, 2000, views=relive.View(n_step=2))
        with table.writer() as writer:
            for i in range(50):
                writer.append({name: [i, i], "next_" + name: [i + 0.5, i + 0.5], "reward": 1},
                              terminated=i % 10 == 9)
        batch = table.sample(32)
        np.testing.assert_array_equal(batch["next_" + name][:, 0],
                                      batch[name][:, 0] + batch.steps - 0.5)


def test_columns__up_to_256_of_any_name():
    signature = {"observation.state": ((2,), "float32"), "Action": "int64", **{"c%d" % i: "int8" for i in range(254)}}
    with relive.open("embed:") as store:
        table = store.create_table("t", signature, capacity=1e4, views=relive.View())
        with table.writer() as writer:
            for i in range(20):
                writer.append({"observation.state": [i, i], "Action": i, **{"c%d" % c: c - 128 for c in range(254)}},
                              terminated=i == 19)
        batch = table.sample(8)
        np.testing.assert_array_equal(batch["observation.state"][:, 0], batch.Action)
        assert all((batch["c%d" % c] == c - 128).all() for c in range(254))
        assert table.info().capacity == 10_000 and set(batch) >= set(signature)


class Env:
    class observation_space:  # noqa: N801
        shape, dtype = (3,), np.dtype("float64")

        def sample(self): ...

        def contains(self): ...

    observation_space = observation_space()

    class action_space(type(observation_space)):  # noqa: N801
        shape, dtype = (), np.dtype("int64")

    action_space = action_space()


def test_of_env__in_another_dtype():
    assert short(relive.signature.of_env(Env(), dtype="bfloat16")) == {
        "obs": ((3,), "bfloat16", "obs"), "action": ((), "int64", "plain"),
        "reward": ((), "float32", "reward")}
