"""Closing of several handles, some of which may fail."""

import contextlib

from . import errors


def close_all(closes):
    """Calls all functions, then raises the first error of them.

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
    """Closes at the end of a ``with`` block. exception: the one that leaves the block, which takes
    precedence over one of closing; None = none does."""
    try:
        close()
    except errors.Error:
        if exception is None:
            raise
