"""Nested observations: ``{"obs": {"image": ..., "speed": ...}}`` is stored as the columns
``obs__image`` and ``obs__speed``, so that any process that opens the table can put it together."""

SEPARATOR = "__"


def flatten(values, prefix=""):
    """One dict of columns from nested dicts and tuples.

    >>> flatten({"obs": {"image": 1, "pose": (2, 3)}, "action": 4})
    {'obs__image': 1, 'obs__pose__0': 2, 'obs__pose__1': 3, 'action': 4}
    """
    flat = {}
    for name, value in values.items():
        if isinstance(value, tuple) and prefix + str(name) not in _OPTIONS:
            value = dict(enumerate(value))
        if hasattr(value, "items"):
            flat.update(flatten(value, "%s%s%s" % (prefix, name, SEPARATOR)))
        else:
            flat[prefix + str(name)] = value
    return flat


_OPTIONS = {"terminated", "truncated", "final", "td_error", "policy_version", "env"}


def index(names):
    """name -> number, and the first parts of nested names -> dicts of the same.

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


def is_nested(names):
    """Does any column come from a nested value?"""
    return any(SEPARATOR in name.strip("_") for name in names)
