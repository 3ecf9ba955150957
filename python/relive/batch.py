"""Batches.

``relive.Batch`` is the result of a sample: numpy arrays by name, as attributes and as items:
``batch.obs`` is ``batch["obs"]``. A nested column is a dict: ``batch.obs["image"]``. A batch of n items
has the table's columns, in their dtypes:

* an observation column: (n, \\*shape), or (n, stack, \\*shape) if the view's stack is above 1; and
  ``next_<name>``, of the same shape, ``steps`` steps later. Where ``discount`` is 0 the episode
  terminated, and ``next_<name>`` is undefined unless the actor stored the final observation.
* a reward column: (n,): the n-step return, the sum of gamma^i r_i over ``steps`` steps;
* another column: (n, \\*shape), of the step that was drawn;

and these arrays:

* ``discount``: (n,) float32: gamma^steps; 0 where the episode terminated within the return;
* ``steps``: (n,) uint32: steps in the return, fewer than n_step at the end of an episode;
* ``key``: (n,) uint64, read-only: identifies the items for update_priorities;
* ``weight``: (n,) float32: importance weights;
* ``probability``: (n,) float64: the probability of each draw;
* ``priority``: (n,) float32: as stored, that is after the exponent alpha;
* ``policy_version``: (n,) uint32: the version of the policy that acted, as the actor gave it;
* ``times_sampled``: (n,) uint32, of ``table.scan`` and ``gather`` where max_times_sampled is above 1.

A sampler opened with ``columns`` gives only those columns. With ``columns=()`` no rows are read, and
batches have only key, weight, probability and priority.

``len(batch)`` and ``batch.n`` are the number of items, ``batch.names`` the names of the arrays, and
``batch.table_size`` the number of live items of the view at the draw. ``batch.path`` is how it came to the device of
the sampler's option ``device`` ("pinned", "gather", "dmabuf", ..: ``Landing.paths()`` lists them); None: there is none. A column of that name hides it.

**Mapping.** A batch has ``keys()``, ``values()``, ``items()`` and ``get()``; ``in``, iteration,
``dict(batch)`` and ``f(**batch)`` go by the same keys: the names of the arrays, where all parts of a
nested column are one key. A column named ``values`` or ``get`` hides that method. ``batch.torch()`` and
``batch.jax()`` return the arrays of these libraries as a dict.

**Memory.** Arrays are views of a buffer of the sampler; they are made on first access, without a copy.
All but ``key`` are writable; writing changes this batch, not the table; with ``layout="window"`` obs
and next_obs share memory. No buffer is filled again while
its batch or one of its arrays is referenced, so arrays stay readable and unchanged as long as you hold
them, also after the sampler is closed. ``batch.release()``, or leaving ``with table.sample() as
batch:``, drops the batch's own references early. ``batch.copy()`` returns a :class:`BatchCopy`, which
holds no buffer. Arrays support DLPack: ``torch.from_dlpack(batch.obs)`` shares the memory.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from typing import Any

from . import _core, _nested
from .errors import Closed as _Closed


class Arrays:
    """What makes a batch a mapping from keys to arrays, or to dicts of arrays."""

    names: tuple[str, ...]
    n: int
    table_size: int

    def __getitem__(self, name: str) -> Any:
        raise NotImplementedError

    def keys(self) -> list[str]:
        """Returns the keys, a list: names of arrays, and of nested columns as a whole."""
        return _nested.top(self.names)

    def values(self) -> list[Any]:
        """Returns the arrays, and the dicts of nested columns, in the order of the keys."""
        return [self[key] for key in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        """Returns (key, array or dict) pairs, a list."""
        return [(key, self[key]) for key in self.keys()]

    def get(self, key: str, default: Any = None) -> Any:
        """Returns ``batch[key]``, or the default if there is no such key."""
        return self[key] if key in self else default

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in self.names or key in self.keys()

    def __dir__(self) -> list[str]:
        try:
            return sorted({*object.__dir__(self), *self.names, *self.keys()})
        except _Closed:
            return sorted(object.__dir__(self))

    def __repr__(self) -> str:
        try:
            arrays = "".join(",\n    %s" % _described(key, value) for key, value in self.items())
        except _Closed:
            return "<relive.%s, released>" % type(self).__name__
        return "<relive.%s of %d items, table_size %d%s>" % (type(self).__name__, self.n,
                                                            self.table_size, arrays)

    def torch(self, device: Any = None) -> dict[str, Any]:
        """Returns the arrays as torch tensors, a dict by key: see :func:`relive.torch.tensors`.

        :param device: where tensors are copied to, such as ``"cuda"``; None = they stay on the host,
            and most share the batch's memory. From page-locked memory (``pin_memory=True``) the copies
            are asynchronous.
        """
        from .torch import tensors
        flat = tensors(self)
        if device is not None:
            flat = {name: tensor.to(device, non_blocking=True) for name, tensor in flat.items()}
        return _by_key(self.names, flat)

    def jax(self, device: Any = None) -> dict[str, Any]:
        """Returns the arrays as JAX arrays, a dict by key. They are copies, so the batch can be
        released. ``key`` stays a numpy array: JAX cuts 64-bit integers short unless told not to.

        :param device: a ``jax.Device``; None = JAX's default device.
        """
        names = self.names
        import jax
        flat = {name: self[name] if name == "key" else jax.device_put(self[name].copy(), device)
                for name in names}
        return _by_key(names, flat)


def _described(name, value):
    if isinstance(value, dict):
        return "%s: {%s}" % (name, ", ".join(_described(*item) for item in value.items()))
    return "%s: %s %s" % (name, value.dtype, value.shape)


def _by_key(names, flat):
    """Returns a dict of the values in ``flat``, nested as the names are."""
    index = _nested.index(names)
    return {key: _of_entry(index[key], names, flat) for key in _nested.top(names)}


def _of_entry(entry, names, flat):
    if isinstance(entry, dict):
        return {name: _of_entry(inner, names, flat) for name, inner in entry.items()}
    return flat[names[entry]]


def missing(batch, name):
    """Returns the text of the error for a name that a batch does not have."""
    return "a batch has no %r; it has %s" % (name, ", ".join(batch.names))


class BatchCopy(Arrays):
    """A batch in memory of its own: it holds no buffer of a sampler, and can be pickled. It has the
    arrays and attributes of a :class:`relive.Batch`. ``Batch.copy()`` returns one, and unpickling a
    batch gives one."""

    def __init__(self, arrays, table_size):
        self._arrays = arrays
        self._index = _nested.index(tuple(arrays))
        self.names = tuple(arrays)
        self.table_size = table_size
        self.n = len(arrays["key"])

    def __getitem__(self, name: str) -> Any:
        if name not in self._index:
            raise KeyError(missing(self, name))
        return _of_entry(self._index[name], self.names, self._arrays)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._index:
            raise AttributeError(missing(self, name))
        return self[name]

    def __len__(self) -> int:
        return self.n

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def release(self) -> None:
        """Does nothing, so that a copy can be used like a batch: its memory is freed with its arrays."""

    def copy(self) -> BatchCopy:
        """Returns another copy, which shares no memory with this one."""
        return copy_of(self)

    def __reduce__(self):
        return BatchCopy, (self._arrays, self.table_size)


def copy_of(batch):
    """Returns what ``Batch.copy()`` returns."""
    return BatchCopy({name: batch[name].copy() for name in batch.names}, batch.table_size)


def reduce(batch):
    """Returns what pickle needs to make a :class:`BatchCopy` when a batch is unpickled."""
    return BatchCopy, ({name: batch[name] for name in batch.names}, batch.table_size)


copyreg.pickle(_core.Batch, reduce)
for _name in ("keys", "values", "items", "get", "torch", "jax", "__iter__", "__contains__", "__dir__",
              "__repr__"):
    setattr(_core.Batch, _name, getattr(Arrays, _name))
