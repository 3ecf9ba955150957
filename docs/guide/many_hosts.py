"""A store of three memory nodes: one is drained, one is killed. All run on this host here; on others
they are the same commands, given the server's address."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import numpy as np

import relive

NAME = "guide"
SIGNATURE = "obs:f32[4],action:i64,reward:f32"


def command(*words):
    """Runs `relive WORDS` on our store and returns what it prints."""
    done = subprocess.run(["relive", *words, "--store", NAME], check=True, capture_output=True, text=True)
    return done.stdout


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def append(writer, n):
    for i in range(n):
        writer.append(obs=np.full(4, i), action=i, reward=1.0, terminated=i % 50 == 49)


def shards(table):
    """States of the table's shards."""
    rows = json.loads(command("table", "shards", "--json", table))
    return [row["state"] for row in rows]


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.1)


def main(uri, folder):
    with relive.open(uri) as store:
        table = store.table("replay")
        with table.writer(timeout=30) as writer, table.sampler(256, prefetch=0) as sampler:
            append(writer, 9_000)
            assert {node.name for node in store.info().nodes} == {"0", "1", "extra"}

            # A planned leave. The node's shard takes no new steps, and is given up when the others have
            # taken in as many items as it held: nothing is lost that would not have been overwritten.
            def drained():
                append(writer, 1_000)
                return json.loads(command("node", "drain", "--json", "extra"))["shards"] == 0

            until(drained)

            # An unplanned one. Its items are gone; the learner draws from what is left.
            before = sampler.sample().table_size
            pid = int((pathlib.Path(folder) / NAME / "memnode-1.pid").read_text())
            os.kill(pid, signal.SIGKILL)
            until(lambda: "lost" in shards("replay"))       # down for longer than --node-lost
            after = sampler.sample(timeout=30).table_size
            print("items: %d before, %d after" % (before, after))
            append(writer, 2_000)                       # the actor goes on, too


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RELIVE_RUNTIME_DIR"] = folder
        address = "127.0.0.1:%d" % free_port()
        # On the server's host: relive up --listen 10.0.0.1:7117
        command("up", "--size", "32M", "--nodes", "2", "--listen", address,
                "--node-lost", "1s", "--slow-start", "1s")   # 30 s and 10 s unless given
        try:
            # On any host with the token: relive node add relive://10.0.0.1:7117 extra --size 64G
            os.environ["RELIVE_TOKEN"] = (pathlib.Path(folder) / NAME / "token").read_text().strip()
            command("node", "add", "extra", "--size", "32M")
            command("table", "create", "replay", "--columns", SIGNATURE,
                    "--capacity", "6000", "--shards", "auto")   # one shard for each node
            main("relive://" + address, folder)
        finally:
            command("down", "--force")
