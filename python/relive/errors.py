"""Exceptions. Each is an :class:`Error`, and most are also the builtin exception that fits: a
:class:`Timeout` is a ``TimeoutError``. Catch :class:`Error` to catch all of them.

>>> issubclass(Timeout, TimeoutError), issubclass(InvalidArgument, ValueError)
(True, True)
"""

import errno as _errno
import sys as _sys
import warnings as _warnings

from . import _cures


class Error(Exception):
    """Base of all exceptions of Relive. ``code`` is the negative errno of the C library, such as -110 for
    a timeout, or 0 if the error is of the Python package. Where it is known, ``str(error)`` ends with the line to write
    instead."""

    code: int = 0

    def __init__(self, message: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        if isinstance(self, OSError):
            setattr(self, "errno", -code or None)

    def __str__(self):
        return _cures.cured(str(self.args[0]), isinstance(self, InvalidArgument))

    def __reduce__(self):
        return type(self), (self.args[0], self.code), dict(self.__dict__)


class InvalidArgument(Error, ValueError):
    """An argument is invalid: the message names it and says what it may be."""


class Timeout(Error, TimeoutError):
    """The call did not complete within its timeout: the message says what it waited for."""


class Empty(Error):
    """No item can be drawn now, and the call was told not to wait (``timeout=0``)."""


class Busy(Error):
    """Something is in use: all batches of a sampler are held, another thread is in a call of the writer,
    handles are still open, or another process has the file open. The message says which."""


class NotFound(Error, LookupError):
    """There is no store, table or file of that name."""


class AlreadyExists(Error):
    """A table of that name exists with another signature or other options."""


class NoSpace(Error):
    """All memory of the pool, all client slots (``max_clients``) or all environments (``max_writers``) of
    a table are in use. The message says which."""


class NoMemory(Error, MemoryError):
    """This process cannot allocate memory."""


class AccessDenied(Error, PermissionError):
    """The token is wrong, expired, or of a role without this right; or the store was opened
    read-only."""


class Unsupported(Error, NotImplementedError):
    """This build or host does not have what was asked for: see :func:`relive.build_info`."""


class TableDropped(Error):
    """The table was dropped: its writers and samplers can only be closed."""


class StaleKey(Error, LookupError):
    """``update_priorities(strict=True)`` met keys whose items were overwritten or retired. The other
    keys were updated. ``result`` is the :class:`relive.Updated` of the call.
    """

    result = None


class Fenced(Error):
    """The server took this writer for dead, as it did not answer, and shut it out: open another one. What
    it appended before is in the table."""


class Forked(Error):
    """The store was opened before fork(), and this is the child: open the store again here."""


class Closed(Error, ValueError):
    """The store, table, writer or sampler is closed, or the batch was released."""


class Disconnected(Error, ConnectionError):
    """The metadata server does not answer. Writers and samplers that are open continue to work."""


class ProtocolError(Error):
    """A file or server has another format version, or a checksum does not match."""


class NodeDown(Error):
    """All memory nodes that the call can use are down, or one that it must use is."""


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
    """Returns the exception for a negative errno, with its message. The extension calls it."""
    return _BY_ERRNO.get(-code, Error)(message, code)


def warn_of_wait(text):
    """Issues a RuntimeWarning at the line of the user's code that called into the package. The extension
    calls it."""
    frame, level = _sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("relive."):
        frame, level = frame.f_back, level + 1
    _warnings.warn(text, RuntimeWarning, level)


def raise_stale(result):
    """Raises the StaleKey of an update whose counts are ``result``. The extension calls it."""
    error = StaleKey("update_priorities: %d of %d keys are stale: their items were overwritten or "
                     "retired; the others were updated"
                     % (result.stale, result.stale + result.updated), -_errno.ESTALE)
    error.result = result
    raise error
