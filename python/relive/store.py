"""Stores, which hold tables."""

from __future__ import annotations

import atexit
import threading
import warnings
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from . import _core, _cures, errors
from ._closing import close_all, leave
from ._integer import real, text, unsigned
from ._options import known, options_of
from .info import StoreInfo
from .kv import Kv, mode_number, writers_number
from .signature import ENDS, columns_of
from .table import Table
from .views import RateLimiter, View
from .weights import Shards, Weights

_PAGES = ("auto", "small", "huge")

_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()
# opened by unpickling
_shared: weakref.WeakValueDictionary[Any, Store] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


class Store:
    """A store: named tables, in this process, on this host or on several hosts. :func:`relive.open`
    opens it.

    It is a context manager, which closes it. Closing a store closes its tables, writers and samplers.
    Threads may share a store and its tables. A forked child cannot use them: calls raise
    :class:`relive.Forked`. Stores of ``shm:`` or ``relive://`` and their tables can be pickled:
    unpickling opens them in the other process, once for all copies there. ``store.uri`` is the URI
    that the store was opened with.

    Calls that ask the server (all but :meth:`close` of an ``embed:`` store) block for at most the
    ``timeout`` of :func:`relive.open`, and then raise :class:`relive.Timeout`.
    """

    @known("open")
    def __init__(self, uri: str = "embed:", *, pages: str = "auto", pool_bytes: int = 0, timeout: float = 5.0,
                 token: str | None = None, read_only: bool = False,
                 stall_timeout: float = 60.0, trust: bool = False, tls_cert: str | None = None,
                 tls_key: str | None = None, tls_ca: str | None = None) -> None:
        if pages not in _PAGES:
            raise errors.InvalidArgument("open: pages %r, want one of %s"
                                         % (pages, ", ".join(_PAGES)))
        real("open: stall_timeout", stall_timeout, 1e-3, 1e9)
        real("open: timeout", timeout, 0, 1e9)
        text("open: uri", uri)
        token is None or text("open: token", token)
        tls = dict(tls_cert=tls_cert, tls_key=tls_key, tls_ca=tls_ca)
        self._options = dict(pages=pages, pool_bytes=pool_bytes, timeout=timeout, token=token,
                             read_only=read_only, stall_timeout=stall_timeout, trust=trust, **tls)
        self.uri = uri
        self._core = _core.Store(uri, pages=_PAGES.index(pages),
                                 pool_bytes=unsigned("pool_bytes", pool_bytes, bits=64),
                                 timeout_ns=round(timeout * 1e9), token=token,
                                 read_only=read_only, stall_ns=round(stall_timeout * 1e9),
                                 trust=trust, **tls)
        self._tables: weakref.WeakSet[Table] = weakref.WeakSet()
        self._kvs: weakref.WeakSet[Kv | Shards | Weights] = weakref.WeakSet()
        _open_stores.add(self)

    @known("create_table")
    def create_table(self, name: str, signature: Any, capacity: float, *, shards: int = 1,
                     views: Sequence[View] | View = (), rate_limiter: RateLimiter | None = None,
                     max_writers: int = 0, max_clients: int = 0, block: int = 0,
                     row_crc: bool | None = None) -> Table:
        """Creates a table, or opens the table of that name if it was created with equal arguments.
        Returns a :class:`relive.Table`.

        :param name: 1 to 63 letters, digits, ``_``, ``-`` or ``.``.
        :param signature: the columns of a step: see :func:`relive.signature.columns_of`.
        :param capacity: number of the newest steps that stay drawable; older ones are overwritten.
        :param shards: number of parts of the table, which the server spreads over the memory nodes.
        :param views: one :class:`relive.View` or up to 8; empty = one view of single transitions.
        :param rate_limiter: a :class:`relive.RateLimiter` for the views that have none; None = no limit.
        :param max_writers: environments that may append at once, in all processes; 0 = 4.
        :param max_clients: writers and samplers that may be open at once, in all processes; 0 = 64.
        :param block: rows that an environment claims at once; 0 = chosen from capacity and max_writers.
        :param row_crc: True = each row has a checksum, which finds rows torn by a power loss. None =
            True where rows can survive a power loss (in files, and on memory nodes whose pool is a file
            or device), and on memory nodes that are reached over TCP.
        :raises AlreadyExists: a table of that name has another signature or other options; the message
            names them.
        :raises NoSpace: the pools have no memory left for it.
        :raises InvalidArgument: names the argument, and the sizes if they do not fit.
        """
        columns = columns_of(signature)
        _warn_of_ends(columns)
        given = _views_of(views)
        _check_limiters(given, rate_limiter)
        if row_crc not in (None, True, False):
            raise errors.InvalidArgument("create_table: row_crc %r, want True, False or None" % (row_crc,))
        limited = [_with_limiter(view, rate_limiter) for view in given]
        if isinstance(capacity, float) and capacity.is_integer():  # 1e6
            capacity = int(capacity)
        capacity = unsigned("capacity", capacity, bits=64)
        try:
            core = _core.Table(
                self._core, text("name", name), [column._core_tuple() for column in columns],
                [view._core_tuple() for view in limited], capacity,
                unsigned("shards", shards), unsigned("max_writers", max_writers),
                unsigned("max_clients", max_clients), unsigned("block", block),
                {None: 0, True: 1, False: 2}[row_crc])
        except errors.AlreadyExists as error:
            raise self._differs(error, name, dict(
                _options(columns, limited), capacity=capacity, shards=shards,
                max_writers=max_writers or 4, max_clients=max_clients or 64)) from None
        return self._add(core)

    def _differs(self, error, name, wanted):
        """Returns the AlreadyExists of a table that has other options, which names them."""
        try:
            with self.table(name) as table:
                info = table.info()
        except errors.Error:
            return error
        there = dict(_options(info.columns, [view.view for view in info.views]), capacity=info.capacity,
                     shards=info.shards, max_writers=info.max_writers, max_clients=info.max_clients)
        told = ["%s: it has %s, not %s" % (key, there.get(key, "none"), wanted.get(key, "none"))
                for key in {**there, **wanted} if there.get(key) != wanted.get(key)]
        return errors.AlreadyExists(
            "table %s exists, and differs in %s: open it by store.table(%r), or give another name"
            % (name, "; ".join(told) or "block or row_crc", name), error.code)

    def table(self, name: str) -> Table:
        """Opens a table by name and returns it, a :class:`relive.Table`.

        :raises NotFound: there is no table of that name.
        """
        return self._add(_core.Table(self._core, name))

    def _add(self, core):
        table = Table(self, core)
        self._tables.add(table)
        return table

    def drop_table(self, name: str) -> None:
        """Deletes a table and its steps, for all processes. Its handles that are open, in any process,
        raise TableDropped from now on; they can still be closed.

        :raises NotFound: there is no table of that name.
        """
        self._core.drop(name)

    def load_table(self, path: Any, name: str | None = None, *, shards: int = 0, replace: bool = False) -> Table:
        """Makes a table from a file of :meth:`relive.Table.save`, of any store, and returns it, a
        :class:`relive.Table`. Its items, their order and their priorities are the same; their keys are new, and
        writers begin new episodes. A terminal shows a progress bar if it takes longer than two seconds. Other
        calls of this store wait meanwhile. Other clients see the table when all of its items are in: a load that
        fails, is interrupted or is killed leaves none, or with ``replace`` the earlier one, whole.

        :param path: of the file.
        :param name: of the new table; None = that of the saved one.
        :param shards: number of its parts; 0 = as saved.
        :param replace: True = replace a table of that name, if there is one. It is there and in use until all items
            are in; then it is dropped and the new one is there, in one step. Until then both need memory.
        :raises AlreadyExists: there is a table of that name; with ``replace``: values or weights have the name.
        :raises Busy: another load makes a table of that name.
        :raises TableDropped: the new table was dropped meanwhile.
        :raises ProtocolError: the file is damaged or cut, or no saved table, or of a later format.
        :raises NoSpace: the pools have no memory left for it; with ``replace`` the earlier table is as it was: drop
            it first, or add memory.
        """
        from ._saving import load
        return self.table(load(self, path, name, shards, replace))

    def tables(self) -> list[str]:
        """Returns the names of the tables, a sorted list."""
        return sorted(self._core.tables())

    def create_kv(self, name: str, *, keys: int = 0, bytes: int = 0, extent_bytes: int = 0,
                  parts: int = 0, max_clients: int = 0, mode: str = "clover",
                  copies: int = 0, writers: str = "one", stripe_bytes: int = 0) -> Kv:
        """Creates a heap, which keeps values under keys, or opens the heap of that name if it was created
        with equal arguments. Returns a :class:`relive.Kv`.

        :param keys: different keys that it ever has, deleted ones included; 0 = 65536.
        :param bytes: memory of its values, of versions that wait to be collected too; 0 = 64 MiB.
        :param extent_bytes: unit in which handles take memory; longer values lie in several: a power of
            two, 64 KiB to 1 GiB; 0 = 2 MiB.
        :param parts: shares of the heap, which the server spreads over the memory nodes; 0 = 1.
        :param max_clients: handles that may be open at once, in all processes; 0 = 64.
        :param mode: ``"clover"``; or, to compare, ``"direct"`` or ``"central"``: `kv.md` says how they differ.
            With these ``extent_bytes`` is the room of one value.
        :param copies: of each part, on memory nodes of their own: 1 to 3; 0 = 1. From 2 on one handle puts
            into a part, the first one that does; puts of others raise Busy until :meth:`relive.Kv.release`.
        :param writers: ``"many"``: with copies, all handles put, for one round trip more. A copy that is lost
            with its node is not made anew then, and a node that has one cannot be drained.
        :param stripe_bytes: longer values lie in stripes of that much memory over all parts, so that one may be
            larger than a part: a power of two, at least ``extent_bytes``; 0 = each value lies in one part. With
            ``copies`` only with ``writers="many"``. Each stripe counts as a key.
        :raises AlreadyExists: a heap or table of that name has other options.
        """
        return self._add_kv(_core.Kv(
            self._core, name, unsigned("parts", parts), unsigned("keys", keys, bits=64),
            unsigned("bytes", bytes, bits=64), unsigned("extent_bytes", extent_bytes, bits=64),
            unsigned("max_clients", max_clients), mode_number(mode),
            unsigned("copies", copies), writers_number(writers),
            unsigned("stripe_bytes", stripe_bytes, bits=64)))

    def kv(self, name: str) -> Kv:
        """Opens a heap by name and returns a handle of it, a :class:`relive.Kv`.

        :raises NotFound: there is no heap of that name.
        """
        return self._add_kv(_core.Kv(self._core, name))

    def _add_kv(self, core):
        kv = Kv(self, core)
        self._kvs.add(kv)
        return kv

    def drop_kv(self, name: str) -> None:
        """Deletes a heap and its values, for all processes. Its open handles raise TableDropped from now
        on.

        :raises NotFound: there is no heap of that name.
        """
        self._core.drop_kv(name)

    def kvs(self) -> list[str]:
        """Returns the names of the heaps, a sorted list."""
        return sorted(self._core.kvs())

    def create_weights(self, name: str, bytes: int = 0, *, keep: int = 0, anchor_every: int = 0,
                       copies: int = 0, max_clients: int = 0, prefault: bool = False) -> Weights:
        """Creates weights, or opens those of that name if they were created with equal arguments. Returns a
        :class:`relive.Weights`. They lie in a heap of the same name.

        :param bytes: of all tensors of a version, at most; 0 = 64 MiB. The heap takes about ``keep`` + 3
            times that.
        :param keep: versions that stay; 0 = 2.
        :param anchor_every: all tensors are stored at the latest with each so many versions, changed
            elements in between; 0 = 8, 1 = always all.
        :param copies: on memory nodes of their own; 0 = 1.
        :param max_clients: handles that may be open at once, in all processes; 0 = 64.
        :param prefault: give the heap all its memory now, so that the first versions are published as fast as
            later ones.
        :raises AlreadyExists: weights of that name have other options, or a table has the name.
        """
        return self._add_weights(_core.Weights(
            self._core, name, unsigned("keep", keep), unsigned("bytes", bytes, bits=64),
            unsigned("anchor_every", anchor_every), unsigned("max_clients", max_clients),
            unsigned("copies", copies), int(prefault)))

    def weights(self, name: str) -> Weights:
        """Opens weights by name and returns a handle of them, a :class:`relive.Weights`.

        :raises NotFound: there are no weights of that name.
        """
        return self._add_weights(_core.Weights(self._core, name))

    def shards(self, name: str, world: int, rank: int | None = None, *, bytes: int = 0, keep: int = 0,
               anchor_every: int = 0, copies: int = 0, max_clients: int = 0, prefault: bool = False) -> Shards:
        """Opens weights that ``world`` processes publish together, and creates those that are not there. Returns a
        :class:`relive.Shards`. Each rank has weights of its own, whose name is ``name.RANK-of-WORLD``.

        :param world: ranks, 1 to 64; the same for all.
        :param rank: of this process, 0 to ``world`` - 1; None = it only reads.
        :param keep: versions of each rank that stay, at least 2. A rank may be ``keep`` - 1 versions ahead of another.

        The others are those of :meth:`create_weights`, for each rank.
        """
        return self._add_weights(_core.Shards(
            self._core, name, unsigned("world", world), 2**32 - 1 if rank is None else unsigned("rank", rank),
            unsigned("keep", keep), unsigned("bytes", bytes, bits=64), unsigned("anchor_every", anchor_every),
            unsigned("max_clients", max_clients), unsigned("copies", copies), int(prefault)), Shards)

    def _add_weights(self, core, kind=Weights):
        weights = kind(self, core)
        self._kvs.add(weights)
        return weights

    def info(self) -> StoreInfo:
        """Returns the state of the store and its memory nodes now: :class:`relive.info.StoreInfo`."""
        return StoreInfo._of_core(self._core.info())

    def token(self, role: str) -> str:
        """Returns the token of a role, a string for ``relive.open(uri, token=...)`` or the environment
        variable RELIVE_TOKEN of another process.

        :param role: ``"read"``, ``"learn"``, ``"write"``, ``"node"`` or ``"admin"``.
        :raises AccessDenied: this store was opened with a token of a role other than admin. Open it
            with the store's own token.
        """
        return self._core.token(role)

    def rotate_tokens(self) -> int:
        """Makes all role tokens invalid and returns the number of the new epoch, from which
        :meth:`token` makes new ones. Clients that were opened with an old role token are disconnected.

        :raises AccessDenied: this store was not opened with its own token, or one of role admin.
        """
        return self._core.rotate_tokens()

    def persist(self) -> None:
        """Blocks until all steps appended before the call would survive a power loss. It does nothing
        where steps are in memory: only ``embed:FILE`` stores, and memory nodes whose pool is a file or
        device, can keep them."""
        self._core.persist()

    def close(self, wait: bool = True) -> None:
        """Closes the store, its tables, and their writers and samplers. All are closed before the first
        error is raised. A second call does nothing. Batches and their arrays stay readable. The steps
        of an ``embed:`` store without a file are lost.

        :param wait: as for :meth:`relive.Writer.close`.
        """
        try:
            close_all([partial(table.close, wait=wait) for table in list(self._tables)]
                      + [kv.close for kv in list(self._kvs)]
                      + [self._core.close])
        finally:
            if not self._core.is_open:
                _open_stores.discard(self)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        leave(partial(self.close, wait=kind is None), kind)

    def __repr__(self):
        return "<relive.Store %s%s>" % (self.uri, "" if self._core.is_open else " closed")

    def __reduce__(self):
        if self.uri.startswith("embed:"):
            raise TypeError(_cures.cured("pickle: store %s is memory of this process: open a store of shm: or "
                                         "relive:// to share it" % self.uri))
        return _open_shared, (self.uri, tuple(sorted(self._options.items())))


def _warn_of_ends(columns):
    for column in columns:
        if column.name in ENDS:
            warnings.warn(_cures.cured(
                "create_table: column %s is stored as it is, and ends no episode: leave it out, and give append "
                "terminated and truncated" % column.name), stacklevel=4)


def _views_of(views):
    given = (views,) if isinstance(views, View) else views
    if not isinstance(given, (list, tuple)) or not all(isinstance(view, View) for view in given):
        raise errors.InvalidArgument("create_table: views %r, want a relive.View, or a list of them" % (views,))
    return tuple(given) or (View(),)


def _check_limiters(views, limiter):
    for given in (limiter, *(view.rate_limiter for view in views)):
        if given is not None and not isinstance(given, RateLimiter):
            raise errors.InvalidArgument("create_table: rate_limiter %r, want a relive.RateLimiter" % (given,))


def _options(columns, views):
    """Returns the options of a table's columns and views as a flat dict, to compare them."""
    options = {"column %s" % column.name: "%s %s (%s)" % (column.dtype, column.shape, column.role)
               for column in columns}
    for number, view in enumerate(views):
        for field, value in view.__dict__.items():
            if field == "rate_limiter":
                value = value or RateLimiter()
                ratio = value.samples_per_insert
                value = (max(value.min_size, 1), ratio, *(ratio and (value.min_diff, value.max_diff) or ()))
            options["views[%d].%s" % (number, field)] = value
    return options


def _with_limiter(view, limiter):
    if limiter is None or view.rate_limiter is not None:
        return view
    return View(**{**view.__dict__, "rate_limiter": limiter})


def _open_shared(uri, options):
    """Unpickles a store: returns the open store of the same URI and options that this process unpickled
    before, or opens one."""
    with _shared_lock:
        store = _shared.get((uri, options))
        if store is None or not store._core.is_open:
            store = Store(uri, **dict(options))
            _shared[uri, options] = store
        return store


@options_of(Store)
def open(uri: str = "embed:", **options: Any) -> Store:
    """Opens a store and returns it, a :class:`relive.Store`.

    * ``"embed:"``: in this process, in memory; its steps are lost when it is closed.
    * ``"embed:FILE"``: in this process, in a file or a DAX device, which keeps the steps; one process
      at a time.
    * ``"shm:NAME"``: the store NAME that ``relive up`` runs on this host.
    * ``"relive://HOST:PORT"``: the store of the metadata server there.
    * ``"relive://@FILE"``: the store that ``relive up --announce FILE`` runs, on a host that shares FILE.
      Waits for FILE, for ``timeout`` at most, and without a token takes that of FILE.

    :param pages: ``embed:`` only: page size of its memory: ``"auto"``, ``"small"`` or ``"huge"``.
    :param pool_bytes: ``embed:`` only: limit of its memory in bytes, or size of a new file; 0 = all
        free memory, or a file of 1 GiB.
    :param timeout: seconds that connecting, and each call that asks the server, may take.
    :param token: the store's own token, or a role's (:meth:`Store.token`, ``relive token``). None =
        RELIVE_TOKEN; for a store on this host, unless RELIVE_TOKEN is a role's, the file ``token`` in
        the store's directory. Calls that the role forbids raise :class:`relive.AccessDenied`.
    :param read_only: True = appends and updates raise AccessDenied.
    :param stall_timeout: seconds, 0.001 to 1e9. Calls that wait for steps or batches without a timeout
        of their own raise Timeout when for this long no step was appended to their table and no item
        was sampled from it. A call that has waited for 2 s issues a RuntimeWarning that says what it
        waits for, at most once a minute for each writer or sampler.
    :param trust: ``embed:FILE`` only: True = also open tables created with ``row_crc=False`` in a file
        that was not closed. Rows torn by a power loss are not detected there.
    :param tls_cert: ``relive://`` with certificates: path of the client's certificate, a PEM file;
        None = RELIVE_TLS_CERT.
    :param tls_key: path of the key of that certificate, a PEM file; None = RELIVE_TLS_KEY.
    :param tls_ca: path of the CA of the server's certificate, a PEM file; None = RELIVE_TLS_CA.

    ^C ends waits for steps, batches and room at once. Calls that ask the server end after their
    timeout.

    :raises NotFound: there is no such store, or the file's folder does not exist.
    :raises Disconnected: nothing answers at the address.
    :raises Timeout: the server did not answer within ``timeout``.
    :raises AccessDenied: the token is wrong, or the file is not yours to open.
    :raises Busy: another process has the file open.
    :raises ProtocolError: the file or the server has another format version.
    :raises NoSpace, NoMemory: the file or the memory cannot be allocated.
    :raises Unsupported: this build has no ``shm:`` and ``relive://``: see :func:`relive.build_info`.
    :raises InvalidArgument: names the argument.

    >>> with open("embed:") as store:
    ...     table = store.create_table("replay", {"obs": ((4,), "float32"), "action": "int64",
    ...                                           "reward": "float32"}, capacity=1000)
    ...     with table.writer() as writer:
    ...         for step in range(10):
    ...             writer.append(obs=[step] * 4, action=0, reward=1.0, terminated=step == 9)
    ...     batch = table.sample(4)
    ...     updated = table.update_priorities(batch.key, td_error=[0.1, 0.2, 0.3, 0.4])
    >>> batch.obs.shape, batch.next_obs.dtype, batch.reward.tolist()
    ((4, 4), dtype('float32'), [1.0, 1.0, 1.0, 1.0])
    """
    return Store(uri, **options)


@atexit.register
def _close_all():
    """Closes all stores at the end of the process, which completes pending items where that does not
    wait. Errors are ignored."""
    for store in list(_open_stores):
        try:
            store.close(wait=False)
        except errors.Error:
            pass
