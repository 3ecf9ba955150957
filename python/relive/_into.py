"""Arrays of the caller that tensors of a generation are copied into."""

import numpy as np

from . import _bfloat16, errors


class _Host:
    """A numpy array, or a torch tensor in memory of the host."""

    def __init__(self, array, is_bfloat16):
        self._array = array
        self._is_bfloat16 = is_bfloat16
        self.is_float = is_bfloat16 or array.dtype.kind == "f"
        self.dtype = _bfloat16.NAME if is_bfloat16 else array.dtype.name
        self.shape = array.shape

    def assign(self, source):
        if self._is_bfloat16:
            bits = source.view(np.uint16) if _is_bfloat16(source) else _bfloat16.bits(source, "", False)
            np.copyto(self._array.view(np.uint16), bits)
        elif self.is_float and _is_bfloat16(source):
            np.copyto(self._array, _bfloat16.floats(source), "same_kind")
        else:
            np.copyto(self._array, source, "same_kind")


class _Device:
    """A torch tensor in memory of a device."""

    def __init__(self, tensor):
        self._tensor = tensor
        self.is_float = tensor.is_floating_point()
        self.dtype = str(tensor.dtype).removeprefix("torch.")
        self.shape = tuple(tensor.shape)

    def assign(self, source):
        self._tensor.copy_(torch_copy(source))


def _is_bfloat16(array):
    return _bfloat16.is_bfloat16(array.dtype)


def torch_copy(array):
    """Returns a copy as a torch tensor."""
    import torch
    if _is_bfloat16(array):
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _open(name, value):
    if isinstance(value, np.ndarray):
        if not value.flags.writeable:
            raise errors.InvalidArgument("into: %s is a read-only array" % name)
        return _Host(value, _is_bfloat16(value))
    if not hasattr(value, "copy_"):
        raise errors.InvalidArgument("into: %s of type %s: want a numpy array or a torch tensor"
                                     % (name, type(value).__name__))
    value = value.detach()
    if value.device.type != "cpu":
        return _Device(value)
    if str(value.dtype) != "torch.bfloat16":
        return _Host(value.numpy(), False)
    import torch
    return _Host(value.view(torch.int16).numpy(), True)


def target(name, value, generation):
    """Returns what the generation's tensor of that name is assigned to.

    :raises InvalidArgument: value cannot be written, or has another shape or dtype.
    """
    to = _open(name, value)
    if name not in generation:
        raise errors.InvalidArgument("into: version %d has no tensor %s" % (generation.version, name))
    source = generation[name]
    dtype = _bfloat16.NAME if _is_bfloat16(source) else source.dtype.name
    floats = to.is_float and (source.dtype.kind == "f" or dtype == _bfloat16.NAME)
    if source.shape != to.shape or (dtype != to.dtype and not floats):
        raise errors.InvalidArgument("into: %s is %s of shape %s, in version %d %s of shape %s" % (
            name, to.dtype, to.shape, generation.version, dtype, source.shape))
    return to
