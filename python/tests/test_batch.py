"""Batches as mappings: keys, items, ** and dict(), repr, dir, other libraries; and released ones."""

import sys

import numpy as np
import pytest

import relive
from conftest import step_values

NESTED = {"obs": {"image": ((2, 2), "uint8"), "speed": "float32"}, "action": "int64",
          "reward": "float32"}
EXTRAS = ["discount", "steps", "key", "weight", "probability", "priority", "policy_version"]


@pytest.fixture
def nested():
    with relive.open("embed:") as store:
        table = store.create_table("t", NESTED, 1000)
        with table.writer() as writer:
            for i in range(20):
                writer.append(obs={"image": np.full((2, 2), i), "speed": i}, action=i, reward=1.0)
        yield table


@pytest.fixture(params=["batch", "copy"])
def batch(request, filled):
    batch = filled.sample(8)
    return batch.copy() if request.param == "copy" else batch


def test_mapping__keys_values_and_items_agree(batch):
    keys = batch.keys()
    assert list(batch) == keys and keys == list(batch.names)
    assert [key for key, _ in batch.items()] == keys
    for (key, item), value in zip(batch.items(), batch.values(), strict=True):
        assert item is value and value is batch[key]
    assert "obs" in batch and "nothing" not in batch and 3 not in batch
    assert batch.get("obs") is batch.obs and batch.get("nothing", 5) == 5
    assert len(batch) == 8  # of items, as before


def test_mapping__dict_and_double_star(batch):
    made = dict(batch)
    assert list(made) == batch.keys() and made["obs"] is batch.obs

    def loss(obs, reward, **others):
        return obs, reward, others

    obs, reward, others = loss(**batch)
    assert obs is batch.obs and reward is batch.reward
    assert sorted(others) == sorted(set(batch.keys()) - {"obs", "reward"})


def test_mapping__a_nested_column_is_one_key(nested):
    for batch in (nested.sample(4), nested.sample(4).copy()):
        assert batch.keys() == ["obs", "next_obs", "action", "reward"] + EXTRAS
        assert set(batch["obs"]) == {"image", "speed"}
        assert "obs__image" in batch and "obs" in batch
        np.testing.assert_array_equal(dict(batch)["obs"]["image"], batch["obs__image"])


def test_repr__gives_shapes_and_dtypes(batch, nested):
    text = repr(batch)
    assert text.startswith("<relive.%s of 8 items, table_size " % type(batch).__name__)
    for name in batch.names:
        assert "    %s: %s %s" % (name, batch[name].dtype, batch[name].shape) in text
    assert "obs: {image: uint8 (4, 2, 2), speed: float32 (4,)}" in repr(nested.sample(4))


def test_dir__has_columns_and_methods(batch):
    assert {*batch.names, "copy", "release", "keys", "torch", "n"} <= set(dir(batch))


def test_missing__names_what_there_is(batch):
    with pytest.raises(AttributeError, match="a batch has no 'observation'; it has obs, "):
        batch.observation  # noqa: B018
    with pytest.raises(KeyError, match="a batch has no 'observation'; it has obs, "):
        batch["observation"]
    assert not hasattr(batch, "__array__")


def test_released__is_said_everywhere(filled):
    batch = filled.sample(8)
    batch.release()
    for use in (lambda: batch.obs, lambda: batch["obs"], lambda: batch.names, batch.keys,
                lambda: dict(batch), lambda: list(batch), lambda: "obs" in batch, batch.items,
                lambda: batch.get("obs"), batch.copy, lambda: batch.nothing, batch.jax):
        with pytest.raises(relive.Closed, match="this batch was released"):
            use()
    assert repr(batch) == "<relive.Batch, released>"
    assert batch.n == 8 and "obs" not in dir(batch) and "copy" in dir(batch)


def test_names__of_methods_are_no_columns():
    for name in ("keys", "items", "torch", "jax"):
        with pytest.raises(relive.InvalidArgument, match="column %s: batches and calls use" % name):
            relive.Column(name)


def test_values__may_be_a_column():
    with relive.open("embed:") as store:
        table = store.create_table("t", {"values": "float32"}, 1000)
        with table.writer() as writer:
            for i in range(10):
                writer.append(values=i)
        batch = table.sample(4)
        assert batch.values.dtype == np.float32 and dict(batch)["values"] is batch.values


def test_torch__is_nested_and_shares_memory(nested):
    torch = pytest.importorskip("torch")
    batch = nested.sample(4)
    tensors = batch.torch()
    assert list(tensors) == batch.keys()
    assert tensors["obs"]["image"].dtype == torch.uint8 and tensors["key"].dtype == torch.int64
    batch["obs__speed"][0] = 77
    assert tensors["obs"]["speed"][0] == 77
    assert batch.torch("cpu")["action"].device.type == "cpu"
    assert nested.update_priorities(tensors["key"], torch.ones(4)).stale == 0


def test_jax__copies_and_keeps_the_keys(nested, monkeypatch):
    class Jax:
        """The one function that is used, where JAX is not installed."""

        @staticmethod
        def device_put(array, device):
            return array

    try:
        import jax  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "jax", Jax)
    batch = nested.sample(4)
    arrays = batch.jax()
    assert list(arrays) == batch.keys() and arrays["key"] is batch.key
    np.testing.assert_array_equal(np.asarray(arrays["obs"]["image"]), batch["obs__image"])
    assert not np.shares_memory(np.asarray(arrays["action"]), batch.action)
