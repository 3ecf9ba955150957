"""Nested observations: ``{"obs": {"image": ..., "speed": ...}}`` is stored as the columns
``obs__image`` and ``obs__speed``, so that any process that opens the table can put it together."""

SEPARATOR = "__"


_OPTIONS = {"terminated", "truncated", "final", "td_error", "policy_version", "infos", "env"}


def keywords(columns):
    """Returns the set of keywords of a writer of these columns; flatten() does not split their
    tuples."""
    return _OPTIONS.union(columns, ("final_" + name for name in columns))


def plan(columns):
    """Returns what spread() goes by: for each name that append takes, () or, if the value is a dict, the
    stored name and the key of each of its parts. Values that are nested deeper are left out.

    >>> sorted(plan(("obs__image", "obs__speed", "action"))["obs"])
    [('obs__image', 'image'), ('obs__speed', 'speed')]
    """
    names = index(columns)
    result = dict.fromkeys(_OPTIONS - {"infos"}, ())
    for first in top(columns):
        inner = names[first]
        if not isinstance(inner, dict):
            parts_ = ()
        elif any(isinstance(entry, dict) for entry in inner.values()):
            continue
        else:
            parts_ = tuple((first + SEPARATOR + key, key) for key in inner)
        result[first] = parts_
        result["final_" + first] = tuple(("final_" + name, key) for name, key in parts_)
    return result


def spread(values, plan_):
    """Flattens the usual values of append, in a quarter of the time of flatten(). None: they are others.
    Of what it returns the extension may refuse a value that flatten() leaves out or splits.

    >>> spread({"obs": {"image": 1, "speed": 2}, "action": 4}, plan(("obs__image", "obs__speed", "action")))
    {'obs__image': 1, 'obs__speed': 2, 'action': 4}
    >>> spread({"obs": {"image": 1}}, plan(("obs__image", "obs__speed"))) is None
    True
    """
    flat = {}
    try:
        for name, value in values.items():
            inner = plan_[name]
            if inner:
                for stored, key in inner:
                    flat[stored] = value[key]
                if len(value) != len(inner):
                    return None
            else:
                flat[name] = value
    except (KeyError, IndexError, TypeError):
        return None
    return flat


def flatten(values, whole=_OPTIONS, prefix=""):
    """Flattens nested dicts and tuples to one dict of columns. Tuples under a name in ``whole`` stay;
    values that are None are left out.

    >>> flatten({"obs": {"image": 1, "pose": (2, 3)}, "action": 4, "td_error": None})
    {'obs__image': 1, 'obs__pose__0': 2, 'obs__pose__1': 3, 'action': 4}
    >>> flatten({"obs": {"image": 1, "pose": (2, 3)}, "action": (4, 5)}, {"obs__pose", "action"})
    {'obs__image': 1, 'obs__pose': (2, 3), 'action': (4, 5)}
    >>> flatten({"final_obs": [None, {"image": 5}]})
    {'final_obs__image': [None, 5]}
    """
    flat = {}
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, tuple) and prefix + str(name) not in whole:
            value = dict(enumerate(value))
        if hasattr(value, "items"):
            flat.update(flatten(value, whole, "%s%s%s" % (prefix, name, SEPARATOR)))
        elif not prefix and name.startswith("final_") and _is_by_environment(value):
            flat.update(_by_column(name, value, whole))
        else:
            flat[prefix + str(name)] = value
    return flat


def _is_by_environment(value):
    """True if a value is a list or an array of objects: gymnasium's final observations of nested
    spaces, one for each environment, or None."""
    return getattr(value, "dtype", None) == object or isinstance(value, list)


def _by_column(name, observations, whole):
    """Converts a list of nested observations, one or None for each environment, to a dict from columns
    to lists."""
    flat = [{} if one is None else flatten({name: one}, whole) for one in observations]
    columns = dict.fromkeys(column for one in flat for column in one)
    return {column: [one.get(column) for one in flat] for column in columns}


def index(names):
    """Returns a dict from each name to its position, and from first parts of nested names to such dicts.

    >>> index(("obs__image", "obs__pose__0", "action"))["obs"]
    {'image': 0, 'pose': {'0': 1}}
    """
    result: dict = {name: number for number, name in enumerate(names)}
    for number, name in enumerate(names):
        parts = name.split(SEPARATOR)
        if len(parts) == 1 or "" in parts:
            continue
        level = result
        for part in parts[:-1]:
            level = level.setdefault(part, {})
            if not isinstance(level, dict):
                break
        else:
            level[parts[-1]] = number
    return result


def top(names):
    """Returns the keys of a batch of these columns, a list: of a nested name its first part.

    >>> top(("obs__image", "obs__pose__0", "action", "_own__"))
    ['obs', 'action', '_own__']
    """
    entries = index(names)
    return list(dict.fromkeys(
        name if not isinstance(entries.get(first), dict) else first
        for name in names for first in (name.split(SEPARATOR)[0],)))


def parts(name, names):
    """Returns the names that a nested name is stored as.

    >>> parts("obs", ("obs__image", "obs__pose__0", "observed"))
    ['obs__image', 'obs__pose__0']
    """
    return [stored for stored in names if stored.startswith(name + SEPARATOR)]


def is_nested(names):
    """True if any column is part of a nested value."""
    return any(SEPARATOR in name.strip("_") for name in names)
