"""Reading a table without drawing from it: what ``table.scan``, ``gather``, ``to_numpy`` and ``table[key]`` do."""

import operator

import numpy as np

from . import _cures, errors
from ._integer import real, unsigned
from .batch import _by_key
from .sampler import Sampler

_OF_DRAWS = ("weight", "probability")
_ALL_BITS = 2**64 - 1


def _timeout(call, seconds):
    return real(call + ": timeout", seconds, 0, float("inf"))


def scan(table, columns, batch, partial, timeout, options):
    """Starts a scan now, and returns the iterator over its batches."""
    timeout = _timeout("scan", timeout)
    unsigned("scan: batch", batch, 1)
    if isinstance(columns, str):
        raise errors.InvalidArgument("scan: columns %r, want a list of names: [%r]" % (columns, columns))
    sampler = table._own(Sampler(table._core, batch, columns=columns, prefetch=0, **options))
    sampler._scan_start(partial, timeout)
    return _batches(sampler, timeout)


def _batches(sampler, timeout):
    with sampler:
        yield from iter(lambda: sampler._scan_next(timeout), None)


def items(batches):
    """Yields the items of batches, each a dict as ``table[key]`` gives."""
    for batch in batches:
        arrays = {name: batch[name] for name in batch.keys() if name not in _OF_DRAWS}
        for i in range(batch.n):
            yield {name: _item(array, i) for name, array in arrays.items()}


def _item(array, i):
    if isinstance(array, dict):
        return {name: _item(inner, i) for name, inner in array.items()}
    return array[i]


def gather(table, keys, view, timeout):
    """Returns the batch of ``table.gather``."""
    keys = np.asarray(keys)
    if keys.ndim != 1 or not 0 < len(keys) <= 65536:
        raise errors.InvalidArgument("gather: keys of shape %s, want 1 to 65536 of them: shape (n,)" % (keys.shape,))
    with table._lock:
        sampler = table._gatherers.get(view)
        if sampler is None or len(keys) > sampler.batch_size:
            sampler = table._own(Sampler(table._core, len(keys), view=view, prefetch=0))
            table._gatherers[view] = sampler
    try:
        return sampler._gather(keys, _timeout("gather", timeout))
    except errors.InvalidArgument as error:
        raise errors.InvalidArgument("gather: %s" % error.args[0], error.code) from None


def item(table, key):
    """Returns the item of a key as a dict, or None: there is none."""
    try:
        number = operator.index(key)
    except TypeError:
        raise TypeError(_cures.cured(
            "table[%r]: want one key, an integer of batch.key; for more of them: table.gather(keys)" % (key,))) from None
    if not -2**63 <= number <= _ALL_BITS:
        return None
    try:
        batch = gather(table, np.array([number & _ALL_BITS], np.uint64), 0, 5.0)
    except errors.InvalidArgument:
        return None  # of another table, or no key at all
    return next(items([batch])) if batch.key[0] else None


def to_numpy(batches, room):
    """Returns the arrays of all batches, one after the other, as a dict by key. room: items expected."""
    arrays, names, n = {}, (), 0
    for batch in batches:
        if n + batch.n > room or not names:
            names = tuple(name for name in batch.names if name not in _OF_DRAWS)
            room = max(room, n + batch.n + n // 4)
            arrays = {name: _grown(arrays.get(name), batch[name], n, room) for name in names}
        for name in names:
            arrays[name][n:n + batch.n] = batch[name]
        n += batch.n
    return _by_key(names, {name: array[:n] for name, array in arrays.items()})


def _grown(old, like, n, room):
    new = np.empty((room, *like.shape[1:]), like.dtype)
    if old is not None:
        new[:n] = old[:n]
    return new
