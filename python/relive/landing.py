"""Batches in the memory of a device.

``table.sampler(256, device="cuda")`` gives batches whose arrays are on the GPU when the sample returns: the
sampler gathers into page-locked memory, and the device copies the batch with one transfer, in the sampler's
prefetch thread while the learner computes. Such an array is a :class:`DeviceArray`; ``batch.torch()``
returns tensors of the device without a copy, and ``batch.key`` stays on the host.

How batches come depends on the table and the device: a sampler takes the best path by itself. Frames of a table over
RDMA (``verbs``) come straight to the GPU, where its driver and the RDMA device can do that; others come by a copy.
``batch.path`` is how that batch came; ``Landing.paths()`` lists what there is, the best first, with what is lacking.

TD errors come back the same way: ``sampler.update_priorities(batch.key, td_error)`` takes a tensor of
the device, queues its way back behind the work that computes it, and returns None at once. The priorities are
set by a later sample, update, flush or close.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from . import _bfloat16, _core, errors
from .pool import Pool

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # of DLPack, by numpy's kind; bool is 6
_BFLOAT = 4
_LEGACY = 1  # CUDA's default stream, as DLPack calls it
_CUDA = 2    # DLPack's number of the device type

_PATHS = {"copy": 2, "gather": 3, "dmabuf": 4, "peermem": 5}  # of enum rlv_landing_path
_AVOIDABLE = ("dmabuf", "peermem")
_WEIGHTS = {"host": 1, "device": 2}  # of enum rlv_landing_weights


class Landing(_core.Landing):
    """A CUDA device in which batches of samplers arrive. ``table.sampler(device="cuda:1")`` opens one of its
    own; samplers that are given the same Landing share its streams and counters.

    :param device: ``"cuda"``, ``"cuda:N"``, a ``torch.device``, or the device's number.
    :param timeout: seconds of each wait for the device; 0 = 30.
    :param pool: a :class:`relive.Pool`: batches are its memory, of the lifetime ``staging``, on its device. It stays
        open as long as the landing, or an array of a batch, lives.
    :param path: None = the best that a sampler's table and the device allow, but ``"gather"``. ``"copy"``: the sampler
        gathers, and the device copies the batch. ``"dmabuf"``, ``"peermem"``: RDMA READs bring values of 512 bytes and
        more (frames) from a table over ``verbs`` straight to the device, whose memory is registered as a dma-buf, or by its address,
        which needs nvidia-peermem (not into a pool). ``"gather"``: the device reads such values itself, in a table that this process
        has mapped. That frees the CPU, but locks all of the table's memory.
        What cannot come so is copied. After RDMA and gathers ``array.numpy()`` copies from the device.
    :param strict: True: ``path`` or an error, Unsupported, which names what is lacking; of Landing, of ``table.sampler``,
        or of the first sample. ``table.scan`` and ``gather`` still copy.
    :param avoid: paths that are not taken, of ``"dmabuf"`` and ``"peermem"``.
    :param graph: with ``"gather"``: what the device is asked for each batch is recorded once, as a CUDA graph, and
        launched by one call.
    :param weights: who computes importance weights, with the same bits: ``"device"``, behind the copy of each batch, or Unsupported
        if its driver does not load the kernel; ``"host"``; None = the device if it can. ``info()["weights"]`` tells.
        ``batch.weight.numpy()`` brings those of the device.
    :raises Unsupported: no driver of CUDA on this host; the message says what to do.
    :raises InvalidArgument: there is no such device.
    """

    def __new__(cls, device: Any = "cuda", timeout: float = 0, *, pool: Pool | None = None,
                path: str | None = None, graph: bool = False, strict: bool = False,
                avoid: Collection[str] = (), weights: str | None = None) -> Landing:
        if path is not None and path not in _PATHS:
            raise errors.InvalidArgument("path %r: want %s or None" % (path, _quoted(_PATHS)))
        if isinstance(avoid, str) or not set(avoid) <= set(_AVOIDABLE):
            raise errors.InvalidArgument("avoid %r: want a list of %s" % (avoid, _quoted(_AVOIDABLE)))
        if weights is not None and weights not in _WEIGHTS:
            raise errors.InvalidArgument("weights %r: want %s or None" % (weights, _quoted(_WEIGHTS)))
        number, core = (_number(device), None) if pool is None else (0, pool._core)
        return super().__new__(cls, number, timeout, core, _PATHS[path] if path else 0, graph, strict,
                               sum(1 << _PATHS[name] for name in set(avoid)), _WEIGHTS[weights] if weights else 0)

    def __repr__(self) -> str:
        where = "the host" if self.device < 0 else "cuda:%d" % self.device
        return "<relive.Landing on %s, %s>" % (where, self.info()["name"])


def landing_of(device: Any) -> Landing | None:
    """Returns the landing that a sampler's option ``device`` means; None: none."""
    if device is None or isinstance(device, Landing):
        return device
    if isinstance(device, Pool):
        return Landing(pool=device)
    return Landing(device)


def _quoted(names: Collection[str]) -> str:
    return ", ".join('"%s"' % name for name in names)


def _number(device: Any) -> int:
    if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
        return device
    kind, _, number = str(device).partition(":")
    if kind == "cuda" and (number.isdigit() or not number):
        return int(number or 0)
    raise errors.InvalidArgument('device %r: want "cuda", "cuda:N", a number or a relive.Pool; leave it out '
                                 "for batches on the host" % (device,))


class DeviceArray:
    """An array of a batch on a CUDA device. Libraries take it without a copy, by DLPack
    (``torch.from_dlpack(array)``) or ``__cuda_array_interface__``. The host has the same bytes:
    ``array.numpy()``, which numpy's functions take by themselves; of a batch that the device has gathered, or that came
    by RDMA, and of weights that the device has computed, they are brought by the first such call. While it, or what was made of it, is
    referenced, its memory is not filled again; nor before work is done that was queued on the stream which
    DLPack's consumer named, or, by ``__cuda_array_interface__``, on the default stream."""

    __slots__ = ("_host", "_landing", "_left")

    def __init__(self, host: np.ndarray, landing: Landing, left: bool) -> None:
        self._host = host
        self._landing = landing
        self._left = left and host.nbytes > 0  # maybe on the device alone

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, items first."""
        return self._host.shape

    @property
    def dtype(self) -> np.dtype:
        """Its dtype, numpy's."""
        return self._host.dtype

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return self._host.ndim

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self._host.nbytes

    @property
    def device(self) -> int:
        """The number of its CUDA device."""
        return self._landing.device

    def __len__(self) -> int:
        return len(self._host)

    def __repr__(self) -> str:
        return "<relive.DeviceArray %s %s on cuda:%d>" % (self.dtype, self.shape, self._landing.device)

    def numpy(self) -> np.ndarray:
        """Returns the host's side of it, a view."""
        if self._left:
            self._landing.fetch(self._buffer())
            self._left = False
        return self._host

    def copy(self) -> np.ndarray:
        """Returns a copy in memory of the host."""
        return self.numpy().copy()

    def torch(self) -> Any:
        """Returns it as a torch tensor of the device, a view."""
        from .torch import device_tensor
        return device_tensor(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.numpy().astype(dtype or self._host.dtype, copy=bool(copy))

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self._landing.device

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("relive: an array of a batch is exported as it is: use array.numpy()")
        if stream != -1:  # -1: the consumer takes care itself
            self._landing.use(self._host, _LEGACY if stream is None else stream)
        code = _BFLOAT if _bfloat16.is_bfloat16(self.dtype) else _CODES[self.dtype.kind]
        return self._landing.dlpack(self._buffer(), code, 8 * self.dtype.itemsize)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._landing.use(self._host, _LEGACY)
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 3, "stream": None,
                "strides": None if self._host.flags.c_contiguous else self._host.strides, "data": (self._landing.address(self._buffer()), False)}

    def __reduce__(self) -> Any:
        return np.array, (self.numpy(),)

    def _buffer(self) -> np.ndarray:
        """The host's side in a dtype that buffers know."""
        host = self._host
        return host.view(np.int16) if _bfloat16.is_bfloat16(host.dtype) else host


def update(sampler: Any, keys: Any, td_error: Any, priorities: Any) -> Any:
    """Sets priorities from TD errors of the device; NotImplemented: these are on the host."""
    if _is_on_device(priorities):
        raise errors.InvalidArgument("update_priorities: priorities are on a device: give td_error=, or "
                                     "priorities.cpu()")
    if not _is_on_device(td_error):
        return NotImplemented
    stream = _LEGACY
    if hasattr(td_error, "is_cuda"):
        import torch
        stream = torch.cuda.current_stream(td_error.device).cuda_stream
        td_error = td_error.detach().to(torch.float32).contiguous()
    told = td_error.__cuda_array_interface__
    if told["shape"] != (len(keys),) or told["typestr"] not in ("<f4", "|f4") or told.get("strides"):
        raise errors.InvalidArgument("td_error: %s of shape %s, want float32 of shape (%d,), packed"
                                     % (told["typestr"], told["shape"], len(keys)))
    sampler.update_device(keys, told["data"][0], stream, len(keys))
    return None


def _is_on_device(value: Any) -> bool:
    is_cuda = getattr(value, "is_cuda", None)
    return bool(is_cuda) if is_cuda is not None else hasattr(value, "__cuda_array_interface__")
