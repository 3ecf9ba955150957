"""Recorded experience: datasets of `Minari <https://minari.farama.org>`_, and dicts of arrays in the form
of D4RL, into tables::

    table = relive.from_minari("D4RL/door/human-v2")          # needs minari
    table = relive.from_d4rl(env.get_dataset(), store, "hopper")
    table.extend(another)                                     # into a table that there is

A dict in D4RL's form (or an open file of h5py or ``numpy.load``) has arrays of n rows: ``observations``,
``actions``, ``rewards``, and, if it has them, ``terminals``, ``timeouts`` and ``next_observations``. An
episode ends where one of the first two is True, and with the last row. Of what is stored beside them
(``infos/qpos``) the table's columns decide.

>>> import numpy as np
>>> table = from_d4rl({"observations": np.zeros((10, 3), "f4"), "actions": np.zeros(10, int),
...                    "rewards": np.ones(10, "f4"), "terminals": np.arange(10) % 5 == 4})
>>> table.name, len(table), table.columns[0].shape
('d4rl', 10, (3,))
>>> table.store.close()
"""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import _bfloat16, _nested, errors
from .sequence import STEP
from .signature import columns_of
from .store import Store
from .table import Table
from .views import View

# What datasets call the columns of Relive.
_SOURCES = {"obs": "observations", "observation": "observations", "action": "actions", "reward": "rewards",
            "next_obs": "next_observations", "next_observation": "next_observations"}
_ROWS = 1 << 14  # of one call of extend: the bar moves between calls
_LEAST = 4096  # room of a table for a small dataset


@dataclasses.dataclass
class _Episode:
    """Rows of arrays, which have their names in the dataset and may be nested. final: the observation after
    the last action, or None."""

    values: Any
    rows: slice
    terminated: np.ndarray
    truncated: np.ndarray
    final: Any


def _map(function, tree):
    """Returns a nested value with each array replaced by ``function`` of it."""
    if hasattr(tree, "items"):
        return {key: _map(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_map(function, value) for value in tree)
    return function(tree)


def _of_minari(dataset):
    for episode in dataset.iterate_episodes():
        n = len(episode.rewards)
        values = {"observations": episode.observations, "actions": episode.actions, "rewards": episode.rewards,
                  "next_observations": _map(lambda array: array[1:], episode.observations)}
        terminated, truncated = np.array(episode.terminations, bool), np.array(episode.truncations, bool)
        truncated[-1:] |= ~terminated[-1:]
        yield _Episode(values, slice(0, n), terminated, truncated,
                       _map(lambda array: array[n], episode.observations))


def _ends_of_d4rl(dataset):
    """Returns (terminated, truncated), two arrays; the last row ends an episode."""
    if "rewards" not in dataset and "reward" not in dataset:
        raise errors.InvalidArgument(
            "dataset: no rewards in %s: want a dict of arrays: {\"observations\": ..., \"actions\": ..., "
            "\"rewards\": ..., \"terminals\": ..., \"timeouts\": ...}" % sorted(map(str, dataset)))
    n = len(dataset["rewards" if "rewards" in dataset else "reward"])
    ends = [np.zeros(n, bool), np.zeros(n, bool)]
    for end, names in zip(ends, (("terminals", "terminated"), ("timeouts", "truncated"))):
        for name in names:
            if name in dataset:
                _check_rows(name, dataset[name], n)
                end |= np.asarray(dataset[name]).astype(bool).reshape(n)
    ends[1][-1:] |= ~ends[0][-1:]
    return ends


def _check_rows(name, value, n):
    if len(value) != n:
        raise errors.InvalidArgument("dataset: %s has %d rows, rewards have %d: give arrays of one length"
                                     % (name, len(value), n))


def _of_d4rl(dataset):
    terminated, truncated = _ends_of_d4rl(dataset)
    for name, value in dataset.items():
        if name in _SOURCES or name in _SOURCES.values():
            _map(lambda array, name=name: _check_rows(name, array, len(terminated)), value)
    begin, after = 0, dataset.get("next_observations")
    for end in np.flatnonzero(terminated | truncated) + 1:
        rows = slice(begin, end)
        yield _Episode(dataset, rows, terminated[rows], truncated[rows],
                       None if after is None else _map(lambda array: array[rows.stop - 1], after))
        begin = end


def _read(dataset: Any) -> tuple[Iterator[_Episode], int, int]:
    """Returns (episodes, number of steps, number of episodes) of a dataset."""
    if hasattr(dataset, "iterate_episodes"):
        return _of_minari(dataset), int(dataset.total_steps), int(dataset.total_episodes)
    if not hasattr(dataset, "items"):
        raise errors.InvalidArgument(
            "dataset: %r: want a Minari dataset, or a dict of arrays: {\"observations\": ..., \"actions\": "
            "..., \"rewards\": ...}" % type(dataset).__name__)
    terminated, truncated = _ends_of_d4rl(dataset)
    return _of_d4rl(dataset), len(terminated), int((terminated | truncated).sum())


class Progress:
    """A line on a terminal's stderr that says how far a call of more than two seconds is; nothing elsewhere.

    :param what: name of the call; ``total``: of its steps; ``unit``: what they are called.
    """

    def __init__(self, what: str, total: int, unit: str = "steps") -> None:
        self._what, self._total, self._unit, self._done = what, total, unit, 0
        self._began = self._shown = time.monotonic()
        self._is_shown = False

    def add(self, n: int) -> None:
        """Counts n more steps."""
        self._done += n
        now = time.monotonic()
        if now - self._began < 2 or now - self._shown < 0.2 or not sys.stderr.isatty():
            return
        self._shown, self._is_shown = now, True
        share = self._done / max(self._total, 1)
        sys.stderr.write("\r%s: [%-30s] %3d %% of %d %s, %d s left \x1b[K" % (
            self._what, "#" * int(30 * share), 100 * share, self._total, self._unit,
            (now - self._began) * (1 - share) / max(share, 1e-9)))
        sys.stderr.flush()

    def close(self) -> None:
        """Clears the line."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _columns(names, values):
    """Returns the values of a dataset by the table's columns."""
    keys = {key: key if key in values else _SOURCES.get(key) for key in _nested.top(names)}
    flat = _nested.flatten({key: values[source] for key, source in keys.items() if source in values},
                           set(names))
    for name in names:
        if name not in flat:
            raise errors.InvalidArgument(
                "extend: the dataset has nothing for column %s; it has %s: leave the column out of "
                "create_table's signature, or add it: dataset[%r] = ..."
                % (name, ", ".join(map(str, values)), name))
    return {name: flat[name] for name in names}


def _append(writer, columns, episode, progress):
    names = [column.name for column in columns]
    numbers = [STEP] if STEP in names and STEP not in episode.values else []  # of a table of sequences
    arrays = {name: array[episode.rows] for name, array in
              _columns([name for name in names if name not in numbers], episode.values).items()}
    arrays.update((name, np.arange(len(episode.terminated), dtype="u4")) for name in numbers)
    for begin in range(0, len(episode.terminated), _ROWS):
        part = slice(begin, begin + _ROWS)
        writer.extend({name: array[part] for name, array in arrays.items()},
                      terminated=episode.terminated[part], truncated=episode.truncated[part])
        progress.add(len(episode.terminated[part]))
    observed = [column for column in columns if column.role == "obs"]
    if observed and episode.final is not None and not episode.terminated[-1:].any():
        final = {column.name: np.zeros(column.shape, _bfloat16.numpy_dtype(column.dtype))
                 for column in observed if numbers}
        known = [column.name for column in observed
                 if not numbers or _SOURCES.get(column.name.split(_nested.SEPARATOR)[0]) == "observations"]
        writer.end_episode({**final, **_columns(known, {"observations": episode.final})})


def extend(table: Table, dataset: Any) -> int:
    """Appends a dataset to a table: see :meth:`relive.Table.extend`."""
    episodes, total, _ = _read(dataset)
    progress = Progress("extend", total)
    columns = table.columns
    try:
        with table.writer() as writer:
            for episode in episodes:
                _append(writer, columns, episode, progress)
    finally:
        progress.close()
    return total


def _signature(dataset):
    """Returns the signature of a dataset: obs, action and reward in its own shapes and dtypes."""
    episode = next(_read(dataset)[0], None)
    if episode is None:
        raise errors.InvalidArgument("dataset: it has no step: give signature=...")
    first = {name: _map(lambda array: np.asarray(array[0]), episode.values[source])
             for name, source in _SOURCES.items() if name in ("obs", "action", "reward")
             and source in episode.values}
    return columns_of({name: (array.shape, array.dtype) for name, array in _nested.flatten(first, set()).items()})


def _load(dataset, store, name, signature, capacity, options):
    _, steps, episodes = _read(dataset)
    views = options.get("views") or View()
    longest = max(view.n_step for view in ((views,) if isinstance(views, View) else views))
    store = store if isinstance(store, Store) else Store(store)
    table = store.create_table(
        name, _signature(dataset) if signature is None else signature,
        max(steps + episodes * (longest + 1), _LEAST) if capacity is None else capacity, **options)
    if table.info().views[0].inserted:
        raise errors.AlreadyExists("dataset: table %s has steps already: open it by store.table(%r), or append "
                                   "more by table.extend(dataset)" % (name, name))
    table.extend(dataset)
    return table


def from_minari(dataset: Any, store: Store | str = "embed:", name: str | None = None, *,
                signature: Any = None, capacity: float | None = None, **options: Any) -> Table:
    """Creates a table with the steps of a Minari dataset, and returns it.

    The observation after an episode's last action is stored, so every step can be drawn. A terminal shows
    a progress bar if it takes longer than two seconds.

    :param dataset: a Minari dataset, or its name, which ``minari.load_dataset`` loads, from the network if
        it is not on this host.
    :param store: a :class:`relive.Store`, or the URI of one; ``table.store`` is it.
    :param name: of the table; None = that of the dataset, with ``-`` for ``/``.
    :param signature: as for :meth:`relive.Store.create_table`; None = ``obs``, ``action`` and ``reward`` as the
        dataset has them.
    :param capacity: None = room for the dataset.
    :param options: others of :meth:`relive.Store.create_table`.
    :raises AlreadyExists: the table has steps already.
    :raises InvalidArgument: names the column that the dataset does not have.
    """
    if isinstance(dataset, str):
        import minari
        dataset = minari.load_dataset(dataset, download=True)
    if name is None:
        named = getattr(getattr(dataset, "spec", None), "dataset_id", "minari")
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", named)[:63]
    return _load(dataset, store, name, signature, capacity, options)


def from_d4rl(dataset: Any, store: Store | str = "embed:", name: str = "d4rl", *, signature: Any = None,
              capacity: float | None = None, **options: Any) -> Table:
    """Creates a table with the steps of a dict of arrays in D4RL's form (:mod:`relive.datasets`), and returns
    it.

    Without ``next_observations`` the last step of an episode that timed out cannot be drawn, as its next
    observation is unknown; one warning says so.

    The parameters are those of :func:`relive.from_minari`, and so are the errors.
    """
    return _load(dataset, store, name, signature, capacity, options)
