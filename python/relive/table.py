"""Tables, which hold steps and views on them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import _scan
from ._async import draw
from ._closing import close_all, leave
from ._options import known, options_after
from .info import SaveInfo, TableInfo, VerifyReport
from .sampler import Sampler
from .signature import Column
from .writer import Writer, open_writer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from . import _core
    from .store import Store
    from .torch import ReplayDataset


class Table:
    """A table: steps of many writers, and views that say what is drawn from them.

    ``store.create_table`` or ``store.table`` opens it. Threads may share it. It is a context manager,
    which closes it. It can be pickled if its store can: unpickling opens the table in the other
    process. A forked child cannot use it.

    ``len(table)`` is the number of live items of the first view; a table is true even when it is
    empty. ``table.store`` is the :class:`relive.Store`.

    ``for item in table`` goes over the items of the first view in order of insertion, without consuming them;
    ``table[key]`` is the item with that key of a batch, and ``key in table`` says if it is there. An item is a dict:
    ``item["obs"]``.
    """

    def __init__(self, store: Store, core: _core.Table) -> None:
        self.store = store
        self._core = core
        self._lock = threading.RLock()  # of all below; a signal's handler may come in again
        self._handles: weakref.WeakSet[Any] = weakref.WeakSet()
        self._samplers: dict[tuple[int, str], Sampler] = {}  # of sample(), by view and layout
        self._last: dict[int, Sampler] = {}  # the last of those, by view
        self._gatherers: dict[int, Sampler] = {}  # of gather(), by view

    @property
    def name(self) -> str:
        """The name of the table in its store."""
        return self._core.name

    @property
    def columns(self) -> list[Column]:
        """The signature: a new list of :class:`relive.Column`."""
        return [Column._of_core(column) for column in self._core.columns]

    def _own(self, handle):
        """Registers a writer or sampler, so that closing the table closes it, and returns it."""
        handle._table = self
        with self._lock:
            self._handles.add(handle)
        return handle

    # -------- actors --------

    @known("writer")
    def writer(self, num_envs: Any = None, *, autoreset: Any = None,
               timeout: float | None = None, check_values: bool = True) -> Writer:
        """Opens a :class:`relive.Writer`, for one thread at a time. It does not wait for steps.

        :param num_envs: None = one environment, whose values have no batch dimension. An integer E = a
            vector of E environments, whose values have a first dimension of E. Or a vector of
            environments such as gymnasium's: any object with ``num_envs`` and
            ``metadata["autoreset_mode"]``.
        :param autoreset: what the environment does after the end of an episode, in gymnasium's terms,
            as text or a ``gymnasium.vector.AutoresetMode``:

            * ``"next_step"`` (default for vectors, as in gymnasium): the next step ignores its action
              and resets. Its row is stored as the final observation of the episode; it is not a
              transition.
            * ``"same_step"``: the step that ends an episode returns the first observation of the next
              episode. Give ``append(infos=infos)`` or ``append(final_obs=...)``. Without them truncated
              steps cannot be drawn, as their next observation is unknown: ``stats()["truncated_lost"]``
              counts them, and one warning is issued.
            * ``"disabled"`` (default for one environment): you call reset(). Give
              ``append(final_obs=next_obs)`` with each step; it is read where an episode ended.

            If num_envs is a vector of environments, leave autoreset out: its metadata gives the mode.
            If it is an integer and no mode is given, ``"next_step"`` is assumed and checked: a step
            that contradicts it raises an InvalidArgument that names the mode to give. Such a step has a
            final observation (given, or in ``infos``), or follows an end and has a reward, ends an
            episode, or has the environment's first observation. A mode that is given is not checked.
        :param timeout: seconds that an append waits for the rate limiter or for room before it raises
            Timeout; None = until the store's stall_timeout has passed without progress;
            ``float("inf")`` = without limit.
        :param check_values: True = NaN and infinite rewards (scalar floats of role reward, or named
            reward) and numbers that do not fit their column raise InvalidArgument. False = they are
            stored as numpy's ``astype`` converts them: 300 in uint8 is 44, 1e300 in float32 is infinite.
        :raises NoSpace: the table's max_writers environments are all in use, or no client slot is free.
        :raises InvalidArgument: names the argument.
        """
        return self._own(open_writer(self._core, num_envs, autoreset, timeout, check_values))

    def extend(self, dataset: Any) -> int:
        """Appends all steps of a dataset by a writer of its own, and returns their number. A terminal shows a
        progress bar if it takes longer than two seconds. It blocks as :meth:`relive.Writer.extend` does. The column
        ``step`` of a table of sequences is filled in.

        :param dataset: a Minari dataset, or a dict of arrays in D4RL's form: see :mod:`relive.datasets`.
        :raises InvalidArgument: names the column or array; what was appended before stays.
        :raises NoSpace: the table's max_writers environments are all in use.
        """
        from .datasets import extend
        return extend(self, dataset)

    # -------- learners --------

    @options_after(Sampler)
    def sampler(self, batch_size: int = 256, **options: Any) -> Sampler:
        """Opens a :class:`relive.Sampler`: an iterator over batches that a thread draws in advance.

        :param batch_size: most items of a batch, 1 to 65536.
        :param options: those of :class:`relive.Sampler`, which also says what it raises.
        """
        return self._own(Sampler(self._core, batch_size, **options))

    def sample(self, n: int = 256, beta: float | None = None, timeout: float | None = None, *,
               view: int = 0, n_step: int | None = None, gamma: float = 0.99,
               layout: str = "dense") -> _core.Batch:
        """Draws a batch of n items now and returns it, a :class:`relive.Batch`.

        It blocks until n items can be drawn and the view's rate limiter admits them. Any number of
        threads may sample and hold batches. The memory of a batch is reused when the batch and all
        arrays made of it are freed. For more options, or for batches drawn in advance, open a
        :meth:`sampler`.

        The first call for a view and layout opens a sampler, which takes a client slot of the table. A
        call with a larger n than before opens another; the first is freed when it is not in use.

        :param n: number of items, 1 to 65536.
        :param beta: importance exponent, 0 (all weights 1) to 8; None = 0.4.
        :param timeout: seconds to wait; 0 = do not wait; None = until the store's stall_timeout has
            passed without progress; ``float("inf")`` = without limit.
        :param view: index of the view to draw from, in the order of create_table's ``views``.
        :param n_step: steps of the return, 1 to the view's n_step; None = the view's.
        :param gamma: discount of the n-step return, 0 to 1.
        :param layout: ``"dense"``: obs and next_obs are separate packed arrays. ``"window"``: they are
            strided views of one array, so frames in both are stored once.
        :raises Timeout: the message says what it waited for.
        :raises Empty: the timeout is 0 and no item can be drawn.
        :raises NoSpace: no client slot is free.
        :raises InvalidArgument: names the argument.
        """
        return self._sampler_of(n, view, layout).sample(n, beta, timeout, n_step=n_step,
                                                        gamma=gamma)

    async def sample_async(self, n: int = 256, beta: float | None = None, timeout: float | None = None,
                           **options: Any) -> _core.Batch:
        """Draws a batch as :meth:`sample` does, without blocking the event loop.

        A call that is cancelled lets go at once, and its thread within 0.1 s; what the thread drew meanwhile
        is dropped. ``asyncio.to_thread(table.sample)`` would keep a thread waiting, and with it asyncio.run.

        :param timeout: seconds to wait; None = without limit.
        :param options: those of :meth:`sample`, which also says what is raised.
        """
        return await draw(lambda left: self.sample(n, beta, left, **options), timeout)

    def _sampler_of(self, n, view, layout="dense"):
        """Returns the sampler that sample() uses for a view and layout, opened for n items or more. A
        smaller one is replaced, not closed: it is freed when the last thread that waits in it has
        returned."""
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
        """Sets the priorities of items, usually from the TD errors of a batch. Give one of td_error and
        priorities. It does not wait for the rate limiter.

        :param keys: (n,) uint64, or int64 of the same bits: ``batch.key`` of any batch of this view, or
            a part of it. Other processes' batches count, too.
        :param td_error: (n,) float32, of either sign: the priority is (\\|td_error\\| + eps)^alpha.
        :param priorities: (n,) float32, 0 or more: priorities as stored, after the exponent alpha.
        :param view: index of the view that the batch was drawn from.
        :param strict: True = raise StaleKey if any key is stale, after the other keys were updated.
        :returns: :class:`relive.Updated`, a tuple of three counts: ``updated`` items; ``stale`` keys,
            whose items were overwritten or retired, and which are ignored; ``clamped`` values, stored
            as the nearest limit of the view's range. A key given twice gets its last value and counts
            as one item.
        :raises InvalidArgument: a value is NaN, infinite or (priorities) negative, a key is of another
            table, or the view has no priorities; nothing was changed.
        """
        sampler = self._last.get(view) or self._sampler_of(256, view)
        return sampler.update_priorities(keys, td_error, priorities, strict=strict)

    def dataset(self, batch_size: int = 256, **options: Any) -> ReplayDataset:
        """Returns a torch ``IterableDataset`` that yields batches as dicts of tensors: see
        :mod:`relive.torch`. Needs torch.

        :param batch_size: most items of a batch.
        :param options: those of :class:`relive.Sampler`.
        """
        from .torch import ReplayDataset
        return ReplayDataset(self, batch_size, **options)

    # -------- reading without drawing --------

    @known("scan")
    def scan(self, columns: Sequence[str] | None = None, batch: int = 256, *, view: int = 0,
             n_step: int | None = None, gamma: float = 0.99, layout: str = "dense",
             partial: bool = False, timeout: float = 5.0) -> Iterator[_core.Batch]:
        """Reads all items of a view in order of insertion, and returns an iterator over batches of them.

        Nothing is consumed or counted as sampled, and no rate limiter waits. The scan sees each item that is in the
        table when this is called and stays; of those that are appended or overwritten meanwhile it sees some or none,
        and it ends however much is appended. Rows of writers that append at once come in blocks, those of a writer's
        environment in their order. In a batch ``weight`` and ``probability`` are 1; a view with max_times_sampled
        above 1 has ``times_sampled``: (n,) uint32.

        It takes a client slot of the table until the iterator ends or is freed.

        :param columns: names of the columns in a batch; None = all. With ``()`` only keys and priorities.
        :param batch: most items of a batch, 1 to 65536.
        :param view: index of the view, in the order of create_table's ``views``.
        :param n_step: steps of the return, 1 to the view's n_step; None = the view's.
        :param gamma: discount of the n-step return, 0 to 1.
        :param layout: ``"dense"`` or ``"window"``, as for :meth:`sample`.
        :param partial: True = leave out shards that are down. Shards that are lost are left out anyway.
        :param timeout: seconds that each batch waits for a shard that is down; then NodeDown is raised, and
            the iterator ends.
        :raises NoSpace: no client slot is free.
        :raises AccessDenied: the token's role is read, or the store was opened read-only, and the view counts samples.
        :raises InvalidArgument: names the argument.
        """
        return _scan.scan(self, columns, batch, partial, timeout,
                          {"view": view, "n_step": n_step, "gamma": gamma, "layout": layout})

    def to_numpy(self, columns: Sequence[str] | None = None, **options: Any) -> dict[str, Any]:
        """Copies all items to numpy arrays, in order of insertion, and returns a dict of them: the columns as in a
        batch, ``discount``, ``steps``, ``key``, ``priority`` and ``policy_version``. A nested column is a dict.
        An empty table gives an empty dict.

        :param columns: names of the columns; None = all.
        :param options: those of :meth:`scan`.
        """
        view = options.get("view", 0)
        batches = self.scan(columns, **options)
        return _scan.to_numpy(batches, self._core.info()["views"][view]["items"])

    def gather(self, keys: ArrayLike, *, view: int = 0, timeout: float = 5.0) -> _core.Batch:
        """Reads the items with these keys, and returns a batch of them in the order of the keys. Nothing is consumed.
        Where there is no such item any more, ``batch.key`` and ``batch.priority`` are 0, and the columns zeros:
        ``batch.obs[batch.key != 0]`` are those that are there.

        The first call for a view opens a sampler, which takes a client slot of the table.

        :param keys: (n,) uint64, or int64 of the same bits, as in ``batch.key`` of any batch of this table.
        :param view: index of the view whose items they are.
        :param timeout: seconds to wait for a shard that is down.
        :raises NodeDown: a shard of some key is down.
        :raises InvalidArgument: a key is of another table.
        """
        return _scan.gather(self, keys, view, timeout)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return _scan.items(self.scan())

    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]:
        item = _scan.item(self, key)
        if item is None:
            raise KeyError("%r: table %s has no item with that key (any more); keys are those of batch.key. To draw "
                           "batches: table.sample(256), or table.dataset(256) for a DataLoader" % (key, self.name))
        return item

    def __contains__(self, key: SupportsIndex) -> bool:
        return _scan.item(self, key) is not None

    # -------- the rest --------

    def info(self) -> TableInfo:
        """Returns the table's sizes, columns and counts now, a :class:`relive.info.TableInfo`. Items of
        shards that are down are not counted."""
        return TableInfo._of_core(self._core.info())

    def save(self, path: Any, *, compress: int = 0, base: Any = None) -> SaveInfo:
        """Saves the table to a file, which any store can load by :meth:`relive.Store.load_table`: its items with
        their steps, priorities, policy versions and times sampled, in the order of their keys, its views, and the
        counts of its rate limiters. Returns a :class:`relive.info.SaveInfo`.

        Others may append, sample and update meanwhile. An item whose append returned before the call is in the
        file, unless it is overwritten or consumed meanwhile; steps that are no item yet are not. The file is
        complete and durable when the call returns; until then an earlier one stays, also after a kill. A terminal
        shows a progress bar if it takes longer than two seconds.

        :param path: of the file.
        :param compress: level of zstd, 1 to 19; 0 = none.
        :param base: path of an earlier file of this table, or ``path`` itself: steps that are in it are copied
            from there.
        :raises Busy: another process is saving to that path.
        :raises NoSpace: the disk is full.
        :raises Unsupported: ``compress`` without libzstd on this host.
        :raises InvalidArgument: names the argument.
        """
        from ._saving import save
        return save(self, path, compress, base)

    def verify(self) -> VerifyReport:
        """Checks every invariant of the table and returns a :class:`relive.info.VerifyReport`. It
        changes nothing. While others append or update it may count changes in progress as problems.
        It reads all trees and block headers: slow on large tables."""
        return VerifyReport._of_core(self._core.verify())

    def close(self, wait: bool = True) -> None:
        """Closes the table, its writers and its samplers. All are closed before the first error is
        raised. A second call does nothing. Closing a dropped table is no error. Batches and their
        arrays stay readable.

        :param wait: as for :meth:`relive.Writer.close`.
        """
        with self._lock:
            handles = list(self._handles)
            self._samplers.clear()
            self._last.clear()
            self._gatherers.clear()
        close_all([partial(handle.close, wait=wait) if isinstance(handle, Writer) else handle.close
                   for handle in handles] + [self._core.close])

    def __len__(self) -> int:
        """The number of live items of the first view: those that can be drawn."""
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
