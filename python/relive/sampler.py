"""Samplers: the data path of learners."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import _core, _nested, errors
from ._async import draw
from ._closing import close_all, leave
from ._integer import real, unsigned
from ._options import known
from .landing import landing_of

if TYPE_CHECKING:
    from .table import Table

_LAYOUTS = ("dense", "window")
_WEIGHTS = ("batch", "raw")
_HELD = 3  # batches that a loop over a sampler may hold at a time, in memory that is given
_ANY = 2**32 - 1  # as many as are held

_TINY = 5e-324  # the library takes 0 for its defaults


class Sampler(_core.Sampler):
    """Draws batches from a table. ``table.sampler()`` opens it.

    Threads may share a sampler. It is an iterator without an end: ``next(sampler)`` returns the next
    batch of batch_size items, and ``prefetch`` of them are drawn in advance. It is a
    context manager, which closes it. It can be pickled if its store can: unpickling opens another
    sampler with the same options. A forked child cannot use it.

    A batch occupies one of the sampler's buffers until the batch and all arrays made of it are freed;
    see :mod:`relive.batch`.

    :param batch_size: most items of a batch, 1 to 65536.
    :param view: index of the view to draw from, in the order of create_table's ``views``.
    :param columns: names of the columns in a batch; None = all. With ``()`` no row is read, and
        batches have only keys, weights, probabilities and priorities.
    :param n_step: steps of the return, 1 to the view's n_step; None = the view's.
    :param gamma: discount of the n-step return, 0 to 1.
    :param beta: importance exponent, 0 (all weights 1) to 8. ``sampler.beta`` can be assigned; batches
        that a thread has prefetched already keep the old one.
    :param layout: ``"dense"``: obs and next_obs are separate packed arrays. ``"window"``: they are
        strided views of one array, so frames in both are stored once.
    :param weights: ``"batch"``: (N P)^-beta divided by the batch's maximum; ``"raw"``: undivided. N is
        the number of live items, P the probability of the draw.
    :param prefetch: batches that are drawn in advance for the iterator, 0 (none) to 64: over a network by
        reads that are in progress between calls, or by a thread; where the memory is mapped by a thread.
        They are drawn in the call while that is faster. Their draws do not see updates made since. With
        ``batches``, pin_memory, an allocator or a device, and for FIFO and LIFO views, only the thread does it.
    :param batches: buffers, that is batches that may exist at once, prefetched ones included; None = no
        limit, or prefetch + 3 with pin_memory or an allocator. A sample beyond it raises Busy.
    :param timeout: seconds that the iterator waits for a batch before it raises Timeout; None = until
        the store's stall_timeout has passed without progress; ``float("inf")`` = without limit.
    :param rank: index of this data-parallel learner, 0 to world_size - 1. Each draws from its own
        disjoint share of the strata.
    :param world_size: number of data-parallel learners. Each draws batch_size items.
    :param seed: seed of the draws, an integer; None = from the system.
    :param independent: True = independent draws; False = stratified: one draw from each of n equal
        parts of the sum of priorities.
    :param short_batch: True = return fewer items, instead of waiting, if drawn items keep being
        overwritten.
    :param defer_updates: accepted and ignored: each update writes its changes.
    :param pin_memory: True = batches in page-locked host memory, for asynchronous copies to a CUDA
        device. Needs torch with CUDA.
    :param allocator: a function that takes a number of bytes and returns a writable buffer of at least
        that size, aligned to 64 bytes: the memory of a batch buffer. It must not use the table.
    :param device: ``"cuda"``, ``"cuda:N"``, a :class:`relive.Pool` or a :class:`relive.landing.Landing`: batches
        arrive in the memory of that device, by the best path that there is (:mod:`relive.landing`); None = on
        the host.
    :raises InvalidArgument: names the option.
    :raises NoSpace: no client slot of the table is free: close a sampler or writer.
    :raises Unsupported: pin_memory, and torch has no CUDA; or device, and there is no driver of CUDA, or no path
        that a strict Landing allows.
    """

    _table: Table  # whose store closes what is open
    _options: dict[str, Any]

    @known("sampler")
    def __new__(cls, table: _core.Table, batch_size: int = 256, *, view: int = 0,
                n_step: int | None = None, gamma: float = 0.99, beta: float = 0.4,
                layout: str = "dense", weights: str = "batch", prefetch: int = 2,
                batches: int | None = None, timeout: float | None = None, rank: int = 0,
                world_size: int = 1, seed: int | None = None, independent: bool = False,
                short_batch: bool = False, defer_updates: int = 0, pin_memory: bool = False,
                allocator: Callable[[int], Any] | None = None,
                columns: Sequence[str] | None = None, device: Any = None) -> Sampler:
        real("sampler: beta", beta, 0, 8)
        real("sampler: gamma", gamma, 0, 1)
        prefetch = unsigned("prefetch", prefetch)
        landing = landing_of(device)
        if landing is not None and (pin_memory or allocator is not None):
            raise errors.InvalidArgument("sampler: device=%r has memory of its own: leave out pin_memory and "
                                         "allocator" % (device,))
        if pin_memory:
            from .torch import pinned_memory
            allocator = pinned_memory
        if batches is None:
            batches = _ANY if allocator is None else prefetch + _HELD
        return super().__new__(
            cls, table, view=unsigned("view", view),
            batch_size=unsigned("batch_size", batch_size, 1),
            n_step=0 if n_step is None else unsigned("n_step", n_step, 1),
            gamma=gamma or _TINY, beta=beta or -1.0, layout=_index(_LAYOUTS, "layout", layout),
            weights=_index(_WEIGHTS, "weights", weights), batches=unsigned("batches", batches),
            defer_updates=unsigned("defer_updates", defer_updates), seed=_seed(seed),
            rank=unsigned("rank", rank), world_size=unsigned("world_size", world_size, 1),
            independent=independent, short_batch=short_batch, prefetch=prefetch, timeout=timeout,
            allocator=allocator, columns=None if columns is None else _names(table, columns),
            landing=landing)

    if not TYPE_CHECKING:  # checkers take the arguments from __new__
        def __init__(self, table, batch_size=256, **options):
            self._options = dict(options, batch_size=batch_size)

    async def sample_async(self, n: int | None = None, beta: float | None = None,
                           timeout: float | None = None, **options: Any) -> _core.Batch:
        """Draws a batch as ``sample`` does, without blocking the event loop; see
        :meth:`Table.sample_async`."""
        return await draw(lambda left: self.sample(n, beta, left, **options), timeout)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        leave(self.close, kind)

    def close(self) -> None:
        """Closes the sampler and ends its thread, if it has one. A second call does nothing. Closing after
        the table was dropped is no error. Batches and their arrays stay readable."""
        close_all([super().close])

    def __reduce__(self):
        return _open_sampler, (self._table, self._options)


def _open_sampler(table, options):
    return table.sampler(**options)


def _names(table, columns):
    """Returns the stored columns that ``columns`` names; a nested name stands for all its columns."""
    if not isinstance(columns, (list, tuple)):
        raise errors.InvalidArgument("sampler: columns %r, want a list of names: [%r]"
                                     % (columns, columns))
    stored = [column[0] for column in table.columns]
    return tuple(name for given in columns for name in
                 _nested.parts(given, stored) or [given])


def _index(choices, name, value):
    if value not in choices:
        raise errors.InvalidArgument("sampler: %s %r, want one of %s"
                                     % (name, value, ", ".join(choices)))
    return choices.index(value)


def _seed(seed):
    """Returns a seed as the library takes it: an integer modulo 2^64 - 1, plus 1; 0, a seed from the
    system, for None."""
    if seed is not None and not hasattr(seed, "__index__"):
        raise errors.InvalidArgument("sampler: seed %r, want an integer or None" % (seed,))
    return 0 if seed is None else operator.index(seed) % (2**64 - 1) + 1
