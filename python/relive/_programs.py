"""Finds the `relive` command and the daemons: in the wheel, or on PATH."""

from __future__ import annotations

import os

NAMES = ("relive", "relive-memnode", "relive-metad", "relive-poold")

_HERE = os.path.dirname(os.path.abspath(__file__))


def find(name: str) -> str | None:
    """Returns the path of a program: the one in the wheel, else the first on PATH. None if there is
    none."""
    for folder in (os.path.join(_HERE, "bin"), *os.get_exec_path()):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and not _is_script(path):
            return path
    return None


def _is_script(path: str) -> bool:
    """True if a file begins with ``#!``, as the package's own script `relive`: find() skips it, as it
    would look for the command again."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"
