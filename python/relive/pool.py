"""Device pools: the memory of devices, shared by jobs."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _core, errors
from ._closing import leave

if TYPE_CHECKING:
    from .store import Store

_LIFETIMES = ("persistent", "iteration", "ephemeral", "staging")  # as enum rlv_pool_class
_SLICE_NS = 50_000_000  # longest delay of a signal


class _Iteration:
    """As of :meth:`Pool.iteration`; a class, as a generator costs a small step of a learner more."""

    __slots__ = ("_pool", "_timeout")

    def __init__(self, pool, timeout):
        self._pool, self._timeout = pool, timeout

    def __enter__(self):
        self._pool._wait(self._pool._core.begin, self._timeout)
        return self._pool

    def __exit__(self, kind, *_):
        leave(self._pool._core.end, kind)


class Pool:
    """A job of a device pool, whose broker is ``relive-poold`` on this host::

        with relive.Pool(name="learner", persistent=1 << 30, iteration=4 << 30) as pool:
            weights = pool.alloc((1000, 1000), lifetime="persistent")
            for _ in range(1000):
                with pool.iteration():
                    ...

    Where the broker shares a CUDA device, tensors are made in ``with pool.torch():``, and batches arrive there by
    ``table.sampler(device=pool)``.

    :param pool: the pool's name, as given to ``relive-poold --name``.
    :param name: the job's name, 1 to 63 bytes; by default ``job-PID``.
    :param persistent: bytes that stay between iterations, at most.
    :param iteration: bytes that an iteration needs beside them, at most.
    :param quota: bytes that the job may ever hold; 0 = the budget.
    :param keep: bytes that it keeps between iterations when others want memory.
    :param duration: seconds of all its iterations, for the order ``srtf``; 0 = not known.
    :param weight: share in the order ``fair``.
    :param priority: in the order ``priority`` larger goes first.
    :param device: the number of the device; None = the broker chooses one.
    :param timeout: seconds that :meth:`alloc` waits for other jobs.
    :param parks: the pool may park the job between iterations while others wait for its place, so that jobs that
        do not fit together take turns. Its memory is then used within iterations only: between them a parked
        array is no memory, and to touch it ends the process. Such a job has no arrays of lifetime ``"staging"``.
    :param store: a parked job's memory goes to memory nodes of this store, and not to that of the process. Close the
        pool before the store.
    :param heap: there, to the heap of that name, which :meth:`relive.Store.create_kv` has made with some more bytes
        than the jobs that park there have together.
    :raises NotFound: there is no such pool on this host, or no such heap.
    :raises AlreadyExists: a job has the name.
    :raises NoSpace: the needs are more than any budget.

    Threads may share it; iterations do not overlap.
    """

    def __init__(self, pool: str = "0", name: str | None = None, *, persistent: int = 0,
                 iteration: int = 0, quota: int = 0, keep: int = 0, duration: float = 0.0,
                 weight: float = 1.0, priority: int = 0, device: int | None = None,
                 timeout: float = 30.0, parks: bool = False, store: Store | None = None,
                 heap: str | None = None) -> None:
        self._mem_pools: dict[str, Any] = {}  # torch's, by lifetime
        self._core = _core.Pool(pool, f"job-{os.getpid()}" if name is None else name, persistent,
                                iteration, quota, keep, _ns(duration, "duration"),
                                max(1, round(weight * 1000)), priority,
                                0 if device is None else device + 1, max(1, _ns(timeout, "timeout")), parks,
                                None if store is None else store._core, heap)

    def alloc(self, shape: int | Sequence[int], dtype: DTypeLike = np.float32, *,
              lifetime: str = "iteration") -> NDArray[Any]:
        """Returns an array in memory of the pool, whose contents are undefined. The memory goes back when the
        array and all views of it are gone. ``torch.from_dlpack(array)`` and the like share it.

        :param lifetime: ``"persistent"`` (over iterations), ``"iteration"``, ``"ephemeral"`` (within an
            operation) or ``"staging"`` (batches that arrive). Arrays of different lifetimes do not share extents.
        :raises NoSpace: it is more than quota or budget.
        :raises Timeout: other jobs held the memory for too long.
        """
        if lifetime not in _LIFETIMES:
            raise errors.InvalidArgument(f"lifetime {lifetime!r}: want one of {', '.join(_LIFETIMES)}")
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise errors.InvalidArgument(f"dtype {kind}: a pool holds no objects")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = math.prod(shape)
        if count <= 0 or min(shape) < 0 or kind.itemsize == 0:
            raise errors.InvalidArgument(f"shape {shape} of {kind}: want more than 0 bytes")
        if self.cuda is not None:
            raise errors.Unsupported(f"alloc: memory of cuda:{self.cuda} is no numpy array: make tensors in "
                                     "`with pool.torch():`")
        memory = self._core.alloc(_LIFETIMES.index(lifetime), count * kind.itemsize)
        return np.frombuffer(memory, dtype=kind, count=count).reshape(shape)

    @property
    def cuda(self) -> int | None:
        """The number of the CUDA device whose memory it has; None = memory of the host."""
        number = self._core.cuda()
        return None if number < 0 else number

    @contextlib.contextmanager
    def torch(self, lifetime: str = "iteration") -> Iterator[Any]:
        """A ``with`` block in which torch takes new memory on the pool's CUDA device from the pool, by a
        ``torch.cuda.MemPool``, which is what the block gets. One block at a time in a process: which pool torch
        asks is the process's. Tensors made there may outlive the block, but not the pool. Torch keeps what it has
        freed for later blocks of the same lifetime.

        :param lifetime: ``"persistent"`` for weights and states of optimizers, ``"iteration"`` for what a step makes.
        :raises InvalidArgument: the pool's memory is the host's.
        :raises Unsupported: torch has no CUDA; or what does not combine: expandable segments, a capture of a graph
            under way, graphs that torch.compile makes (``mode="reduce-overhead"``): their memory is not the pool's.
        """
        if lifetime not in _LIFETIMES:
            raise errors.InvalidArgument(f"lifetime {lifetime!r}: want one of {', '.join(_LIFETIMES)}")
        library = self._bind(lifetime)
        _refuse_memory_of_torch(self.cuda)
        from .torch import in_mem_pool, mem_pool
        if lifetime not in self._mem_pools:
            self._mem_pools[lifetime] = mem_pool(library)
        with in_mem_pool(self._mem_pools[lifetime]):
            yield self._mem_pools[lifetime]

    def _bind(self, lifetime: str) -> str:
        """What torch's allocator asks from now on; returns its library."""
        return self._core.bind(_LIFETIMES.index(lifetime))

    def park(self, timeout: float = 30.0) -> None:
        """Sends all tensors of the job to this process' memory and gives their room to other jobs, until
        :meth:`resume`. To touch one meanwhile ends the process; addresses stay.

        :param timeout: seconds to wait for the device.
        :raises Busy: an iteration runs.
        :raises NoMemory: this process has no room; the job is as before.
        """
        self._core.park(_ns(timeout, "timeout"))

    def resume(self, timeout: float | None = None) -> None:
        """Brings them back when the pool has room.

        :param timeout: seconds to wait for room; None = without end.
        :raises Timeout: the job stays parked.
        """
        self._wait(self._core.resume, timeout)

    def iteration(self, timeout: float | None = None) -> contextlib.AbstractContextManager[Self]:
        """A ``with`` block around an iteration: it begins when the pool has room for it, and at its end free memory
        goes back while there are other jobs.

        :param timeout: seconds to wait for room; None = without end.
        :raises Timeout: the wait is over, or the iteration took longer than the broker's limit.
        :raises Busy: an iteration runs.
        """
        return _Iteration(self, timeout)

    @staticmethod
    def _wait(call: Callable[[int], None], timeout: float | None) -> None:
        until = None if timeout is None else time.monotonic_ns() + _ns(timeout, "timeout")
        while True:
            left = _SLICE_NS if until is None else max(0, until - time.monotonic_ns())
            try:
                call(min(left, _SLICE_NS))
                return
            except errors.Timeout:
                if until is not None and left <= _SLICE_NS:
                    raise

    @property
    def free_bytes(self) -> int:
        """Bytes that the job may take now, never the device's total."""
        return self._core.room()[0]

    @property
    def device(self) -> int:
        """Number of the job's device."""
        return self._core.room()[1]

    @staticmethod
    def status(pool: str = "0") -> dict[str, list[dict[str, Any]]]:
        """Returns what a pool has: ``"devices"`` and ``"jobs"``, a list of dicts each."""
        devices, jobs = _core.Pool.status(pool)
        return {"devices": devices, "jobs": jobs}

    @staticmethod
    def limit(bytes: int, pool: str = "0", *, device: int | None = None, user: int | None = None,
              job: str | None = None) -> None:
        """Sets the budget of each device, or of one; or the quota of a user or a job (0 bytes = none), while jobs run.

        :raises AccessDenied: only the broker's user and root may.
        """
        if sum(of is not None for of in (device, user, job)) > 1:
            raise errors.InvalidArgument("limit: give one of device, user and job")
        _core.Pool.limit(pool, bytes, -1 if device is None else device, -1 if user is None else user, job)

    @staticmethod
    def drain(on: bool = True, pool: str = "0") -> None:
        """Lets a pool take no new jobs, or take them again. Errors as of :meth:`limit`."""
        _core.Pool.drain(pool, on)

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self._core.is_open

    def close(self) -> None:
        """Leaves the pool. Closing twice is a no-op.

        :raises Busy: arrays of the pool live; their memory would be gone.
        """
        self._mem_pools.clear()  # which gives back what torch kept
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exception: BaseException | None,
                 traceback: TracebackType | None) -> None:
        leave(self.close, exception)


def _ns(seconds: float, what: str) -> int:
    if not 0 <= seconds < 1e9:
        raise errors.InvalidArgument(f"{what} {seconds}: want 0 or more seconds")
    return round(seconds * 1e9)


def _refuse_memory_of_torch(device: int | None) -> None:
    """Raises Unsupported where torch would take memory of its own, which no pool counts."""
    import torch
    config = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") + os.environ.get("PYTORCH_ALLOC_CONF", "")
    if "expandable_segments:True" in config:
        raise errors.Unsupported("pool: torch's expandable segments are on, which have memory of their own: "
                                 "take expandable_segments out of PYTORCH_CUDA_ALLOC_CONF")
    if not torch.cuda.is_available():
        raise errors.Unsupported("pool: torch has no CUDA here: use pool.alloc")
    if torch.cuda.is_current_stream_capturing():
        raise errors.Unsupported("pool: a graph is being captured, whose memory is its own: end the capture first")
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is not None and trees.get_manager(device, create_if_none_exists=False) is not None:
        raise errors.Unsupported("pool: torch.compile has made graph trees, which have memory of their own: compile "
                                 "without mode=\"reduce-overhead\"")
