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

No process serves: a client opens the store, and a table is created in it when its first item comes. A
:class:`Server` is a store and the declarations of its tables. The first item sets the shapes of all items of the table. An item is a row: items that overlap share no
bytes. What Reverb does and this adaptor does not raises NotImplementedError, with what to use instead.
"""

from __future__ import annotations

import dataclasses
import math
import re
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
from ._trajectory import (TrajectoryColumn, TrajectoryWriter, Writer, append_row, check_item,
                          of_steps)

__all__ = ["Client", "RateLimiterInfo", "ReplaySample", "SampleInfo", "Server", "Table", "TableInfo",
           "TrajectoryColumn", "TrajectoryWriter", "Writer", "rate_limiters", "selectors"]

_POLL = 0.05  # seconds between looks for a table that has no item yet


# -------- declarations --------


@dataclasses.dataclass(frozen=True)
class _Selector:
    kind: str
    priority_exponent: float = 0.0


def _heap(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("selectors.MinHeap, MaxHeap: use Prioritized with a large exponent, which "
                              "comes closest; Uniform, Fifo and Lifo exist, too")


class selectors:
    """The order in which items are drawn, under Reverb's names: ``Fifo()``, ``Lifo()``, ``Uniform()`` and
    ``Prioritized(exponent)``. Heaps raise NotImplementedError."""

    Fifo = staticmethod(lambda: _Selector("fifo"))
    Lifo = staticmethod(lambda: _Selector("lifo"))
    Uniform = staticmethod(lambda: _Selector("uniform"))
    MinHeap = MaxHeap = staticmethod(_heap)

    @staticmethod
    def Prioritized(priority_exponent: float) -> _Selector:  # pylint: disable=invalid-name
        """Draws with probability proportional to priority^priority_exponent; the exponent is above 0."""
        if not priority_exponent > 0:
            raise NotImplementedError("selectors.Prioritized: priority_exponent %r: use "
                                      "selectors.Uniform()" % (priority_exponent,))
        return _Selector("prioritized", priority_exponent)


class rate_limiters:
    """Rate limiters under Reverb's names. Each returns a :class:`relive.RateLimiter`.

    ``min_size_to_sample`` counts items ever written; in Reverb it counts items that are in the table.
    """

    @staticmethod
    def MinSize(min_size_to_sample: int) -> RateLimiter:  # pylint: disable=invalid-name
        """Samples wait until ``min_size_to_sample`` items were written; inserts never wait."""
        return RateLimiter.of_min_size(_at_least_one(min_size_to_sample))

    @staticmethod
    def SampleToInsertRatio(samples_per_insert: float,  # pylint: disable=invalid-name
                            min_size_to_sample: int, error_buffer: Any) -> RateLimiter:
        """Samples wait until ``min_size_to_sample`` items were written. Then samples and inserts wait
        for each other, so that there are ``samples_per_insert`` samples for each insert.

        :param error_buffer: how far ``inserts * samples_per_insert - samples`` may be from its value
            when sampling began; or its least and largest value, a tuple.
        """
        _at_least_one(min_size_to_sample)
        if not samples_per_insert > 0:
            raise ValueError("SampleToInsertRatio: samples_per_insert %r: want more than 0"
                             % (samples_per_insert,))
        offset = samples_per_insert * min_size_to_sample
        if isinstance(error_buffer, (int, float)):
            error_buffer = (offset - error_buffer, offset + error_buffer)
        low, high = error_buffer
        if high - low < 2 * max(1.0, samples_per_insert) or low > offset:
            raise ValueError("SampleToInsertRatio: error_buffer %r: samples or inserts could wait for "
                             "ever: want at least max(1, samples_per_insert)" % (error_buffer,))
        return RateLimiter(min_size_to_sample, samples_per_insert, low, high)

    @staticmethod
    def Queue(size: int) -> RateLimiter:  # pylint: disable=invalid-name
        """The limiter of :meth:`Table.queue`: inserts wait while ``size`` items were not sampled."""
        return RateLimiter.queue(size)

    @staticmethod
    def Stack(size: int) -> RateLimiter:  # pylint: disable=invalid-name
        """The limiter of :meth:`Table.stack`: inserts wait while ``size`` items were not sampled."""
        return RateLimiter.stack(size)


def _at_least_one(size):
    if size < 1:
        raise ValueError("rate limiter: min_size_to_sample %r: want 1 or more" % (size,))
    return size


class Table:
    """Declares a table. A client that has the declaration creates the table when its first item comes.

    :param name: 1 to 63 letters, digits, ``_``, ``-`` or ``.``.
    :param sampler: one of :class:`selectors`: how items are drawn.
    :param remover: ``selectors.Fifo()``: the oldest items are overwritten when the table is full.
    :param max_size: items that stay drawable. A table holds a few more, in whole blocks, and at least
        64 for each writer.
    :param rate_limiter: one of :class:`rate_limiters`.
    :param max_times_sampled: draws after which an item is removed; 0 = no limit.
    :param extensions: must be empty.
    :param signature: nested structure of anything with a shape (None in it = any size) and a dtype, such
        as ``tf.TensorSpec``, arrays or ``dm_env.specs.Array``, that items are checked against; None =
        that of the first item.
    :param max_writers: writers that may be open at once, in all processes.
    :param shards: number of parts of the table, spread over the memory nodes.
    :raises ValueError: name or max_size is invalid.
    :raises NotImplementedError: a remover or extension that does not exist here.
    """

    def __init__(self, name: str, sampler: Any, remover: Any, max_size: int,
                 rate_limiter: RateLimiter, max_times_sampled: int = 0,
                 extensions: Sequence[Any] = (), signature: Any = None, *, max_writers: int = 8,
                 shards: int = 1) -> None:
        if not name or max_size < 1:
            raise ValueError("Table: name %r and max_size %r: want a name, and 1 or more"
                             % (name, max_size))
        is_queue = sampler.kind == remover.kind == "lifo" and max_times_sampled == 1
        if remover.kind != "fifo" and not is_queue:
            raise NotImplementedError("table %s: remover %s: use selectors.Fifo(): the oldest items are "
                                      "overwritten" % (name, remover.kind))
        if extensions:
            raise NotImplementedError("table %s: extensions: no server runs them: use a client that "
                                      "calls mutate_priorities" % name)
        self.name = name
        self.sampler, self.remover = sampler, remover
        self.max_size, self.max_times_sampled = max_size, max(max_times_sampled, 0)
        self.rate_limiter = rate_limiter
        self.signature = signature
        self._options = dict(max_writers=max_writers, shards=shards)

    @classmethod
    def queue(cls, name: str, max_size: int, extensions: Sequence[Any] = (),
              signature: Any = None) -> Table:
        """Declares a queue: each item is drawn once, the oldest first. Samples wait while it is empty,
        inserts while it holds ``max_size`` items."""
        return cls(name, selectors.Fifo(), selectors.Fifo(), max_size,
                   rate_limiters.Queue(max_size), 1, extensions, signature)

    @classmethod
    def stack(cls, name: str, max_size: int, extensions: Sequence[Any] = (),
              signature: Any = None) -> Table:
        """Declares a stack: each item is drawn once, the newest first. Samples wait while it is empty,
        inserts while it holds ``max_size`` items."""
        return cls(name, selectors.Lifo(), selectors.Lifo(), max_size,
                   rate_limiters.Stack(max_size), 1, extensions, signature)

    def _create(self, store, item):
        alpha = self.sampler.priority_exponent or 1.0
        view = View(selector=self.sampler.kind, alpha=alpha, eps=_rows.EPS,
                    max_times_sampled=self.max_times_sampled, rate_limiter=self.rate_limiter)
        return _rows.create_table(store, self.name, _rows.columns_of(item), self.max_size, view,
                                  **self._options)


def _declaration(table):
    """Makes a declaration, a :class:`Table`, from the info of a table that another client created."""
    info = table.info()
    view = info.views[0].view
    kind = _Selector(view.selector, view.alpha if view.selector == "prioritized" else 0.0)
    remover = selectors.Lifo() if view.selector == "lifo" else selectors.Fifo()
    signature = _rows.nested([(_rows.path_of(column.name), column) for column in info.columns])
    return Table(table.name, kind, remover, info.capacity, view.rate_limiter,
                 view.max_times_sampled, signature=signature, max_writers=info.max_writers,
                 shards=info.shards)


# -------- results --------


class SampleInfo(NamedTuple):
    """Facts about one drawn item: its key, the probability of the draw, the number of items in the table,
    the priority as the writer or mutate_priorities gave it, and ``times_sampled``: 1 in tables whose
    items are sampled once, else None, as it is not known."""

    key: int
    probability: float
    table_size: int
    priority: float
    times_sampled: int | None


class ReplaySample(NamedTuple):
    """An item, or one step of it: ``data`` is a list of arrays, or a structure like the signature. The
    arrays are copies."""

    info: SampleInfo
    data: Any


@dataclasses.dataclass(frozen=True)
class RateLimiterInfo:
    """A table's rate limiter, and the numbers of items inserted and sampled so far."""

    samples_per_insert: float
    min_size_to_sample: int
    min_diff: float
    max_diff: float
    inserted: int
    sampled: int


@dataclasses.dataclass(frozen=True)
class TableInfo:
    """State of a table, from :meth:`Client.server_info`. ``current_size``: items that can be drawn."""

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
    """Reads and writes the tables of a store.

    Threads may share a client, but each needs writers of its own. It is a context manager, which closes
    it, and can be pickled for ``shm:`` and ``relive://`` stores: unpickling opens another client.

    :param server_address: a URI for :func:`relive.open`; or an open :class:`relive.Store`, which stays
        open when the client is closed; or ``localhost:PORT`` of a :class:`Server` of this process.
    :param tables: declarations, :class:`Table`, of the tables that may not be in the store yet.
    :param timeout: seconds that ``insert`` and each item of ``sample`` may wait before they raise
        :class:`relive.Timeout`; None = without limit.
    :param options: those of :func:`relive.open`.
    :raises ValueError: two declarations have the same name, or there is no such server.
    """

    def __init__(self, server_address: Any, tables: Sequence[Table] = (), *,
                 timeout: float | None = None, **options: Any) -> None:
        server = _server_at(server_address)
        if server is not None:
            server_address, tables = server.store, (*server.tables, *tables)
        names = [table.name for table in tables]
        if len(set(names)) != len(names):
            raise ValueError("Client: several tables are named %s: give each another name"
                             % ", ".join(sorted({name for name in names if names.count(name) > 1})))
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
        """The URI of the store."""
        return self._store.uri

    # -------- writing --------

    def insert(self, data: Any, priorities: dict[str, float]) -> None:
        """Writes one step as an item of each table. It blocks while a rate limiter does not admit it.

        :param data: a nested structure of arrays, which are copied.
        :param priorities: a dict from names of tables to priorities, 0 or more.
        :raises Timeout: the client's timeout has passed.
        :raises ValueError: there is no such table, or the step does not match its signature.
        :raises NotImplementedError: the shapes differ from those of the table's items.
        """
        if not priorities:
            raise ValueError("insert: priorities: want at least one table")
        for table, priority in priorities.items():
            inserter = self._inserters.get(table)
            if inserter is None or not inserter.append(data, priority):
                self._insert_first(table, data, priority)

    def _insert_first(self, table, data, priority):
        """Inserts a step into a table whose layout is not known yet, or is not the step's."""
        step = _rows.unflatten(data, [np.asarray(leaf)[None] for _, leaf in _rows.flatten(data)])
        check_item(table, step, of_steps(self._signature(table), 1))
        self._make(table, step)
        with self._lock:
            if table not in self._inserters:
                self._inserters[table] = _Inserter(self._tables[table], self._timeout)
            inserter = self._inserters[table]
        inserter.layout = _rows.Layout(step, data, _array_of)
        inserter.append(data, priority)

    def writer(self, max_sequence_length: int, delta_encoded: bool = False,
               chunk_length: int | None = None, max_in_flight_items: int | None = None) -> Writer:
        """Opens a :class:`Writer` that remembers ``max_sequence_length`` steps. The other arguments are
        about chunks, which do not exist here: they are ignored."""
        return Writer(self, max_sequence_length)

    def trajectory_writer(self, num_keep_alive_refs: int, *,
                          validate_items: bool = True) -> TrajectoryWriter:
        """Opens a :class:`TrajectoryWriter` that remembers ``num_keep_alive_refs`` steps. It always
        validates items."""
        return TrajectoryWriter(self, num_keep_alive_refs)

    def structured_writer(self, configs: Any) -> Any:
        """Raises NotImplementedError: views of a table do what structured writers do."""
        raise NotImplementedError("structured_writer: use views, whose items are windows of steps: "
                                  "store.create_table(..., views=[relive.View(stack=, n_step=)])")

    # -------- sampling --------

    def sample(self, table: str, num_samples: int = 1, *, emit_timesteps: bool = True,
               unpack_as_table_signature: bool = False) -> Iterator[Any]:
        """Draws items, each independently of the others. Returns a generator, which blocks at each item
        until the table has been created and its rate limiter admits the draw. Arrays are copies.

        For training, :meth:`relive.Table.sampler` and :meth:`relive.Table.dataset` give whole batches.

        :param table: name of the table.
        :param num_samples: number of items.
        :param emit_timesteps: True = yield each item as a list of :class:`ReplaySample`, one for each
            step; False = as one ReplaySample.
        :param unpack_as_table_signature: True = data in the structure of the signature; False = as a
            list of arrays.
        :raises Timeout: the client's timeout has passed.
        :raises ValueError: there is no such table, or emit_timesteps needs columns of one length.
        """
        self._wait_for(table)
        unpacked = self._unpacked(table) if unpack_as_table_signature else list
        for _ in range(num_samples):
            info, leaves = self._draw(table)
            if not emit_timesteps:
                yield ReplaySample(info, unpacked(leaves))
                continue
            if any(leaf.ndim == 0 or len(leaf) != len(leaves[0]) for leaf in leaves):
                raise ValueError("sample: table %s has columns of different lengths, which are no "
                                 "steps: use emit_timesteps=False" % table)
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
        """Returns a function that makes the structure of a table's signature of a list of leaves;
        ``list`` if the declaration has no signature."""
        signature = self._declaration(table).signature
        if signature is None:
            return list
        if table in self._declared:
            return lambda leaves: _rows.unflatten(signature, leaves)
        paths = [_rows.path_of(name) for name, _, _ in self._shapes_of(self._tables[table])]
        return lambda leaves: _rows.nested(zip(paths, leaves))

    def mutate_priorities(self, table: str, updates: dict[int, float] | None = None,
                          deletes: Sequence[int] | None = None) -> None:
        """Sets the priorities of items. It does nothing for a table that does not draw by priority.

        :param table: name of the table.
        :param updates: a dict from keys to priorities, finite and 0 or more. Keys that are not in the
            table, or never were, are ignored.
        :param deletes: must be empty.
        :raises ValueError: a priority is invalid; nothing was changed.
        :raises NotImplementedError: deletes were given.
        """
        if deletes:
            raise NotImplementedError("mutate_priorities: deletes: use updates with priority 0, with "
                                      "which an item is hardly ever drawn")
        if not updates or self._declaration(table).sampler.kind != "prioritized":
            return
        values = np.array(list(updates.values()), np.float64)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError("mutate_priorities: want finite priorities, 0 or more")
        keys = np.array(list(updates), np.uint64)
        sampler = self._sampler(table)
        try:
            sampler.update_priorities(keys, values)
        except errors.InvalidArgument:
            for i in range(len(keys)):
                _update_one(sampler, keys[i:i + 1], values[i:i + 1])

    # -------- tables --------

    def reset(self, table: str) -> None:
        """Deletes the table with its items and counts; the next item creates it anew. Calls of other
        clients that have it open raise :class:`relive.TableDropped`. ValueError if there is no such
        table."""
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
        """Returns a dict from the name of each table, declared or in the store, to its
        :class:`TableInfo`. ``timeout`` is ignored: the store's own timeout counts."""
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
        """Returns True if the rate limiter would admit ``num_samples`` samples now."""
        info = self.server_info()[table].rate_limiter_info
        if info.inserted < max(info.min_size_to_sample, 1):
            return False
        difference = info.inserted * info.samples_per_insert - info.sampled - num_samples
        return info.samples_per_insert == 0 or difference >= info.min_diff

    def checkpoint(self) -> str:
        """Blocks until all items written before are durable, and returns the URI that opens the store
        again. NotImplementedError for ``embed:``, which ends with its process."""
        return _rows.durable_uri(self._store)

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
            raise ValueError("no table %s: the store and the declarations have %s" % (
                name, ", ".join(sorted({*self._declared, *self._store.tables()})) or "none"))
        if name not in self._found:
            self._found[name] = _declaration(table)
        return self._found[name]

    def _signature(self, name):
        """Returns the signature that items of a table are checked against. None = no check: this client
        does not declare the table, or without a signature. ValueError if there is no such table."""
        self._declaration(name)
        return self._declared[name].signature if name in self._declared else None

    def _existing(self, name):
        with self._lock:
            if name not in self._tables and name in self._store.tables():
                self._tables[name] = self._store.table(name)
            return self._tables.get(name)

    def _make(self, name, item):
        """Returns the table that an item goes to; creates it if this is its first item.
        NotImplementedError if the item has other shapes than the table's items."""
        table = self._existing(name)
        if table is None:
            made = self._declaration(name)._create(self._store, item)
            with self._lock:
                table = self._tables.setdefault(name, made)
        wanted, found = self._shapes_of(table), _rows.shapes_of(item)
        if wanted != found:
            raise NotImplementedError("item %s of table %s, whose items are %s: all items of a table "
                                      "have the same shapes: use a table for each shape, or pad"
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
                raise errors.Timeout("sample: table %s has had no item yet: insert one, or wait longer"
                                     % name)
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
            raise TypeError("pickle: store %s is memory of this process: use a store of shm: or "
                            "relive:// to share it" % uri)
        return _open_client, (uri, tables, options)


class Server:
    """What a ``reverb.Server`` is to its clients: an address and tables. It is a store, opened here, and
    runs no thread. It is a context manager, which stops it.

    :param tables: declarations, :class:`Table`, which clients of this server need not repeat.
    :param port: any number; clients of this process find the server by ``localhost:PORT``. Nothing listens
        there. None = one that no server of this process has.
    :param checkpointer: must be None: :meth:`Client.checkpoint` makes a store durable.
    :param store: a URI for :func:`relive.open`. Clients of other processes need one of ``shm:`` or
        ``relive://``, and give that URI and the declarations, or are pickled.
    :param options: those of :func:`relive.open`.
    :raises ValueError: another server of this process has the port.
    """

    def __init__(self, tables: Sequence[Table], port: int | None = None, checkpointer: Any = None, *,
                 store: str = "embed:", **options: Any) -> None:
        if checkpointer is not None:
            raise NotImplementedError("Server: checkpointer: leave it out, and use store=\"embed:FILE\" with "
                                      "Client.checkpoint")
        self.tables = tuple(tables)
        with _servers_lock:
            self.port = max([9999, *_servers]) + 1 if port is None else port
            if self.port in _servers:
                raise ValueError("Server: port %d: another server of this process has it: stop that one, or use "
                                 "another number" % self.port)
            self.store = open_store(store, **options)
            _servers[self.port] = self

    def localhost_client(self) -> Client:
        """Returns a new client of this server."""
        return Client(self.store, self.tables)

    def stop(self) -> None:
        """Closes the store; its clients raise :class:`relive.Closed` from now on. A second call does
        nothing."""
        with _servers_lock:
            if _servers.get(self.port) is self:
                del _servers[self.port]
        self.store.close(wait=False)

    def wait(self) -> None:
        """Blocks until the server is stopped."""
        while _servers.get(self.port) is self:
            time.sleep(_POLL)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


_servers: dict[int, Server] = {}  # of this process, by port
_servers_lock = threading.Lock()
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1?\]):(\d+)\Z")


def _server_at(address):
    """Returns the server of this process at an address, None if it is a store's. ValueError: it is
    neither."""
    local = _LOCAL.match(address) if isinstance(address, str) else None
    if local is None:
        return None
    if int(local[1]) not in _servers:
        raise ValueError("Client: %s: no Server of this process has this port: use the URI of a store, such as "
                         "\"shm:NAME\", to share it with other processes" % address)
    return _servers[int(local[1])]


class _Inserter:
    """One writer of a table, with a lock, for the inserts of all threads of a client: a writer for each
    would take a block of rows."""

    layout: _rows.Layout

    def __init__(self, table, timeout):
        self._lock = threading.Lock()
        self._writer = table.writer(timeout=timeout, check_values=False)

    def append(self, step, priority):
        """Appends a step as an item. False = its layout is another."""
        row = self.layout.row(step, priority)
        if row is None:
            return False
        with self._lock:
            append_row(self._writer, row)
        return True


def _array_of(leaf):
    """Returns a leaf with a first dimension of steps."""
    return leaf[None] if isinstance(leaf, _rows.LEAVES) else np.asarray(leaf)[None]


def _open_client(uri, tables, options):
    return Client(uri, tables, **options)


def _update_one(sampler, key, value):
    """Sets the priority of one key. If no item of the table ever had the key, nothing is done, as in
    Reverb."""
    try:
        sampler.update_priorities(key, value)
    except errors.InvalidArgument:
        pass
