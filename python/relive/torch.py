"""Datasets, checkpoints, page-locked and pausable memory for PyTorch. ``import relive`` does not import this module: it needs
torch."""

import os
import sys

import numpy as np
import torch

from . import _bfloat16, errors
from ._checkpoint import Checkpoint
from ._memory_saver import MemorySaver
from ._options import check_options, names_of
from .landing import DeviceArray
from .sampler import Sampler
from .store import Store

Checkpoint.__module__ = MemorySaver.__module__ = __name__  # where they are documented

_SIGNED = {2: "int32", 4: "int64"}  # by size of an unsigned integer: torch computes little with those


def tensors(batch):
    """Returns the arrays of a batch as a dict from names to tensors on the CPU.

    Tensors of a batch that landed on a device (:mod:`relive.landing`) are there, but for ``key``.
    Tensors share the batch's memory, which is not filled again as long as one of them exists, but for
    dtypes that torch computes little with: ``key`` is copied to int64 of the same bits, which
    update_priorities accepts, and uint16 and uint32 are copied to int32 and int64. Columns of bfloat16
    are torch.bfloat16, and share the memory.
    """
    result, stream = {}, None
    for name in batch.names:
        array = batch[name]
        dtype = array.dtype
        is_uint64 = dtype.kind == "u" and dtype.itemsize == 8
        is_bfloat16 = _bfloat16.is_bfloat16(dtype)
        signed = _SIGNED.get(dtype.itemsize) if dtype.kind == "u" and not is_bfloat16 else None
        if isinstance(array, DeviceArray):
            stream = _stream_of(array) if stream is None else stream
            tensor = device_tensor(array, stream)
            if is_uint64:
                tensor = tensor.view(torch.int64)
            result[name] = tensor if signed is None else tensor.to(getattr(torch, signed))
            continue
        if is_uint64:
            array = array.view(np.int64).copy()
        elif is_bfloat16:
            result[name] = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
            continue
        elif signed is not None:
            array = array.astype(signed)
        result[name] = torch.from_numpy(array)
    return result


def mem_pool(library):
    """Returns a ``torch.cuda.MemPool`` over the allocator in a file: see :meth:`relive.Pool.torch`."""
    memory = torch.cuda.memory.CUDAPluggableAllocator(library, "rlv_torch_alloc", "rlv_torch_free")
    return torch.cuda.MemPool(memory.allocator())


def own_mem_pool():
    """Returns a ``torch.cuda.MemPool`` over torch's own allocator."""
    return torch.cuda.MemPool()


def finish():
    """Waits for all work of the current device."""
    torch.cuda.synchronize()


def in_mem_pool(pool):
    """Returns a context manager in which torch takes memory from a ``torch.cuda.MemPool``."""
    return torch.cuda.use_mem_pool(pool)


def device_tensor(array, stream=None):
    """Returns a :class:`relive.landing.DeviceArray` as a tensor of the device, a view, for work of a stream
    (its handle); None = torch's current one."""
    if stream is None:
        stream = _stream_of(array)
    return torch.utils.dlpack.from_dlpack(array.__dlpack__(stream=stream))


def _stream_of(array):
    return torch.cuda.current_stream(array.device).cuda_stream


def pinned_memory(nbytes):
    """Returns page-locked host memory, an array of nbytes bytes: the ``allocator`` of samplers that were
    opened with ``pin_memory=True``.

    :raises Unsupported: torch has no CUDA.
    """
    if not torch.cuda.is_available():
        raise errors.Unsupported("pin_memory: torch has no CUDA here: leave pin_memory out")
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).numpy()


class ReplayDataset(torch.utils.data.IterableDataset):
    """Yields batches of a table without end, as the dicts of :func:`tensors`. Use it as
    ``DataLoader(dataset, batch_size=None)``. ``table.dataset()`` makes one.

    With ``num_workers=0`` it samples in this process. Each worker process of a loader opens the store
    itself, which needs ``shm:`` or ``relive://``, and draws its own disjoint share of the strata within
    the share of this process's rank. An iterator blocks for at most the option ``timeout``.

    :param table: an open :class:`relive.Table`.
    :param batch_size: most items of a batch, 1 to 65536.
    :param options: those of :class:`relive.Sampler`.
    :raises Forked: in a worker that was forked from a process with an ``embed:`` store.
    """

    def __init__(self, table, batch_size=256, **options):
        super().__init__()
        check_options("dataset", options, names_of(Sampler))
        self._table = table
        self._options = dict(options, batch_size=batch_size)
        self._pid = os.getpid()

    def _open_table(self):
        """Returns (table to draw from, store to close afterwards). In a forked worker both are opened
        anew; else they are the dataset's table and None. Forked: an ``embed:`` store in such a
        worker."""
        if os.getpid() == self._pid:
            return self._table, None
        old = self._table.store
        if old.uri.startswith("embed:"):
            raise errors.Forked("dataset: store %s is memory of the parent process: use num_workers=0, "
                                "or a store of shm: or relive://" % old.uri)
        store = Store(old.uri, **old._options)
        return store.table(self._table.name), store

    def __iter__(self):
        # torch's fetcher, which is about to put batches together
        if sys._getframe(1).f_locals.get("auto_collation"):
            raise errors.InvalidArgument("dataset: it yields batches of %d items, and DataLoader's batch_size would stack "
                                         "them: give batch_size=None" % self._options["batch_size"])
        return self._batches()

    def _batches(self):
        worker = torch.utils.data.get_worker_info()
        options = dict(self._options)
        if worker is not None:
            world_size = options.get("world_size", 1)
            options["rank"] = options.get("rank", 0) * worker.num_workers + worker.id
            options["world_size"] = world_size * worker.num_workers
        table, store = self._open_table()
        try:
            with table.sampler(**options) as sampler:
                for batch in sampler:
                    yield tensors(batch)
        finally:
            if store is not None:
                store.close()

    def update_priorities(self, keys, td_error=None, priorities=None, **options):
        """Sets priorities of the table, as :meth:`relive.Table.update_priorities`."""
        return self._table.update_priorities(keys, td_error, priorities, **options)

    def __getstate__(self):
        return {**self.__dict__, "_pid": None}

    def __setstate__(self, state):
        self.__dict__.update(state, _pid=os.getpid())
