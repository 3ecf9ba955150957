"""Closing of several handles, some of which may fail."""

import contextlib

from . import errors


def close_all(closes):
    """Calls all functions, also after one raised an Error; then raises the first Error of them.

    TableDropped is ignored: a dropped table has nothing left to complete.
    """
    first = None
    for close in closes:
        try:
            with contextlib.suppress(errors.TableDropped):
                close()
        except errors.Error as error:
            first = first or error
    if first is not None:
        raise first


def leave(close, exception):
    """Calls ``close`` at the end of a ``with`` block. exception: the one that leaves the block; an
    Error of ``close`` is dropped then. None = no exception leaves the block: an Error of ``close`` is
    raised."""
    try:
        close()
    except errors.Error:
        if exception is None:
            raise
