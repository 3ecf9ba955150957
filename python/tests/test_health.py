"""`relive status --health`: exit code and one line, for probes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time

import pytest

import relive
from support.daemons import Daemons, free_ports, relive_run, until

pytestmark = pytest.mark.skipif(not relive.build_info()["remote"],
                                reason="this build has embed: only")

LIMIT_S = 5  # a probe's timeout: nothing takes longer


def health(*args, timeout=60):
    begin = time.monotonic()
    done = subprocess.run([relive.build_info()["programs"]["relive"], "status", "--health", *args],
                          capture_output=True, text=True, timeout=timeout, check=False)
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    assert not done.stderr
    return done.returncode, done.stdout, time.monotonic() - begin


def is_quick(*args):
    """A busy host may hold some of the tries up."""
    return any(health(*args)[2] < LIMIT_S for _ in range(4))


@pytest.fixture
def store(runtime):
    """A store "h" of two nodes."""
    done = relive_run("up", "--store", "h", "--nodes", "2", "--size", "32M", "--node-lost", "600s",
                      "--json")
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)
    relive_run("down", "--store", "h", "--force")


@pytest.fixture
def stopped():
    """Stops processes, and continues them at the end."""
    pids = []

    def stop(pid):
        pids.append(pid)
        signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGSTOP)

    yield stop
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGCONT)


def test_health__of_a_store(store):
    code, line, _ = health("--store", "h")
    assert (code, line) == (0, "healthy: shm:h: 2 of 2 memory nodes are up, 0 tables\n")
    code, line, _ = health("shm:h", "--json")
    assert code == 0 and json.loads(line)["healthy"] is True


def test_health__a_node_is_down(store):
    signal.pidfd_send_signal(os.pidfd_open(store["memnode_pids"][1]), signal.SIGKILL)
    until(lambda: health("shm:h")[0] == 1)
    assert health("shm:h")[1] == "not healthy: shm:h: 1 of 2 memory nodes are up, 1 is down\n"
    assert health("shm:h", "--node", "1")[:2] == (1, "not healthy: shm:h: memory node 1 is down\n")
    assert health("shm:h", "--node", "0")[:2] == (0, "healthy: shm:h: memory node 0 is up\n")
    code, line, _ = health("shm:h", "--json")
    assert code == 1 and json.loads(line)["healthy"] is False


def test_info__a_lost_node_is_not_up(runtime):
    done = relive_run("up", "--store", "h", "--nodes", "2", "--size", "32M", "--node-lost", "1s",
                      "--json")
    assert done.returncode == 0, done.stderr
    try:
        with relive.open("shm:h") as opened:
            victim = json.loads(done.stdout)["memnode_pids"][1]
            signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGKILL)
            until(lambda: "is lost" in health("shm:h", "--node", "1")[1])
            assert {node.name: node.up for node in opened.info().nodes} == {"0": True, "1": False}
    finally:
        relive_run("down", "--store", "h", "--force")


def test_health__an_unknown_node(store):
    code, line, _ = health("shm:h", "--node", "x")
    assert code == 1 and "has no memory node x" in line


def test_health__the_server_is_stopped(store, stopped):
    stopped(store["metad_pid"])
    code, line, seconds = health("--store", "h")
    assert code == 1 and "does not answer" in line
    assert seconds < LIMIT_S or is_quick("--store", "h")


def test_health__no_store(runtime):
    code, line, _ = health("--store", "none")
    assert code == 1 and "no store none on this host" in line


def test_health__a_wrong_token(runtime, monkeypatch):
    address = "127.0.0.1:%d" % free_ports(1)
    done = relive_run("up", "--store", "h", "--size", "32M", "--listen", address)
    assert done.returncode == 0, done.stderr
    uri = "relive://" + address
    try:
        monkeypatch.setenv("RELIVE_TOKEN", (runtime / "h" / "token").read_text().strip())
        assert health(uri)[0] == 0
        monkeypatch.setenv("RELIVE_TOKEN", "0" * 64)
        assert health(uri)[0] == 1
    finally:
        monkeypatch.delenv("RELIVE_TOKEN")
        relive_run("down", "--store", "h", "--force")


def test_health__of_daemons(runtime, stopped):
    daemons = Daemons(runtime, "d")
    try:
        server, node = daemons.metad(), daemons.memnode()
        assert health("--daemon", str(daemons.port))[:2] == (0, "healthy: %d: ok\n" % daemons.port)
        server.kill()
        server.wait()
        assert health("--daemon", str(daemons.port))[0] == 1
        assert health("--daemon", "127.0.0.1:%d" % daemons.node_port)[0] == 0
        stopped(node.pid)
        code, line, seconds = health("--daemon", str(daemons.node_port))
        assert code == 1 and "no answer in time" in line
        assert seconds < LIMIT_S or is_quick("--daemon", str(daemons.node_port))
    finally:
        daemons.end()


def test_health__a_port_that_speaks_something_else():
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = subprocess.Popen([relive.build_info()["programs"]["relive"], "status", "--health",
                                 "--daemon", str(server.getsockname()[1])], stdout=subprocess.PIPE,
                                text=True)
        peer, _ = server.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(b"220 mail\r\n")
        assert "is not HTTP" in done.communicate(timeout=60)[0]
        assert done.returncode == 1


@pytest.mark.parametrize("args", [["--health", "--why"], ["--node", "a"], ["--daemon", "1"],
                                  ["shm:a", "--store", "a"],
                                  ["--health", "--daemon", "1", "shm:a"]])
def test_status__options_that_do_not_go_together(runtime, args):
    assert relive_run("status", *args).returncode == 2
