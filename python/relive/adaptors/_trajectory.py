"""Writers of the Reverb adaptor: they remember the last steps, and cut items out of them."""

from __future__ import annotations

import collections
import dataclasses
import math
import time
from typing import Any

import numpy as np

from .. import _core, errors
from . import _rows


class TrajectoryColumn:
    """One column of an item: the values of some steps. Slicing ``history`` makes it.

    :param values: one array for each step, all of one shape and dtype.
    :param squeeze: True = the value of a single step, without a dimension of steps.
    :raises ValueError: a step has no value here, or is no longer remembered.
    """

    __slots__ = ("_array", "is_squeezed")

    def __init__(self, values: Any, *, squeeze: bool = False) -> None:
        values = tuple(values)
        if squeeze and len(values) != 1:
            raise ValueError("trajectory: a squeezed column has one value, not %d" % len(values))
        if any(value is None for value in values):
            raise _forgotten()
        self._array = np.asarray(values[0]) if squeeze else np.stack(values)
        self.is_squeezed = squeeze

    @classmethod
    def _of(cls, array, squeeze=False):
        column = cls.__new__(cls)
        column._array = array
        column.is_squeezed = squeeze
        return column

    def _by_step(self):
        return self._array[None] if self.is_squeezed else self._array

    def __len__(self) -> int:
        return len(self._by_step())

    def __iter__(self):
        return iter(self._by_step())

    def __getitem__(self, at: Any) -> TrajectoryColumn:
        if isinstance(at, int):
            return TrajectoryColumn._of(self._by_step()[at, ...], squeeze=True)
        return TrajectoryColumn._of(self._by_step()[at if isinstance(at, slice) else list(at)])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the column: (steps, \\*shape of a value), or that of the value if squeezed."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        """The numpy dtype of the values."""
        return self._array.dtype

    def numpy(self) -> np.ndarray:
        """Returns the values as one array. Writing to it is not allowed: other items may share it."""
        return self._array


def _forgotten():
    return ValueError("trajectory: a step has no value in this column, or is no longer remembered: "
                      "append it, or raise num_keep_alive_refs")


_SPARE_BYTES = 65536  # of the rows that a column's memory has beside those that it remembers


class ColumnHistory:
    """The values that one column got since the episode began, of which the last ``keep`` are remembered.
    Indexing and slicing by steps of the episode gives a :class:`TrajectoryColumn`.

    The values are rows of an array, so that a slice is a view. No row is written twice: what was sliced
    stays. When the array is full, another one begins with the rows that are remembered.
    """

    def __init__(self, keep: int, steps: int, like: np.ndarray) -> None:
        self._keep = keep
        self._steps = steps
        self.shape, self.dtype = like.shape, like.dtype  # of all values
        self._absent = set(range(max(steps - keep, 0), steps))  # those that have no value
        self._rows = np.empty((0, *like.shape), like.dtype)
        self._end = 0  # rows that are written; the last one is of the last step
        self._begin_array()
        self._end += min(keep, steps)

    def _begin_array(self):
        kept = self._rows[max(self._end - self._keep, 0):self._end]
        row_bytes = max(kept.itemsize * math.prod(self.shape), 1)
        spare = max(min(_SPARE_BYTES // row_bytes, 256), self._keep)
        self._rows = np.empty((self._keep + spare, *self.shape), self.dtype)
        self._rows[:len(kept)] = kept
        self._end = len(kept)
        self._absent = {step for step in self._absent if step >= self._steps - self._keep}

    def fits(self, value: Any) -> bool:
        """True if a value, an array or a number of numpy, has the shape and dtype of all others."""
        return value.dtype == self.dtype and value.shape == self.shape

    def append(self, value: Any) -> None:
        """Adds the value of a step, which is copied; None = the step has none."""
        if self._end == len(self._rows):
            self._begin_array()
        if value is None:
            self._absent.add(self._steps)
        else:
            self._rows[self._end] = value
        self._end += 1
        self._steps += 1

    def set_last(self, value: Any) -> None:
        """Sets the value of the last step, which was appended without one, as a part of a partial
        step."""
        self._rows[self._end - 1] = value
        self._absent.discard(self._steps - 1)

    @property
    def has_last(self) -> bool:
        """True if the last step has a value."""
        return self._steps - 1 not in self._absent

    def reset(self) -> None:
        """Forgets all values: a new episode begins."""
        self._absent.clear()
        self._steps = 0

    def keep(self, steps: int) -> None:
        """Sets how many of the last steps are remembered; older values are forgotten."""
        self._keep = steps

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, at: Any) -> TrajectoryColumn:
        steps = self._steps
        row = self._end - steps  # of the first step
        least = max(steps - self._keep, -row)
        if type(at) is slice and at.step is None:
            first, last, _ = at.indices(steps)
            if first < last and (first < least or self._lacks(range(first, last))):
                raise _forgotten()
            return TrajectoryColumn._of(self._rows[row + first:row + last])
        if isinstance(at, int):
            picked = [range(steps)[at]]
        else:
            picked = range(steps)[at] if isinstance(at, slice) else [range(steps)[i] for i in at]
        if min(picked, default=least) < least or self._lacks(picked):
            raise _forgotten()
        if isinstance(at, int):
            return TrajectoryColumn._of(self._rows[row + picked[0], ...], squeeze=True)
        return TrajectoryColumn._of(self._rows[[row + step for step in picked]])

    def _lacks(self, steps):
        return self._absent and not self._absent.isdisjoint(steps)


class TrajectoryWriter:
    """Appends steps, and creates items from the last ones. :meth:`Client.trajectory_writer` opens it.

    It is for one thread at a time, and a context manager: leaving the block flushes it, unless an
    Error of Relive leaves it, and closes it. :meth:`create_item` does not wait: it writes the item if
    the table's rate limiter admits it now, and otherwise keeps it for the next :meth:`create_item` or
    :meth:`flush`, which waits until kept items are written.
    """

    def __init__(self, client, num_keep_alive_refs: int) -> None:
        if num_keep_alive_refs < 1:
            raise ValueError("trajectory_writer: num_keep_alive_refs %r: want 1 or more"
                             % (num_keep_alive_refs,))
        self._client = client
        self._keep = num_keep_alive_refs
        self._structure: Any = None
        self._columns: dict[tuple[Any, ...], ColumnHistory] = {}
        self._keeps: dict[tuple[Any, ...], int] = {}
        self._steps = 0  # begun, of which the last may be partial
        self._open = False
        self._reader: Any = None  # of the steps' structure
        self._ordered: list[ColumnHistory] = []  # as the reader finds them
        self._history: Any = None
        self._pending: collections.deque[Any] = collections.deque()
        self._writers: dict[str, Any] = {}
        self._layouts: dict[str, _rows.Layout] = {}  # of each table's items

    # -------- steps --------

    @property
    def history(self) -> Any:
        """The columns that were appended to, in the structure of the steps. Each can be indexed and
        sliced by step, as a list: ``history["obs"][-3:]``. RuntimeError before the first append."""
        if self._structure is None:
            raise RuntimeError("history: nothing was appended yet: append a step first")
        return self._history

    @property
    def episode_steps(self) -> int:
        """Number of complete steps since the episode began."""
        return self._steps - self._open

    def configure(self, path: tuple[Any, ...], *, num_keep_alive_refs: int,
                  max_chunk_length: int | None = None) -> None:
        """Sets how many steps one column remembers.

        :param path: the keys that lead to the column: ``("obs", "image")``.
        :param num_keep_alive_refs: number of steps, 1 or more.
        :param max_chunk_length: ignored: there are no chunks.
        """
        if num_keep_alive_refs < 1:
            raise ValueError("trajectory_writer: num_keep_alive_refs %r: want 1 or more"
                             % (num_keep_alive_refs,))
        self._keeps[path] = num_keep_alive_refs
        if path in self._columns:
            self._columns[path].keep(num_keep_alive_refs)

    def append(self, data: Any, *, partial_step: bool = False) -> None:
        """Appends one step. The values are copied.

        :param data: a nested structure of arrays. A column keeps the shape and dtype of its first
            value. None, or leaving it out, = the step has no value in the column.
        :param partial_step: True = the next call adds other columns to this step.
        :raises ValueError: the shape or dtype of a column differs, or a partial step has it already.
        """
        if partial_step or self._open or not self._append_at_once(data):
            self._append_parts(data, partial_step)

    def _append_at_once(self, data):
        """Appends a step that has all columns. False = it has not, or does not match them: nothing is
        done."""
        leaves = self._reader.leaves(data) if self._reader is not None else None
        if leaves is None:
            return False
        for i, column in enumerate(self._ordered):
            if not isinstance(leaves[i], _rows.LEAVES):
                leaves[i] = np.asarray(leaves[i])
            if leaves[i].dtype != column.dtype or leaves[i].shape != column.shape:
                return False
        for value, column in zip(leaves, self._ordered):
            column.append(value)
        self._steps += 1
        return True

    def _append_parts(self, data, partial_step):
        given = {path: np.asarray(leaf) for path, leaf in _rows.flatten(data) if leaf is not None}
        self._check(given)
        self._structure = _merge(self._structure, data)
        for path, value in given.items():
            if path not in self._columns:
                self._columns[path] = ColumnHistory(self._keeps.get(path, self._keep), self._steps, value)
        for path, column in self._columns.items():
            if not self._open:
                column.append(given.get(path))
            elif path in given:
                column.set_last(given[path])
        self._steps += not self._open
        self._open = partial_step
        self._see_structure()

    def _see_structure(self):
        """Sets what depends on which columns there are."""
        paths = [path for path, _ in _rows.flatten(self._structure)]
        without = ColumnHistory(1, self._steps, np.empty(0))  # of columns that had no value yet
        self._ordered = [self._columns.get(path, without) for path in paths]
        self._history = _rows.unflatten(self._structure, self._ordered)
        self._reader = None if without in self._ordered else _rows.Reader(self._structure)

    def _check(self, given):
        for path, value in given.items():
            column = self._columns.get(path)
            if column is None:
                continue
            if self._open and column.has_last:
                raise ValueError("append: %r was given already in this partial step: leave it out"
                                 % (path,))
            if not column.fits(value):
                raise ValueError("append: %r is %s%s, but was %s%s before"
                                 % (path, value.dtype, list(value.shape), column.dtype,
                                    list(column.shape)))

    # -------- items --------

    def create_item(self, table: str, priority: float, trajectory: Any) -> None:
        """Creates an item. It does not wait for the rate limiter; see the class.

        :param table: name of the table. Its first item creates it and sets the shapes of all its items.
        :param priority: initial priority, 0 or more.
        :param trajectory: a nested structure of slices of :attr:`history`, which are copied.
        :raises ValueError: there is no such table, or the item does not match its signature.
        :raises NotImplementedError: the shapes differ from those of the table's items.
        """
        if self._put_at_once(table, priority, trajectory):
            return
        for path, leaf in _rows.flatten(trajectory):
            if not isinstance(leaf, TrajectoryColumn):
                raise TypeError("trajectory: %r is %s: want a slice of history"
                                % (path, type(leaf).__name__))
        self._put(table, priority, trajectory, self._client._signature(table))

    def _put_at_once(self, table, priority, trajectory):
        """Writes an item whose layout is that of the table's last one. False = it is not, or older items
        wait, or the limiter does not admit it: nothing is done."""
        layout = self._layouts.get(table)
        if layout is None or self._pending or not self._writers[table].is_open:
            return False
        row = layout.row(trajectory, priority)
        if row is None:
            return False
        try:
            append_row(self._writers[table], row)
        except errors.Timeout:
            return False
        return True

    def _put(self, table, priority, trajectory, signature):
        item = _rows.unflatten(trajectory, [leaf.numpy() for _, leaf in _rows.flatten(trajectory)])
        check_item(table, item, signature)
        self._client._make(table, item)
        self._pending.append((table, priority, item))
        if self._send():
            self._layouts[table] = _rows.Layout(item, trajectory, _array_of)

    def _send(self):
        """Writes the pending items, oldest first, until the limiter does not admit one. True: all are
        written."""
        while self._pending:
            table, priority, item = self._pending[0]
            try:
                self._writer(table, item).append(**values_of(item), td_error=priority,
                                                 terminated=True)
            except errors.Timeout:
                return False
            self._pending.popleft()
        return True

    def _writer(self, table, item):
        """Returns the open writer of a table; opens one if there is none, or a reset of the table
        closed it."""
        if table not in self._writers or not self._writers[table].is_open:
            self._writers[table] = self._client._make(table, item).writer(timeout=_TRY,
                                                                          check_values=False)
        return self._writers[table]

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """Blocks until the created items are written.

        :param block_until_num_items: number of items that may stay unwritten.
        :param timeout_ms: milliseconds to wait; None = without limit.
        :raises Timeout: too many items were not admitted in that time; they stay pending.
        """
        if block_until_num_items < 0:
            raise ValueError("flush: block_until_num_items %r: want 0 or more" % (block_until_num_items,))
        start = time.monotonic()
        while not self._send() and len(self._pending) > block_until_num_items:
            if timeout_ms is not None and time.monotonic() - start > timeout_ms / 1000:
                raise errors.Timeout("flush: the rate limiter of table %s does not admit %d items: "
                                     "sample, or wait"
                                     % (self._pending[0][0], len(self._pending)))

    def end_episode(self, clear_buffers: bool = True, timeout_ms: int | None = None) -> None:
        """Flushes, and begins a new episode if clear_buffers is True.

        :param clear_buffers: True = forget the steps, also if flushing fails; False = keep them.
        :param timeout_ms: as for :meth:`flush`.
        """
        try:
            self.flush(timeout_ms=timeout_ms)
        finally:
            if clear_buffers:
                self._steps = 0
                self._open = False
                for column in self._columns.values():
                    column.reset()

    def close(self) -> None:
        """Closes the writer and drops the items that are not written yet: flush() before to keep them."""
        self._pending.clear()
        for writer in self._writers.values():
            writer.close(wait=False)
        self._writers.clear()
        self._layouts.clear()

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None or not issubclass(kind, errors.Error):
                self.flush()
        finally:
            self.close()


_TRY = 0.01  # seconds that one attempt to write an item waits for the limiter

# Takes columns by their stored names, at a third of what it costs to look for nested ones.
append_row = _core.Writer.append


def _array_of(column):
    return column._array if type(column) is TrajectoryColumn else None


@dataclasses.dataclass(frozen=True)
class Spec:
    """Shape and dtype of a leaf of a signature. None in the shape = any size."""

    shape: tuple[Any, ...]
    dtype: Any


def of_steps(signature, n):
    """Returns the signature of items of n steps, given the signature of one step, or None for None."""
    if signature is None:
        return None
    return _rows.unflatten(signature, [Spec((n, *spec.shape), spec.dtype)
                                       for _, spec in _rows.flatten(signature)])


def check_item(table, item, signature):
    """Raises ValueError if an item does not match a signature; signature None = each item matches."""
    if signature is None:
        return
    found = dict(_rows.flatten(item))
    wanted = dict(_rows.flatten(signature))
    if found.keys() != wanted.keys():
        raise ValueError("item of table %s: its columns are %s, but the signature has %s"
                         % (table, sorted(found), sorted(wanted)))
    for path, spec in wanted.items():
        shape, dtype = tuple(spec.shape), _rows.numpy_dtype(spec.dtype)
        fits = len(shape) == found[path].ndim and all(
            want in (None, have) for want, have in zip(shape, found[path].shape))
        if not fits or dtype != found[path].dtype:
            raise ValueError("item of table %s: %r is %s%s, but the signature says %s%s"
                             % (table, path, found[path].dtype, list(found[path].shape), dtype,
                                list(shape)))


def values_of(item):
    """Returns an item, a nested structure of arrays, as a dict from names of columns to arrays."""
    return {_rows.column_name(path): leaf for path, leaf in _rows.flatten(item)}


def _merge(known, data):
    """Returns the structure ``known``, whose dicts gain the keys that only ``data`` has."""
    if known is None:
        return data
    if not hasattr(known, "items") or not hasattr(data, "items"):
        return known
    return {**known, **{key: _merge(known.get(key), part) for key, part in data.items()}}


class Writer:
    """Reverb's older writer: its items are the last n steps, with all columns. :meth:`Client.writer`
    opens it. It is for one thread at a time, and a context manager: leaving the block closes it, without
    flushing if an exception leaves the block."""

    def __init__(self, client, max_sequence_length: int) -> None:
        if max_sequence_length < 1:
            raise ValueError("writer: max_sequence_length %r: want 1 or more" % (max_sequence_length,))
        self._client = client
        self._steps = TrajectoryWriter(client, max_sequence_length)
        self._closed = False

    def append(self, data: Any) -> None:
        """Appends one step, a nested structure of arrays, which are copied."""
        self._steps.append(data)

    def append_sequence(self, sequence: Any) -> None:
        """Appends several steps: a nested structure of arrays whose first dimension is the step."""
        leaves = [np.asarray(leaf) for _, leaf in _rows.flatten(sequence)]
        if len({len(leaf) for leaf in leaves}) != 1:
            raise ValueError("append_sequence: arrays of different lengths: want the same number of "
                             "steps in each")
        for step in zip(*leaves):
            self.append(_rows.unflatten(sequence, step))

    def create_item(self, table: str, num_timesteps: int, priority: float) -> None:
        """Creates an item of the last steps.

        :param table: name of the table.
        :param num_timesteps: number of steps, 1 to max_sequence_length, and no more than were appended.
        :param priority: initial priority, 0 or more.
        """
        if num_timesteps < 1:
            raise ValueError("create_item: num_timesteps %r: want 1 or more" % (num_timesteps,))
        if num_timesteps > self._steps.episode_steps:
            raise ValueError("create_item: num_timesteps %d, but only %d steps were appended"
                             % (num_timesteps, self._steps.episode_steps))
        history = self._steps.history
        columns = [column[-num_timesteps:] for _, column in _rows.flatten(history)]
        signature = of_steps(self._client._signature(table), num_timesteps)
        self._steps._put(table, priority, _rows.unflatten(history, columns), signature)

    def flush(self) -> None:
        """Blocks without limit until all items are written."""
        self._steps.flush()

    def close(self, retry_on_unavailable: bool = True) -> None:
        """Blocks until all items are written, and closes the writer. ValueError if it is closed."""
        if self._closed:
            raise ValueError("this writer is closed: open another one by Client.writer")
        self._closed = True
        try:
            self._steps.flush()
        finally:
            self._steps.close()

    def __enter__(self) -> Writer:
        if self._closed:
            raise ValueError("this writer is closed: open another one by Client.writer")
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._closed = True
            self._steps.close()
