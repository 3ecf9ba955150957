"""Writers: the data path of actors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from . import _core, _nested, errors
from ._closing import close_all, leave
from ._integer import unsigned

if TYPE_CHECKING:
    from .table import Table

_MODES = ("next_step", "same_step", "disabled")


class Writer(_core.Writer):
    """Appends steps; opened by ``table.writer()``. For one thread at a time. It is a context manager.

    **append(**values)**: appends one step of the environment, or one of each environment of a vector.
    Values are keywords, or one dict: ``append({"obs": obs, ...})`` is faster than ``append(**step)``.

    * One value for each column of the signature: of the column's shape, after a dimension E if the
      writer has a vector of E environments. Anything that numpy converts to an array, including torch
      tensors on the host. Arrays of the column's dtype are used in place; others are converted if
      numpy's same_kind rule allows it, and integers if they fit. Numbers that do not fit (300 in
      uint8, 1e300 in float32), and NaN or infinite rewards, raise an InvalidArgument that names the
      column and the index, unless the writer was opened with ``check_values=False``.
    * ``terminated``, ``truncated``: bool, or (E,) bool.
    * ``final_<column>`` for each observation column: the observation after an episode's last action.
      See ``autoreset`` of :meth:`Table.writer`.
    * ``infos``: the dict that a vector's ``step()`` returned. With mode ``"same_step"`` its
      ``final_obs`` is used; with another mode a ``final_obs`` in it raises InvalidArgument.
    * ``final``: bool, or (E,) bool: True = this row is only the observation after an episode's last
      action. Give ``final`` with every call if you append such rows, so that an ended episode waits
      for its final row.
    * ``td_error``: float, or (E,): initial TD errors of either sign. Without them new items get the
      largest priority of the view so far.
    * ``policy_version``: 0 to 2^32 - 1: of the policy that acted.

    The last steps of an episode can be drawn as soon as its last row is in, whatever the view's n_step.
    The last row is the final observation, if one is given or the next row is one; else it is the row
    that terminates the episode. Up to n_step filler rows follow it, which take room like steps. A
    truncated step without a final observation cannot be drawn: ``stats()["truncated_lost"]`` counts
    such steps when the next step is appended, and a UserWarning is issued once.

    **extend(env=0, **values)**: appends n consecutive steps of one environment. Values have a first
    dimension of n. ``final_<column>`` and ``infos`` are not accepted: append a final observation as a
    row with ``final=True``.

    **end_episode(env=0, **observation)**: ends the episode of one environment, so that its pending
    items are completed. The observation after the last action may be given, in all of its columns.

    These calls wait for the rate limiter and for room, and raise :class:`relive.Timeout` after the
    writer's timeout. After an error of append no environment's step was appended: call it again. Final
    observations that cannot be appended at once do not raise: they are appended before the rows of the
    next call, which raises if that fails. After an error of extend some of its steps may be in:
    ``stats()["steps"]`` counts all rows, final observations included. Other errors: InvalidArgument
    (names the column), Fenced, TableDropped, NodeDown, Forked, Closed, Busy (another thread is in a
    call).

    **close(wait=True)**: completes the pending items of all environments and closes. With wait=False
    items that the rate limiter does not admit now are dropped. Closing after the table was dropped is
    no error. If an exception leaves the writer's ``with``, it closes with wait=False. **stats()**:
    returns counters as a dict. **autoreset**: the mode, a string.
    """

    autoreset: str
    _table: Table  # whose store closes what is open

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        leave(partial(self.close, wait=kind is None), kind)

    def close(self, wait: bool = True) -> None:
        close_all([partial(super().close, wait=wait)])

    def __reduce__(self):
        raise TypeError("a writer cannot be pickled: send the table, and open a writer in the other "
                        "process")


def with_finals(values: dict[str, Any]) -> dict[str, Any]:
    """Returns append's arguments, with final_obs from infos if it is only there."""
    infos = values.get("infos")
    final = infos.get("final_obs") if isinstance(infos, dict) else None
    if final is None or any(name.startswith("final_") for name in values):
        return values
    return {**values, "final_obs": final}


class NestedWriter(Writer):
    """A writer whose values may be nested dicts or tuples."""

    _keywords: set[str]

    def _flatten(self, values):
        return _nested.flatten(values, self._keywords)

    def append(self, steps: dict[str, Any] = {}, /, **values: Any) -> None:
        values = with_finals({**steps, **values})
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
        raise errors.InvalidArgument("autoreset %r, want one of %s"
                                     % (autoreset, ", ".join(_MODES)))
    return mode


def _of_vector(envs, autoreset):
    """Returns (num_envs, mode) of a vector of environments, from its metadata."""
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
    """Returns (num_envs or None, mode, True if the mode is given) from Table.writer's arguments."""
    if hasattr(envs, "num_envs") and hasattr(envs, "metadata"):
        num_envs, mode = _of_vector(envs, autoreset)
        return unsigned("num_envs", num_envs, 1), mode, True
    if envs is not None:
        envs = unsigned("num_envs", envs, 1)
    if autoreset is not None:
        return envs, _mode(autoreset), True
    return envs, "disabled" if envs is None else "next_step", False


def open_writer(table, envs, autoreset, timeout, check_values):
    """For Table.writer."""
    num_envs, mode, is_given = _of_options(envs, autoreset)
    names = [column[0] for column in table.columns]
    kind = NestedWriter if _nested.is_nested(names) else Writer
    writer = kind(table, num_envs or 1, num_envs is not None, _MODES.index(mode), not is_given,
                  check_values, timeout)
    writer.autoreset = mode
    if isinstance(writer, NestedWriter):
        writer._keywords = _nested.keywords(names)
    return writer
