"""Samplers: the data path of learners."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import _core, _nested, errors
from ._closing import close_all, leave
from ._integer import unsigned

if TYPE_CHECKING:
    from .table import Table

_LAYOUTS = ("dense", "window")
_WEIGHTS = ("batch", "raw")
_HELD = 3  # batches that a loop over a sampler may hold at a time, in memory that is given
_ANY = 2**32 - 1  # as many as are held

_TINY = 5e-324  # the library takes 0 for its defaults


class Sampler(_core.Sampler):
    """Draws batches; opened by ``table.sampler()``. Threads may share it. It is an iterator and a
    context manager.

    :param batch_size: items of a batch, 1 to 65536.
    :param view: index of the view to draw from.
    :param columns: names of the columns in a batch; None = all. With ``()`` no row is read, and
        batches have only keys, weights, probabilities and priorities.
    :param n_step: steps of the return, up to the view's; None = the view's.
    :param gamma: discount of the n-step return, 0 to 1.
    :param beta: importance exponent, 0 (no weights) to 8; ``sampler.beta`` can be assigned.
    :param layout: ``"dense"``, or ``"window"``: obs and next_obs are strided views of one array, so
        frames in both are stored once.
    :param weights: ``"batch"``: (N P)^-beta divided by the batch's maximum; ``"raw"``: undivided.
    :param prefetch: batches that a thread samples in advance; 0 = none. Their draws do not see
        updates made since.
    :param batches: batches that may exist at once, prefetched ones included; None = no limit, or
        prefetch + 3 with pin_memory or an allocator. A sample beyond it raises Busy.
    :param timeout: seconds that the iterator waits for a batch before it raises Timeout; None = until
        the store's stall_timeout has passed without progress; ``float("inf")`` = for ever.
    :param rank: index of this data-parallel learner, 0 to world_size - 1. It draws from its own
        disjoint share of the strata.
    :param world_size: number of data-parallel learners. Each draws batch_size items.
    :param seed: seed of the draws; None = from the system.
    :param independent: True = independent draws; False = stratified.
    :param short_batch: True = return fewer items, instead of waiting, if drawn items keep being
        overwritten.
    :param defer_updates: write priority changes to the upper tree levels once per this many updates;
        0 or 1 = at each.
    :param pin_memory: True = batches in pinned host memory, for asynchronous copies to a CUDA device
        (needs torch with CUDA).
    :param allocator: a function that takes a number of bytes and returns a writable buffer of at
        least that size, aligned to 64 bytes: the memory of batches. It must not use the table.
    :raises InvalidArgument: names the option.
    :raises NoSpace: no client slot is free.

    **sample(n=None, beta=None, timeout=None, *, n_step=None, gamma=None)**: draws a batch now, as
    :meth:`Table.sample`; n and n_step are at most the sampler's.
    **next()**: returns the next batch of batch_size items.
    **update_priorities(keys, td_error=None, priorities=None, strict=False)**: as
    :meth:`Table.update_priorities`.
    **flush()**: writes deferred priority changes to the upper levels now. **stats()**: returns
    counters as a dict. **close()**: closes the sampler; its batches stay readable.
    """

    _table: Table  # whose store closes what is open

    def __new__(cls, table: _core.Table, batch_size: int = 256, *, view: int = 0,
                n_step: int | None = None, gamma: float = 0.99, beta: float = 0.4,
                layout: str = "dense", weights: str = "batch", prefetch: int = 2,
                batches: int | None = None, timeout: float | None = None, rank: int = 0,
                world_size: int = 1, seed: int | None = None, independent: bool = False,
                short_batch: bool = False, defer_updates: int = 0, pin_memory: bool = False,
                allocator: Callable[[int], Any] | None = None,
                columns: Sequence[str] | None = None) -> Sampler:
        if not beta >= 0:
            raise errors.InvalidArgument("beta %r, want 0 to 8" % (beta,))
        prefetch = unsigned("prefetch", prefetch)
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
            allocator=allocator, columns=None if columns is None else _names(table, columns))

    def __init__(self, table: _core.Table, batch_size: int = 256, **options: Any) -> None:
        self._options = dict(options, batch_size=batch_size)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        leave(self.close, kind)

    def close(self) -> None:
        close_all([super().close])

    def __reduce__(self):
        return _open_sampler, (self._table, self._options)


def _open_sampler(table, options):
    return table.sampler(**options)


def _names(table, columns):
    """Names of stored columns; a nested name gives those of all of its parts."""
    if isinstance(columns, str):
        raise errors.InvalidArgument("columns %r, want several names" % columns)
    stored = [column[0] for column in table.columns]
    return tuple(name for given in columns for name in
                 _nested.parts(given, stored) or [given])


def _index(choices, name, value):
    if value not in choices:
        raise errors.InvalidArgument("%s %r, want one of %s" % (name, value, ", ".join(choices)))
    return choices.index(value)


def _seed(seed):
    """The library takes 0 for a seed from the system."""
    return 0 if seed is None else operator.index(seed) % (2**64 - 1) + 1
