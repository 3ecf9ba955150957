"""Sequences: items that are consecutive steps, for networks that remember::

    table = store.create_table("replay", relive.sequence.signature(relive.signature.of_env(envs)),
                               capacity=1_000_000, views=[relive.View(stack=40)])
    with relive.sequence.Writer(table, num_envs=8) as writer:
        writer.append(obs=obs, action=action, reward=reward, terminated=terminated,
                      truncated=truncated)
    batch = relive.sequence.of(table.sample(64, layout="window"))

A view's ``stack`` is the length. ``signature`` stacks every column, so that a batch has ``obs``,
``action`` and ``reward`` as (n, length, \\*shape), rewards as they are; ``next_<name>`` is the same
a step later, and with ``layout="window"`` lies in the same memory. All sequences share the rows of
the table. The view's ``period`` says which sequences of an episode there are:

* ``period=1`` (default): one that ends with each step. One that would begin before its episode begins
  with copies of the first step instead, where ``batch.mask`` is False.
* ``period > 1``: those that begin with step 0, period, 2 * period, ... and lie within the episode, and
  one that ends with its last step, as R2D2, Acme and flashbax have them. Episodes that are shorter
  than the length are one sequence, padded as above; no other has padding::

      View(stack=40, period=20), an episode of 105 steps

      step   0   20   40   60   80   100
             [ 0 .. 39]
                  [20 .. 59]
                       [40 .. 79]
                            [60 .. 99]
                              [65 .. 104]     the last one, shifted back: every reward is drawn

  An episode that was truncated without a final observation ends with the step before its last one:
  nobody knows what came after that. While an episode goes on, a sequence is drawable when the two
  steps behind it are in.

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
    """The columns of ``spec`` (see :func:`relive.signature.columns_of`), each of them stacked, and
    ``step``, the number of the step in its episode, which :class:`Writer` fills in."""
    columns = columns_of(spec)
    for column in columns:
        if column.name == STEP or column.role == "next":
            raise errors.InvalidArgument(
                "column %s: sequences number their steps and read next observations from the rows: "
                "leave it out" % column.name)
    return [*(dataclasses.replace(column, role="obs") for column in columns),
            Column(STEP, (), "uint32", "obs")]


class Writer:
    """As :meth:`relive.Table.writer`, with the same parameters: numbers the steps. It has the
    methods of :class:`relive.Writer` but ``extend``."""

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
        """As :meth:`relive.Writer.append`. A final observation is given of the observations alone;
        what else is stacked is 0 there."""
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
        """As :meth:`relive.Writer.end_episode`."""
        observation = {**final, **observation}
        if observation:
            observation = {**{name.removeprefix("final_"): value[env] if self._is_vector else value
                              for name, value in self._others.items()}, **observation}
        self._writer.end_episode(env=env, **observation)
        self._step[env], self._ended[env] = 0, False

    def stats(self) -> dict[str, int]:
        """As :meth:`relive.Writer.stats`."""
        return self._writer.stats()

    def close(self, wait: bool = True) -> None:
        """As :meth:`relive.Writer.close`."""
        self._writer.close(wait=wait)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(wait=kind is None)


class SequenceBatch:
    """A batch whose ``mask`` (n, length) says which steps are those of the episode; all else is as
    in the batch that it is of."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    @property
    def mask(self) -> np.ndarray:
        """False where a sequence would begin before its episode."""
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
    """The batch of a table that :func:`signature` describes, with its mask."""
    if STEP not in batch.names:
        raise errors.InvalidArgument("batch: no column step: make the table of sequence.signature")
    if batch[STEP].ndim < 2:
        raise errors.InvalidArgument("batch: its view has stack 1, which is no sequence")
    return SequenceBatch(batch)
