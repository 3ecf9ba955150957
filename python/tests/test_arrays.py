"""Arrays of other libraries, without copies: DLPack both ways, torch."""

import gc
import subprocess
import sys

import numpy as np
import pytest

import relive
from conftest import step_values


def test_dlpack__numpy_shares_memory(filled):
    batch = filled.sample(32)
    for name in batch.names:
        if name == "key":
            continue  # read-only, which DLPack cannot always say
        again = np.from_dlpack(batch[name])
        assert np.shares_memory(again, batch[name])


class Dlpack:
    """An array that offers nothing but DLPack."""

    def __init__(self, array):
        self._array = np.asarray(array)

    def __len__(self):
        return len(self._array)

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class OnDevice(Dlpack):
    def __dlpack__(self, **options):
        raise BufferError("not on the host")

    def __dlpack_device__(self):
        return 2, 0


class Tensor(Dlpack):
    """A tensor of another library, which numpy() turns into an array, unless it wants a gradient."""

    def __init__(self, array, gradient=False):
        super().__init__(array)
        self.gradient = gradient

    def numpy(self):
        if self.gradient:
            raise RuntimeError("call detach()")
        return self._array

    def detach(self):
        return self._array


@pytest.mark.parametrize("gradient", [False, True])
def test_tensors__values_and_keys_go_in(make_table, gradient):
    table = make_table()
    with table.writer() as writer:
        for i in range(10):
            values = step_values(i)
            writer.append({name: Tensor(value, gradient) for name, value in values.items()})
    batch = table.sample(8)
    np.testing.assert_array_equal(batch.obs[:, 0], batch.id)
    keys = batch.key.view(np.int64).copy()
    for given in (keys, Tensor(keys, gradient)):
        result = table.update_priorities(given, Tensor(np.ones(8, np.float32), gradient))
        assert result.stale == 0 and result.updated > 0


def test_dlpack__values_go_in(make_table):
    table = make_table()
    with table.writer() as writer:
        for i in range(10):
            values = step_values(i)
            values["obs"] = Dlpack(values["obs"])
            writer.append(**values)
        with pytest.raises(relive.InvalidArgument, match="obs is in memory of a device"):
            writer.append(**{**values, "obs": OnDevice(np.zeros(3))})
    batch = table.sample(8)
    np.testing.assert_array_equal(batch.obs[:, 0], batch.id)
    result = table.update_priorities(Dlpack(batch.key.copy()), Dlpack(np.ones(8)))
    assert result.stale == 0


def test_torch__shares_memory(filled):
    torch = pytest.importorskip("torch")
    batch = filled.sample(32)
    obs = torch.from_dlpack(batch.obs)
    assert obs.data_ptr() == batch.obs.ctypes.data
    obs[0, 0] = 99
    assert batch.obs[0, 0] == 99
    values = obs.clone()
    del batch
    for _ in range(20):
        filled.sample(32)
    assert torch.equal(obs, values)


def test_torch__tensors_go_in(make_table):
    torch = pytest.importorskip("torch")
    table = make_table(max_writers=4)
    with table.writer(num_envs=4) as writer:
        for i in range(10):
            writer.append(obs=torch.full((4, 3), float(i), requires_grad=True),
                          action=torch.full((4,), i), reward=torch.zeros(4, dtype=torch.float64),
                          id=torch.full((4,), i), terminated=torch.tensor([i == 5] * 4))
    batch = table.sample(16)
    np.testing.assert_array_equal(batch.obs[:, 0], batch.action)
    td_error = torch.randn(16, requires_grad=True)
    assert table.update_priorities(batch.key, td_error=td_error).stale == 0
    key = torch.from_numpy(batch.key.view(np.int64).copy())
    assert table.update_priorities(key, priorities=torch.rand(16)).stale == 0


TORCH_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
CUTS = (lambda t: t[:, ::2], lambda t: t[:, 3:], lambda t: t[:, 3:].contiguous(), lambda t: t[1].reshape(2, 3),
        lambda t: t.t()[:2, :1].expand(2, 3), lambda t: t[1].reshape(3, 2).t())


def test_torch__values_of_every_dtype(store):
    """Whatever layout a tensor has, what comes out is what torch says it holds."""
    torch = pytest.importorskip("torch")
    table = store.create_table(
        "dtypes", {**{dtype: ((2, 3), dtype) for dtype in TORCH_DTYPES}, "one": "float32"}, 1000)
    numbers = torch.arange(12).reshape(2, 6)
    negated = torch.tensor(2 + 3j).conj().imag
    assert negated.is_neg()
    with table.writer() as writer:
        for cut in CUTS:
            step = {dtype: cut((numbers % 2 if dtype == "bool" else numbers).to(getattr(torch, dtype)))
                    for dtype in TORCH_DTYPES}
            writer.append(**step, one=negated)
        for dtype, value in step.items():
            with pytest.raises(relive.InvalidArgument, match=dtype + ": shape"):
                writer.append({**step, dtype: value[:1], "one": negated})
    batch = table.sample(256)
    assert (batch.one == -3).all()
    assert {tuple(row.ravel().tolist()) for row in batch.int64} == {
        tuple(cut(numbers).reshape(-1).tolist()) for cut in CUTS}
    for dtype, values in batch.torch().items():
        if dtype in TORCH_DTYPES:
            assert (values.double().numpy() == (batch.int64 % 2 if dtype == "bool" else batch.int64)).all(), dtype


def test_torch__dataset(filled):
    torch = pytest.importorskip("torch")
    dataset = filled.dataset(16, prefetch=1)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None)
    for _, batch in zip(range(10), loader):
        assert batch["obs"].shape == (16, 3) and batch["steps"].dtype == torch.int64
        assert torch.equal(batch["action"], batch["id"])
        assert dataset.update_priorities(batch["key"], batch["reward"]).stale == 0


def test_torch__dataset_in_workers(shm_store):
    torch = pytest.importorskip("torch")
    table = shm_store.create_table("t", {"obs": "float32", "id": "int64"}, 2000)
    with table.writer() as writer:
        for i in range(1000):
            writer.append(obs=i, id=i)
    for method in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(table.dataset(16), batch_size=None, num_workers=2,
                                             multiprocessing_context=method)
        batches = iter(loader)
        for _ in range(6):
            batch = next(batches)
            assert torch.equal(batch["obs"].long(), batch["id"])
        del batches, loader


def test_torch__pin_memory_needs_cuda(filled, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(relive.Unsupported, match="CUDA"):
        filled.sampler(16, pin_memory=True)


def test_torch__pinned_memory(filled):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA here")
    batch = next(filled.sampler(16, pin_memory=True))
    obs = torch.from_dlpack(batch.obs)
    assert obs.is_pinned()
    np.testing.assert_array_equal(obs.to("cuda", non_blocking=True).cpu().numpy(), batch.obs)


ANOTHER_NUMPY = """
import ctypes, sys, types
import numpy
version = ctypes.CFUNCTYPE(ctypes.c_uint)(lambda: %d << 24)
table = (ctypes.c_void_p * 300)()
table[0] = ctypes.cast(version, ctypes.c_void_p)
capsule = ctypes.pythonapi.PyCapsule_New
capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
module = types.ModuleType("numpy._core._multiarray_umath")
module._ARRAY_API = capsule(ctypes.addressof(table), None, None)
sys.modules[module.__name__] = module
import relive
"""


@pytest.mark.parametrize("major,known", [(1, True), (2, True), (3, False)])
def test_import__of_another_numpy(major, known):
    done = subprocess.run([sys.executable, "-c", ANOTHER_NUMPY % major], check=False,
                          stderr=subprocess.PIPE, text=True)
    assert (done.returncode == 0) == known, done.stderr
    assert known or "ImportError: numpy's C ABI has version 3; relive supports 1 and 2" in done.stderr


def test_torch__tensors_dropped_are_a_buffer_again(filled):
    pytest.importorskip("torch")
    gc.disable()
    try:
        with filled.sampler(16, prefetch=0, batches=1) as sampler:
            for _ in range(5):
                sampler.sample().torch()
    finally:
        gc.enable()
