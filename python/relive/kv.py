"""Heaps: values under keys, in the same store as the tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from . import errors
from ._closing import leave

_MODES = ("clover", "direct", "central")  # as enum rlv_kv_mode
_SLICE_NS = 50_000_000  # longest delay of a signal


class VersionChanged(errors.Error):
    """``put(expected=...)`` found another version than expected. Nothing was put."""


class Kv:
    """A handle of a heap: values under keys, both bytes. :meth:`relive.Store.create_kv` and
    :meth:`relive.Store.kv` return it.

    Each put makes a version, numbered from 1 for each key, that all readers see whole. Puts of one key
    take effect one after the other, whichever process makes them. A ``str`` as a key stands for its
    UTF-8 bytes; keys have 1 to 256 bytes.

    It is a context manager, which closes it. Threads may share it: calls wait for each other.
    """

    def __init__(self, store: Any, core: Any) -> None:
        self.store = store
        self._core = core

    def put(self, key: bytes | str, value: Any, *, expected: int | None = None) -> int:
        """Puts a value, a bytes-like object, and returns the number of its version.

        :param expected: put only if this is the newest version; 0 = only if the key has no value.
        :raises VersionChanged: the newest version is another one than expected.
        :raises NoSpace: the heap is full of values, or of keys; the message says which.
        :raises InvalidArgument: the key or the value is too long.
        :raises Disconnected, Timeout: it is not known whether the value was put.
        """
        try:
            return self._core.put(_bytes(key), value, -1 if expected is None else expected)
        except errors.TableDropped as error:
            if expected is None or self._is_dropped():
                raise
            raise VersionChanged(str(error), error.code) from None

    def get(self, key: bytes | str) -> tuple[bytes, int]:
        """Returns the newest value, and the number of its version.

        :raises NotFound: the key has no value.
        """
        return self._core.get(_bytes(key), 0)

    def get_newer(self, key: bytes | str, version: int) -> tuple[bytes, int] | None:
        """Returns the newest value and its version if that is above ``version``, else None, at the price
        of a look at the key.

        :raises NotFound: the newest version is a deletion.
        """
        if version == 0:
            try:
                return self._core.get(_bytes(key), 0)
            except errors.NotFound:
                return None
        return self._core.get(_bytes(key), version)

    def delete(self, key: bytes | str) -> int:
        """Deletes a value and returns the number of the deletion; later versions go on from there.

        :raises NotFound: the key has no value.
        """
        return self._core.delete(_bytes(key))

    def watch(self, key: bytes | str, version: int = 0, timeout: float | None = None) -> int:
        """Blocks until the newest version is above ``version``, and returns it. A deletion is a version.

        :param timeout: seconds; None = for ever.
        :raises Timeout: there was no newer version within the timeout.
        """
        key = _bytes(key)
        end = None if timeout is None else time.monotonic_ns() + round(timeout * 1e9)
        while True:
            left = _SLICE_NS if end is None else min(_SLICE_NS, max(0, end - time.monotonic_ns()))
            newest = self._core.watch(key, version, left)
            if newest:
                return newest
            if left == 0:
                raise errors.Timeout("watch: no version above %d within %g s" % (version, timeout))

    def keys(self) -> Iterator[bytes]:
        """Iterates over the keys, in no order. Keys put or deleted meanwhile may be missed or found."""
        part = bucket = 0
        while True:
            found = self._core.next(part, bucket)
            if found is None:
                return
            key, part, bucket = found
            yield key

    def info(self) -> dict[str, Any]:
        """Returns counts of the heap and of this handle, as ``struct rlv_kv_info`` of ``relive/kv.h``."""
        info = self._core.info()
        info["mode"] = _MODES[info["mode"]]
        return info

    def verify(self) -> dict[str, Any]:
        """Checks every invariant and checksum; ``"problems"`` is 0 if all hold. Exact while nobody
        writes."""
        return self._core.verify()

    def close(self) -> None:
        """Closes the handle. A second call does nothing."""
        self._core.close()

    def _is_dropped(self):
        try:
            self._core.get(b"\0", 0)
        except errors.NotFound:
            return False
        except errors.TableDropped:
            return True
        return False

    def __enter__(self) -> Kv:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        leave(partial(self.close), kind)

    def __repr__(self):
        return "<relive.Kv%s>" % ("" if self._core.is_open else " closed")


def mode_number(mode):
    if mode not in _MODES:
        raise errors.InvalidArgument("mode %r, want one of %s" % (mode, ", ".join(_MODES)))
    return _MODES.index(mode)


def _bytes(key):
    return key.encode() if isinstance(key, str) else key
