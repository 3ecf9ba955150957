"""relive.adaptors.torchstore answers as TorchStore's functions do; where TorchStore is installed, both do the same
operations."""

import asyncio
import inspect

import pytest

torch = pytest.importorskip("torch", reason="no torch: make check-adaptors has it")

import relive
import relive.adaptors.torchstore as ours


def state(seed):
    torch.manual_seed(seed)
    return {"model": {"w": torch.randn(30, 7), "b": torch.randn(7).to(torch.bfloat16)},
            "optim": {"step": seed, "names": ["w", "b"], "moments": [torch.ones(3) * seed]}, "tag": "x"}


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    return a == b


async def operations(ts):
    """Returns what each call gave."""
    seen = []
    await ts.put("a.t", torch.arange(6.0).reshape(2, 3))
    await ts.put("a.o", {"data": [1, 2, 3]})
    await ts.put("ab", 1)
    seen += [await ts.get("a.t"), await ts.get("a.o"), sorted(await ts.keys("a")), await ts.exists("a.t"),
             await ts.exists("none")]
    place = torch.zeros(2, 3)
    await ts.get("a.t", place)
    await ts.put("a.t", torch.ones(2, 3))
    seen += [place, await ts.get("a.t")]
    await ts.delete("a.o")
    seen.append(await ts.exists("a.o"))
    for seed in (1, 2):
        await ts.put_state_dict(state(seed), "ckpt")
        seen.append(await ts.get_state_dict("ckpt"))
    mine = state(9)
    pointer = mine["model"]["w"].data_ptr()
    got = await ts.get_state_dict("ckpt", mine)
    seen += [got["model"], mine["model"], mine["model"]["w"].data_ptr() == pointer]
    for call in (ts.get("none"), ts.get_state_dict("none"), ts.get_state_dict("ckpt", {"model": {}})):
        with pytest.raises(Exception):
            await call
    return seen


async def run(ts, **options):
    await ts.initialize(**options)
    try:
        return await operations(ts)
    finally:
        await ts.shutdown()


def test_operations():
    seen = asyncio.run(run(ours, bytes=8 << 20))
    assert equal(seen[0], torch.arange(6.0).reshape(2, 3)) and seen[1] == {"data": [1, 2, 3]}
    assert seen[2] == ["a.o", "a.t"] and seen[3:5] == [True, False]
    assert equal(seen[5], seen[0]) and equal(seen[6], torch.ones(2, 3)) and seen[7] is False
    assert equal(seen[8], state(1)) and equal(seen[9], state(2))
    assert equal(seen[10], state(2)["model"]) and equal(seen[11], state(2)["model"]) and seen[12]


def test_like_torchstore():
    theirs = pytest.importorskip("torchstore", reason="no TorchStore: make check-adaptors compares with it")
    for name in ("initialize", "shutdown", "put", "get", "delete", "keys", "exists", "put_state_dict",
                 "get_state_dict", "reset_client", "client"):
        mine = list(inspect.signature(getattr(ours, name)).parameters)
        known = list(inspect.signature(getattr(theirs, name)).parameters)
        assert mine[:len(known)] == known, name
    for mine, known in zip(asyncio.run(run(ours, bytes=8 << 20)), asyncio.run(run(theirs))):
        assert equal(mine, known)


def test_a_reader_sees_one_version():
    """What TorchStore does not promise: put_state_dict while another process reads."""
    async def main():
        await ours.initialize(bytes=1 << 20)
        await ours.put_state_dict({"a": torch.zeros(1000), "b": torch.zeros(1000)}, "ckpt")
        done = asyncio.Event()

        async def read():
            while not done.is_set():
                got = await ours.get_state_dict("ckpt")
                assert torch.equal(got["a"], got["b"])

        reader = asyncio.create_task(read())
        for i in range(1, 50):
            await ours.put_state_dict({"a": torch.full((1000,), i), "b": torch.full((1000,), i)}, "ckpt")
        done.set()
        await reader
        await ours.shutdown()

    asyncio.run(main())


def test_what_is_not_there():
    async def main():
        with pytest.raises(RuntimeError, match="initialize"):
            await ours.get("x")
        await ours.initialize(bytes=1 << 20)
        for call in (ours.get("x"), ours.delete("x"), ours.get_state_dict("x")):
            with pytest.raises(KeyError):
                await call
        with pytest.raises(NotImplementedError):
            await ours.get("x", tensor_slice_spec=object())
        await ours.put_state_dict({"a": torch.zeros(4)}, "ckpt")
        with pytest.raises(AssertionError, match="structure"):
            await ours.get_state_dict("ckpt", {"b": torch.zeros(4)})
        with pytest.raises(relive.InvalidArgument, match="shape"):
            await ours.get_state_dict("ckpt", {"a": torch.zeros(5)})
        await ours.shutdown()

    asyncio.run(main())
