"""bfloat16, which numpy does not have: that of ml_dtypes where it is installed, else the bits as
uint16, with {"dtype": "bfloat16"} as the metadata of the numpy dtype."""

import functools

import numpy as np

from . import errors

NAME = "bfloat16"
_BITS = np.dtype(np.uint16)


@functools.cache
def _numpy_bfloat16():
    """Asked for at the first such column: ml_dtypes is an extension, slow to load."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16, metadata={"dtype": NAME})
    return np.dtype(ml_dtypes.bfloat16)


def numpy_dtype(name=NAME):
    """The numpy dtype of arrays of a column of dtype ``name``."""
    return _numpy_bfloat16() if name == NAME else np.dtype(name)


def is_bfloat16(dtype):
    """True for arrays that numpy_dtype() describes."""
    return dtype.name == NAME or (dtype.metadata or {}).get("dtype") == NAME


def _round(floats):
    """The nearest bfloat16 of each number, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(floats, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(floats), (bits >> np.uint32(16)) | np.uint32(0x40),
                    rounded).astype(np.uint16)


def bits(array, name, checked=True):
    """An array as the bits of bfloat16: uint16 and bfloat16 as they are, floats rounded."""
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
        raise errors.InvalidArgument("%s: a number is too large for bfloat16" % name)
    return rounded
