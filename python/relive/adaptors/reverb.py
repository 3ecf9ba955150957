"""A client in the shape of dm-reverb's, without a server::

    from relive.adaptors import reverb

    client = reverb.Client("shm:default", tables=[          # or "embed:", "relive://HOST:PORT"
        reverb.Table("replay", sampler=reverb.selectors.Prioritized(0.8),
                     remover=reverb.selectors.Fifo(), max_size=1_000_000,
                     rate_limiter=reverb.rate_limiters.MinSize(1000))])
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        writer.append({"obs": obs, "action": action})
        ...
        writer.create_item("replay", priority=1.5, trajectory={
            "obs": writer.history["obs"][-3:], "action": writer.history["action"][-3]})
    for sample in client.sample("replay", 32, emit_timesteps=False):
        client.mutate_priorities("replay", {sample.info.key: 0.7})

An item is a row of a table: its values lie together, and items that overlap share no bytes. A
table's items have one shape, which the first one sets, and a table is in the store from then on.
What a Reverb server would do that Relive does not raises NotImplementedError and says what does.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import errors
from ..store import Store
from ..store import open as open_store
from ..views import RateLimiter, View
from . import _rows
from ._trajectory import (TrajectoryColumn, TrajectoryWriter, Writer, check_item, of_steps,
                          values_of)

__all__ = ["Client", "RateLimiterInfo", "ReplaySample", "SampleInfo", "Table", "TableInfo",
           "TrajectoryColumn", "TrajectoryWriter", "Writer", "rate_limiters", "selectors"]

_POLL = 0.05  # seconds between looks for a table that has no item yet


# -------- declarations --------


@dataclasses.dataclass(frozen=True)
class _Selector:
    kind: str
    priority_exponent: float = 0.0


def _heap(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("heaps: tables draw by priority, uniformly, the oldest or the newest "
                              "first: selectors.Prioritized with a large exponent comes closest")


class selectors:
    """Of Reverb's names."""

    Fifo = staticmethod(lambda: _Selector("fifo"))
    Lifo = staticmethod(lambda: _Selector("lifo"))
    Uniform = staticmethod(lambda: _Selector("uniform"))
    MinHeap = MaxHeap = staticmethod(_heap)

    @staticmethod
    def Prioritized(priority_exponent: float) -> _Selector:  # pylint: disable=invalid-name
        """Proportional to priority^priority_exponent."""
        if not priority_exponent > 0:
            raise NotImplementedError("priority_exponent 0: use selectors.Uniform()")
        return _Selector("prioritized", priority_exponent)


class rate_limiters:
    """Of Reverb's names; each gives a :class:`relive.RateLimiter`.

    ``min_size_to_sample`` counts items ever written; Reverb's counts those that are there.
    """

    @staticmethod
    def MinSize(min_size_to_sample: int) -> RateLimiter:  # pylint: disable=invalid-name
        """Nothing is sampled before so many items were written."""
        return RateLimiter.of_min_size(_at_least_one(min_size_to_sample))

    @staticmethod
    def SampleToInsertRatio(samples_per_insert: float,  # pylint: disable=invalid-name
                            min_size_to_sample: int, error_buffer: Any) -> RateLimiter:
        """Keeps samples / inserts at a ratio, within ``error_buffer``: a number, or a range of
        ``inserts * samples_per_insert - samples``."""
        _at_least_one(min_size_to_sample)
        if not samples_per_insert > 0:
            raise ValueError("samples_per_insert %r: want more than 0" % (samples_per_insert,))
        offset = samples_per_insert * min_size_to_sample
        if isinstance(error_buffer, (int, float)):
            error_buffer = (offset - error_buffer, offset + error_buffer)
        low, high = error_buffer
        if high - low < 2 * max(1.0, samples_per_insert) or low > offset:
            raise ValueError("error_buffer %r: samples or inserts could wait for ever"
                             % (error_buffer,))
        return RateLimiter(min_size_to_sample, samples_per_insert, low, high)

    @staticmethod
    def Queue(size: int) -> RateLimiter:  # pylint: disable=invalid-name
        """Of :meth:`Table.queue`."""
        return RateLimiter.queue(size)

    @staticmethod
    def Stack(size: int) -> RateLimiter:  # pylint: disable=invalid-name
        """Of :meth:`Table.stack`."""
        return RateLimiter.stack(size)


def _at_least_one(size):
    if size < 1:
        raise ValueError("min_size_to_sample %r: want 1 or more" % (size,))
    return size


class Table:
    """What a table is like. Clients make it when its first item comes.

    :param remover: ``selectors.Fifo()``: the oldest go. There is room for a few more items than
        ``max_size``, in whole blocks, and for 64 per writer at least.
    :param signature: nested structure of anything with a shape (None = any size) and a dtype, such
        as ``tf.TensorSpec``, arrays or ``dm_env.specs.Array``; None = that of the first item.
    :param max_writers: writers that are open at once.
    :param shards: parts of the table, spread over the memory nodes.
    """

    def __init__(self, name: str, sampler: Any, remover: Any, max_size: int,
                 rate_limiter: RateLimiter, max_times_sampled: int = 0,
                 extensions: Sequence[Any] = (), signature: Any = None, *, max_writers: int = 8,
                 shards: int = 1) -> None:
        if not name or max_size < 1:
            raise ValueError("table %r of max_size %r: want a name and 1 or more"
                             % (name, max_size))
        is_queue = sampler.kind == remover.kind == "lifo" and max_times_sampled == 1
        if remover.kind != "fifo" and not is_queue:
            raise NotImplementedError("table %s: remover %s: rings overwrite their oldest items: "
                                      "use selectors.Fifo()" % (name, remover.kind))
        if extensions:
            raise NotImplementedError("table %s: extensions: there is no server to run them: "
                                      "use a client that changes priorities" % name)
        self.name = name
        self.sampler, self.remover = sampler, remover
        self.max_size, self.max_times_sampled = max_size, max(max_times_sampled, 0)
        self.rate_limiter = rate_limiter
        self.signature = signature
        self._options = dict(max_writers=max_writers, shards=shards)

    @classmethod
    def queue(cls, name: str, max_size: int, extensions: Sequence[Any] = (),
              signature: Any = None) -> Table:
        """Every item once, the oldest first; writers wait while ``max_size`` are there."""
        return cls(name, selectors.Fifo(), selectors.Fifo(), max_size,
                   rate_limiters.Queue(max_size), 1, extensions, signature)

    @classmethod
    def stack(cls, name: str, max_size: int, extensions: Sequence[Any] = (),
              signature: Any = None) -> Table:
        """Every item once, the newest first; writers wait while ``max_size`` are there."""
        return cls(name, selectors.Lifo(), selectors.Lifo(), max_size,
                   rate_limiters.Stack(max_size), 1, extensions, signature)

    def _create(self, store, item):
        alpha = self.sampler.priority_exponent or 1.0
        view = View(selector=self.sampler.kind, alpha=alpha, eps=_rows.EPS,
                    max_times_sampled=self.max_times_sampled, rate_limiter=self.rate_limiter)
        return _rows.create_table(store, self.name, _rows.columns_of(item), self.max_size, view,
                                  **self._options)


def _declaration(table):
    """What a table that another client made is like."""
    info = table.info()
    view = info.views[0].view
    kind = _Selector(view.selector, view.alpha if view.selector == "prioritized" else 0.0)
    remover = selectors.Lifo() if view.selector == "lifo" else selectors.Fifo()
    signature = _rows.nested([(_rows.path_of(column.name), column) for column in info.columns])
    return Table(table.name, kind, remover, info.capacity, view.rate_limiter,
                 view.max_times_sampled, signature=signature, max_writers=info.max_writers,
                 shards=info.shards)


# -------- what comes back --------


class SampleInfo(NamedTuple):
    """``times_sampled`` is known where an item is sampled once; else it is None."""

    key: int
    probability: float
    table_size: int
    priority: float
    times_sampled: int | None


class ReplaySample(NamedTuple):
    """An item, or one step of it."""

    info: SampleInfo
    data: Any


@dataclasses.dataclass(frozen=True)
class RateLimiterInfo:
    """The limiter, and what it has counted."""

    samples_per_insert: float
    min_size_to_sample: int
    min_diff: float
    max_diff: float
    inserted: int
    sampled: int


@dataclasses.dataclass(frozen=True)
class TableInfo:
    """What ``server_info`` says of a table."""

    name: str
    sampler_options: Any
    remover_options: Any
    max_size: int
    max_times_sampled: int
    rate_limiter_info: RateLimiterInfo
    signature: Any
    current_size: int


# -------- the client --------


class Client:
    """A client of the tables of a store; threads may share it, each with writers of its own.

    :param server_address: what :func:`relive.open` takes, or an open :class:`relive.Store`.
    :param tables: declarations of the tables that are not in the store yet.
    :param timeout: seconds that ``insert`` and each item of ``sample`` wait, then
        :class:`relive.Timeout`; None = for ever.
    :param options: of :func:`relive.open`.
    """

    def __init__(self, server_address: Any, tables: Sequence[Table] = (), *,
                 timeout: float | None = None, **options: Any) -> None:
        names = [table.name for table in tables]
        if len(set(names)) != len(names):
            raise ValueError("tables of the same name: %s" % ", ".join(sorted(names)))
        self._is_ours = not isinstance(server_address, Store)
        self._store = open_store(server_address, **options) if self._is_ours else server_address
        self._arguments = (self._store.uri, tuple(tables)), dict(options, timeout=timeout)
        self._declared = {table.name: table for table in tables}
        self._found: dict[str, Table] = {}  # declarations of others' tables
        self._timeout = math.inf if timeout is None else timeout
        self._lock = threading.Lock()
        self._tables: dict[str, Any] = {}
        self._samplers: dict[str, Any] = {}
        self._inserters: dict[str, _Inserter] = {}
        self._shapes: dict[str, Any] = {}  # of items

    @property
    def server_address(self) -> str:
        """URI of the store."""
        return self._store.uri

    # -------- writing --------

    def insert(self, data: Any, priorities: dict[str, float]) -> None:
        """One step as an item of each table."""
        if not priorities:
            raise ValueError("priorities: want at least one table")
        step = _rows.unflatten(data, [np.asarray(leaf)[None] for _, leaf in _rows.flatten(data)])
        for table, priority in priorities.items():
            check_item(table, step, of_steps(self._signature(table), 1))
            self._make(table, step)
            self._inserter(table).append(values_of(step), priority)

    def _inserter(self, table):
        with self._lock:
            if table not in self._inserters:
                self._inserters[table] = _Inserter(self._tables[table], self._timeout)
            return self._inserters[table]

    def writer(self, max_sequence_length: int, delta_encoded: bool = False,
               chunk_length: int | None = None, max_in_flight_items: int | None = None) -> Writer:
        """A :class:`Writer`. There are no chunks: what is said of them is not looked at."""
        return Writer(self, max_sequence_length)

    def trajectory_writer(self, num_keep_alive_refs: int, *,
                          validate_items: bool = True) -> TrajectoryWriter:
        """A :class:`TrajectoryWriter`; items are always validated."""
        return TrajectoryWriter(self, num_keep_alive_refs)

    def structured_writer(self, configs: Any) -> Any:
        """Not here."""
        raise NotImplementedError("structured_writer: use views, which say what windows are items: "
                                  "store.create_table(..., views=[relive.View(stack=, n_step=)])")

    # -------- sampling --------

    def sample(self, table: str, num_samples: int = 1, *, emit_timesteps: bool = True,
               unpack_as_table_signature: bool = False) -> Iterator[Any]:
        """Draws items, each independently of the others, as a generator that waits for the rate
        limiter: :class:`ReplaySample`, or with ``emit_timesteps`` a list of them, one a step.

        For training, ``relive.Table.sampler`` and ``.dataset`` give whole batches.
        """
        self._wait_for(table)
        unpacked = self._unpacked(table) if unpack_as_table_signature else list
        for _ in range(num_samples):
            info, leaves = self._draw(table)
            if not emit_timesteps:
                yield ReplaySample(info, unpacked(leaves))
                continue
            if any(leaf.ndim == 0 or len(leaf) != len(leaves[0]) for leaf in leaves):
                raise ValueError("table %s: columns of different lengths are no time steps: use "
                                 "emit_timesteps=False" % table)
            yield [ReplaySample(info, unpacked(step)) for step in zip(*leaves)]

    def _draw(self, table):
        sampler = self._sampler(table)
        alpha = self._declaration(table).sampler.priority_exponent or 1.0
        once = self._declaration(table).max_times_sampled == 1
        with sampler.sample(1, timeout=self._timeout) as batch:
            info = SampleInfo(int(batch.key[0]), float(batch.probability[0]), batch.table_size,
                              float(batch.priority[0])**(1 / alpha), 1 if once else None)
            return info, [np.array(batch[name][0])
                          for name, _, _ in self._shapes_of(self._tables[table])]

    def _unpacked(self, table):
        """A function from leaves to what the signature says."""
        signature = self._declaration(table).signature
        if signature is None:
            return list
        if table in self._declared:
            return lambda leaves: _rows.unflatten(signature, leaves)
        paths = [_rows.path_of(name) for name, _, _ in self._shapes_of(self._tables[table])]
        return lambda leaves: _rows.nested(zip(paths, leaves))

    def mutate_priorities(self, table: str, updates: dict[int, float] | None = None,
                          deletes: Sequence[int] | None = None) -> None:
        """Sets priorities. Keys that are not in the table any more, or never were, are ignored, as
        are all of a table that does not draw by priority."""
        if deletes:
            raise NotImplementedError("deletes: only the writer of an item can end it: give it "
                                      "priority 0, with which it is hardly drawn")
        if not updates or self._declaration(table).sampler.kind != "prioritized":
            return
        values = np.array(list(updates.values()), np.float64)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError("priorities: want finite numbers, 0 or more")
        keys = np.array(list(updates), np.uint64)
        sampler = self._sampler(table)
        try:
            sampler.update_priorities(keys, values)
        except errors.InvalidArgument:
            for i in range(len(keys)):
                _update_one(sampler, keys[i:i + 1], values[i:i + 1])

    # -------- tables --------

    def reset(self, table: str) -> None:
        """Drops the table with its items and counts; the next item makes it anew. Other clients'
        handles get :class:`relive.TableDropped`."""
        self._declaration(table)
        with self._lock:
            old = self._tables.pop(table, None)
            self._samplers.pop(table, None)
            self._inserters.pop(table, None)
            self._shapes.pop(table, None)
            if old is not None:
                old.close(wait=False)
            if table in self._store.tables():
                self._store.drop_table(table)

    def server_info(self, timeout: int | None = None) -> dict[str, TableInfo]:
        """:class:`TableInfo` of all tables, by name."""
        names = {*self._declared, *self._store.tables()}
        return {name: self._info(name) for name in sorted(names)}

    def _info(self, name):
        declared = self._declaration(name)
        table = self._existing(name)
        view = table.info().views[0] if table is not None else None
        limiter = declared.rate_limiter
        counts = (view.inserted, view.sampled) if view else (0, 0)
        return TableInfo(
            name, declared.sampler, declared.remover, declared.max_size,
            declared.max_times_sampled,
            RateLimiterInfo(limiter.samples_per_insert, limiter.min_size, limiter.min_diff,
                            limiter.max_diff, *counts),
            declared.signature, view.items if view else 0)

    def can_sample(self, table: str, num_samples: int) -> bool:
        """Would the rate limiter admit so many now?"""
        info = self.server_info()[table].rate_limiter_info
        if info.inserted < max(info.min_size_to_sample, 1):
            return False
        difference = info.inserted * info.samples_per_insert - info.sampled - num_samples
        return info.samples_per_insert == 0 or difference >= info.min_diff

    def checkpoint(self) -> str:
        """Makes what was written durable, where the store is on files; returns its URI."""
        if self._store.uri == "embed:":
            raise NotImplementedError("checkpoint: embed: is gone with this process: use "
                                      "\"embed:FILE\", which needs no checkpoints")
        self._store.persist()
        return self._store.uri

    def close(self) -> None:
        """Closes this client's tables, and the store if this client opened it."""
        for table in self._tables.values():
            table.close(wait=False)
        if self._is_ours:
            self._store.close(wait=False)

    def _declaration(self, name):
        if name in self._declared:
            return self._declared[name]
        table = self._existing(name)
        if table is None:
            raise ValueError("no table %s; there are %s" % (
                name, ", ".join(sorted({*self._declared, *self._store.tables()})) or "none"))
        if name not in self._found:
            self._found[name] = _declaration(table)
        return self._found[name]

    def _signature(self, name):
        """That items are checked by: of our own declarations."""
        self._declaration(name)
        return self._declared[name].signature if name in self._declared else None

    def _existing(self, name):
        with self._lock:
            if name not in self._tables and name in self._store.tables():
                self._tables[name] = self._store.table(name)
            return self._tables.get(name)

    def _make(self, name, item):
        """The table of an item, which is its first or like its first."""
        table = self._existing(name)
        if table is None:
            made = self._declaration(name)._create(self._store, item)
            with self._lock:
                table = self._tables.setdefault(name, made)
        wanted, found = self._shapes_of(table), _rows.shapes_of(item)
        if wanted != found:
            raise NotImplementedError("item %s of table %s, whose items are %s: items of a table "
                                      "have one shape: use a table for each, or pad"
                                      % (found, name, wanted))
        return table

    def _shapes_of(self, table):
        if table.name not in self._shapes:
            self._shapes[table.name] = [(column.name, column.shape, column.dtype)
                                        for column in table.columns]
        return self._shapes[table.name]

    def _wait_for(self, name):
        start = time.monotonic()
        self._declaration(name)
        while self._existing(name) is None:
            if time.monotonic() - start > self._timeout:
                raise errors.Timeout("sample: table %s has had no item yet" % name)
            time.sleep(_POLL)

    def _sampler(self, name):
        self._wait_for(name)
        with self._lock:
            if name not in self._samplers:
                self._samplers[name] = self._tables[name].sampler(
                    1, independent=True, beta=0.0, prefetch=0)
            return self._samplers[name]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self):
        (uri, tables), options = self._arguments
        if uri.startswith("embed:"):
            raise TypeError("%s lives in this process: processes share shm: or relive:// stores"
                            % uri)
        return _open_client, (uri, tables, options)


class _Inserter:
    """One writer of a table for all inserts, since each writer has a block of its own."""

    def __init__(self, table, timeout):
        self._lock = threading.Lock()
        self._writer = table.writer(timeout=timeout, check_values=False)

    def append(self, values, priority):
        """One item."""
        with self._lock:
            self._writer.append(**values, td_error=priority, terminated=True)


def _open_client(uri, tables, options):
    return Client(uri, tables, **options)


def _update_one(sampler, key, value):
    """A key that no item of the table has ever had is ignored, as Reverb does."""
    try:
        sampler.update_priorities(key, value)
    except errors.InvalidArgument:
        pass
