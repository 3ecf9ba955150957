"""Items that are rows.

A library whose items are given whole (a trajectory of Reverb, an element of TorchRL) gets a table
whose rows are those items: each is an episode of one step, drawable as soon as it is written, and
all its columns are plain. A nested structure is stored as columns ``data__<key>__<key>``, so that
any process can put it together, and no name meets one that a batch has already.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from .. import errors
from ..signature import Column

PREFIX = "data"

# A view adds this to |priority|, since it takes no 0: nothing that floats of a priority could show.
EPS = 5e-324

_SEPARATOR = "__"
_KEY = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*\Z")

# A stream holds a block of 8 rows, and open blocks must stay under an eighth of a table.
_LEAST_CAPACITY = 64


def flatten(structure: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) of nested dicts (by sorted keys), lists and tuples.

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
    """A structure of the same kind with the leaves of an iterable.

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


def nested(pairs: Any) -> Any:
    """Nested dicts of (path, leaf); the leaf where the path is empty.

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
    """The column of a path.

    >>> column_name(("next", "reward")), column_name(())
    ('data__next__reward', 'data')
    """
    keys = [str(key) for key in path]
    for key in keys:
        if not _KEY.match(key):
            raise errors.InvalidArgument(
                "key %r of %r: columns are named by keys of a-z, 0-9 and single underscores "
                "between them" % (key, path))
    return _SEPARATOR.join([PREFIX, *keys])


def path_of(name: str) -> tuple[str, ...]:
    """The path of a column, whose keys are text.

    >>> path_of("data__next__reward")
    ('next', 'reward')
    """
    prefix, *keys = name.split(_SEPARATOR)
    if prefix != PREFIX:
        raise errors.InvalidArgument("column %s: this table was not made by an adaptor" % name)
    return tuple(keys)


def columns_of(structure: Any) -> list[Column]:
    """The columns of items whose leaves have a shape and a dtype: arrays or specs."""
    return [Column(column_name(path), tuple(leaf.shape), numpy_dtype(leaf.dtype), "plain")
            for path, leaf in flatten(structure)]


def shapes_of(item: Any) -> list[tuple[str, tuple[int, ...], str]]:
    """(column, shape, dtype) of an item of arrays, to be compared."""
    return [(column_name(path), leaf.shape, leaf.dtype.name) for path, leaf in flatten(item)]


def numpy_dtype(dtype: Any) -> np.dtype:
    """numpy's of TensorFlow's (``as_numpy_dtype``), torch's ("torch.float32") and others."""
    dtype = getattr(dtype, "as_numpy_dtype", dtype)
    return np.dtype(str(dtype).removeprefix("torch.") if "torch." in str(dtype) else dtype)


def create_table(store, name, columns, max_size, view, max_writers=4, **options):
    """A table of items, or the one of that name if it is the same."""
    return store.create_table(name, columns, max(max_size, _LEAST_CAPACITY * max_writers),
                              views=[view], max_writers=max_writers, **options)
