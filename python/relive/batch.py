"""Batches.

``relive.Batch`` is what a sample gives: numpy arrays by name, as attributes and as items
(``batch.obs`` is ``batch["obs"]``), made when they are asked for and without a copy. With n items,
of the table's columns in their dtypes:

* observation columns: (n, \\*shape), with a view's stack > 1 (n, stack, \\*shape); and
  ``next_<name>`` of the same shape, ``steps`` steps later. After a terminated step its value means
  nothing, unless the actor stored the final observation: ``discount`` is 0.
* reward columns: (n,): the n-step return, sum of gamma^i r_i;
* other columns: (n, \\*shape), of the step that was drawn;
* ``discount``: (n,) float32: gamma^steps, 0 after a terminated step;
* ``steps``: (n,) uint32: steps in the return, fewer than n_step at the end of an episode;
* ``key``: (n,) uint64, for update_priorities; read-only;
* ``weight``: (n,) float32: importance weights; ``probability``: (n,) float64 of each draw;
* ``priority``: (n,) float32 as stored, with alpha; ``policy_version``: (n,) uint32.

Of a sampler with ``columns`` only those are there, and with ``columns=()`` only what goes without
rows: key, weight, probability and priority.

``len(batch)`` and ``batch.n``: items; ``batch.names``: of the arrays; ``batch.table_size``: live
items of the view when drawn. The memory is used again when the batch and all arrays made of it are
gone; ``batch.release()``, or ``with table.sample() as batch:``, lets the batch go before its
variable does. Arrays keep their memory in any case, also when the sampler is closed.
``batch.copy()`` is a :class:`BatchCopy`. Arrays are exported by DLPack: ``torch.from_dlpack(
batch.obs)`` shares the memory.
"""

from __future__ import annotations

from typing import Any

from . import _nested


class BatchCopy:
    """The arrays of a batch in memory of its own; what a pickled batch becomes."""

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
        """As Batch's; a copy's memory is freed with its arrays."""

    def copy(self) -> BatchCopy:
        """Another copy."""
        return copy_of(self)

    def __reduce__(self):
        return BatchCopy, (self._arrays, self.table_size)


def copy_of(batch):
    """For Batch.copy."""
    return BatchCopy({name: batch[name].copy() for name in batch.names}, batch.table_size)


def reduce(batch):
    """For Batch.__reduce__."""
    return BatchCopy, ({name: batch[name] for name in batch.names}, batch.table_size)
