"""Saves and loads of tables, with their bars."""

from __future__ import annotations

import os
from typing import Any

from . import _core, errors
from ._integer import unsigned
from .datasets import Progress
from .info import SaveInfo


class _Bar:
    """What the extension calls with (done, total)."""

    def __init__(self, what):
        self._what, self._done, self._bar = what, 0, None

    def __call__(self, done, total):
        if self._bar is None:
            self._bar = Progress(self._what, total, "parts")
        self._bar.add(done - self._done)
        self._done = done

    def close(self):
        if self._bar is not None:
            self._bar.close()


def path_of(what: str, path: Any) -> Any:
    try:
        return os.fspath(path)
    except TypeError:
        raise errors.InvalidArgument("%s: %r, want the path of a file: \"replay.rlvs\"" % (what, path)) from None


def save(table: Any, path: Any, compress: int, base: Any) -> SaveInfo:
    """By a handle of its own: the table can be used meanwhile."""
    path = path_of("save: path", path)
    base = None if base is None else path_of("save: base", base)
    bar = _Bar("save")
    core = _core.Table(table.store._core, table.name)
    try:
        return SaveInfo._of_core(core.save(path, unsigned("compress", compress), base, bar))
    finally:
        bar.close()
        core.close()


def load(store: Any, path: Any, name: str | None, shards: int, replace: bool) -> str:
    """Returns the name of the table."""
    path = path_of("load_table: path", path)
    bar = _Bar("load_table")
    try:
        info = SaveInfo._of_core(store._core.load(path, name, unsigned("shards", shards), replace, bar))
    finally:
        bar.close()
    return info.table if name is None else name
