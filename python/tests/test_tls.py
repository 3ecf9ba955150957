"""TLS inside a process that has an OpenSSL of its own: Python's."""

import os
import socket
import ssl
import subprocess
import sys
import threading

import pytest

import relive
from conftest import SIGNATURE, step_values

pytestmark = pytest.mark.skipif(not relive.build_info()["remote"],
                                reason="this build has embed: only")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def command(*args):
    subprocess.run([relive.build_info()["programs"]["relive"], *args], stdout=subprocess.DEVNULL,
                   timeout=60, check=True)


@pytest.fixture
def uri(tmp_path_factory, monkeypatch):
    """A store over TCP; its token is in the environment."""
    if len(relive.build_info()["programs"]) < 3:
        pytest.skip("no relive command and daemons here: build them, and put them on PATH")
    folder = tmp_path_factory.mktemp("r")
    folder.chmod(0o700)
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(folder))
    address = "127.0.0.1:%d" % free_port()
    command("up", "--store", "t", "--size", "32M", "--listen", address)
    monkeypatch.setenv("RELIVE_TOKEN", (folder / "t" / "token").read_text().strip())
    yield "relive://" + address
    monkeypatch.delenv("RELIVE_TOKEN")
    command("down", "--store", "t", "--force")


def use(uri):
    with relive.open(uri) as store:
        table = store.create_table("t", SIGNATURE, 2000)
        with table.writer() as writer:
            for i in range(10):
                writer.append(**step_values(i))
        assert len(store.info().nodes) == 1


def use_ssl():
    """A TLS connection of Python's ssl: it shares neither settings nor errors with the library."""
    context = ssl.create_default_context()
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(near, server_hostname="x")
    return context.get_ciphers()


def test_ssl__before_and_after(uri):
    before = use_ssl()
    use(uri)
    assert use_ssl() == before
    use(uri)


@pytest.mark.parametrize("first", ["ssl", "relive"])
def test_ssl__whichever_comes_first(uri, first):
    code = {"ssl": "import ssl; ssl.create_default_context(); import relive; relive.open(%r).close()",
            "relive": "import relive; relive.open(%r).close(); import ssl; "
                      "assert ssl.create_default_context().get_ciphers()"}[first]
    done = subprocess.run([sys.executable, "-c", code % uri], env=os.environ, stderr=subprocess.PIPE,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_ssl__threads_of_both(uri):
    errors = []

    def run(work):
        try:
            for _ in range(20):
                work()
        except BaseException as error:  # pylint: disable=broad-exception-caught
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,))
               for work in (use_ssl, lambda: relive.open(uri).close(), use_ssl)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_open__another_token(uri):
    with pytest.raises(relive.AccessDenied, match="token"):
        relive.open(uri, token="0" * 64)
    with pytest.raises(relive.InvalidArgument, match="128"):
        relive.open(uri, token="secret")


def test_open__files_of_tls(uri, tmp_path):
    with pytest.raises(relive.InvalidArgument, match="nothing.pem"):
        relive.open(uri, tls_cert=str(tmp_path / "nothing.pem"), tls_key="k", tls_ca="c")
    with pytest.raises(relive.InvalidArgument, match="all three"):
        relive.open(uri, tls_cert="c")
