"""Tables whose rows are whole items, for libraries whose callers give items whole: a trajectory of
Reverb, an element of TorchRL.

An item is stored as an episode of one step, so it can be drawn as soon as it is written. All its
columns are plain. A nested item is stored as columns ``data__<key>__<key>``: any process can rebuild it
from the names, and no name is one that a batch uses itself.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from .. import errors
from ..signature import Column

PREFIX = "data"

# The eps of views: they want more than 0, and adding the smallest float changes no priority.
EPS = 5e-324

_SEPARATOR = "__"
LEAVES = (np.ndarray, np.generic)  # have a shape and a dtype
_KEY = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*\Z")

# Rows for each writer that a table has at least: a writer holds a block of 8 rows, and open blocks must
# stay under an eighth of the table.
_LEAST_CAPACITY = 64


def flatten(structure: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Returns a list of (path, leaf) of nested dicts (by sorted keys), lists and tuples.

    >>> flatten({"b": (1, [2]), "a": 3})
    [(('a',), 3), (('b', 0), 1), (('b', 1, 0), 2)]
    """
    if hasattr(structure, "items"):
        parts = sorted(structure.items())
    elif isinstance(structure, (list, tuple)):
        parts = list(enumerate(structure))
    else:
        return [(path, structure)]
    return [pair for key, part in parts for pair in flatten(part, (*path, key))]


def unflatten(structure: Any, leaves: Any) -> Any:
    """Returns a structure like ``structure``, whose leaves are those of an iterable, in flatten's order.

    >>> unflatten({"b": (0, [0]), "a": 0}, [3, 1, 2])
    {'a': 3, 'b': (1, [2])}
    """
    return _unflatten(structure, iter(leaves))


def _unflatten(structure, leaves):
    if hasattr(structure, "items"):
        return {key: _unflatten(part, leaves) for key, part in sorted(structure.items())}
    if not isinstance(structure, (list, tuple)):
        return next(leaves)
    parts = [_unflatten(part, leaves) for part in structure]
    if hasattr(structure, "_fields"):
        return type(structure)(*parts)
    return type(structure)(parts)


class Reader:
    """Reads the leaves of structures like one, in flatten's order, several times as fast as flatten.

    >>> Reader({"b": (1, [2]), "a": 3}).leaves({"a": 6, "b": (4, [5])})
    [6, 4, 5]
    >>> Reader({"a": 3}).leaves({"a": (1, 2)}) is None
    True
    """

    def __init__(self, structure: Any) -> None:
        self._is_leaf = _is_leaf(structure)
        self._size, self._parts = _parts_of(structure)

    def leaves(self, structure: Any) -> list[Any] | None:
        """Returns the leaves, a list. None = the structure is another."""
        if self._is_leaf:
            return [structure] if _is_leaf(structure) else None
        found: list[Any] = []
        try:
            return found if _read(structure, self._size, self._parts, found) else None
        except (KeyError, IndexError, TypeError):
            return None


def _is_leaf(structure):
    return not (isinstance(structure, (list, tuple)) or hasattr(structure, "items"))


def _parts_of(structure):
    """Returns the number of parts of a structure, and (key, parts of the part) of each; None = a leaf."""
    if _is_leaf(structure):
        return 0, ()
    pairs = sorted(structure.items()) if hasattr(structure, "items") else list(enumerate(structure))
    return len(pairs), tuple((key, None if _is_leaf(part) else _parts_of(part)) for key, part in pairs)


def _read(structure, size, parts, found):
    if len(structure) != size:
        return False
    for key, inner in parts:
        value = structure[key]
        if inner is None:
            if not isinstance(value, LEAVES) and not _is_leaf(value):
                return False
            found.append(value)
        elif not _read(value, *inner, found):
            return False
    return True


class Layout:
    """The columns of a table's items, and how their values are found in a structure like the first one.

    :param item: the first item, a nested structure of arrays.
    :param structure: one whose leaves become the item's arrays.
    :param array_of: makes the array of a leaf, or returns None.
    """

    def __init__(self, item: Any, structure: Any, array_of: Any) -> None:
        self._reader = Reader(structure)
        self._array_of = array_of
        self._columns = [(column_name(path), leaf.shape, leaf.dtype) for path, leaf in flatten(item)]

    def row(self, structure: Any, priority: float) -> dict[str, Any] | None:
        """Returns what append takes for an item. None = its layout is another."""
        leaves = self._reader.leaves(structure)
        if leaves is None:
            return None
        row = {"td_error": priority, "terminated": True}
        array_of = self._array_of
        for leaf, (name, shape, dtype) in zip(leaves, self._columns):
            array = array_of(leaf)
            if array is None or array.shape != shape or array.dtype != dtype:
                return None
            row[name] = array
        return row


def nested(pairs: Any) -> Any:
    """Returns nested dicts of pairs (path, leaf), or the leaf if its path is empty.

    >>> nested([(("a", "b"), 1), (("a", "c"), 2)])
    {'a': {'b': 1, 'c': 2}}
    """
    result: dict[Any, Any] = {}
    for path, leaf in pairs:
        if not path:
            return leaf
        level = result
        for key in path[:-1]:
            level = level.setdefault(key, {})
        level[path[-1]] = leaf
    return result


@functools.cache
def column_name(path: tuple[Any, ...]) -> str:
    """Returns the name of the column in which a path is stored.

    >>> column_name(("next", "reward")), column_name(())
    ('data__next__reward', 'data')
    """
    keys = [str(key) for key in path]
    for key in keys:
        if not _KEY.match(key):
            raise errors.InvalidArgument(
                "key %r of %r: want a-z, 0-9 and single underscores between them, as keys name columns"
                % (key, path))
    return _SEPARATOR.join([PREFIX, *keys])


def path_of(name: str) -> tuple[str, ...]:
    """Returns the path that a column stores; all keys are text.

    >>> path_of("data__next__reward")
    ('next', 'reward')
    """
    prefix, *keys = name.split(_SEPARATOR)
    if prefix != PREFIX:
        raise errors.InvalidArgument(
            "column %s: no adaptor created this table: use another table name" % name)
    return tuple(keys)


def columns_of(structure: Any) -> list[Column]:
    """Returns the columns of a table of items like ``structure``, whose leaves have a shape and a dtype:
    arrays or specs."""
    return [Column(column_name(path), tuple(leaf.shape), numpy_dtype(leaf.dtype), "plain")
            for path, leaf in flatten(structure)]


def shapes_of(item: Any) -> list[tuple[str, tuple[int, ...], str]]:
    """Returns (name of the column, shape, name of the dtype) of each array of an item, as a list."""
    return [(column_name(path), leaf.shape, leaf.dtype.name) for path, leaf in flatten(item)]


def numpy_dtype(dtype: Any) -> np.dtype:
    """Returns the numpy dtype of one of TensorFlow (``as_numpy_dtype``), torch ("torch.float32") or
    numpy."""
    dtype = getattr(dtype, "as_numpy_dtype", dtype)
    return np.dtype(str(dtype).removeprefix("torch.") if "torch." in str(dtype) else dtype)


def create_table(store, name, columns, max_size, view, max_writers=4, **options):
    """Creates a table of items, of capacity max_size or 64 for each writer, whichever is more, and
    returns it; or returns the table of that name if its options are equal."""
    return store.create_table(name, columns, max(max_size, _LEAST_CAPACITY * max_writers),
                              views=[view], max_writers=max_writers, **options)


def durable_uri(store):
    """Makes the data of a store durable and returns the store's URI, which the states that libraries
    save contain instead of the data. NotImplementedError for ``embed:``."""
    if store.uri == "embed:":
        raise NotImplementedError("state: a store of embed: ends with its process: use \"embed:FILE\" or "
                                  "\"shm:NAME\"")
    store.persist()
    return store.uri
