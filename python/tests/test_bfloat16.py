"""Columns of bfloat16, and tables of 256 columns."""

import numpy as np
import pytest

import relive
from relive import _bfloat16


def bits_of(array):
    return np.asarray(array).view(np.uint16)


@pytest.fixture
def table():
    with relive.open("embed:") as store:
        yield store.create_table("t", {"x": ((2,), "bfloat16"), "reward": "float32"}, 1000)


def only_item(table):
    with table.sampler(batch_size=1) as sampler:
        return sampler.sample(1).x.copy()[0]


@pytest.mark.parametrize("value, bits", [
    (np.array([1.0, -2.0], np.float32), [0x3f80, 0xc000]),
    (np.array([1 + 2**-8, 1 + 3 * 2**-8]), [0x3f80, 0x3f82]),  # ties go to even
    ([float("inf"), 3.0e38], [0x7f80, 0x7f62]),
    (np.array([0x3f80, 0x1234], np.uint16), [0x3f80, 0x1234]),  # bits
])
def test_append__rounds_floats_and_takes_bits(table, value, bits):
    with table.writer() as writer:
        writer.append(x=value, reward=0.0)
        writer.end_episode()
    assert bits_of(only_item(table)).tolist() == bits


def test_append__nan_stays_nan(table):
    bits = _bfloat16.bits(np.array([np.nan, -np.nan], np.float32), "x")
    assert ((bits & 0x7f80) == 0x7f80).all() and (bits & 0x7f).all()


def test_append__numbers_that_do_not_fit(table):
    with table.writer() as writer:
        with pytest.raises(relive.InvalidArgument, match="too large for bfloat16"):
            writer.append(x=[3.4e38, 0.0], reward=0.0)
        with pytest.raises(relive.InvalidArgument, match="bfloat16"):
            writer.append(x=np.array(["a", "b"]), reward=0.0)


def test_batch__says_that_its_bits_are_bfloat16(table):
    with table.writer() as writer:
        writer.append(x=[1.0, 2.0], reward=0.0)
        writer.end_episode()
    assert _bfloat16.is_bfloat16(only_item(table).dtype)
    assert table.columns[0].dtype == "bfloat16"


def test_reward__of_bfloat16_is_refused():
    with relive.open("embed:") as store:
        with pytest.raises(relive.InvalidArgument, match="reward"):
            store.create_table("t", {"obs": "float32", "reward": "bfloat16"}, 1000)


def test_table__of_256_columns():
    names = ["c%d" % c for c in range(256)]
    with relive.open("embed:") as store:
        table = store.create_table("t", {name: "int32" for name in names}, 1000)
        with table.writer() as writer:
            writer.append({name: c for c, name in enumerate(names)})
            writer.end_episode()
        with table.sampler(batch_size=1) as sampler:
            batch = sampler.sample(1)
            assert [int(batch[name][0]) for name in names] == list(range(256))
        with pytest.raises(relive.InvalidArgument, match="256"):
            store.create_table("u", {"c%d" % c: "int32" for c in range(257)}, 1000)
