"""bfloat16, which numpy lacks: ml_dtypes' type if that is installed, else the bits as uint16, in a
numpy dtype with the metadata {"dtype": "bfloat16"}."""

import functools

import numpy as np

from . import errors

NAME = "bfloat16"
_BITS = np.dtype(np.uint16)


@functools.cache
def _numpy_bfloat16():
    """Returns the numpy dtype of bfloat16; see the module. It is cached, and first called for the first
    column of bfloat16, as ml_dtypes loads slowly."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16, metadata={"dtype": NAME})
    return np.dtype(ml_dtypes.bfloat16)


def numpy_dtype(name=NAME):
    """Returns the numpy dtype of arrays of a column of dtype ``name``."""
    return _numpy_bfloat16() if name == NAME else np.dtype(name)


def is_bfloat16(dtype):
    """True if a numpy dtype is the one that numpy_dtype() returns for bfloat16."""
    if dtype.itemsize != 2 or dtype.kind not in "uV":  # a dtype's name takes numpy long to make
        return False
    return dtype.name == NAME or (dtype.metadata or {}).get("dtype") == NAME


def _round(floats):
    """Returns the uint16 bits of the nearest bfloat16 of each number, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(floats, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(floats), (bits >> np.uint32(16)) | np.uint32(0x40),
                    rounded).astype(np.uint16)


def floats(array):
    """Returns the numbers of an array of numpy_dtype(), as float32."""
    return (array.view(_BITS).astype(np.uint32) << np.uint32(16)).view(np.float32)


def bits(array, name, checked=True):
    """Returns an array as uint16 bits of bfloat16: uint16 and bfloat16 unchanged, floats and integers
    rounded. name: for messages. checked: a finite number that becomes infinite raises
    InvalidArgument."""
    if array.dtype == _BITS:
        return array
    if array.dtype.name == NAME:
        return np.ascontiguousarray(array).view(_BITS)
    if array.dtype.kind not in "fiu":
        raise errors.InvalidArgument("%s: values of dtype %s do not fit bfloat16: want floats, or "
                                     "its bits as uint16" % (name, array.dtype))
    with np.errstate(over="ignore"):
        rounded = _round(np.asarray(array, dtype=np.float32))
    if checked and (((rounded & 0x7FFF) == 0x7F80) & np.isfinite(array)).any():
        raise errors.InvalidArgument("%s: a number is too large for bfloat16, whose largest is 3.39e38"
                                     % name)
    return rounded
