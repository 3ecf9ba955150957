"""Heaps: values under keys, in the same store as the tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import _value, errors
from ._closing import Handle

_MODES = ("clover", "direct", "central")  # as enum rlv_kv_mode
_WRITERS = ("one", "many")  # as enum rlv_kv_writers
_SLICE_NS = 50_000_000  # longest delay of a signal


class VersionChanged(errors.Error):
    """``put(expected=...)`` found another version than expected. Nothing was put."""


class Kv(Handle):
    """A handle of a heap: values under keys. :meth:`relive.Store.create_kv` and :meth:`relive.Store.kv`
    return it.

    A value is bytes or another buffer, which comes back as ``bytes``; or a numpy array or scalar, which
    comes back as a read-only array of the same dtype and shape (``.copy()`` makes one to write to); or,
    with ``pickle=True``, any object. Loading a pickle runs code of whoever put it, so it needs
    ``pickle=True``, too. Bytes are stored as they are, arrays and pickles behind a header: programs in C
    find it in docs/wire-format.md. An array in Fortran's order comes back in C's.

    It is also a mapping: ``kv[key]``, ``kv[key] = value``, ``del kv[key]``, ``key in kv``, ``len(kv)`` and
    ``for key in kv``. ``kv[key]`` is the value alone, :meth:`get` returns its version beside it.

    Each put makes a version, numbered from 1 for each key, that all readers see whole. Puts of one key
    take effect one after the other, whichever process makes them. A ``str`` as a key stands for its
    UTF-8 bytes; keys have 1 to 256 bytes.

    It is a context manager, which closes it. Threads may share it: calls wait for each other.
    """

    def __init__(self, store: Any, core: Any) -> None:
        self.store = store
        self._core = core

    def put(self, key: bytes | str, value: Any, *, expected: int | None = None,
            pickle: bool = False) -> int:
        """Puts a value and returns the number of its version.

        :param pickle: if the value is neither an array nor bytes, put its pickle.
        :param expected: put only if this is the newest version; 0 = only if the key has no value.
        :raises VersionChanged: the newest version is another one than expected.
        :raises NoSpace: the heap is full of values, or of keys; the message says which.
        :raises InvalidArgument: the key or the value is too long, or an array has items that are objects.
        :raises Disconnected, Timeout: it is not known whether the value was put.
        """
        try:
            return self._core.put(_bytes(key), _value.encode(value, pickle),
                                  -1 if expected is None else expected)
        except errors.TableDropped as error:
            if expected is None or self._is_dropped():
                raise
            raise VersionChanged(str(error), error.code) from None

    def get(self, key: bytes | str, *, pickle: bool = False) -> tuple[Any, int]:
        """Returns the newest value, and the number of its version.

        :param pickle: load the value if it is a pickle.
        :raises NotFound: the key has no value.
        :raises InvalidArgument: the value is a pickle, and ``pickle`` is False.
        """
        data, version = self._core.get(_bytes(key), 0)
        return _value.decode(data, pickle), version

    def get_range(self, key: bytes | str, offset: int, length: int) -> tuple[bytes, int]:
        """Returns ``length`` bytes of the newest value from ``offset`` on, fewer where it ends, and the number of
        its version: ranges of equal versions are of one value. Of a value that is longer than an extent only the
        chunks of the range are read.

        Bytes are counted as they are stored: arrays and pickles have a header before them.

        :raises NotFound: the key has no value.
        :raises InvalidArgument: ``offset`` or ``length`` is negative, or above 2**64 - 1.
        """
        if min(offset, length) < 0 or max(offset, length) >= 1 << 64:
            raise errors.InvalidArgument("get_range: offset %d, length %d: want 0 to 2**64 - 1"
                                         % (offset, length))
        return self._core.get_range(_bytes(key), offset, length)

    def get_many(self, keys: Iterable[bytes | str], *,
                 pickle: bool = False) -> list[tuple[Any, int] | None]:
        """Returns what :meth:`get` returns for each key, or None if it has no value, in one round trip for
        up to 64 keys. Each key is read at an instant of its own."""
        return [found and (_value.decode(found[0], pickle), found[1])
                for found in self._core.get_many([_bytes(key) for key in keys])]

    def put_many(self, values: Mapping[bytes | str, Any] | Iterable[tuple[bytes | str, Any]], *,
                 pickle: bool = False) -> list[int]:
        """Puts a value for each key, of a mapping or of pairs, and returns the numbers of their versions; in
        two round trips for up to 64 keys. Each put is one of its own: readers may see some of them while the
        call runs, and after an error some may have been done. Errors are those of :meth:`put`."""
        pairs = list(values.items() if isinstance(values, Mapping) else values)
        return self._core.put_many([_bytes(key) for key, _ in pairs],
                                   [_value.encode(value, pickle) for _, value in pairs])

    def update(self, values: Mapping[bytes | str, Any] | Iterable[tuple[bytes | str, Any]]) -> None:
        """Puts a value for each key, as :meth:`put_many`."""
        self.put_many(values)

    def get_newer(self, key: bytes | str, version: int, *,
                  pickle: bool = False) -> tuple[Any, int] | None:
        """Returns the newest value and its version if that is above ``version``, else None, at the price
        of a look at the key.

        :raises NotFound: the newest version is a deletion.
        """
        try:
            found = self._core.get(_bytes(key), version)
        except errors.NotFound:
            if version:
                raise
            return None
        return found and (_value.decode(found[0], pickle), found[1])

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

    def items(self, *, pickle: bool = False) -> Iterator[tuple[bytes, Any]]:
        """Iterates over keys and values, as :meth:`keys`."""
        for key in self.keys():
            found, = self.get_many([key], pickle=pickle)
            if found is not None:  # not deleted meanwhile
                yield key, found[0]

    def __getitem__(self, key: bytes | str) -> Any:
        return self.get(key)[0]

    def __setitem__(self, key: bytes | str, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: bytes | str) -> None:
        self.delete(key)

    def __contains__(self, key: bytes | str) -> bool:
        return self._core.has(_bytes(key))

    def __iter__(self) -> Iterator[bytes]:
        return self.keys()

    def __len__(self) -> int:
        """Counts the keys, by a walk over all of them."""
        return sum(1 for _ in self.keys())

    def __bool__(self) -> bool:
        return True

    def info(self) -> dict[str, Any]:
        """Returns counts of the heap and of this handle, as ``struct rlv_kv_info`` of ``relive/kv.h``."""
        info = self._core.info()
        info["mode"] = _MODES[info["mode"]]
        return info

    def verify(self) -> dict[str, Any]:
        """Checks every invariant and checksum; ``"problems"`` is 0 if all hold. Exact while nobody
        writes."""
        return self._core.verify()

    def release(self) -> None:
        """Lets other handles put: gives up the parts with copies that this handle owns. With several writers
        there is nothing to give up."""
        self._core.release()

    def repair(self, bytes: int = 64 << 20) -> int:
        """Fills new copies, which the server made after a node was lost or drained, by about so many bytes of
        each part; returns how many buckets are left, 0 = none. Puts do so, too, and a thread
        of the handle that puts in a part between its calls."""
        return self._core.repair(bytes)

    def _is_dropped(self):
        try:
            self._core.get(b"\0", 0)
        except errors.NotFound:
            return False
        except errors.TableDropped:
            return True
        return False


def _number(what, value, known):
    if value not in known:
        raise errors.InvalidArgument("%s %r, want one of %s" % (what, value, ", ".join(known)))
    return known.index(value)


def mode_number(mode):
    return _number("mode", mode, _MODES)


def writers_number(writers):
    return _number("writers", writers, _WRITERS)


def _bytes(key):
    return key.encode() if isinstance(key, str) else key
