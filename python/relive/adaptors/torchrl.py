"""Parts of TorchRL replay buffers that keep the elements in a table of Relive::

    from relive.adaptors.torchrl import RelivePrioritizedSampler, ReliveStorage

    buffer = TensorDictReplayBuffer(
        storage=ReliveStorage(1_000_000, "shm:default"),
        sampler=RelivePrioritizedSampler(1_000_000, alpha=0.7, beta=0.5), batch_size=256)

Processes that open the same store share the elements and their priorities. An element is a row: a
tensor, or a tensordict of fixed shapes on the CPU. The ``index`` of a drawn element is its key, which no
other element ever gets: an update_priority that comes too late changes nothing.

A buffer without a writer or sampler gets TorchRL's own Writer and RandomSampler, which do the same as
:class:`ReliveWriter` and :class:`ReliveSampler`. Elements have keys, not positions: ``buffer[i]``,
slices of trajectories and TorchRL's other samplers raise NotImplementedError. ``extend`` and ``add``
return no keys (-1, or what TorchRL's writer counts), and update_priority ignores these numbers. Initial
priorities are read from the data: ``td_error``, or the writer's ``priority_key``.
"""

from __future__ import annotations

import json
import pathlib
import threading
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data.replay_buffers.samplers import PrioritizedSampler, Sampler
from torchrl.data.replay_buffers.storages import Storage, TensorStorage
from torchrl.data.replay_buffers.writers import Writer

from ..signature import Column
from ..store import Store
from ..store import open as open_store
from ..views import View
from . import _rows

__all__ = ["RelivePrioritizedSampler", "ReliveSampler", "ReliveStorage", "ReliveWriter"]

# The number of the table is above these bits of a key, and is never 0: no position is a key.
_LEAST_KEY = 1 << 56

_NOT_ADDRESSED = ("ReliveStorage: elements have no positions: use buffer.sample() of a buffer with "
                  "sampler=ReliveSampler() or RelivePrioritizedSampler(...)")

_UNKNOWN = -1  # the index of what was just appended

_PRIORITY_KEY = "td_error"


class ReliveStorage(TensorStorage):
    """A storage: a table of Relive. If the store has no table of that name, the first element creates it.
    ``ReplayBuffer(storage=ReliveStorage(...))`` is a complete buffer with uniform draws. Threads may
    share a storage. It can be pickled if its store can.

    :param max_size: elements that stay drawable; a few more may be, up to a block for each writer.
    :param store: a URI for :func:`relive.open`, or an open :class:`relive.Store`.
    :param name: name of the table. Processes that give the same store and name share it.
    :param max_writers: storages that append to the table at once, in all processes.
    :param shards: number of parts of the table, spread over the memory nodes.
    :param options: those of :func:`relive.open`.
    """

    # A TensorStorage by name only: TorchRL asks for that where it wants batches as they come.
    def __init__(self, max_size: int, store: Any = "embed:", name: str = "replay", *,
                 max_writers: int = 4, shards: int = 1, **options: Any) -> None:
        Storage.__init__(self, max_size)
        self.device = torch.device("cpu")
        self.name = name
        self._options = dict(max_writers=max_writers, shards=shards)
        self._is_ours = not isinstance(store, Store)
        self._store = open_store(store, **options) if self._is_ours else store
        self._lock = threading.Lock()
        self._empty_handles()
        self._open()

    def _empty_handles(self):
        self._table: Any = None
        self._writer: Any = None
        self._sampler: Any = None
        self._inner: tuple[int, ...] = ()  # dimensions of a tensordict after the first
        self._drawn: tuple[Any, Any] = (None, None)

    @property
    def table(self) -> Any:
        """The :class:`relive.Table`; None before the first element."""
        return self._table

    @property
    def initialized(self) -> bool:
        """True if the table exists and is open here."""
        return self._table is not None

    def _open(self):
        if self._table is None and self.name in self._store.tables():
            self._table = self._store.table(self.name)
            for column in self._table.columns:
                _rows.path_of(column.name)

    def close(self) -> None:
        """Closes the table, and the store if this storage opened it."""
        with self._lock:
            if self._table is not None:
                self._table.close(wait=False)
            self._empty_handles()
            if self._is_ours:
                self._store.close(wait=False)

    # -------- in --------

    def _append(self, data, priority):
        """Appends n elements, a tensor or tensordict with a first dimension of n; creates the table if
        there is none. priority: (n,) floats, or None = the largest so far."""
        if isinstance(data, TensorDictBase):
            self._inner = tuple(data.batch_size[1:])
        leaves = {path: leaf.detach().numpy() for path, leaf in _leaves(data)}
        with self._lock:
            if self._table is None:
                self._open()
            if self._table is None:
                self._create(leaves)
            if self._writer is None:
                self._writer = self._table.writer(check_values=False)
            self._writer.extend(
                **{_rows.column_name(path): leaf for path, leaf in leaves.items()},
                terminated=np.ones(len(data), bool), td_error=priority)

    def _create(self, leaves):
        columns = [Column(_rows.column_name(path), leaf.shape[1:], leaf.dtype, "plain")
                   for path, leaf in leaves.items()]
        self._table = _rows.create_table(self._store, self.name, columns, self.max_size,
                                         self._view(), **self._options)

    def _view(self):
        """Returns the view of a new table: prioritized, with alpha and eps of the
        RelivePrioritizedSampler of the buffer that this storage is part of, or uniform if the buffer
        has none."""
        samplers = [getattr(buffer, "sampler", None) for buffer in self._attached_entities]
        for sampler in samplers:
            if isinstance(sampler, RelivePrioritizedSampler):
                return View(alpha=sampler.alpha, eps=sampler.eps or _rows.EPS)
        return View(selector="uniform")

    # -------- out --------

    def _draw(self, n, beta):
        """Draws n elements and returns their (keys, weights); the next get() returns the elements."""
        with self._lock:
            self._open()
            if self._table is None or not len(self._table):
                raise RuntimeError("Cannot sample from an empty storage.")
            if self._sampler is None or self._sampler.batch_size < n:
                self._sampler = self._table.sampler(n, prefetch=0)
            with self._sampler.sample(n, beta) as batch:
                index = torch.from_numpy(batch.key.view(np.int64).copy())
                self._drawn = index, self._elements(batch)
                return index, torch.from_numpy(batch.weight.copy())

    def _elements(self, batch):
        leaves = {_rows.path_of(column.name): torch.from_numpy(batch[column.name].copy())
                  for column in self._table.columns}
        if () in leaves:
            return leaves[()]
        return TensorDict(_rows.nested(leaves.items()), batch_size=[batch.n, *self._inner])

    def get(self, index: Any) -> Any:
        """Returns the elements that the sampler drew last, as tensors of their own memory, once.

        :param index: the tensor that this draw returned, not a copy; any other raises
            NotImplementedError.
        """
        drawn, elements = self._drawn
        if index is not drawn:
            raise NotImplementedError(_NOT_ADDRESSED)
        self._drawn = None, None
        return elements

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Appends elements, for TorchRL's own writers. The positions in ``cursor`` are ignored.

        :param data: one element if cursor is a number; else elements along the first dimension, or a
            list of them.
        """
        if not set_cursor:  # buffer[i] = ...
            raise NotImplementedError(_NOT_ADDRESSED)
        if isinstance(data, list):
            data = torch.stack(data)
        if not isinstance(cursor, torch.Tensor) or not cursor.ndim:
            data = data.unsqueeze(0)
        priority = _priority(data, _PRIORITY_KEY)
        if isinstance(data, TensorDictBase):
            data = data.exclude("index")  # the writer's count
        self._append(data, priority)

    def _rand_given_ndim(self, batch_size):
        """Draws batch_size elements for TorchRL's RandomSampler, and returns their keys."""
        return self._draw(batch_size, 0.0)[0]

    def _max_size_along_dim0(self, *, single_data=None, batched_data=None):
        """Returns max_size, by which TorchRL's writers count positions."""
        return self.max_size

    def _update(self, index, priority):
        """Sets the priorities of the keys in ``index``; numbers that are no keys (-1, positions) are
        ignored."""
        known = (index < _UNKNOWN) | (index >= _LEAST_KEY)
        if not bool(known.any()):
            return
        with self._lock:
            source = self._sampler or self._table
            source.update_priorities(index[known].numpy(),
                                     priority.expand(index.shape)[known].numpy())

    def __len__(self) -> int:
        self._open()
        return min(len(self._table), self.max_size) if self._table is not None else 0

    def contains(self, item: Any) -> Any:
        """Raises NotImplementedError: elements have no positions."""
        raise NotImplementedError(_NOT_ADDRESSED)

    def flatten(self) -> Any:
        """Returns this storage, which has one dimension already."""
        return self

    @property
    def shape(self) -> torch.Size:
        """The shape of the storage: (max_size,)."""
        return torch.Size([self.max_size])

    def __repr__(self) -> str:
        return "ReliveStorage(max_size=%d, store=%r, name=%r, len=%d)" % (
            self.max_size, self._store.uri, self.name, len(self))

    # -------- keeping --------

    def state_dict(self) -> dict[str, Any]:
        """Returns the URI of the store, the name and the size of the table; not the elements, which are
        made durable. NotImplementedError for ``embed:``, which ends with its process."""
        return {"uri": _rows.durable_uri(self._store), "name": self.name, "max_size": self.max_size}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Checks that the state has this storage's URI, name and max_size; else raises ValueError. The
        elements are not in the state, but in the table."""
        mine = {"uri": self._store.uri, "name": self.name, "max_size": self.max_size}
        if mine != state_dict:
            raise ValueError("load_state_dict: state of %r, but this storage is %r" % (state_dict, mine))
        self._open()

    def dumps(self, path: Any) -> None:
        _dump(path, "storage.json", self.state_dict())

    def loads(self, path: Any) -> None:
        self.load_state_dict(_load(path, "storage.json"))

    def _empty(self) -> None:
        """Deletes the table, for all processes that share it; the next element creates it anew."""
        with self._lock:
            if self._table is not None:
                self._table.close(wait=False)
                self._store.drop_table(self.name)
            self._empty_handles()

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": (self.max_size, self._store, self.name), "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ReliveStorage.__init__(self, *state["arguments"], **state["options"])


def _leaves(data):
    """Returns a list of (path, tensor) of a tensor or tensordict."""
    if isinstance(data, torch.Tensor):
        return [((), data)]
    if not isinstance(data, TensorDictBase):
        raise NotImplementedError("%s: use tensors or tensordicts; to_tensordict() converts a "
                                  "tensorclass" % type(data).__name__)
    pairs = data.items(include_nested=True, leaves_only=True)
    return [(key if isinstance(key, tuple) else (key,), leaf) for key, leaf in pairs]


def _priority(data, key):
    """Returns the (n,) priorities of n elements: for each the largest absolute value of its entry
    ``key``. None = data is no tensordict or has no such key."""
    priority = data.get(key, None) if isinstance(data, TensorDictBase) else None
    if priority is None:
        return None
    return priority.detach().reshape(len(data), -1).abs().amax(1).double().numpy()


def _dump(path, name, state):
    pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    (pathlib.Path(path) / name).write_text(json.dumps(state), encoding="utf-8")


def _load(path, name):
    return json.loads((pathlib.Path(path) / name).read_text(encoding="utf-8"))


class ReliveWriter(Writer):
    """Appends elements to a :class:`ReliveStorage`.

    :param priority_key: key of the initial priorities in a tensordict. If an element has several, the
        largest absolute value counts. Elements without it get the largest priority so far.
    """

    def __init__(self, priority_key: Any = _PRIORITY_KEY) -> None:
        super().__init__()
        self._priority_key = priority_key
        self._write_count = 0

    def add(self, data: Any) -> torch.Tensor:
        """Appends one element, which is copied. Returns -1, as it has no position."""
        return self.extend(data.unsqueeze(0))[0]

    def extend(self, data: Any) -> torch.Tensor:
        """Appends elements, along the first dimension or as a list; they are copied. It blocks as
        :meth:`relive.Writer.extend`. Returns a tensor of -1, one for each, as they have no positions."""
        if isinstance(data, list):
            data = torch.stack(data)
        self._storage._append(data, _priority(data, self._priority_key))
        self._write_count += len(data)
        return torch.full((len(data),), _UNKNOWN)

    def _empty(self, empty_write_count: bool = True) -> None:
        if empty_write_count:
            self._write_count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"write_count": self._write_count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._write_count = state_dict["write_count"]

    def dumps(self, path: Any) -> None:
        _dump(path, "writer.json", self.state_dict())

    def loads(self, path: Any) -> None:
        self.load_state_dict(_load(path, "writer.json"))


class ReliveSampler(Sampler):
    """Draws elements uniformly: one from each of n equal parts of the table."""

    def sample(self, storage: ReliveStorage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Draws elements. Returns their keys, (batch_size,) int64, and an empty dict. RuntimeError if the
        storage is empty."""
        index, _ = storage._draw(batch_size, 0.0)
        return index, {}

    def _empty(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass

    def dumps(self, path: Any) -> None:
        pass

    def loads(self, path: Any) -> None:
        pass


class RelivePrioritizedSampler(PrioritizedSampler):
    """Draws elements with probability proportional to (priority + eps)^alpha, stratified: one from each
    of n equal parts of the sum.

    ``priority_weight`` in the info is (N P)^-beta divided by the largest of the batch; TorchRL's own
    sampler divides by the largest of the buffer.

    :param max_capacity, reduction: as in TorchRL's PrioritizedSampler.
    :param alpha: priority exponent, above 0. With ``eps`` it becomes part of the table that the storage
        creates.
    :param beta: importance exponent, 0 or more; it can be assigned later.
    :param eps: added to each priority.
    """

    # A PrioritizedSampler by name only: TorchRL asks for that where it updates priorities.
    def __init__(self, max_capacity: int, alpha: float, beta: float, eps: float = 1e-8,
                 reduction: str = "max") -> None:
        if not alpha > 0:
            raise NotImplementedError("RelivePrioritizedSampler: alpha %r: use ReliveSampler to draw "
                                      "uniformly" % (alpha,))
        if beta < 0:
            raise ValueError("RelivePrioritizedSampler: beta %r: want 0 or more" % (beta,))
        self._max_capacity = max_capacity
        self._alpha, self._beta, self._eps = alpha, beta, eps
        self.reduction = reduction
        self._last: Any = None  # the storage that was used last

    @property
    def alpha(self) -> float:
        """The priority exponent."""
        return self._alpha

    @property
    def eps(self) -> float:
        """The number that is added to each priority."""
        return self._eps

    @property
    def device(self) -> torch.device:
        """The device of keys and weights: the CPU."""
        return torch.device("cpu")

    @property
    def default_priority(self) -> float:
        """The priority of a new element: the largest so far; 1 before a storage with a table was
        used."""
        if self._last is None or self._last.table is None:
            return 1.0
        largest = self._last.table.info().views[0].max_priority
        return max(largest**(1 / self._alpha) - self._eps, 0.0)

    def sample(self, storage: ReliveStorage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Draws elements. Returns their keys, (batch_size,) int64, and a dict of their weights,
        ``priority_weight``. RuntimeError if the storage is empty."""
        self._last = storage
        index, weight = storage._draw(batch_size, self._beta)
        return index, {"priority_weight": weight}

    @torch.no_grad()
    def update_priority(self, index: Any, priority: Any, *, storage: Any = None) -> None:
        """Sets priorities. Elements that were overwritten are ignored, as is a number that is no key.

        :param index: keys, as ``sample`` returned them.
        :param priority: one for each key, or one for all.
        :param storage: None = the storage that was sampled last.
        :raises RuntimeError: the number of priorities is neither 1 nor that of the keys.
        """
        self._last = storage = storage if storage is not None else self._last
        index = torch.as_tensor(index, dtype=torch.int64).reshape(-1)
        priority = torch.as_tensor(priority).detach().double().reshape(-1)
        if priority.numel() not in (1, index.numel()):
            raise RuntimeError("update_priority: %d values for %d elements: give one for each, or one"
                               % (priority.numel(), index.numel()))
        if storage is not None and storage.initialized:
            storage._update(index, priority)

    def add(self, index: Any) -> None:
        pass

    def extend(self, index: Any) -> None:
        pass

    def _empty(self) -> None:
        pass

    def __repr__(self) -> str:
        return "RelivePrioritizedSampler(alpha=%g, beta=%g, eps=%g)" % (
            self._alpha, self._beta, self._eps)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rng": None, "_last": None}

    def state_dict(self) -> dict[str, Any]:
        return {"alpha": self._alpha, "beta": self._beta, "eps": self._eps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if (state_dict["alpha"], state_dict["eps"]) != (self._alpha, self._eps):
            raise ValueError("load_state_dict: state of %r, but this is %r" % (state_dict, self))
        self._beta = state_dict["beta"]

    def dumps(self, path: Any) -> None:
        _dump(path, "sampler.json", self.state_dict())

    def loads(self, path: Any) -> None:
        self.load_state_dict(_load(path, "sampler.json"))
