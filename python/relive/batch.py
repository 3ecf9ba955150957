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
* ``policy_version``: (n,) uint32: the version of the policy that acted, as the actor gave it.

A sampler opened with ``columns`` gives only those columns. With ``columns=()`` no rows are read, and
batches have only key, weight, probability and priority.

``len(batch)`` and ``batch.n`` are the number of items, ``batch.names`` the names of the arrays, and
``batch.table_size`` the number of live items of the view at the draw.

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
from typing import Any

from . import _core, _nested


class BatchCopy:
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
        return self._of_entry(self._index[name])

    def _of_entry(self, entry):
        if isinstance(entry, dict):
            return {name: self._of_entry(inner) for name, inner in entry.items()}
        return self._arrays[self.names[entry]]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._index:
            raise AttributeError("a batch has no %r; it has %s" % (name, ", ".join(self.names)))
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
