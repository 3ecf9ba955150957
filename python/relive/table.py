"""Tables: where steps go in and batches come out."""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from ._closing import close_all, leave
from .info import TableInfo, VerifyReport
from .sampler import Sampler
from .signature import Column
from .writer import Writer, open_writer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from . import _core
    from .store import Store
    from .torch import ReplayDataset


class Table:
    """A table, from ``store.create_table`` or ``store.table``. Threads may share it."""

    def __init__(self, store: Store, core: _core.Table) -> None:
        self.store = store
        self._core = core
        self._lock = threading.RLock()  # of all below; a signal's handler may come in again
        self._handles: weakref.WeakSet[Any] = weakref.WeakSet()
        self._samplers: dict[tuple[int, str], Sampler] = {}  # of sample(), by view and layout
        self._last: dict[int, Sampler] = {}  # the last of those, by view

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def columns(self) -> list[Column]:
        """The signature: a list of :class:`relive.Column`."""
        return [Column._of_core(column) for column in self._core.columns]

    def _own(self, handle):
        """Closed with the table, if it is not gone by then."""
        handle._table = self
        with self._lock:
            self._handles.add(handle)
        return handle

    # -------- actors --------

    def writer(self, num_envs: Any = None, *, autoreset: Any = None,
               timeout: float | None = None, check_values: bool = True) -> Writer:
        """A :class:`relive.Writer`, for one thread at a time.

        :param num_envs: None = one environment, whose values have no batch dimension; a vector of
            environments, as gymnasium's: anything with ``num_envs`` and
            ``metadata["autoreset_mode"]``; or a number E = a vector of E. Values of vectors begin
            with a dimension of E.
        :param autoreset: what the environment does after an episode ended, as gymnasium says it. A
            vector that is given says it itself. Where only a number is, ``"next_step"`` is assumed,
            and what refutes it is an InvalidArgument that names the mode to give: after an end a
            step with a reward, an end or the environment's first observation, and a final
            observation, given or in ``infos``. A mode that is given is trusted.

            * ``"next_step"`` (default of vectors, as gymnasium's): the next step ignores its action
              and resets. Its row is stored as the final observation of the episode, no transition.
            * ``"same_step"``: the step that ends an episode returns the next one's first
              observation. Give ``append(infos=infos)`` or ``append(final_obs=...)``, or steps that
              were truncated are no items, since nobody knows what came after them: they are
              counted, and a warning says so once.
            * ``"disabled"`` (default of one environment): you reset. Give
              ``append(final_obs=next_obs)``; it is taken where an episode ended.

            A ``gymnasium.vector.AutoresetMode`` is taken, too.
        :param timeout: seconds that an append waits for the rate limiter or for room; None = until
            nothing has moved for the store's stall_timeout; ``float("inf")`` = for ever.
        :param check_values: False = rewards (scalar floats of that role or name) may be NaN or
            infinite, and numbers that do not fit their column become what numpy's ``astype`` makes
            of them: 300 in uint8 is 44, 1e300 in float32 is infinite.
        :raises NoSpace: more environments than max_writers, or no client slot is free.
        """
        return self._own(open_writer(self._core, num_envs, autoreset, timeout, check_values))

    # -------- learners --------

    def sampler(self, batch_size: int = 256, **options: Any) -> Sampler:
        """A :class:`relive.Sampler`: an iterator over batches that are sampled ahead.

        See :class:`relive.Sampler` for the options.
        """
        return self._own(Sampler(self._core, batch_size, **options))

    def sample(self, n: int = 256, beta: float | None = None, timeout: float | None = None, *,
               view: int = 0, n_step: int | None = None, gamma: float = 0.99,
               layout: str = "dense") -> _core.Batch:
        """Draws a batch of ``n`` items: a :class:`relive.Batch`.

        :param beta: importance exponent, 0 (no weights) to 8; None = 0.4.
        :param timeout: seconds to wait for the rate limiter or for items; None = until nothing has
            moved for the store's stall_timeout; ``float("inf")`` = for ever.
        :param view: index of the view that is drawn from.
        :param n_step: steps of the return, up to the view's; None = the view's.
        :param gamma: discount of the n-step return.
        :param layout: ``"dense"``, or ``"window"``: frames that obs and next_obs share lie once.
        :raises Timeout: the message says what it waits for.
        :raises Empty: with a timeout of 0.
        :raises NoSpace: no client slot is free; the first call for a view and layout takes one, and
            a call with a larger n than before another for a moment.

        Any number of threads may sample and hold batches. A batch stays as it is until it and all
        arrays of it are gone; then its memory is used again. For more options or for batches sampled
        ahead, open a :meth:`sampler`.
        """
        return self._sampler_of(n, view, layout).sample(n, beta, timeout, n_step=n_step,
                                                        gamma=gamma)

    def _sampler_of(self, n, view, layout="dense"):
        """One with room for n items. What was there before is not closed: it goes when the last of
        the threads that wait in it does."""
        options = view, layout
        sampler = self._samplers.get(options)
        if sampler is not None and n <= sampler.batch_size:
            return sampler
        with self._lock:
            sampler = self._samplers.get(options)
            if sampler is None or n > sampler.batch_size:
                sampler = Sampler(self._core, n, view=view, layout=layout, prefetch=0)
                self._handles.add(sampler)
                self._samplers[options] = self._last[view] = sampler
        return sampler

    def update_priorities(self, keys: ArrayLike, td_error: ArrayLike | None = None,
                          priorities: ArrayLike | None = None, *, view: int = 0,
                          strict: bool = False) -> _core.Updated:
        """Sets the priorities of items, after a learner has looked at them.

        :param keys: ``batch.key``, of this or an earlier batch; uint64 (or int64 of the same bits).
        :param td_error: TD errors; their absolute values count: (\\|td\\| + eps)^alpha.
        :param priorities: instead of td_error: ready priorities p^alpha, 0 or more.
        :param view: index of the view that was sampled.
        :param strict: raise StaleKey if any key is stale; the others are updated in any case.
        :returns: counts ``updated``, ``stale`` and ``clamped``. A key given twice takes its last
            value. Keys of items that were overwritten meanwhile are dropped and counted.
        :raises InvalidArgument: NaN, infinite or (priorities) negative values, keys of another
            table, a view without priorities: nothing was changed.
        """
        sampler = self._last.get(view) or self._sampler_of(256, view)
        return sampler.update_priorities(keys, td_error, priorities, strict=strict)

    def dataset(self, batch_size: int = 256, **options: Any) -> ReplayDataset:
        """A torch ``IterableDataset`` of dicts of tensors: see :mod:`relive.torch`."""
        from .torch import ReplayDataset
        return ReplayDataset(self, batch_size, **options)

    # -------- the rest --------

    def info(self) -> TableInfo:
        """A :class:`relive.info.TableInfo`."""
        return TableInfo._of_core(self._core.info())

    def verify(self) -> VerifyReport:
        """Checks every invariant: a :class:`relive.info.VerifyReport`. Reads the whole tree."""
        return VerifyReport._of_core(self._core.verify())

    def close(self, wait: bool = True) -> None:
        """Closes the table, its writers (which wait, or not: ``Writer.close``) and samplers. The first
        error is raised when all are closed. A table that was dropped closes without one."""
        with self._lock:
            handles = list(self._handles)
            self._samplers.clear()
            self._last.clear()
        close_all([partial(handle.close, wait=wait) if isinstance(handle, Writer) else handle.close
                   for handle in handles] + [self._core.close])

    def __len__(self) -> int:
        """Items of the first view that are live now."""
        return self._core.info()["views"][0]["items"]

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        leave(partial(self.close, wait=kind is None), kind)

    def __repr__(self):
        return "<relive.Table %s of %s%s>" % (self.name, self.store.uri,
                                              "" if self._core.is_open else " closed")

    def __reduce__(self):
        return _open_table, (self.store, self.name)


def _open_table(store, name):
    return store.table(name)
