"""Where the `relive` command and the daemons are: in the wheel, in a build folder, or on PATH."""

import os
import shutil

NAMES = ("relive", "relive-memnode", "relive-metad")

_HERE = os.path.dirname(os.path.abspath(__file__))


def find(name):
    """The path of a program, or None."""
    own = os.path.join(_HERE, "bin", name)
    if os.access(own, os.X_OK):
        return own
    found = shutil.which(name)
    return None if found and _is_front(found) else found


def _is_front(path):
    """Is it the script of this very package, which would look for the command again?"""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"
