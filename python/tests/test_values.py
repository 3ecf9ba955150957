"""Values that a learner chokes on are refused where they come in: rewards that are no numbers, and
what does not fit its column; or taken, where the actor says so."""

import numpy as np
import pytest

import relive
from relive import sequence

SIGNATURE = {"obs": ((3,), "float32"), "pixel": "uint8", "count": "int32", "flag": "bool",
             "half": "float16", "reward": "float32"}


def values_of(n=None, **more):
    shape = () if n is None else (n,)
    return {"obs": np.zeros((*shape, 3), "f4"), **{name: np.zeros(shape, dtype) for name, dtype in
                                                  list(SIGNATURE.items())[1:]}, **more}


def refuses(call, name, value, *words):
    with pytest.raises(relive.InvalidArgument) as refused:
        call(name, value)
    for word in (name, *words):
        assert word in str(refused.value), refused.value


def calls_of(table, how, **options):
    """A writer, and a call that appends rows whose column of a name has a value in its third row, or
    in its only one; and the index that the error names."""
    writer = table.writer(4 if how == "vector" else None, **options)
    n = {"vector": 4, "extend": 5}.get(how)

    def call(name, value):
        if n is None:
            values = values_of(**{name: value})
        else:
            array = [0] * n
            array[2] = value
            values = values_of(n, **{name: array if isinstance(value, int) else np.array(array)})
        writer.extend(values) if how == "extend" else writer.append(values)

    return writer, call, "[2]" if n else ""


HOW = pytest.mark.parametrize("how", ["append", "extend", "vector"])


@HOW
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_append__a_reward_that_is_no_number_is_refused(make_table, how, dtype, value):
    table = make_table({**SIGNATURE, "reward": dtype}, max_writers=4)
    writer, call, index = calls_of(table, how)
    with writer:
        refuses(call, "reward", value, "column reward%s" % index, str(value), "check_values")
        refuses(call, "reward", np.dtype(dtype).type(value), "column reward%s" % index)
        assert writer.stats()["steps"] == 0
        call("reward", 1.5)
        call("half", value)  # of others it may mean something
        assert writer.stats()["steps"] > 0


@HOW
@pytest.mark.parametrize("name,value,text", [
    ("pixel", 300, "300"), ("pixel", -1, "-1"), ("count", 2**40, str(2**40)), ("flag", 2, "2"),
    ("count", -2**31 - 1, str(-2**31 - 1)), ("half", 1e5, "100000"), ("half", 70_000, "70000"),
    ("reward", 1e300, "1e+300"), ("reward", -1e39, "-1e+39"), ("count", 2**70, str(2**70)),
    ("pixel", np.int64(300), "300"), ("reward", np.float64(1e300), "1e+300")])
def test_append__what_does_not_fit_its_column_is_refused(make_table, how, name, value, text):
    table = make_table(SIGNATURE, max_writers=4)
    writer, call, index = calls_of(table, how)
    with writer:
        refuses(call, name, value, name + index, text, "check_values")
        assert writer.stats()["steps"] == 0


def test_append__names_the_index_in_each_dimension(make_table):
    table = make_table({"obs": ((2, 3), "uint8"), "reward": "float32"}, max_writers=4)
    obs = np.zeros((4, 2, 3), int)
    obs[3, 1, 2] = 256
    with table.writer(4, autoreset="same_step") as writer:
        with pytest.raises(relive.InvalidArgument, match=r"obs\[3, 1, 2\].*256.*uint8"):
            writer.append(obs=obs, reward=np.zeros(4))
        with pytest.raises(relive.InvalidArgument, match=r"final_obs\[3, 1, 2\].*256.*uint8"):
            writer.append(obs=obs % 256, reward=np.zeros(4), final_obs=obs,
                          terminated=[True, False, False, True])
        assert writer.stats()["steps"] == 0


@HOW
def test_append__unchecked_takes_all(make_table, how):
    """The values as numpy's astype converts them."""
    table = make_table({**SIGNATURE, "id": "uint32"}, max_writers=4,
                       views=[relive.View(selector="fifo")])
    n = {"vector": 4, "extend": 5}.get(how)
    given = {"pixel": 300, "count": 2**40 + 5, "half": 1e6, "reward": np.nan, "flag": 7}
    values = values_of(n, **{name: value if n is None else [value] * n
                             for name, value in given.items()}, id=0 if n is None else range(n))
    with table.writer(4 if how == "vector" else None, check_values=False) as writer:
        put = writer.extend if how == "extend" else writer.append
        for _ in range(2):
            put(values)
        put(values, count=2**70 if n is None else [2**70] * n,
            reward=1e300 if n is None else [-1e300] * n)
        with pytest.raises(relive.InvalidArgument, match="^pixel: floats"):  # kinds do not change
            put(values, pixel=1.5 if n is None else [1.5] * n)
    batch = table.sample(1)
    assert batch.pixel[0] == 44 and batch.count[0] == 5 and batch.flag[0]
    assert np.isinf(batch.half[0])
    assert np.isnan(batch.reward[0])


def test_sequences__check_rewards_as_well(store):
    table = store.create_table("t", sequence.signature(SIGNATURE), 4096,
                               views=[relive.View(stack=3)])
    with sequence.Writer(table) as writer:
        with pytest.raises(relive.InvalidArgument, match="column reward: nan"):
            writer.append(values_of(reward=np.nan))
    with sequence.Writer(table, check_values=False) as writer:
        writer.append(values_of(reward=np.nan), terminated=True)
    assert len(table) == 1
