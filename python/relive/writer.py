"""Writers: the data path of actors."""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _core, _cures, _nested, errors
from ._closing import close_all, leave
from ._integer import real, unsigned

if TYPE_CHECKING:
    from .table import Table

_append = _core.Writer.append  # super() would cost a tenth of a microsecond
_MODES = ("next_step", "same_step", "disabled")


class Writer(_core.Writer):
    """Appends steps to a table. ``table.writer()`` opens it.

    A writer is for one thread at a time: a call that begins while another thread is in one raises
    :class:`relive.Busy`. It is a context manager: leaving the block closes the writer, with
    ``wait=False`` if an exception leaves it. A writer cannot be pickled; a forked child cannot use it.

    :meth:`append` takes one step of each environment, :meth:`extend` several steps of one environment,
    :meth:`end_episode` ends an episode that the values do not end. All three block while the rate
    limiter or a full table admits no step, for at most the ``timeout`` that the writer was opened with,
    and then raise :class:`relive.Timeout`.

    ``num_envs`` is the number of environments, ``is_open`` is False after :meth:`close`, and
    ``autoreset`` is the mode: ``"next_step"``, ``"same_step"`` or ``"disabled"``; see
    :meth:`Table.writer`.

    An episode's last steps can be drawn as soon as its last row is in. Up to n_step filler rows follow
    the last row, which take room in the table like steps.
    """

    autoreset: str
    _table: Table  # whose store closes what is open

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        leave(partial(self.close, wait=kind is None), kind)

    def close(self, wait: bool = True) -> None:
        """Completes the pending items of all environments and closes the writer.

        A second call does nothing. Closing after the table was dropped is no error.

        :param wait: True = block until the rate limiter admits the pending items, for at most the
            writer's timeout for each environment. False = drop the items that it does not admit now.
        :raises Timeout: the pending items were not admitted. The writer is closed nevertheless. Only ^C
            leaves it open.
        """
        close_all([partial(super().close, wait=wait)])

    def __reduce__(self):
        raise TypeError(_cures.cured("pickle: a writer cannot be pickled: send the table, and open a writer in the "
                                     "other process"))


def with_finals(values: dict[str, Any]) -> dict[str, Any]:
    """Returns append's arguments; adds ``final_obs`` from infos to them if no ``final_<column>`` is
    given."""
    infos = values.get("infos")
    final = infos.get("final_obs") if isinstance(infos, dict) else None
    if final is None or any(name.startswith("final_") for name in values):
        return values
    return {**values, "final_obs": final}


class NestedWriter(Writer):
    """A :class:`Writer` of a table with nested columns. Values may be nested dicts or tuples, as
    gymnasium's ``Dict`` and ``Tuple`` spaces give them, or columns by their stored names."""

    _keywords: set[str]
    _plan: dict[str, tuple[tuple[str, str], ...]]

    def _flatten(self, values):
        return _nested.flatten(values, self._keywords)

    def append(self, steps: dict[str, Any] = {}, /, **values: Any) -> None:
        if values:
            steps = {**steps, **values}
        flat = _nested.spread(steps, self._plan)
        if flat is not None:
            try:
                return _append(self, flat)
            except errors.InvalidArgument:
                pass  # nothing was appended; the way below accepts more, or says what is wrong
        values = with_finals(dict(steps))
        infos = values.pop("infos", None)
        steps = self._flatten(values)
        if infos is not None:
            steps["infos"] = infos
        super().append(steps)

    def extend(self, steps: dict[str, Any] = {}, /, *, env: int = 0, **values: Any) -> None:
        super().extend(self._flatten({**steps, **values}), env=env)

    def end_episode(self, observation: dict[str, Any] = {}, /, *, env: int = 0,
                    **values: Any) -> None:
        super().end_episode(self._flatten({**observation, **values}), env=env)


def _mode(autoreset):
    value = getattr(autoreset, "value", autoreset)  # an enum of gymnasium: "NextStep"
    text = str(value)
    if text.isupper():
        text = text.lower()
    mode = "".join("_" + c.lower() if c.isupper() else c for c in text).strip("_")
    if mode not in _MODES:
        raise errors.InvalidArgument("writer: autoreset %r, want one of %s"
                                     % (autoreset, ", ".join(_MODES)))
    return mode


def _of_vector(envs, autoreset):
    """Returns (num_envs, mode) of a vector of environments: the mode of its metadata, else ``autoreset``.
    InvalidArgument if there is neither, or if they differ."""
    told = envs.metadata.get("autoreset_mode")
    if told is None and autoreset is None:
        raise errors.InvalidArgument(
            "writer: the vector's metadata has no autoreset_mode: give autoreset=\"next_step\", "
            "\"same_step\" or \"disabled\"")
    if told is not None and autoreset is not None and _mode(told) != _mode(autoreset):
        raise errors.InvalidArgument("writer: autoreset %r, but the vector is %s by its metadata: "
                                     "leave autoreset out" % (autoreset, _mode(told)))
    return envs.num_envs, _mode(autoreset if told is None else told)


def _of_options(envs, autoreset):
    """Returns (num_envs, mode, is_given) from Table.writer's arguments. num_envs: None = one environment
    without a batch dimension. is_given: the arguments give the mode; False = it is a default."""
    if hasattr(envs, "num_envs") and hasattr(envs, "metadata"):
        num_envs, mode = _of_vector(envs, autoreset)
        return unsigned("num_envs", num_envs, 1), mode, True
    if envs is not None:
        envs = unsigned("num_envs", envs, 1)
    if autoreset is not None:
        return envs, _mode(autoreset), True
    return envs, "disabled" if envs is None else "next_step", False


def open_writer(table, envs, autoreset, timeout, check_values):
    """Opens the writer that Table.writer returns: a NestedWriter if a column is nested, else a
    Writer."""
    num_envs, mode, is_given = _of_options(envs, autoreset)
    names = [column[0] for column in table.columns]
    kind = NestedWriter if _nested.is_nested(names) else Writer
    if timeout is not None:
        real("writer: timeout", timeout, 0, float("inf"))
    arguments = (table, num_envs or 1, num_envs is not None, _MODES.index(mode), not is_given, check_values, timeout)
    try:
        writer = kind(*arguments)
    except errors.NoSpace:
        gc.collect()  # closes writers that only each other, or a traceback, refers to
        writer = kind(*arguments)
    writer.autoreset = mode
    if isinstance(writer, NestedWriter):
        writer._keywords = _nested.keywords(names)
        writer._plan = _nested.plan(names)
    return writer
