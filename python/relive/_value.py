"""Values of a heap: bytes as they are, arrays and pickles behind a header (docs/wire-format.md)."""

from __future__ import annotations

import pickle as _pickle
import struct
from typing import Any

import numpy as np

from . import _bfloat16, errors

MAGIC = b"\xf7RLV"
_VERSION = 1
_BYTES, _ARRAY, _PICKLE = range(3)
_HEAD = struct.Struct("<4sBBHBB6x")  # magic, version, kind, bytes of the header; dimensions, bytes of dtype
_ALIGN = 64


def _header(kind, shape=(), dtype=b""):
    rest = struct.pack("<%dQ" % len(shape), *shape) + dtype
    size = -(-(_HEAD.size + len(rest)) // _ALIGN) * _ALIGN
    head = _HEAD.pack(MAGIC, _VERSION, kind, size, len(shape), len(dtype))
    return (head + rest).ljust(size, b"\0")


def _dtype_name(dtype):
    """The text that a dtype is made of again. InvalidArgument: there is none."""
    if _bfloat16.is_bfloat16(dtype):
        return _bfloat16.NAME
    if dtype.hasobject or dtype.fields or np.dtype(dtype.str) != dtype:
        raise errors.InvalidArgument("put: an array of dtype %s: its items are objects or records; put "
                                     "array.tobytes(), or pickle=True" % dtype)
    return dtype.str


def _pickled(value):
    return _header(_PICKLE) + _pickle.dumps(value, protocol=5)


def encode(value: Any, pickle: bool) -> Any:
    """Returns the bytes to be stored for a value."""
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if pickle and (array.dtype.hasobject or array.dtype.fields):
            return _pickled(value)
        return _header(_ARRAY, array.shape, _dtype_name(array.dtype).encode()) + array.tobytes()
    try:
        view = memoryview(value).cast("B")
    except TypeError:
        if not pickle:
            raise TypeError("put: a value of type %s: want bytes or an array; pickle=True puts any object"
                            % type(value).__name__) from None
        return _pickled(value)
    return _header(_BYTES) + bytes(view) if view[:len(MAGIC)] == MAGIC else view


def _damaged(text):
    return errors.ProtocolError("get: the header of the value is not valid: %s" % text)


def _array(data, size, n_dims, n_dtype):
    if size < _HEAD.size + 8 * n_dims + n_dtype:
        raise _damaged("%d dimensions" % n_dims)
    shape = struct.unpack_from("<%dQ" % n_dims, data, _HEAD.size)
    name = data[_HEAD.size + 8 * n_dims:][:n_dtype]
    try:
        dtype = _bfloat16.numpy_dtype(name.decode("ascii"))
        if dtype.hasobject:
            raise _damaged("dtype %s" % dtype)
        return np.ndarray(shape, dtype, data, size)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise _damaged(error) from None


def decode(data: bytes, pickle: bool) -> Any:
    """Returns the value that was put. Arrays are read-only views of ``data``."""
    if not data.startswith(MAGIC):
        return data
    if len(data) < _HEAD.size:
        raise _damaged("%d bytes" % len(data))
    _, version, kind, size, n_dims, n_dtype = _HEAD.unpack_from(data)
    if version != _VERSION or kind > _PICKLE:
        raise _damaged("version %d kind %d" % (version, kind))
    if size < _HEAD.size or size > len(data):
        raise _damaged("%d bytes" % size)
    if kind == _ARRAY:
        return _array(data, size, n_dims, n_dtype)
    if kind == _BYTES:
        return data[size:]
    if not pickle:
        raise errors.InvalidArgument("get: the value is a pickle, and loading it runs code of whoever put it; "
                                     "pickle=True loads it")
    return _pickle.loads(memoryview(data)[size:])
