"""A buffer for DI-engine that keeps its transitions in a table of Relive::

    from relive.adaptors.ding import ReliveBuffer

    buffer = ReliveBuffer(cfg.policy.other.replay_buffer.replay_buffer_size, "shm:default", priority=True)
    task.use(data_pusher(cfg, buffer))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))

Processes that open the same store share the transitions and their priorities. A transition is a row: a dict, a
tree tensor or a nest of them whose leaves have fixed shapes. The ``index`` of a sampled transition is its key, which
no other one ever gets: an update that comes too late changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import treetensor.torch as ttorch
from ding.data.buffer import Buffer, BufferedData, apply_middleware
from ding.data.buffer.middleware import PriorityExperienceReplay

from ..store import Store
from ..store import open as open_store
from ..views import View
from . import _rows

__all__ = ["ReliveBuffer"]


class _Priorities(PriorityExperienceReplay):
    """By name only: the learners of DI-engine update priorities where they find this middleware. The table has the
    priorities."""

    def __init__(self):
        pass

    def __call__(self, action, chain, *args, **kwargs):
        return chain(*args, **kwargs)


class ReliveBuffer(Buffer):
    """A Buffer: a table of Relive. If the store has no table of that name, the first transition creates it.

    :param size: transitions that stay drawable; a few more may be, up to a block for each writer.
    :param store: a URI for :func:`relive.open`, or an open :class:`relive.Store`.
    :param name: name of the table. Processes that give the same store and name share it.
    :param priority: True = draw by priority, as with the middleware PriorityExperienceReplay, which is not needed then.
    :param alpha: priority exponent.
    :param beta: importance exponent of ``priority_IS``; it can be assigned later.
    :param max_writers: buffers that push to the table at once, in all processes.
    :param shards: number of parts of the table, spread over the memory nodes.
    :param options: those of :func:`relive.open`.
    """

    def __init__(self, size: int, store: Any = "embed:", name: str = "replay", *, priority: bool = False,
                 alpha: float = 0.6, beta: float = 0.4, max_writers: int = 4, shards: int = 1,
                 **options: Any) -> None:
        super().__init__(size)
        self.name, self.beta = name, beta
        self._priority, self._alpha = priority, alpha
        self._arguments = dict(max_writers=max_writers, shards=shards)
        self._is_ours = not isinstance(store, Store)
        self._store = open_store(store, **options) if self._is_ours else store
        self._middleware = [_Priorities()] if priority else []
        self._forget()
        self._open()

    def _forget(self):
        self._table: Any = None
        self._writer: Any = None
        self._sampler: Any = None
        self._is_tree = False
        self._late: dict[int, float] = {}  # priorities by key, until the next draw

    @property
    def table(self) -> Any:
        """The :class:`relive.Table`; None before the first transition."""
        return self._table

    def _open(self):
        if self._table is None and self.name in self._store.tables():
            self._table = self._store.table(self.name)
        return self._table

    def close(self) -> None:
        """Closes the table, and the store if this buffer opened it."""
        if self._table is not None:
            self._table.close(wait=False)
        self._forget()
        if self._is_ours:
            self._store.close(wait=False)

    def __copy__(self) -> ReliveBuffer:
        """Returns what view() does: a buffer of the same table, with middleware of its own."""
        return type(self)(self.size, self._store, self.name, priority=self._priority, alpha=self._alpha,
                          beta=self.beta, **self._arguments)

    # -------- in --------

    @apply_middleware("push")
    def push(self, data: Any, meta: dict | None = None) -> BufferedData:
        """Appends a transition. Its key is not known yet: ``index`` of the result is empty.

        :param data: nested dicts, lists or tree tensors of tensors, arrays and numbers.
        :param meta: None, or ``priority``, which is that of the transition; without it the largest so far is.
        """
        unknown = set(meta or {}) - {"priority"}
        if unknown:
            raise NotImplementedError("push: meta %s is not kept: put it into the data" % ", ".join(sorted(unknown)))
        item = _rows.unflatten(data, [_array(leaf) for _, leaf in _rows.flatten(data)])
        if self._open() is None:
            self._table = _rows.create_table(self._store, self.name, _rows.columns_of(item), self.size, self._view(),
                                             **self._arguments)
        if self._writer is None:
            self._writer = self._table.writer(check_values=False)
        self._is_tree = isinstance(data, ttorch.Tensor)
        self._writer.append({_rows.column_name(path): leaf for path, leaf in _rows.flatten(item)}, terminated=True,
                            td_error=(meta or {}).get("priority"))
        return BufferedData(data=data, index="", meta=meta or {})

    def _view(self):
        return View(alpha=self._alpha, eps=_rows.EPS) if self._priority else View(selector="uniform")

    # -------- out --------

    @apply_middleware("sample")
    def sample(self, size: int | None = None, indices: list[str] | None = None, replace: bool = False,
               sample_range: slice | None = None, ignore_insufficient: bool = False, groupby: str | None = None,
               unroll_len: int | None = None) -> list[BufferedData]:
        """Draws transitions, or reads those of ``indices``. Each has a copy of its own; with ``priority`` also
        ``priority`` and ``priority_IS`` in its meta, and the latter in its data.

        :param replace: False = ValueError, or with ignore_insufficient an empty list, if there are fewer than size.
        :raises KeyError: a transition of ``indices`` is not there any more.
        """
        if sample_range or groupby or unroll_len:
            raise NotImplementedError("sample: transitions have no positions or groups here: use a View(sequence=) "
                                      "of relive for sequences")
        if not size and not indices:
            raise AssertionError("One of size and indices must not be empty.")
        if size and indices and size != len(indices):
            raise AssertionError("Size and indices length must be equal.")
        if indices:
            return self._read(indices)
        if self.count() < (1 if replace else size):
            if ignore_insufficient:
                return []
            raise ValueError("There are less than %d records in buffer(%d)" % (size, self.count()))
        self._put_late()
        if self._sampler is None or self._sampler.batch_size < size:
            self._sampler = self._table.sampler(size, prefetch=0, beta=self.beta if self._priority else 0.0)
        with self._sampler.sample(size, beta=self.beta if self._priority else 0.0) as batch:
            return self._items(batch, self._priority)

    def _read(self, indices):
        if self._open() is None:
            raise KeyError(indices[0])
        self._put_late()
        batch = self._table.gather(np.array([int(index) for index in indices], np.uint64))
        gone = np.flatnonzero(batch.key == 0)
        if len(gone):
            raise KeyError(indices[gone[0]])
        return self._items(batch, False)

    def _items(self, batch, weighted):
        columns = [(_rows.path_of(column.name), torch.from_numpy(batch[column.name].copy()))
                   for column in self._table.columns]
        items = []
        for i in range(batch.n):
            data = _rows.nested([(path, values[i]) for path, values in columns])
            meta = {"priority": float(batch.priority[i])**(1 / self._alpha)} if self._priority else {}
            if weighted:
                meta["priority_IS"] = float(batch.weight[i])
                data["priority_IS"] = torch.tensor([meta["priority_IS"]])
            items.append(BufferedData(data=ttorch.tensor(data) if self._is_tree else data,
                                      index=str(int(batch.key[i])), meta=meta))
        return items

    def get_by_index(self, index: str) -> BufferedData:
        """Returns the transition of that index. KeyError: it is not there any more."""
        return self._read([index])[0]

    @apply_middleware("update")
    def update(self, index: str, data: Any = None, meta: dict | None = None) -> bool:
        """Sets ``meta["priority"]``, from the next draw on. Returns True; a transition that is gone is left so.
        NotImplementedError: data is not None, as transitions do not change."""
        if data is not None:
            raise NotImplementedError("update: transitions do not change: push another one")
        if self._priority and meta and "priority" in meta:
            self._late[int(index)] = float(meta["priority"])
        return True

    def _put_late(self):
        if self._late:
            keys, priorities = list(self._late), list(self._late.values())
            self._late = {}
            self._table.update_priorities(np.array(keys, np.uint64), np.array(priorities, np.float32))

    def delete(self, index: Any) -> None:
        raise NotImplementedError("delete: transitions go when newer ones take their room: use clear()")

    def get(self, idx: int) -> BufferedData:
        raise NotImplementedError("get: transitions have no positions: use get_by_index(index)")

    # -------- all of it --------

    def count(self) -> int:
        """Returns the number of transitions that can be drawn."""
        return 0 if self._open() is None else len(self._table)

    @apply_middleware("clear")
    def clear(self) -> None:
        """Deletes the table with all transitions, for all processes."""
        if self._open() is not None:
            self._table.close(wait=False)
            self._store.drop_table(self.name)
        self._forget()

    def save_data(self, file_name: str) -> None:
        """Saves the table to a file, with its priorities: relive.Table.save."""
        self._put_late()
        if self._open() is None:
            raise ValueError("save_data: nothing was pushed yet")
        self._table.save(file_name)

    def load_data(self, file_name: str) -> None:
        """Replaces the table by that of a file."""
        is_tree = self._is_tree
        self.clear()
        self._table = self._store.load_table(file_name, self.name)
        self._is_tree = is_tree


def _array(leaf):
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)
