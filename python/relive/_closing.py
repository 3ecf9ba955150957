"""How what is open closes, whatever some of it meets."""

import contextlib

from . import errors


def close_all(closes):
    """Calls each, and raises the first error when all were called.

    A table that was dropped has nothing left to complete, so TableDropped is no error here.
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
    """For ``__exit__``: an exception that leaves the body goes on, whatever closing meets."""
    try:
        close()
    except errors.Error:
        if exception is None:
            raise
