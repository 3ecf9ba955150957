"""Conversions that the extension leaves to numpy: other dtypes, layouts, libraries and devices."""

import numpy as np

from . import _bfloat16, errors

_KIND = {"b": "bool", "i": "integers", "u": "integers", "f": "floats"}


def _host_array(value, name):
    """Returns a value of any library as a numpy array, without a copy if possible."""
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # numpy has no such type
        import torch
        return value.detach().view(torch.int16).numpy().view(np.uint16)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        try:
            for plain in ("detach", "resolve_neg"):  # a torch tensor may want a gradient, or another sign
                if hasattr(value, plain):
                    value = getattr(value, plain)()
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            device = getattr(value, "__dlpack_device__", None)
            if device is not None and device()[0] not in (1, 3, 13):
                raise errors.InvalidArgument(
                    "%s is in memory of a device: copy it to the host first, as with .cpu()"
                    % name) from error
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise errors.InvalidArgument("%s: numpy makes no array of it: %s" % (name, error)) from error


def _are_integers(array):
    return array.dtype == object and array.size > 0 and all(
        isinstance(number, (int, np.integer)) for number in array.flat)


def _exact_integers(value, array, dtype, checked):
    """Returns the Python integers in ``value`` exactly, where numpy converted them to floats or objects
    in ``array``: as objects, or modulo 2^64 if not checked. Returns any other array as it is."""
    if array.dtype.kind not in "fO" or dtype.kind not in "iub" or hasattr(value, "dtype"):
        return array
    exact = np.asarray(value, dtype=object)
    if not _are_integers(exact):
        return array
    return exact if checked else np.asarray(exact & (2**64 - 1), dtype=np.uint64)


def _converts(array, dtype):
    """True if an array converts to dtype: by numpy's same_kind rule, or integers to integers or
    bools."""
    if dtype.kind in "iub" and (array.dtype.kind in "iub" or _are_integers(array)):
        return True
    return np.can_cast(array.dtype, dtype, "same_kind")


def _misfits(array, cast, dtype):
    """Returns a mask of the numbers outside the range of dtype. cast: the array as dtype, which is read
    only if dtype is a float."""
    if dtype.kind == "b":
        return (array != 0) & (array != 1)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return (array < limits.min) | (array > limits.max)
    return np.isinf(cast) & ~np.isinf(array)


def _fits(array, cast, dtype):
    """True if no number is outside the range of dtype. Faster than _misfits."""
    if array.size == 0 or array.dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(array.min()) >= limits.min and int(array.max()) <= limits.max
    if dtype.kind == "f" and np.isfinite(cast).all():
        return True
    return not _misfits(array, cast, dtype).any()


def _cast(array, dtype, name, checked, rows=None):
    """Casts an array to dtype. rows: for messages, the original index of each row, if only some are
    given."""
    if not _converts(array, dtype):
        raise errors.InvalidArgument(
            "%s: %s of dtype %s do not fit %s" %
            (name, _KIND.get(array.dtype.kind, "values"), array.dtype, dtype))
    cast = None
    if dtype.kind == "f" or not checked:
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
    if not checked or _fits(array, cast, dtype):
        return array.astype(dtype) if cast is None else cast
    index = tuple(np.argwhere(_misfits(array, cast, dtype))[0].tolist())
    number = array[index]
    if rows is not None:
        index = (rows[index[0]], *index[1:])
    raise errors.InvalidArgument(
        "column %s%s: %s does not fit %s; a writer opened with check_values=False converts it as "
        "numpy does"
        % (name, list(index) or "", number, dtype))


def _cure(shape, want):
    """Returns what an actor may have meant who gave a shape: a vector of environments, for example."""
    if shape[1:] == want and shape:
        return (": one environment has no batch dimension; for %d environments open table.writer(num_envs=%d), "
                "for %d steps of one call extend()" % (shape[0], shape[0], shape[0]))
    return ""


def column(value, dtype, shape, name, checked=True):
    """Returns a value as a packed array of a dtype and shape. The extension calls it for values that
    it does not convert itself.

    name: for messages. checked: True = numbers that do not fit the dtype raise InvalidArgument; False =
    they are converted as astype does. A value of another shape raises InvalidArgument.
    """
    array = _host_array(value, name)
    if dtype == _bfloat16.NAME:
        array, dtype = _bfloat16.bits(array, name, checked), np.uint16
    dtype = np.dtype(dtype)
    if name == "keys" and array.dtype == np.int64:
        array = array.view(np.uint64)  # torch has little use for unsigned integers
    if array.shape != shape:
        raise errors.InvalidArgument("%s: shape %s, want %s%s"
                                     % (name, array.shape, shape, _cure(array.shape, shape)))
    array = _exact_integers(value, array, dtype, checked)
    if array.dtype != dtype:
        array = _cast(array, dtype, name, checked)
    return np.ascontiguousarray(array).reshape(shape)


def final_rows(value, ended, name, dtype, checked):
    """Returns the final observations of the environments in the list ``ended``, stacked in its order.

    value: the final observations of all environments. gymnasium gives an array of observations, or an
    array of objects that are None where no episode ended. name, dtype: of the column.
    """
    rows = [value[i] for i in ended]
    for i, row in zip(ended, rows):
        if row is None:
            raise errors.InvalidArgument(
                "final_%s[%d] is None, but the episode of environment %d ended: give its final "
                "observation" % (name, i, i))
    stacked = np.stack([_host_array(row, "final_" + name) for row in rows])
    if dtype == _bfloat16.NAME:
        return _bfloat16.bits(stacked, "final_" + name, checked)
    return stacked if stacked.dtype == dtype else _cast(stacked, np.dtype(dtype), "final_" + name,
                                                        checked, ended)
