"""Files of safetensors: written and read back, read and written by the package, and damaged ones."""

import importlib.util
import json

import numpy as np
import pytest

import relive
from relive import _bfloat16, safetensors

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64",
          "int64", "float64"]
needs_package = pytest.mark.skipif(importlib.util.find_spec("safetensors") is None,
                                   reason="the package safetensors is not installed")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.safetensors"


@pytest.fixture
def tensors():
    random = np.random.default_rng(1)
    made = {name: random.integers(0, 2, (3, 5)).astype(name) for name in DTYPES}
    made.update(scalar=np.float32(3), none=np.zeros((0, 4), np.int64), name_ü=np.arange(7.0)[::2])
    return made


def expect_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == expected[name].dtype and array.shape == np.shape(expected[name])
        assert np.array_equal(array, expected[name])


def test_load__what_was_saved(path, tensors):
    safetensors.save(path, tensors, {"step": "7"})
    expect_equal(safetensors.load(path), tensors)
    assert safetensors.metadata(path) == {"step": "7"}
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(ValueError):
        safetensors.load(path)["int8"][0] = 1


def test_load__bfloat16_keeps_its_bits(path):
    bits = np.array([0x3f80, 0xc000, 0x7fc1], np.uint16)
    safetensors.save(path, {"x": bits.view(_bfloat16.numpy_dtype())})
    assert json.loads(path.read_bytes()[8:].split(b"}}")[0] + b"}}")["x"]["dtype"] == "BF16"
    found = safetensors.load(path)["x"]
    assert _bfloat16.is_bfloat16(found.dtype) and found.view(np.uint16).tolist() == bits.tolist()


def test_save__of_no_tensors(path):
    safetensors.save(path, {})
    assert safetensors.load(path) == {} and safetensors.metadata(path) == {}


@pytest.mark.parametrize("value", [np.zeros(2, complex), np.zeros(2, ">f4"), np.array(["a"])])
def test_save__refuses_other_dtypes(path, value):
    with pytest.raises(relive.InvalidArgument):
        safetensors.save(path, {"x": value})
    assert not path.exists()


def write(path, header, data=b"\0" * 8, n=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if n is None else n).to_bytes(8, "little") + text + data)


def tensor(begin=0, end=8, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize("header", [
    b"", b"[]", b"{", b"\xff", b'{"x":1}', b"[" * 100000, {"x": {}},
    b'{"x":%s,"x":%s}' % (2 * (json.dumps(tensor()).encode(),)),
    {"x": tensor(dtype="F8_E4M3", shape=(8,))},
    {"x": tensor(shape=(3,))}, {"x": tensor(shape=(-1, -2))}, {"x": tensor(shape=(True, 2))},
    {"x": tensor(shape=(1.0, 2))}, {"x": tensor(shape=(1 << 70,))},
    {"x": tensor(end=4, shape=(1,))},
    {"x": tensor(4, 8, (1,))},
    {"x": tensor(end=16, shape=(4,))},
    {"x": tensor(), "y": tensor()},
    {"__metadata__": {"a": 1}, "x": tensor()},
    {"__metadata__": [], "x": tensor()},
])
def test_load__refuses_damaged_headers(path, header):
    write(path, header)
    with pytest.raises(relive.InvalidArgument, match="no file of safetensors"):
        safetensors.load(path)


@pytest.mark.parametrize("n", [1 << 63, 1000, 0])
def test_load__refuses_wrong_lengths(path, n):
    write(path, {"x": tensor()}, n=n)
    with pytest.raises(relive.InvalidArgument):
        safetensors.load(path)


def test_load__refuses_every_truncation(path, tensors):
    safetensors.save(path, tensors)
    whole = path.read_bytes()
    for n in range(0, len(whole), 13):
        path.write_bytes(whole[:n])
        with pytest.raises(relive.InvalidArgument):
            safetensors.load(path)


def test_load__of_an_odd_header_is_aligned(path):
    write(path, b'{"x":%s} ' % json.dumps(tensor()).encode().replace(b" ", b""),
          np.array([1, 2], np.float32).tobytes())
    found = safetensors.load(path)["x"]
    assert found.tolist() == [1, 2] and found.flags.aligned


@needs_package
def test_package__reads_what_was_saved(path, tensors):
    from safetensors import safe_open
    from safetensors.numpy import load_file
    safetensors.save(path, tensors, {"step": "7"})
    expect_equal(load_file(path), tensors)
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"step": "7"}


@needs_package
def test_load__of_what_the_package_saved(path, tensors):
    from safetensors.numpy import save_file
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()
               if np.ndim(array)}, path, {"step": "7"})
    expect_equal(safetensors.load(path),
                 {name: array for name, array in tensors.items() if np.ndim(array)})
    assert safetensors.metadata(path) == {"step": "7"}
