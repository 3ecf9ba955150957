"""A store as an operator sees it: certificates, health, metrics, tokens of roles, a backup."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import urllib.request

import numpy as np

import relive

NAME = "guide"


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def free_ports(n):
    """The first of n consecutive free ports."""
    for first in range(20000 + os.getpid() % 20000, 60000, n):
        try:
            for port in range(first, first + n):
                socket.create_server(("127.0.0.1", port)).close()
            return first
        except OSError:
            continue
    raise OSError("no %d free ports in a row" % n)


def make_certificates(folder):
    """Makes a CA and one certificate signed by it; a real store uses certificates of its own CA."""
    os.chdir(folder)
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=guide CA", "-days", "2")
    run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=localhost")
    pathlib.Path("san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    run("openssl", "x509", "-req", "-in", "host.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
        "-CAcreateserial", "-days", "2", "-extfile", "san", "-out", "host.pem")


def main(uri, port):
    # Status: for people, for programs, for probes.
    print(run("relive", "status", "--store", NAME))
    status = json.loads(run("relive", "status", "--store", NAME, "--json"))
    assert [node["state"] for node in status["nodes"]] == ["up"]
    print(run("relive", "status", "--store", NAME, "--health").strip())

    # Metrics: Prometheus' text format, without a token, at the address that was given to `up`.
    run("relive", "table", "create", "--store", NAME, "replay", "--columns",
        "obs:f32[4],action:i64,reward:f32", "--capacity", "10000")
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as page:
        text = page.read().decode()
    assert 'relive_table_capacity_steps{table="replay"} 10000' in text
    print("\n".join(line for line in text.splitlines() if line.startswith("relive_node")))

    # Tokens of roles: each program gets the least that it needs.
    write, read = (run("relive", "token", "--store", NAME, role).strip() for role in ("write", "read"))
    tls = dict(tls_cert="host.pem", tls_key="host.key", tls_ca="ca.pem")
    with relive.open(uri, token=write, **tls) as actor, actor.table("replay").writer() as writer:
        for i in range(100):
            writer.append(obs=np.full(4, i), action=i, reward=0.0, terminated=i == 99)
    with relive.open(uri, token=read, **tls) as dashboard:
        table = dashboard.table("replay")
        batch = table.sample(32)
        for forbidden in (table.writer, lambda: table.update_priorities(batch.key, np.ones(32))):
            try:
                forbidden()
            except relive.AccessDenied as error:
                print("denied:", error)
            else:
                raise AssertionError("a token of role read did more than read")

    # Rotation ends all tokens of roles that were given out before.
    run("relive", "token", "--store", NAME, "rotate")
    try:
        relive.open(uri, token=read, **tls)
    except relive.AccessDenied as error:
        print("denied:", error)
    else:
        raise AssertionError("an old token was taken")

    # The catalog in a file, while everything runs; and every invariant of every table.
    run("relive", "backup", "--store", NAME, "catalog.backup")
    assert pathlib.Path("catalog.backup").stat().st_size > 0
    print(run("relive", "inspect", "shm:" + NAME).strip())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RELIVE_RUNTIME_DIR"] = folder
        make_certificates(folder)
        listen = free_ports(3)                 # the server's; its metrics; those of node 0
        up = ["relive", "up", "--store", NAME, "--size", "32M", "--listen", "127.0.0.1:%d" % listen,
              "--metrics", str(listen + 1), "--tls-cert", "host.pem", "--tls-key", "host.key",
              "--tls-ca", "ca.pem"]
        run(*up)
        try:
            main("relive://127.0.0.1:%d" % listen, listen + 1)
        finally:
            run("relive", "down", "--store", NAME, "--force")
