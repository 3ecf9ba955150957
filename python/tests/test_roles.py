"""Tokens of roles: allowed calls work, others raise PermissionError."""

import subprocess

import numpy as np
import pytest

import relive
from conftest import SIGNATURE, step_values

pytestmark = pytest.mark.skipif(not relive.build_info()["remote"],
                                reason="this build has embed: only")


def command(*args):
    return subprocess.run([relive.build_info()["programs"]["relive"], *args], timeout=60, check=True,
                          stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def uri(tmp_path_factory, monkeypatch):
    """A store with a table `t` of 100 steps; view 1 hands each item out once."""
    if len(relive.build_info()["programs"]) < 3:
        pytest.skip("no relive command and daemons here: build them, and put them on PATH")
    folder = tmp_path_factory.mktemp("r")
    folder.chmod(0o700)
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(folder))
    command("up", "--store", "t", "--size", "32M")
    with relive.open("shm:t") as store:
        views = [relive.View(), relive.View(max_times_sampled=1)]
        table = store.create_table("t", SIGNATURE, 2000, views=views)
        with table.writer() as writer:
            for i in range(100):
                writer.append(**step_values(i))
    yield "shm:t"
    command("down", "--store", "t", "--force")


def token_of(uri, role):
    return command("token", uri, role).strip()


def test_read__samples_only(uri):
    with relive.open(uri, token=token_of(uri, "read")) as store:
        table = store.table("t")
        with table.sampler(16) as sampler:
            batch = sampler.sample()
            assert len(batch.key) == 16
            with pytest.raises(PermissionError, match="role learn"):
                table.update_priorities(batch.key, td_error=np.ones(16, np.float32))
        with pytest.raises(PermissionError, match="role learn"):
            table.sampler(16, view=1)
        with pytest.raises(PermissionError, match="role write"):
            table.writer()
        with pytest.raises(PermissionError, match="role admin"):
            store.create_table("u", SIGNATURE, 2000)
        with pytest.raises(PermissionError, match="role admin"):
            store.drop_table("t")
        with pytest.raises(relive.AccessDenied, match="role admin"):
            store.token("admin")


def test_learn__updates(uri, monkeypatch):
    monkeypatch.setenv("RELIVE_TOKEN", token_of(uri, "learn"))
    with relive.open(uri) as store:
        table = store.table("t")
        with table.sampler(16, view=1) as sampler:
            assert len(sampler.sample().key) == 16
        with table.sampler(16) as sampler:
            key = sampler.sample().key
            result = table.update_priorities(key, td_error=np.ones(16, np.float32))
            assert result.updated == len(np.unique(key))  # a draw may repeat an item
        with pytest.raises(PermissionError, match="role write"):
            table.writer()
    monkeypatch.delenv("RELIVE_TOKEN")


def test_write__appends(uri):
    with relive.open(uri, token=token_of(uri, "write")) as store:
        with store.table("t").writer() as writer:
            writer.append(**step_values(100))
        with pytest.raises(PermissionError, match="role admin"):
            store.drop_table("t")


def test_token__is_that_of_the_command(uri):
    with relive.open(uri) as store:
        assert store.token("write") == token_of(uri, "write")
        assert store.token("write").startswith("relive-write-1-")
        with pytest.raises(relive.InvalidArgument, match="want read, learn"):
            store.token("god")


def test_rotate_tokens__ends_those_of_before(uri):
    old = token_of(uri, "read")
    with relive.open(uri) as owner, relive.open(uri, token=old) as reader:
        assert owner.rotate_tokens() == 2
        with pytest.raises(PermissionError, match="epoch 1, the store is at 2"):
            reader.tables()
        with pytest.raises(PermissionError, match="epoch 1, the store is at 2"):
            relive.open(uri, token=old)
        with relive.open(uri, token=owner.token("read")) as new:
            assert new.tables() == ["t"]


def test_open__a_token_that_is_none(uri):
    with pytest.raises(relive.InvalidArgument, match="relive-ROLE-EPOCH"):
        relive.open(uri, token="relive-read-1-" + "0" * 63)


def test_embed__has_no_tokens():
    with relive.open("embed:") as store:
        with pytest.raises(relive.Unsupported):
            store.token("read")
