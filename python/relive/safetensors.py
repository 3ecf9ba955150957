"""Files of safetensors, without its package: tensors by name, as ``Weights.publish`` takes
them and a ``Generation`` has them.

>>> import numpy, tempfile
>>> path = tempfile.mkdtemp() + "/policy.safetensors"
>>> save(path, {"bias": numpy.arange(3, dtype=numpy.float32)}, {"step": "7"})
>>> load(path)["bias"].tolist(), metadata(path)
([0.0, 1.0, 2.0], {'step': '7'})
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _bfloat16, errors
from ._convert import _host_array

_HEADER_MOST = 100_000_000  # bytes, as in the package
_METADATA = "__metadata__"
_DTYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16",
           "F16": "float16", "BF16": _bfloat16.NAME, "U32": "uint32", "I32": "int32",
           "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64"}
_NAMES = {name: code for code, name in _DTYPES.items()}


def load(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Returns the tensors of a file, by name, as read-only arrays over its mapping. Those of BF16 are of
    ml_dtypes' bfloat16 if that is installed, else its bits as uint16.

    :raises InvalidArgument: the file is damaged, or has a dtype that numpy lacks; the message says which.
    """
    tensors, _, data = _open(path)
    return {name: _array(data, *place) for name, place in tensors.items()}


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the texts that a file has beside its tensors."""
    return _open(path)[1]


def save(path: str | os.PathLike[str], tensors: Mapping[str, Any],
         metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors to a file, which appears whole: arrays of numpy, JAX or torch, or a
    ``Generation``.

    :param metadata: texts beside the tensors.
    :raises InvalidArgument: a tensor has a dtype that the format lacks.
    """
    arrays = {name: _host(name, value) for name, value in tensors.items()}
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    end = 0
    # Large elements first, so that all are aligned.
    ordered = sorted(arrays.items(), key=lambda item: -item[1][1].itemsize)
    for name, (code, array) in ordered:
        header[name] = {"dtype": code, "shape": list(array.shape),
                        "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _HEADER_MOST:
        raise errors.InvalidArgument("%s: the names and shapes take %d bytes, more than %d"
                                     % (path, len(text), _HEADER_MOST))
    part = "%s.%d.part" % (os.fspath(path), os.getpid())
    try:
        with open(part, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, (_, array) in ordered:
                file.write(array.reshape(-1).view(np.uint8).data)
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise


def _host(name, value):
    """Returns the code of the dtype, and the tensor as a C-contiguous array of numpy."""
    array = _host_array(value, name)
    array = np.ascontiguousarray(array).reshape(array.shape)  # the former makes a vector of a scalar
    dtype = str(getattr(value, "dtype", array.dtype))
    half = dtype == "torch.bfloat16" or _bfloat16.is_bfloat16(array.dtype)
    code = _NAMES.get(_bfloat16.NAME if half else array.dtype.name)
    if code is None or name == _METADATA or not array.dtype.isnative:
        raise errors.InvalidArgument("tensor %r of dtype %s: safetensors cannot hold it"
                                     % (name, array.dtype))
    return code, array


def _open(path):
    """Returns (dtype, shape, begin, end) of each tensor, the metadata, and the bytes that they lie in."""
    data = np.memmap(path, np.uint8, mode="r") if os.path.getsize(path) else np.empty(0, np.uint8)
    try:
        n = int.from_bytes(data[:8].tobytes(), "little")
        if len(data) < 8 or n > min(_HEADER_MOST, len(data) - 8):
            raise ValueError("its header would have %d bytes" % n)
        header = json.loads(data[8:8 + n].tobytes(), object_pairs_hook=_unique)
        texts = header.pop(_METADATA, {})
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("its metadata are not texts")
        data = data[8 + n:]
        tensors = {name: _place(name, info) for name, info in header.items()}
        _check_places(tensors, len(data))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise errors.InvalidArgument("%s is no file of safetensors: %s" % (path, error)) from None
    return tensors, texts, data


def _unique(pairs):
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("its header has a name twice")
    return names


def _place(name, info):
    code, shape, (begin, end) = info["dtype"], info["shape"], info["data_offsets"]
    if code not in _DTYPES:
        raise ValueError("tensor %r is of dtype %s, which numpy lacks" % (name, code))
    if not all(type(size) is int and size >= 0 for size in (begin, end, *shape)):
        raise ValueError("tensor %r has a negative size" % name)
    dtype = _bfloat16.numpy_dtype(_DTYPES[code])
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError("tensor %r has %d bytes, other than its shape %s says"
                         % (name, end - begin, shape))
    return dtype, tuple(shape), begin, end


def _check_places(tensors, n):
    """Checks that the tensors fill n bytes, without gaps and overlaps."""
    at = 0
    for name, (_, _, begin, end) in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if begin != at:
            raise ValueError("tensor %r begins at %d, not at %d" % (name, begin, at))
        at = end
    if at != n:
        raise ValueError("its tensors have %d bytes, but there are %d" % (at, n))


def _array(data, dtype, shape, begin, end):
    raw = np.asarray(data[begin:end])
    if raw.ctypes.data % dtype.itemsize:
        raw = raw.copy()
        raw.flags.writeable = False
    return raw.view(dtype).reshape(shape)
