"""Stores: where experience lives."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from . import _core, errors
from ._closing import close_all, leave
from ._integer import unsigned
from .info import StoreInfo
from .signature import columns_of
from .table import Table
from .views import RateLimiter, View

_PAGES = ("auto", "small", "huge")

_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()
# opened by unpickling
_shared: weakref.WeakValueDictionary[Any, Store] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


class Store:
    """A store, from :func:`relive.open`. A context manager; closing it closes what came of it.

    Threads may share a store and its tables. A forked child may not (:class:`relive.Forked`), but a
    store of ``shm:`` or ``relive://`` and its tables can be pickled: what arrives is opened there.
    """

    def __init__(self, uri: str, *, pages: str = "auto", pool_bytes: int = 0, timeout: float = 5.0,
                 token: str | None = None, read_only: bool = False,
                 stall_timeout: float = 60.0, trust: bool = False, tls_cert: str | None = None,
                 tls_key: str | None = None, tls_ca: str | None = None) -> None:
        if pages not in _PAGES:
            raise errors.InvalidArgument("pages %r, want one of %s" % (pages, ", ".join(_PAGES)))
        if not 1e-3 <= stall_timeout <= 1e9:
            raise errors.InvalidArgument("stall_timeout %r, want seconds, 0.001 to 1e9"
                                         % (stall_timeout,))
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
        _open_stores.add(self)

    def create_table(self, name: str, signature: Any, capacity: int, *, shards: int = 1,
                     views: Sequence[View] = (), rate_limiter: RateLimiter | None = None,
                     max_writers: int = 0, max_clients: int = 0, block: int = 0,
                     row_crc: bool | None = None) -> Table:
        """Creates a table, or opens the one of that name if it was made of the same arguments.

        :param signature: what a step consists of: see :func:`relive.signature.columns_of`.
        :param capacity: steps that stay drawable.
        :param shards: parts of the table, spread over the memory nodes.
        :param views: up to 8 :class:`relive.View`; none is one view of single transitions.
        :param rate_limiter: of the views that have none of their own.
        :param max_writers: environments that append at once; 0 = 4.
        :param max_clients: writers and samplers open at once; 0 = 64.
        :param block: rows that an environment claims at once; 0 = chosen from the above.
        :param row_crc: rows carry a checksum; None = where they may outlive a power loss: in files, and
            on memory nodes whose pool is a file or device.
        :raises AlreadyExists: another signature or other options.
        :raises NoSpace: the pool is full.
        :raises InvalidArgument: names what is wrong, and the numbers where sizes do not fit.
        """
        views = tuple(views) or (View(),)
        limited = [_with_limiter(view, rate_limiter) for view in views]
        core = _core.Table.create(
            self._core, name, [column._core_tuple() for column in columns_of(signature)],
            [view._core_tuple() for view in limited], unsigned("capacity", capacity, bits=64),
            unsigned("shards", shards), unsigned("max_writers", max_writers),
            unsigned("max_clients", max_clients), unsigned("block", block),
            {None: 0, True: 1, False: 2}[row_crc])
        return self._add(core)

    def table(self, name: str) -> Table:
        """Opens a table. Raises :class:`relive.NotFound`."""
        return self._add(_core.Table.open(self._core, name))

    def _add(self, core):
        table = Table(self, core)
        self._tables.add(table)
        return table

    def drop_table(self, name: str) -> None:
        """Removes a table for everybody; what is open on it raises TableDropped from now on, but
        closes as ever."""
        self._core.drop(name)

    def tables(self) -> list[str]:
        """Names of the tables."""
        return sorted(self._core.tables())

    def info(self) -> StoreInfo:
        """A :class:`relive.info.StoreInfo`."""
        return StoreInfo._of_core(self._core.info())

    def token(self, role: str) -> str:
        """The token of a role, ``"read"``, ``"learn"``, ``"write"``, ``"node"`` or ``"admin"``, for
        ``relive.open(uri, token=...)`` or RELIVE_TOKEN. Wants the store's own token, or an admin's:
        :class:`relive.AccessDenied`."""
        return self._core.token(role)

    def rotate_tokens(self) -> int:
        """Begins a new epoch of tokens of roles: those of before are refused from now on, and clients
        that use them cut off. Answers its number."""
        return self._core.rotate_tokens()

    def persist(self) -> None:
        """Makes what was appended before durable: ``embed:FILE``, and nodes on files."""
        self._core.persist()

    def close(self, wait: bool = True) -> None:
        """Closes the store, its tables, their writers (which wait, or not: ``Writer.close``) and
        samplers. Arrays of batches stay. The first error is raised when all are closed."""
        try:
            close_all([partial(table.close, wait=wait) for table in list(self._tables)]
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
            raise TypeError("%s lives in this process: processes share shm: or relive:// stores"
                            % self.uri)
        return _open_shared, (self.uri, tuple(sorted(self._options.items())))


def _with_limiter(view, limiter):
    if limiter is None or view.rate_limiter is not None:
        return view
    return View(**{**view.__dict__, "rate_limiter": limiter})


def _open_shared(uri, options):
    """One store in a process for all that was pickled of it."""
    with _shared_lock:
        store = _shared.get((uri, options))
        if store is None or not store._core.is_open:
            store = Store(uri, **dict(options))
            _shared[uri, options] = store
        return store


def open(uri: str = "embed:", **options: Any) -> Store:
    """Opens a store.

    * ``"embed:"``: in this process, in memory; gone when closed.
    * ``"embed:FILE"``: in this process, kept in a file or a DAX device; reopened after a crash.
    * ``"shm:NAME"``: the store NAME that ``relive up`` runs on this host.
    * ``"relive://HOST:PORT"``: the metadata server there.

    :param pages: ``embed:`` memory on ``"auto"``, ``"small"`` or ``"huge"`` pages.
    :param pool_bytes: ``embed:``: the most memory, or the size of a new file; 0 = all that is free,
        or a file of 1 GiB.
    :param timeout: of connecting and of every control call, in seconds.
    :param token: the store's own, or one of a role (:meth:`Store.token`, ``relive token``); None =
        RELIVE_TOKEN, and for a store on this host, unless that is a role's, the file ``token`` in its
        directory. What the role does not allow raises :class:`relive.AccessDenied`.
    :param read_only: only look: no append, no update.
    :param stall_timeout: seconds after which calls that wait for steps or for batches, and have no
        timeout of their own, raise Timeout, because in all that time no step was appended to their
        table and no item was sampled. A call that has waited for 2 s warns (RuntimeWarning) of what
        it waits for; a writer or sampler does so once a minute at most.
    :param trust: ``embed:FILE``: also open tables made with ``row_crc=False`` of a file that was not
        closed: rows that a power loss has torn go unnoticed there.
    :param tls_cert: ``relive://`` of a server with certificates: name of a PEM file; None =
        RELIVE_TLS_CERT.
    :param tls_key: the key of that certificate, as a PEM file; None = RELIVE_TLS_KEY.
    :param tls_ca: the CA of the server's certificate, as a PEM file; None = RELIVE_TLS_CA.

    ^C ends waits for steps, batches and room at once, and control calls (opening, creating, closing
    what is remote) after their timeout.

    :raises NotFound, Disconnected, Timeout, AccessDenied, Busy, ProtocolError, NoSpace, NoMemory,
        InvalidArgument, Unsupported:

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
    """Completes what writers hold back, if it can. Errors are nobody's any more."""
    for store in list(_open_stores):
        try:
            store.close(wait=False)
        except errors.Error:
            pass
