"""Batches.

``relive.Batch`` is the result of a sample: numpy arrays by name, as attributes and as items
(``batch.obs`` is ``batch["obs"]``). An array is made on first access, without a copy. A batch of n
items has the table's columns in their dtypes, and:

* observation columns: (n, \\*shape), or (n, stack, \\*shape) if the view's stack is above 1; and
  ``next_<name>`` of the same shape, ``steps`` steps later. After a terminated step ``discount`` is 0
  and the value of ``next_<name>`` is undefined, unless the actor stored the final observation.
* reward columns: (n,): the n-step return, the sum of gamma^i r_i;
* other columns: (n, \\*shape), of the step that was drawn;
* ``discount``: (n,) float32: gamma^steps; 0 after a terminated step;
* ``steps``: (n,) uint32: steps in the return, fewer than n_step at the end of an episode;
* ``key``: (n,) uint64, read-only: identifies the items for update_priorities;
* ``weight``: (n,) float32: importance weights; ``probability``: (n,) float64: of each draw;
* ``priority``: (n,) float32: as stored, that is after the exponent alpha;
* ``policy_version``: (n,) uint32: of the policy that acted.

A sampler opened with ``columns`` gives only those columns. With ``columns=()`` no rows are read, and
batches have only key, weight, probability and priority.

``len(batch)`` and ``batch.n`` are the number of items, ``batch.names`` the names of the arrays, and
``batch.table_size`` the live items of the view at the draw. The memory is reused when the batch and
all arrays made of it are freed. ``batch.release()``, or leaving ``with table.sample() as batch:``,
drops the batch's own reference early. Arrays stay readable in any case, also after the sampler is
closed. ``batch.copy()`` returns a :class:`BatchCopy`. Arrays support DLPack:
``torch.from_dlpack(batch.obs)`` shares the memory.
"""

from __future__ import annotations

from typing import Any

from . import _nested


class BatchCopy:
    """A copy of a batch, with arrays in memory of its own. Unpickling a batch gives one."""

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
        """Does nothing: the memory of a copy is freed with its arrays."""

    def copy(self) -> BatchCopy:
        """Returns another copy."""
        return copy_of(self)

    def __reduce__(self):
        return BatchCopy, (self._arrays, self.table_size)


def copy_of(batch):
    """For Batch.copy."""
    return BatchCopy({name: batch[name].copy() for name in batch.names}, batch.table_size)


def reduce(batch):
    """For Batch.__reduce__."""
    return BatchCopy, ({name: batch[name] for name in batch.names}, batch.table_size)
