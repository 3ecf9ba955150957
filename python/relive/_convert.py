"""What the extension leaves to numpy: values of other dtypes, layouts, libraries and devices."""

import numpy as np

from . import errors

_KIND = {"b": "bool", "i": "integers", "u": "integers", "f": "floats"}


def _host_array(value, name):
    """Any array of any library, without a copy where that can be."""
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        try:
            if hasattr(value, "detach"):  # a torch tensor that wants a gradient
                value = value.detach()
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            device = getattr(value, "__dlpack_device__", None)
            if device is not None and device()[0] not in (1, 3, 13):
                raise errors.InvalidArgument(
                    "%s is in memory of a device: copy it to the host first" % name) from error
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise errors.InvalidArgument("%s: no array: %s" % (name, error)) from error


def _exact_integers(value, array, dtype):
    """numpy makes floats or objects of large Python integers: those that fit as what they are."""
    if array.dtype.kind not in "fO" or dtype.kind not in "iu" or hasattr(value, "dtype"):
        return array
    exact = np.asarray(value, dtype=object)
    if not all(isinstance(number, (int, np.integer)) for number in exact.flat):
        return array
    try:
        return exact.astype(dtype)
    except OverflowError:
        return array


def _fits(array, dtype):
    """May the values become dtype? As numpy's same_kind, and integers if they are in range."""
    if array.dtype.kind in "iub" and dtype.kind in "iu":
        if array.size == 0 or array.dtype.kind == "b":
            return True
        limits = np.iinfo(dtype)
        return int(array.min()) >= limits.min and int(array.max()) <= limits.max
    if dtype.kind == "b":
        return array.dtype.kind in "iu" and bool(np.isin(array, (0, 1)).all())
    return np.can_cast(array.dtype, dtype, "same_kind")


def column(value, dtype, shape, name):
    """``value`` as a packed array of dtype and shape."""
    array = _host_array(value, name)
    dtype = np.dtype(dtype)
    if name == "keys" and array.dtype == np.int64:
        array = array.view(np.uint64)  # torch has little use for unsigned integers
    if array.shape != shape:
        raise errors.InvalidArgument("%s: shape %s, want %s" % (name, array.shape, shape))
    array = _exact_integers(value, array, dtype)
    if array.dtype != dtype:
        if not _fits(array, dtype):
            raise errors.InvalidArgument(
                "%s: %s of dtype %s do not fit %s" %
                (name, _KIND.get(array.dtype.kind, "values"), array.dtype, dtype))
        array = array.astype(dtype)
    return np.ascontiguousarray(array).reshape(shape)


def final_rows(value, ended, name):
    """The rows ``ended`` of a vector's final observations, which gymnasium gives as an array of
    observations, or of objects that are None where nothing ended."""
    rows = [value[i] for i in ended]
    for i, row in zip(ended, rows):
        if row is None:
            raise errors.InvalidArgument(
                "final_%s[%d] is None, but the episode of environment %d ended" % (name, i, i))
    return np.stack([_host_array(row, "final_" + name) for row in rows])
