"""Writers: the actor's path."""

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
    """Appends steps, from ``table.writer()``; for one thread at a time. A context manager.

    **append(**values)**: one step of the environment, or of each environment of a vector; values may
    also come in a dict, ``append({"obs": obs, ...})``: less work than ``append(**step)``.

    * one value for each column of the signature: anything that numpy makes an array of the column's
      shape (after a dimension of num_envs, if it was given) of, including torch tensors on the
      host. Arrays of the column's dtype are used in place; others are converted if numpy's
      same_kind rule allows it, and integers if they fit. Numbers that do not fit (300 in uint8,
      1e300 in float32), and rewards that are NaN or infinite, are an InvalidArgument that names
      the column and the index, unless the writer was opened with ``check_values=False``;
    * ``terminated``, ``truncated``: bool, or an array of E;
    * ``final_<column>`` for each observation column: see ``autoreset`` of :meth:`Table.writer`;
    * ``infos``: the dict that a vector's ``step()`` returned: where the mode is ``"same_step"`` its
      ``final_obs`` are taken, else they are an error that names the mode;
    * ``final``: bool: this row is only the observation after an episode's last action. Whoever gives
      such rows gives ``final`` with every call, so that ended episodes wait for theirs;
    * ``td_error``: initial TD errors (absolute values count); without them new items take the
      running maximum of the view;
    * ``policy_version``: of the policy that acted.

    An episode's last steps are drawable at once with its last row, whatever the view's n_step: that of
    its final observation, if one is given or the next row is it, else the one that terminates it. For
    that up to n_step filler rows follow it, which take room as steps do. A step that is truncated
    without a final observation is no item: ``stats()["truncated_lost"]`` counts them from the next step
    on, and a UserWarning says it once.

    **extend(env=0, **values)**: n consecutive steps of one environment, as arrays of n; without
    ``final_<column>``: a row with ``final`` is the observation after an episode's last action.

    **end_episode(env=0, **observation)**: ends the episode of an environment, with its last
    observation if it is given, in all of its columns: items that wait for later steps are completed.

    All wait for the rate limiter and for room: :class:`relive.Timeout` after the writer's timeout.
    After it append's step is not in, of no environment: append it again. Final observations that
    must wait for longer than their step are no error: they go in before the rows of the next call,
    which raises if they cannot. Of extend's steps a part may be in: ``stats()["steps"]`` counts all
    rows, those of final observations, too. Other errors: InvalidArgument (names the column),
    Fenced, TableDropped, NodeDown, Forked, Closed.

    **close(wait=True)**: completes the pending items of all environments; without waiting, those
    that the rate limiter does not admit now are dropped. A table that was dropped has nothing left
    to complete: no error. An exception that leaves the writer's ``with`` does not wait. **stats()**:
    counters, a dict. **autoreset**: the mode.
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
        raise TypeError("a writer is its process's: send the table and open a writer there")


def with_finals(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments of append with the final observations of its infos."""
    infos = values.get("infos")
    final = infos.get("final_obs") if isinstance(infos, dict) else None
    if final is None or any(name.startswith("final_") for name in values):
        return values
    return {**values, "final_obs": final}


class NestedWriter(Writer):
    """A writer whose observations come as dicts or tuples."""

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
    """(num_envs, mode) of a vector of environments, whose metadata say how it resets."""
    told = envs.metadata.get("autoreset_mode")
    if told is None and autoreset is None:
        raise errors.InvalidArgument(
            "writer: the vector's metadata have no autoreset_mode: give autoreset=\"next_step\", "
            "\"same_step\" or \"disabled\"")
    if told is not None and autoreset is not None and _mode(told) != _mode(autoreset):
        raise errors.InvalidArgument("writer: autoreset %r, but the vector is %s by the metadata: "
                                     "leave autoreset out" % (autoreset, _mode(told)))
    return envs.num_envs, _mode(autoreset if told is None else told)


def _of_options(envs, autoreset):
    """(num_envs, mode, is it given?) of the arguments of Table.writer."""
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
