"""Sequences: items of consecutive steps, with all columns of each step, for recurrent networks::

    table = store.create_table("replay", relive.sequence.signature(relive.signature.of_env(envs)),
                               capacity=1_000_000, views=[relive.View(stack=40)])
    with relive.sequence.Writer(table, num_envs=8) as writer:
        writer.append(obs=obs, action=action, reward=reward, terminated=terminated,
                      truncated=truncated)
    batch = relive.sequence.of(table.sample(64, layout="window"))

The view's ``stack`` is the length of a sequence. :func:`signature` stacks every column, so a batch has
``obs``, ``action`` and ``reward`` as (n, length, \\*shape), with rewards that are not summed.
``next_<name>`` is the same one step later; with ``layout="window"`` it shares the memory. Sequences that
overlap share the rows of the table: each step is stored once. The view's ``period`` says which
sequences of an episode exist:

* ``period=1`` (default): one ends at each step. A sequence that would begin before its episode is
  padded in front with copies of the first step, where ``batch.mask`` is False.
* ``period > 1``: sequences begin at the steps 0, period, 2 * period, ... as long as they lie within the
  episode, and one more ends with its last step, as in R2D2, Acme and flashbax. An episode shorter
  than the length is one sequence, padded as above; no other sequence has padding::

      View(stack=40, period=20), an episode of 105 steps

      step   0   20   40   60   80   100
             [ 0 .. 39]
                  [20 .. 59]
                       [40 .. 79]
                            [60 .. 99]
                              [65 .. 104]     the last one, shifted back: every reward is drawn

  The last step of an episode that was truncated without a final observation is in no sequence, as its
  next observation is unknown. While an episode continues, a sequence can be drawn when the two steps
  after it are in.

>>> import relive
>>> with relive.open("embed:") as store:
...     table = store.create_table("t", signature({"obs": "float32", "reward": "float32"}), 1000,
...                                views=[relive.View(stack=4)])
...     with Writer(table) as writer:
...         for i in range(3):
...             writer.append(obs=i, reward=10 * i, terminated=i == 2)
...     batch = of(table.sample(50))
>>> long = batch.step[:, -1] == 2
>>> batch.obs[long][0].tolist(), batch.mask[long][0].tolist(), batch.discount[long][0].tolist()
([0.0, 0.0, 1.0, 2.0], [False, True, True, True], 0.0)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from . import _bfloat16, errors
from .signature import Column, columns_of
from .writer import with_finals

STEP = "step"


def signature(spec: Any) -> list[Column]:
    """Returns the signature of a table of sequences, a list of :class:`relive.Column`: the columns of
    ``spec``, all of role obs, and ``step``, a uint32: the number of the step in its episode, from 0,
    which :class:`Writer` fills in.

    :param spec: as for :func:`relive.signature.columns_of`.
    :raises InvalidArgument: a column is named step, or has role next.
    """
    columns = columns_of(spec)
    for column in columns:
        if column.name == STEP or column.role == "next":
            raise errors.InvalidArgument(
                "column %s: leave it out: sequences add a column step, and read next observations "
                "from the rows" % column.name)
    return [*(dataclasses.replace(column, role="obs") for column in columns),
            Column(STEP, (), "uint32", "obs")]


class Writer:
    """Appends steps to a table of sequences, and numbers them in the column ``step``.

    The parameters after ``table`` are those of :meth:`relive.Table.writer`; methods are those of
    :class:`relive.Writer` without ``extend``. It is for one thread at a time, and a context manager,
    which closes it, with ``wait=False`` if an exception leaves the block.

    :param table: a table whose signature is made by :func:`signature`.
    """

    def __init__(self, table: Any, num_envs: Any = None, *, autoreset: Any = None,
                 timeout: float | None = None, check_values: bool = True) -> None:
        self._writer = table.writer(num_envs, autoreset=autoreset, timeout=timeout,
                                    check_values=check_values)
        self._is_vector = num_envs is not None
        number = self._writer.num_envs
        self._others = {"final_" + column.name: np.zeros(
            (number, *column.shape)[not self._is_vector:], _bfloat16.numpy_dtype(column.dtype))
            for column in table.columns if column.role == "obs"}
        self._resets_next = self._writer.autoreset == "next_step"
        self._step = np.zeros(number, np.uint32)
        self._ended = np.zeros(number, bool)

    def append(self, steps: dict[str, Any] = {}, /, **values: Any) -> None:
        """Appends one step of each environment, as :meth:`relive.Writer.append`. Leave ``step`` out. A
        final observation may be given for some columns only, such as ``final_obs``: the other columns
        are 0 in its row."""
        values = with_finals({**steps, **values})
        if any(name.startswith("final_") and values[name] is not None for name in values):
            values = {**self._others, **values}
        self._writer.append(**values, step=self._step if self._is_vector else self._step[0])
        ended = np.zeros(self._step.shape, bool)
        for name in ("terminated", "truncated", "final"):
            ended |= np.asarray(values.get(name, False), bool)
        if self._resets_next:
            resets, self._ended = self._ended, ended & ~self._ended
        else:
            resets = ended
        self._step = np.where(resets, 0, self._step + 1).astype(np.uint32)

    def end_episode(self, final: dict[str, Any] = {}, /, *, env: int = 0,
                    **observation: Any) -> None:
        """Ends the episode of one environment, as :meth:`relive.Writer.end_episode`. If some
        columns are given, the others are 0 in the final observation."""
        observation = {**final, **observation}
        if observation:
            observation = {**{name.removeprefix("final_"): value[env] if self._is_vector else value
                              for name, value in self._others.items()}, **observation}
        self._writer.end_episode(env=env, **observation)
        self._step[env], self._ended[env] = 0, False

    def stats(self) -> dict[str, int]:
        """Returns the counters of :meth:`relive.Writer.stats`."""
        return self._writer.stats()

    def close(self, wait: bool = True) -> None:
        """Closes the writer, as :meth:`relive.Writer.close`."""
        self._writer.close(wait=wait)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(wait=kind is None)


class SequenceBatch:
    """A batch of sequences: the batch that it wraps, and ``mask``, as attribute and as item. Its arrays
    are those of the wrapped batch, not copies. ``len()`` is the number of sequences. Leaving its ``with``
    block releases the wrapped batch."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    @property
    def mask(self) -> np.ndarray:
        """(n, length) bool: True where the step is one of the episode, False where it is padding before
        the episode's start. Each access makes a new array."""
        step = self._batch[STEP]
        length = step.shape[1]
        return np.arange(length)[::-1] <= step[:, -1:]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._batch, name)

    def __getitem__(self, name: str) -> Any:
        return self.mask if name == "mask" else self._batch[name]

    def __len__(self) -> int:
        return len(self._batch)

    def __enter__(self) -> SequenceBatch:
        return self

    def __exit__(self, *_: Any) -> None:
        self._batch.release()


def of(batch: Any) -> SequenceBatch:
    """Returns a :class:`SequenceBatch`: the batch with a mask. Nothing is copied.

    :param batch: a batch of a table whose signature is made by :func:`signature`, from a view of stack 2
        or more.
    :raises InvalidArgument: the batch is of another table, or of a view of stack 1.
    """
    if STEP not in batch.names:
        raise errors.InvalidArgument("sequence.of: the batch has no column step: create the table with "
                                     "sequence.signature")
    if batch[STEP].ndim < 2:
        raise errors.InvalidArgument("sequence.of: the batch is of a view of stack 1: use a stack of 2 "
                                     "or more")
    return SequenceBatch(batch)
