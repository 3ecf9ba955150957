"""torch's memory in regions that are paused and resumed by tag, each a job of a device pool."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from . import errors
from ._closing import close_all, leave
from .pool import Pool

_TAG = "default"
_LIFETIME = "persistent"


class MemorySaver:
    """The regions of the package ``torch_memory_saver``, over a device pool, for code that was written for it::

        torch_memory_saver = relive.torch.MemorySaver("0", persistent={"weights": 16 << 30})
        with torch_memory_saver.region("weights"):
            model = build().cuda()
        torch_memory_saver.pause("weights")     # the memory is other jobs' now
        torch_memory_saver.resume("weights")    # the same bytes at the same addresses

    Each tag is a job of the pool, ``NAME/TAG``. What it holds is copied to this process' memory while it is paused
    (:meth:`relive.Pool.park`), and other jobs, of other processes too, have its room on the device; to resume may
    mean to wait for it. Up to eight tags.

    :param pool: the pool's name, as given to ``relive-poold --name``; its device is a CUDA device.
    :param name: of the jobs; by default ``torch-PID``.
    :param persistent: most bytes of tags; a tag that it does not name has room while others leave any.
    :param timeout: seconds that memory, and :meth:`resume`, wait for other jobs.

    One region is open at a time in a process, but for regions within one. Threads may not share it.
    """

    __slots__ = ("_name", "_open", "_paused", "_persistent", "_pool", "_pools", "_timeout", "hook_mode")

    def __init__(self, pool: str = "0", name: str | None = None, *, persistent: Mapping[str, int] | None = None,
                 timeout: float = 30.0) -> None:
        self._pool, self._timeout = pool, timeout
        self._name = f"torch-{os.getpid()}" if name is None else name
        self._persistent = dict(persistent or {})
        self._pools: dict[str, Pool] = {}
        self._paused: set[str] = set()
        self._open: list[Pool] = []  # of regions within each other
        self.hook_mode: str | None = None  # torch is asked by a MemPool, however it is set

    @contextlib.contextmanager
    def region(self, tag: str = _TAG, enable_cpu_backup: bool = False, enable_disk_backup: bool = False,
               cpu_backup_backend: str | None = None) -> Iterator[None]:
        """A ``with`` block in which torch takes new memory of the device from the tag's job.

        :param enable_cpu_backup: ignored, as is ``cpu_backup_backend``: bytes are always kept.
        :raises Busy: the tag is paused.
        :raises Unsupported: ``enable_disk_backup``; or as :meth:`relive.Pool.torch`.
        """
        if enable_disk_backup:
            raise errors.Unsupported("region: no backups on disk: leave enable_disk_backup out")
        if tag in self._paused:
            raise errors.Busy(f"region: tag {tag} is paused: resume it first")
        if tag not in self._pools:
            self._pools[tag] = Pool(self._pool, f"{self._name}/{tag}", persistent=self._persistent.get(tag, 0),
                                    timeout=self._timeout)
        with self._pools[tag].torch(_LIFETIME):
            self._open.append(self._pools[tag])
            try:
                yield
            finally:
                self._open.pop()
                if self._open:  # torch asks the outer one again
                    self._open[-1]._bind(_LIFETIME)

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """A ``with`` block within a region in which torch takes memory of its own, which is never paused."""
        if not self._open:
            raise errors.InvalidArgument("disable: no region is open")
        from .torch import in_mem_pool, own_mem_pool
        with in_mem_pool(own_mem_pool()):
            yield

    def pause(self, tag: str | None = None) -> None:
        """Sends what a tag holds to this process' memory, when the device is done with all work; None = all tags.
        Its tensors must not be used until :meth:`resume`. Tags that are paused, or unknown, are passed over.

        :raises NoMemory: this process has no room; the tag is as before.
        """
        self._finish()
        for name in self._chosen(tag) - self._paused:
            self._pools[name].park(self._timeout)
            self._paused.add(name)

    def resume(self, tag: str | None = None) -> None:
        """Brings it back; None = all tags that are paused.

        :raises Timeout: other jobs had the room for too long; the tag stays paused.
        """
        for name in self._chosen(tag) & self._paused:
            self._pools[name].resume(self._timeout)
            self._paused.remove(name)
        self._finish()

    def cuda_graph(self, *_args: Any, **_kwargs: Any) -> Any:
        """Raises Unsupported: the memory of a graph is torch's own. Capture outside of regions."""
        raise errors.Unsupported("cuda_graph: the memory of a graph is torch's own, which a pool cannot pause: "
                                 "use torch.cuda.graph")

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """Raises Unsupported: copies of paused tensors are the pool's. Resume, then copy."""
        raise errors.Unsupported("get_cpu_backup: copies of paused tensors are the pool's: resume, then x.cpu()")

    @property
    def enabled(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Leaves the pool. Tensors of regions must be gone, the device's work with them done."""
        self._finish()
        pools = list(self._pools.values())
        self._pools.clear()
        self._paused.clear()
        close_all([pool.close for pool in pools])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exception: BaseException | None,
                 traceback: TracebackType | None) -> None:
        leave(self.close, exception)

    def _chosen(self, tag: str | None) -> set[str]:
        return set(self._pools) if tag is None else {tag} & set(self._pools)

    @staticmethod
    def _finish() -> None:
        """Waits for the device: the pool does not know all streams of torch's work, nor torch the stream of its copies."""
        from .torch import finish
        finish()
