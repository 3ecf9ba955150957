"""Closing of several handles, some of which may fail."""

from __future__ import annotations

import contextlib
from typing import Any, Self

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


class Handle:
    """A handle of an object of a store, which a ``with`` block closes."""

    _core: Any

    def close(self) -> None:
        """Closes the handle. What it read stays readable. A second call does nothing."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        leave(self.close, kind)

    def __repr__(self):
        return "<relive.%s%s>" % (type(self).__name__, "" if self._core.is_open else " closed")
