"""Mooncake Store: a master, a process that hosts the memory, and this client; data moves over its TCP."""

import importlib.metadata
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

from mooncake.store import MooncakeDistributedStore

PACKAGE = "mooncake-transfer-engine-non-cuda"
SEGMENT = 512 << 20
HOST = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
sys.exit(store.setup(*sys.argv[1:3], %d, 16 << 20, "tcp", "", sys.argv[3]) or not sys.stdin.read())
""" % SEGMENT


def version():
    return importlib.metadata.version(PACKAGE)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Values:
    def __init__(self, value_bytes):
        os.environ.setdefault("MC_STORE_MEMCPY", "0")
        master, metadata, metrics = _free_port(), _free_port(), _free_port()
        folder = tempfile.mkdtemp(prefix="relive-mooncake-")
        self._log = open(pathlib.Path(folder) / "log", "w")
        self._children = [self._start([
            str(pathlib.Path(sys.executable).parent / "mooncake_master"), "-rpc_port", str(master),
            "-metrics_port", str(metrics), "-enable_http_metadata_server=true",
            "-http_metadata_server_host=127.0.0.1", "-http_metadata_server_port", str(metadata)])]
        time.sleep(2)
        url, address = "http://127.0.0.1:%d/metadata" % metadata, "127.0.0.1:%d" % master
        self._children.append(self._start([sys.executable, "-c", HOST, "127.0.0.1", url, address]))
        self._store = MooncakeDistributedStore()
        code = self._store.setup("127.0.0.1", url, 0, 64 << 20, "tcp", "", address)
        if code:
            raise RuntimeError("setup: %d" % code)
        self._value = b"x" * value_bytes
        for _ in range(100):  # the host may not be there yet
            if self._store.put("first", self._value) == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("its host of memory did not come up")

    def _start(self, command):
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log)

    def put(self, number):
        """Values cannot be replaced: each put is of a new key."""
        if self._store.put("k%d" % number, self._value):
            raise RuntimeError("put %d" % number)

    def get(self, number):
        if len(self._store.get("k%d" % number)) != len(self._value):
            raise RuntimeError("get %d" % number)

    def close(self):
        self._store.close()
        for child in reversed(self._children):
            child.kill()
            child.wait()
