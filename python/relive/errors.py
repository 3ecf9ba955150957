"""Exceptions. Each is a :class:`Error`; most are also the builtin that one would expect.

>>> issubclass(Timeout, TimeoutError), issubclass(InvalidArgument, ValueError)
(True, True)
"""

import errno as _errno
import sys as _sys
import warnings as _warnings


class Error(Exception):
    """What every exception of Relive is. ``code``: a negative errno, 0 if there is none."""

    code: int = 0

    def __init__(self, message: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        if isinstance(self, OSError):
            setattr(self, "errno", -code or None)

    def __str__(self):
        return str(self.args[0])

    def __reduce__(self):
        return type(self), (self.args[0], self.code), dict(self.__dict__)


class InvalidArgument(Error, ValueError):
    """An argument that can never be right; the message names it."""


class Timeout(Error, TimeoutError):
    """Not possible within the timeout; the message says what it waited for."""


class Empty(Error):
    """Nothing to draw, with a timeout of 0."""


class Busy(Error):
    """In use: all batches of a sampler are held, handles are open, a file is another's."""


class NotFound(Error, LookupError):
    """No store, table or file of that name."""


class AlreadyExists(Error):
    """A table of that name has another signature or other options."""


class NoSpace(Error):
    """The pool, the client slots or the streams of a table are used up."""


class NoMemory(Error, MemoryError):
    """This process has no memory left."""


class AccessDenied(Error, PermissionError):
    """The token is wrong, old, or of a role that does not allow this; or the store was opened
    read-only."""


class Unsupported(Error, NotImplementedError):
    """Not in this build, or not on this host; see :func:`relive.build_info`."""


class TableDropped(Error):
    """The table was dropped: its handles are of no use any more."""


class StaleKey(Error, LookupError):
    """Keys of items that were overwritten or retired, with ``strict=True``.

    ``result``: what became of the others, which were updated.
    """

    result = None


class Fenced(Error):
    """The server took this writer for dead: open another one."""


class Forked(Error):
    """The handle was opened before fork(): a child opens its own."""


class Closed(Error, ValueError):
    """The handle or batch is closed."""


class Disconnected(Error, ConnectionError):
    """The metadata server does not answer. What is open goes on: append, sample, update."""


class ProtocolError(Error):
    """A file or peer of another format, or bytes that fail their check."""


class NodeDown(Error):
    """A memory node is gone."""


_BY_ERRNO = {
    _errno.EINVAL: InvalidArgument, _errno.ERANGE: InvalidArgument,
    _errno.EOVERFLOW: InvalidArgument, _errno.ETIMEDOUT: Timeout, _errno.ENODATA: Empty,
    _errno.EBUSY: Busy, _errno.EAGAIN: Busy, _errno.ENOENT: NotFound,
    _errno.EEXIST: AlreadyExists, _errno.ENOSPC: NoSpace, _errno.ENOMEM: NoMemory,
    _errno.EACCES: AccessDenied, _errno.EPERM: AccessDenied, _errno.EROFS: AccessDenied,
    _errno.EISDIR: InvalidArgument, _errno.ENOTDIR: InvalidArgument,
    _errno.ENODEV: InvalidArgument, _errno.ENOTSUP: Unsupported,
    _errno.ESTALE: TableDropped, _errno.EOWNERDEAD: Fenced, _errno.ECHILD: Forked,
    _errno.EBADF: Closed, _errno.ECONNRESET: Disconnected, _errno.ECONNREFUSED: Disconnected,
    _errno.EPIPE: Disconnected, _errno.ECONNABORTED: Disconnected, _errno.ENOTCONN: Disconnected,
    _errno.EHOSTUNREACH: Disconnected, _errno.ENETUNREACH: Disconnected,
    _errno.EPROTO: ProtocolError, _errno.EBADMSG: ProtocolError, _errno.EHOSTDOWN: NodeDown,
}


def of_code(code, message):
    """The exception of a negative errno."""
    return _BY_ERRNO.get(-code, Error)(message, code)


def warn_of_wait(text):
    """Of the line of the user's that called into the package."""
    frame, level = _sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("relive."):
        frame, level = frame.f_back, level + 1
    _warnings.warn(text, RuntimeWarning, level)


def raise_stale(result):
    """For update_priorities(strict=True)."""
    error = StaleKey("%d of %d keys are stale: their items were overwritten or retired"
                     % (result.stale, result.stale + result.updated), -_errno.ESTALE)
    error.result = result
    raise error
