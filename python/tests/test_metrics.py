"""/metrics and /healthz of both daemons: the format, what they say, and who can disturb them."""

import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

import relive
from conftest import SIGNATURE, step_values
from support import prometheus
from support.daemons import WAIT_S, Daemons, ask, free_ports, page, relive_run, until

pytestmark = pytest.mark.skipif(not relive.build_info()["remote"],
                                reason="this build has embed: only")

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
STUCK_S = 5  # a probe hears of a stuck loop within it


@pytest.fixture
def ports(runtime):
    """A store "m" of two nodes: the server's port, and theirs."""
    first = free_ports(3)
    done = relive_run("up", "--store", "m", "--nodes", "2", "--size", "32M", "--metrics", str(first))
    assert done.returncode == 0, done.stderr
    yield range(first, first + 3)
    relive_run("down", "--store", "m", "--force")


@pytest.fixture
def daemons(runtime):
    made = Daemons(runtime)
    yield made
    made.end()


@contextlib.contextmanager
def stopped(thread):
    """Stops that thread alone."""
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request):
        if libc.ptrace(request, thread, None, None):
            pytest.skip("ptrace: %s" % os.strerror(ctypes.get_errno()))

    ptrace(PTRACE_SEIZE)
    ptrace(PTRACE_INTERRUPT)
    os.waitpid(thread, 0x40000000)  # __WALL
    yield
    libc.ptrace(PTRACE_DETACH, thread, None, None)


# -------- what the pages say --------


def test_metrics__of_the_server(ports):
    with relive.open("shm:m") as store:
        table = store.create_table("t", SIGNATURE, 4096, views=[relive.View(), relive.View()],
                                   max_clients=16)
        with table.writer() as writer, table.sampler(32) as sampler:
            for i in range(100):
                writer.append(**step_values(i))
            for _ in range(40):
                next(sampler)
            until(lambda: prometheus.value(page(ports[0]), "relive_items_inserted_total", table="t",
                                           view="1") == 99)
            families = page(ports[0])
            assert prometheus.value(families, "relive_table_slots_used", table="t") == 2
            assert prometheus.value(families, "relive_clients", state="connected") == 1
        until(lambda: prometheus.value(page(ports[0]), "relive_items_sampled_total", table="t",
                                       view="0") >= 40 * 32)
    families = page(ports[0])
    assert prometheus.value(families, "relive_store_info", store="m",
                            version=relive.__version__) == 1
    assert prometheus.value(families, "relive_tables") == 1
    assert prometheus.value(families, "relive_table_capacity_steps", table="t") == 4096
    assert prometheus.value(families, "relive_table_slots", table="t") == 16
    assert prometheus.value(families, "relive_table_shards", table="t", state="active") == 1
    assert prometheus.value(families, "relive_nodes", state="up") == 2
    assert prometheus.value(families, "relive_node_pool_bytes", node="0") == 32 << 20
    assert sum(families["relive_node_used_bytes"].samples.values()) > 0
    assert prometheus.value(families, "process_cpu_seconds_total") > 0
    assert prometheus.value(families, "process_resident_memory_bytes") > 1 << 20


def test_metrics__of_a_memory_node(ports):
    with relive.open("shm:m") as store:
        table = store.create_table("t", SIGNATURE, 4096, shards=2)
        with table.writer() as writer:
            writer.append(**step_values(0))
            for port in ports[1:]:
                families = page(port)
                assert prometheus.value(families, "relive_memnode_pool_bytes") == 32 << 20
                assert prometheus.value(families, "relive_memnode_used_bytes") > 0
                assert prometheus.value(families, "relive_memnode_regions") == 4
                assert prometheus.value(families, "relive_memnode_registered") == 1
                assert prometheus.value(families, "relive_memnode_attaches_total") >= 4
                assert prometheus.value(families, "relive_memnode_clients") >= 1


def test_metrics__as_promtool_sees_them(ports):
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    with relive.open("shm:m") as store:
        store.create_table("t", SIGNATURE, 4096)
        for port in ports:
            done = subprocess.run([promtool, "check", "metrics"], input=ask(port, "/metrics")[1],
                                  capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


def test_metrics__every_family_is_in_the_manual(ports):
    manual = pathlib.Path(__file__).resolve().parents[2] / "docs" / "monitoring.md"
    described = set(re.findall(r"^\| `([a-z_]+)", manual.read_text(), re.M))
    served = set(page(ports[0])) | set(page(ports[1]))
    # Only nodes that are reached by RDMA have gauges of their transport.
    assert served | {"relive_memnode_transport"} == described


def test_metrics__nothing_secret_is_in_them(ports, runtime):
    token = (runtime / "m" / "token").read_text().strip()
    for port in ports:
        assert token not in ask(port, "/metrics")[1]


# -------- /healthz --------


@pytest.mark.parametrize("which", ["server", "node"])
def test_healthz__a_stuck_loop(daemons, which):
    server, node = daemons.metad(), daemons.memnode()
    child, port = (server, daemons.port) if which == "server" else (node, daemons.node_port)
    with stopped(child.pid):  # its first thread: the loop
        assert any(seconds_until_stuck(port) < STUCK_S for _ in range(5))  # a busy host may hold some up
        assert ask(port, "/metrics")[0] == 503
    until(lambda: daemons.answers(port))


def test_healthz__a_stuck_agent(daemons):
    daemons.metad()
    node = daemons.memnode()
    ask(daemons.node_port, "/healthz")
    threads = [tid for tid in map(int, os.listdir("/proc/%d/task" % node.pid)) if tid != node.pid]
    assert any(misses_agent(daemons.node_port, tid) for tid in threads)
    until(lambda: daemons.answers(daemons.node_port))


def seconds_until_stuck(port):
    begin = time.monotonic()
    status, words, _ = ask(port, "/healthz")
    assert status == 503 and "stuck" in words
    return time.monotonic() - begin


def misses_agent(port, thread):
    """With the event loop's thread stopped no client is served, and /healthz says so."""
    with stopped(thread):
        end = time.monotonic() + STUCK_S
        while time.monotonic() < end:
            try:
                status, words, _ = ask(port, "/healthz", timeout=3)
            except OSError:
                return False  # it was the one that serves the pages
            if status == 503:
                assert "the thread that serves clients is stuck" in words
                return True
            time.sleep(0.1)
    return False


def test_healthz__of_a_node_whose_server_is_away(daemons):
    server = daemons.metad()
    daemons.memnode()
    server.send_signal(signal.SIGSTOP)
    assert ask(daemons.node_port, "/healthz")[0] == 200
    server.kill()
    server.wait()
    until(lambda: prometheus.value(page(daemons.node_port), "relive_memnode_registered") == 0)
    assert ask(daemons.node_port, "/healthz")[:2] == (200, "ok\n")


def test_healthz__of_a_catalog_that_was_removed(daemons):
    daemons.metad()
    (daemons.folder / "d" / "d.db").rename(daemons.folder / "d" / "moved")
    status, words, _ = ask(daemons.port, "/healthz")
    assert status == 503
    assert "it was moved or removed" in words


# -------- who asks --------


@pytest.mark.parametrize("request_bytes, status", [
    (b"GET /other HTTP/1.1\r\n\r\n", 404),
    (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
    (b"HEAD /healthz HTTP/1.1\r\n\r\n", 405),
    (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
    (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
    (b"GET /" + b"x" * 8000, 431),
    (b"GET /healthz?probe=1 HTTP/1.0\r\n\r\n", 200),
])
def test_request__what_it_is_answered(daemons, request_bytes, status):
    daemons.metad()
    with socket.create_connection(("127.0.0.1", daemons.port), timeout=WAIT_S) as peer:
        peer.sendall(request_bytes)
        answer = peer.recv(4096)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert daemons.answers(daemons.port)


def test_connections__silent_and_slow_ones_keep_nobody_out(ports):
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", ports[0])))
                 for _ in range(200)]
        for peer in peers[::2]:
            with contextlib.suppress(OSError):  # it has given way to a later one
                peer.sendall(b"GET /met")
        assert ask(ports[0], "/healthz")[0] == 200
        page(ports[0])
        with relive.open("shm:m") as store:
            assert len(store.info().nodes) == 2
        for peer in peers:  # each is ended by the server, whatever its peer does
            peer.settimeout(WAIT_S)
            with contextlib.suppress(ConnectionError):
                assert peer.recv(1) == b""


def test_port__in_use(daemons):
    daemons.metad()
    second = daemons.start("relive-memnode", "--name", "b", "--size", "32M", "--metrics",
                           str(daemons.port))
    assert second.wait(WAIT_S) == 3


def test_port__of_no_address(runtime):
    done = relive_run("up", "--store", "m", "--metrics", "localhost:http")
    assert done.returncode == 2
    assert "give [IP:]PORT" in done.stderr
