"""``python -m relive ARGUMENTS``: the `relive` command, which runs stores on this host."""

import os
import sys

from . import _programs


def main():
    """Replaces this process by the `relive` command, with the same arguments."""
    program = _programs.find("relive")
    if program is None:
        sys.exit("relive: this build has no `relive` command: it needs the headers of protobuf-c, "
                 "OpenSSL, libevent, SQLite and zlib; see relive.build_info()")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
