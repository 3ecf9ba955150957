"""Daemons of a test's own, and the pages that they serve."""

import contextlib
import http.client
import os
import socket
import subprocess
import time

import relive
from support import prometheus

WAIT_S = 20  # for anything that must happen


def free_ports(n):
    """The first of n consecutive free ports."""
    for first in range(20000 + os.getpid() % 5000, 60000, n):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + n):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no %d free ports" % n)


def ask(port, path, method="GET", timeout=WAIT_S):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers


def page(port):
    status, text, headers = ask(port, "/metrics")
    assert status == 200, text
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return prometheus.parse(text)


def until(look):
    end = time.monotonic() + WAIT_S
    while not look():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.02)


def relive_run(*args):
    return subprocess.run([relive.build_info()["programs"]["relive"], *args], capture_output=True,
                          text=True, timeout=60, check=False)


class Daemons:
    """Starts daemons as children of this process, so that their threads can be stopped one by one."""

    def __init__(self, folder, store="d"):
        self.folder, self.store, self.children = folder, store, []
        self.port = free_ports(2)
        self.node_port = self.port + 1

    def start(self, program, *args):
        path = relive.build_info()["programs"][program]
        child = subprocess.Popen([path, "--store", self.store, *args], stderr=subprocess.DEVNULL)
        self.children.append(child)
        return child

    def metad(self):
        child = self.start("relive-metad", "--metrics", str(self.port))
        until(lambda: self.answers(self.port))
        return child

    def memnode(self):
        child = self.start("relive-memnode", "--name", "a", "--size", "32M", "--metrics",
                           "127.0.0.1:%d" % self.node_port)
        until(lambda: self.answers(self.node_port))
        until(lambda: prometheus.value(page(self.node_port), "relive_memnode_registered") == 1)
        return child

    def end(self):
        for child in self.children:
            child.kill()
            child.wait()

    @staticmethod
    def answers(port):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return ask(port, "/healthz")[0] == 200
        return False
