"""A build without optional headers: it has embed: stores, and names the missing parts."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import relive

SOURCE = pathlib.Path(__file__).resolve().parents[2]
OPTIONAL = r"/(protobuf-c|openssl|infiniband|rdma|event2|jemalloc)/|/(libpmem|sqlite3|zlib)\.h"
USE = """
import numpy as np
import relive

with relive.open("embed:") as store:
    table = store.create_table("t", {"obs": "float32", "reward": "float32"}, 1000)
    with table.writer() as writer:
        for i in range(100):
            writer.append(obs=i, reward=i)
    batch = table.sample(32)
    assert (batch.obs == batch.reward).all()
    assert table.update_priorities(batch.key, td_error=np.ones(32)).stale == 0
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The Python module alone, as pip builds it, where pkg-config knows no library."""
    folder = tmp_path_factory.mktemp("embed-only")
    hidden = dict(os.environ, PKG_CONFIG_LIBDIR=str(folder), CMAKE_GENERATOR="Unix Makefiles")
    hidden.pop("PKG_CONFIG_PATH", None)
    commands = (["cmake", "-S", SOURCE, "-B", folder, "-DCMAKE_BUILD_TYPE=Debug", "-DPROTOC_C=",
                 "-DBUILD_TESTING=OFF", "-DRLV_REMOTE=AUTO"],
                ["cmake", "--build", folder, "-j", "2", "--target", "relive_python"])
    for command in commands:
        done = subprocess.run(command, env=hidden, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stdout
    return folder


def python(build, code):
    """Output of a Python program that runs with that build's package and an empty PATH."""
    environment = dict(os.environ, PYTHONPATH=str(build / "python"), PATH=str(build))
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_build__reads_no_header_that_may_be_missing(build):
    read = "".join(path.read_text() for path in build.rglob("*.o.d"))
    assert "relive.h" in read and not re.search(OPTIONAL, read)


def test_build_info__says_what_was_left_out(build):
    info = eval(python(build, "import relive; print(relive.build_info())"))
    assert info == {"version": relive.__version__, "remote": False, "libpmem": False,
                    "programs": {}}


def test_open__embed_works(build):
    python(build, USE)


@pytest.mark.parametrize("uri", ["shm:default", "relive://localhost:7117"])
def test_open__others_say_what_is_missing(build, uri):
    said = python(build, """
import relive
try:
    relive.open(%r)
except relive.Unsupported as error:
    print(error)
""" % uri)
    assert "embed:" in said and "protobuf-c" in said and "OpenSSL" in said


def test_main__says_what_is_missing(build):
    done = subprocess.run([sys.executable, "-m", "relive", "up"], stdout=subprocess.PIPE,
                          env={"PYTHONPATH": str(build / "python"), "PATH": str(build)},
                          stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "headers" in done.stdout
