"""Checkpoints of a training: torch's state and tables of a store, as one cut."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import Any

import torch

from . import errors
from ._integer import unsigned
from ._saving import path_of
from .store import Store

_WHOLE = re.compile(r"step-(\d{12})")
_STATE = "state.pt"
_SAFE = int(torch.__version__.split(".")[0]) >= 2  # torch 1 refuses the numbers of optimizers there


class Checkpoint:
    """A folder of checkpoints: model, optimizer, tables, a version of weights and the step, saved together.

    A checkpoint is there as a whole or not at all, also after a kill or with a full disk; the one before stays.
    It can be loaded into any store::

        checkpoint = relive.torch.Checkpoint("run1", store, tables=["replay"], model=net, optimizer=adam)
        first = checkpoint.load() or 0                      # before create_table, which then opens what was loaded
        table = store.create_table("replay", signature, capacity=1_000_000)
        for step in range(first, 1_000_000):
            ...
            if step % 10_000 == 0:
                checkpoint.save(step)

    :param path: of the folder, which is made.
    :param store: an open :class:`relive.Store`.
    :param tables: names of tables.
    :param weights: name of weights, whose newest version is saved; None = none.
    :param keep: checkpoints that stay.
    :param compress: of tables: level of zstd, 0 = none.
    :param parts: objects with ``state_dict`` and ``load_state_dict`` under any names: ``model=net,
        optimizer=adam, target=target_net``.
    """

    def __init__(self, path: Any, store: Store, *, tables: Sequence[str] = (), weights: str | None = None,
                 keep: int = 1, compress: int = 0, **parts: Any) -> None:
        for name, part in parts.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise errors.InvalidArgument("Checkpoint: %s of type %s, want an object with state_dict and "
                                             "load_state_dict" % (name, type(part).__name__))
        if isinstance(tables, str):
            raise errors.InvalidArgument("Checkpoint: tables %r, want a list of names: [%r]" % (tables, tables))
        self._path = path_of("Checkpoint: path", path)
        self._store, self._tables, self._weights = store, tuple(tables), weights
        self._keep = max(1, unsigned("keep", keep))
        self._compress, self._parts = unsigned("compress", compress), parts

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints that are there, the oldest first."""
        try:
            names = os.listdir(self._path)
        except FileNotFoundError:
            return []
        return sorted(int(found[1]) for found in map(_WHOLE.fullmatch, names) if found)

    def save(self, step: int) -> str:
        """Saves a checkpoint, and removes those that are not kept. Returns its folder. Actors may append meanwhile;
        what they had appended before the call, and all priorities that were set before it, are in it. Steps of the
        tables that the last checkpoint has are copied from there.

        :param step: 0 or more; above that of every checkpoint in the folder.
        :raises AlreadyExists: the folder has a checkpoint of that step, or of a later one.
        :raises NotFound: there is no such table.
        """
        step = unsigned("step", step, bits=32)
        there = self.steps()
        if there and step <= there[-1]:
            raise errors.AlreadyExists("save: step %d, but %s has a checkpoint of step %d: give a later step, or another "
                                       "folder" % (step, self._path, there[-1]))
        base = self._folder(there[-1]) if there else None
        draft = self._folder(step) + ".saving"
        shutil.rmtree(draft, ignore_errors=True)  # of a killed process
        os.makedirs(draft)
        try:
            self._fill(draft, base, step)
            os.rename(draft, self._folder(step))
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        _sync(self._path)
        self._remove_old()
        return self._folder(step)

    def load(self, step: int | None = None) -> int | None:
        """Loads a checkpoint: parts get their state, tables are made in the store, or replaced there one after the
        other, each beside the earlier one (``replace`` of :meth:`relive.Store.load_table`), the weights' version is published, if the weights have none that is newer, and torch's generators of random numbers go on as they
        were. Returns its step; None = there is no checkpoint. Open the tables afterwards.

        :param step: None = the last one.
        :raises NotFound: there is no checkpoint of that step, or it lacks a table or part.
        :raises ProtocolError: a file of it is damaged; no part was changed.
        """
        there = self.steps()
        if step is None and not there:
            return None
        if step is not None and step not in there:
            raise errors.NotFound("load: %s has no checkpoint of step %r; there are: %s" % (self._path, step, there))
        step = there[-1] if step is None else step
        state = self._read(step)
        for name in self._tables:
            with self._store.load_table(os.path.join(self._folder(step), name + ".rlvs"), replace=True):
                pass
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        self._publish(state["weights"])
        torch.set_rng_state(state["random"])
        if state["random_cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["random_cuda"][:torch.cuda.device_count()])
        return step

    def _folder(self, step):
        return os.path.join(self._path, "step-%012d" % step)

    def _fill(self, draft, base, step):
        for name in self._tables:
            earlier = base and os.path.join(base, name + ".rlvs")
            with self._store.table(name) as table:
                table.save(os.path.join(draft, name + ".rlvs"), compress=self._compress,
                           base=earlier if earlier and os.path.exists(earlier) else None)
        state = {"step": step, "parts": {name: part.state_dict() for name, part in self._parts.items()},
                 "weights": self._fetch(), "random": torch.get_rng_state(),
                 "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}
        with open(os.path.join(draft, _STATE), "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        _sync(draft)

    def _fetch(self):
        """The newest version of the weights, or None."""
        if self._weights is None:
            return None
        with self._store.weights(self._weights) as weights:
            generation = weights.fetch()
            return None if generation is None else {"version": generation.version, "tensors": generation.torch()}

    def _publish(self, saved):
        if self._weights is None or saved is None:
            return
        with self._store.weights(self._weights) as weights:
            newest = weights.fetch()
            if newest is None or newest.version < saved["version"]:
                weights.publish(saved["tensors"], saved["version"], new_tree=newest is not None)

    def _read(self, step):
        """Reads the state, and checks that all that is wanted is there."""
        folder = self._folder(step)
        try:
            state = torch.load(os.path.join(folder, _STATE), map_location="cpu", weights_only=_SAFE)
        except OSError:
            raise
        except Exception as error:
            raise errors.ProtocolError("load: %s in %s is damaged: %s" % (_STATE, folder, error)) from None
        missing = [name for name in self._parts if name not in state["parts"]] + \
            [name for name in self._tables if not os.path.exists(os.path.join(folder, name + ".rlvs"))]
        if missing:
            raise errors.NotFound("load: %s has no %s: leave it out" % (folder, ", ".join(missing)))
        return state

    def _remove_old(self):
        for step in self.steps()[:-self._keep]:
            gone = self._folder(step) + ".saving"  # no checkpoint any more, once it has that name
            shutil.rmtree(gone, ignore_errors=True)
            os.rename(self._folder(step), gone)
            shutil.rmtree(gone, ignore_errors=True)


def _sync(folder):
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
