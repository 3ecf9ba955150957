"""Signatures: the columns of one step of one environment, with their shapes and dtypes.

A signature is made from a dict of columns, a numpy structured dtype or gymnasium spaces, all of which
may be nested:

>>> for column in columns_of({"obs": ((4,), "float32"), "action": "int64", "reward": "float32"}):
...     print(column)
Column(name='obs', shape=(4,), dtype='float32', role='obs')
Column(name='action', shape=(), dtype='int64', role='plain')
Column(name='reward', shape=(), dtype='float32', role='reward')
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import numpy as np

from . import _bfloat16, _core, _nested, errors

ROLES = ("plain", "obs", "reward", "next")

# Names that say how a column is sampled.
_ROLES_BY_NAME = {"obs": "obs", "observation": "obs", "reward": "reward", "rewards": "reward",
                  "next_obs": "next", "next_observation": "next"}

# Names that a batch or a call has already.
RESERVED = frozenset((
    "terminated", "truncated", "final", "td_error", "policy_version", "infos", "env", "key", "weight",
    "probability", "priority", "discount", "steps", "n", "names", "table_size", "copy", "release",
    "keys", "items", "torch", "jax"))


_INSTEAD = dict.fromkeys(("terminated", "truncated"),
                         "leave it out: append(..., terminated=terminated, truncated=truncated) keeps both, "
                         "and batch.discount is 0 where an episode terminated")

# What other libraries call the end of an episode. Relive does not look into plain columns.
ENDS = frozenset(("done", "dones", "terminal", "terminals", "is_terminal", "timeouts"))


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a signature: one value of each step.

    ``name`` is its keyword in ``append`` and its name in batches. ``shape`` is a tuple, or an integer for
    one dimension; () = a number. ``dtype`` is a name, or a numpy or torch dtype: bool, int8 to int64,
    uint8 to uint64, float16 to float64, or bfloat16. Both are those of one step of one environment.
    ``role`` says how sampling treats the column:

    * ``"plain"``: as stored at the step, such as an action;
    * ``"obs"``: stacked, and also read n steps later as ``next_<name>``;
    * ``"reward"``: a scalar of float32 or float64, summed to the n-step return;
    * ``"next"``: a next observation that the actor stores, read at the last step of the return.

    If no role is given, the name decides: ``obs`` and ``observation`` are observations, ``reward`` and
    ``rewards`` are rewards, ``next_obs`` and ``next_observation`` are next observations, and so are names
    that begin with one of them and ``__``, the parts of nested values; all others are plain. An
    observation whose next one is stored, too, is plain: in a signature with ``obs`` and ``next_obs`` both
    are given by the actor.

    Raises :class:`relive.InvalidArgument` for a shape, dtype, role or name that cannot be.
    """

    name: str
    shape: Any = ()
    dtype: Any = "float32"
    role: Any = None

    def __post_init__(self):
        set_ = object.__setattr__
        set_(self, "shape", _shape(self.shape, self.name))
        set_(self, "dtype", _dtype(self.dtype, self.name))
        set_(self, "role", self.role or _role_of(self.name))
        if self.role not in ROLES:
            raise errors.InvalidArgument(
                "signature: column %s: role %r, want one of %s"
                % (self.name, self.role, ", ".join(ROLES)))
        if self.name in RESERVED:
            raise errors.InvalidArgument(
                "signature: column %s: batches and calls use this name: %s"
                % (self.name, _INSTEAD.get(self.name, "give another")))

    @property
    def nbytes(self) -> int:
        """Number of bytes of the column in one step."""
        return int(np.prod(self.shape, dtype=np.int64)) * _bfloat16.numpy_dtype(self.dtype).itemsize

    def _core_tuple(self):
        return (self.name, _core.dtypes[self.dtype], ROLES.index(self.role), self.shape)

    @classmethod
    def _of_core(cls, values):
        name, dtype, role, shape = values
        column = object.__new__(cls)  # one made by a C program may have any name
        names = {code: text for text, code in _core.dtypes.items()}
        for key, value in (("name", name), ("shape", shape), ("dtype", names[dtype]),
                           ("role", ROLES[role])):
            object.__setattr__(column, key, value)
        return column


def _is_shape(value):
    return isinstance(value, (tuple, list)) and all(
        isinstance(size, (int, np.integer)) for size in value)


def _shape(shape, name):
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        sizes = (0,)
    if any(size < 1 for size in sizes):
        raise errors.InvalidArgument(
            "signature: column %s: shape %r, want an integer or a tuple of integers, of 1 or more"
            % (name, shape))
    if len(sizes) > 6:
        raise errors.InvalidArgument("signature: column %s: shape %r, want at most 6 dimensions" % (name, shape))
    return sizes


def _dtype(dtype, name):
    try:
        if dtype is None:
            raise TypeError
        text = np.dtype(dtype).newbyteorder("=").name
    except TypeError:
        text = str(dtype).removeprefix("torch.")
    if text not in _core.dtypes:
        example = 'write {"%s": (%s, "float32")}' % (
            name, tuple(dtype) if _is_shape(dtype) else "(4,)")
        raise errors.InvalidArgument(
            "signature: column %s: dtype %s, want one of %s; with a shape %s"
            % (name, text, ", ".join(_core.dtypes), example))
    return text


def _role_of(name):
    first = name.split(_nested.SEPARATOR)[0]
    return _ROLES_BY_NAME.get(first, "plain")


def columns_of(spec: Any) -> list[Column]:
    """Returns the columns of a signature, a new list of :class:`Column`.

    :param spec: a dict from names to dtypes, ``(shape, dtype)`` tuples in either order, arrays or specs
        with a shape and a dtype, :class:`Column` objects, gymnasium spaces or dicts of these; or a numpy
        structured dtype, a ``gymnasium.spaces.Dict``, or a list of columns. A nested name is stored as its
        parts joined by ``__``: ``obs__image``.
    :raises InvalidArgument: names the column.

    >>> [column.role for column in columns_of({"obs": ("float32", (4,)), "next_obs": ((4,), "float32")})]
    ['plain', 'next']
    """
    if isinstance(spec, (list, tuple)) and all(isinstance(item, Column) for item in spec):
        return list(spec)
    columns = _of_structured(spec) if isinstance(spec, np.dtype) else _of_mapping(spec)
    stored = {column.name for column in columns if column.role == "next"}
    return [dataclasses.replace(column, role="plain")
            if column.role == "obs" and "next_" + column.name in stored else column
            for column in columns]


def _of_mapping(spec):
    if hasattr(spec, "spaces"):
        spec = spec.spaces
    if not hasattr(spec, "items"):
        raise errors.InvalidArgument(
            "signature: want a dict of columns, a structured dtype or a space, not %r" % (spec,))
    columns = []
    for name, value in spec.items():
        columns += _of_value(str(name), value)
    return columns


def _of_structured(dtype):
    if not dtype.names:
        raise errors.InvalidArgument(
            "signature: dtype %s has no fields: want a structured dtype, or a dict of columns" % dtype)
    columns = []
    for name in dtype.names:
        base, shape = dtype.fields[name][0].subdtype or (dtype.fields[name][0], ())
        if base.names:
            columns += [dataclasses.replace(c, name=name + _nested.SEPARATOR + c.name, role=None)
                        for c in _of_structured(base)]
        else:
            columns.append(Column(name, shape, base))
    return columns


def _of_value(name, value):
    if isinstance(value, Column):
        return [dataclasses.replace(value, name=name)]
    if hasattr(value, "spaces"):  # gymnasium's Dict and Tuple
        inner = value.spaces
        value = inner if hasattr(inner, "items") else dict(enumerate(inner))
    if hasattr(value, "items"):
        columns = []
        for key, part in value.items():
            columns += _of_value(name + _nested.SEPARATOR + str(key), part)
        return columns
    if hasattr(value, "sample") and hasattr(value, "contains"):
        return [_of_space(name, value)]
    if isinstance(value, np.dtype) and value.subdtype:
        value = value.subdtype
    if isinstance(value, (tuple, list)) and len(value) == 2 and not _is_shape(value):
        shape, dtype = value
        if _is_shape(dtype) or isinstance(dtype, (int, np.integer)):
            shape, dtype = dtype, shape
        return [Column(name, shape, dtype)]
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
        return [Column(name, value.shape, value.dtype)]  # an array, or a spec of one
    return [Column(name, (), value)]


def _of_space(name, space):
    if space.shape is None or space.dtype is None:
        raise errors.InvalidArgument(
            "signature: column %s: space %s has no fixed shape: flatten it, or leave it out"
            % (name, space))
    return Column(name, space.shape, space.dtype)


def of_env(env: Any, reward: Any = "float32", dtype: Any = None) -> list[Column]:
    """Returns the usual signature of a gymnasium environment, a list of :class:`Column`: ``obs``,
    ``action`` and ``reward``.

    :param env: an environment, or a vector of them, whose single observation and action spaces are
        used.
    :param reward: dtype of the reward.
    :param dtype: dtype of the floats in the observation and the action, such as ``"float32"`` where the
        environment says float64, ``"float16"`` or ``"bfloat16"``; None = that of the spaces.
    :raises InvalidArgument: a space has no fixed shape; names the column.
    """
    obs = getattr(env, "single_observation_space", env.observation_space)
    action = getattr(env, "single_action_space", env.action_space)
    columns = columns_of({"obs": obs, "action": action, "reward": reward})
    return [column if dtype is None or column.role == "reward" or "float" not in column.dtype
            else dataclasses.replace(column, dtype=dtype) for column in columns]
