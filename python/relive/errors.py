"""Exceptions. Each is an :class:`Error`; most also inherit the matching builtin exception.

>>> issubclass(Timeout, TimeoutError), issubclass(InvalidArgument, ValueError)
(True, True)
"""

import errno as _errno
import sys as _sys
import warnings as _warnings


class Error(Exception):
    """Base of all exceptions of Relive. ``code``: a negative errno, or 0."""

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
    """An argument is invalid; the message names it."""


class Timeout(Error, TimeoutError):
    """The call did not complete within its timeout; the message says what it waited for."""


class Empty(Error):
    """No item can be drawn now, and the timeout is 0."""


class Busy(Error):
    """In use: all batches of a sampler are held, handles are still open, or another process has the
    file open."""


class NotFound(Error, LookupError):
    """No store, table or file of that name."""


class AlreadyExists(Error):
    """A table of that name exists with another signature or other options."""


class NoSpace(Error):
    """The pool of memory, the client slots or the writer streams of a table are all in use."""


class NoMemory(Error, MemoryError):
    """This process cannot allocate memory."""


class AccessDenied(Error, PermissionError):
    """The token is wrong, expired, or of a role without this right; or the store was opened
    read-only."""


class Unsupported(Error, NotImplementedError):
    """Not available in this build or on this host; see :func:`relive.build_info`."""


class TableDropped(Error):
    """The table was dropped: its handles can only be closed."""


class StaleKey(Error, LookupError):
    """Some keys were stale, and the update was called with ``strict=True``: their items were
    overwritten or retired. The other keys were updated.

    ``result``: the :class:`relive.Updated` of the call.
    """

    result = None


class Fenced(Error):
    """The server declared this writer dead and fenced it: open another one."""


class Forked(Error):
    """The handle was opened before fork(): open the store again in the child."""


class Closed(Error, ValueError):
    """The handle or batch is closed."""


class Disconnected(Error, ConnectionError):
    """The metadata server does not answer. Open writers and samplers continue to work."""


class ProtocolError(Error):
    """A file or peer has another format version, or a checksum does not match."""


class NodeDown(Error):
    """A memory node does not answer."""


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
    """Returns the exception for a negative errno."""
    return _BY_ERRNO.get(-code, Error)(message, code)


def warn_of_wait(text):
    """Warns at the line of the user's code that called into the package."""
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
