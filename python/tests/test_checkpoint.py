"""Checkpoints: a training that is killed goes on in another store."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import relive

torch = pytest.importorskip("torch")

# A training: 3 numbers of a table, a linear model with momentum, weights that it publishes. It is killed at a step,
# inside or outside of a save, as its arguments say.
TRAINING = textwrap.dedent("""
    import os, signal, sys
    import numpy as np, torch, relive
    import relive.torch

    folder, last, kill_at, kill_in_save = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "in_save"
    torch.manual_seed(3)
    net = torch.nn.Linear(3, 1)
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    with relive.open("embed:") as store:
        weights = store.create_weights("policy", 1 << 20)
        checkpoint = relive.torch.Checkpoint(folder, store, tables=["replay"], weights="policy", model=net, optimizer=adam)
        first = checkpoint.load() or 0
        table = store.create_table("replay", {"x": ((3,), "float32"), "y": "float32", "id": "int64"}, capacity=4096,
                                   views=[relive.View(n_step=1, alpha=1.0)])
        for step in range(first + 1, last + 1):
            ids = np.arange(20) + 20 * step
            with table.writer() as writer:
                writer.extend(x=np.sin(ids[:, None] + [0, 1, 2]), y=np.cos(ids), id=ids)
            with table.sampler(256, beta=0.4, prefetch=0, seed=step) as sampler:
                batch = sampler.sample(64)
                values = batch.torch()
                error = net(values["x"] + 0.01 * torch.randn(64, 3))[:, 0] - values["y"]
                adam.zero_grad()
                (values["weight"] * error ** 2).mean().backward()
                adam.step()
                sampler.update_priorities(batch.key, 1 + batch.id % 5)
            weights.publish(net.state_dict(), step)
            if step % 10 == 0:
                if step == kill_at and kill_in_save:
                    torch.save = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
                checkpoint.save(step)
            if step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        with table.sampler(1024, beta=0.4, prefetch=0) as sampler:
            found = {}
            while len(found) < len(table):
                batch = sampler.sample(1024)
                found.update(zip(batch.id.tolist(), batch.priority.tolist()))
        torch.save({"net": net.state_dict(), "version": weights.fetch().version, "items": len(table),
                    "ids": torch.tensor(sorted(found))}, folder + "/end.pt")
""")


def train(folder, last, kill_at=0, where="after"):
    os.makedirs(folder, exist_ok=True)
    done = subprocess.run([sys.executable, "-c", TRAINING, str(folder), str(last), str(kill_at), where], check=False,
                          timeout=100)
    assert done.returncode == (-signal.SIGKILL if kill_at else 0)


@pytest.mark.parametrize("where, goes_on", [("after", 20), ("in_save", 10)])
def test_a_killed_training_goes_on(tmp_path, where, goes_on):
    from relive.torch import Checkpoint

    train(tmp_path, 30, 20, where)
    with relive.open() as store:
        assert Checkpoint(tmp_path, store).steps() == [goes_on]
    train(tmp_path, 30)
    end = torch.load(str(tmp_path / "end.pt"))
    assert end["version"] == 30
    assert end["ids"].tolist() == list(range(20, 20 * 31))  # of every step once
    assert not list(tmp_path.glob("*.saving"))


@pytest.fixture
def parts():
    net = torch.nn.Linear(2, 2)
    return {"model": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1)}


def table_of(store, n=100):
    table = store.create_table("replay", {"x": "float32"}, capacity=1024)
    with table.writer() as writer:
        writer.extend(x=list(range(n)))
    batch = table.sample(64)
    table.update_priorities(batch.key, batch.x + 1)
    return table


def test_items_and_priorities_in_another_store(tmp_path, parts):
    from relive.torch import Checkpoint

    with relive.open() as store, relive.open() as other:
        table = table_of(store)
        Checkpoint(tmp_path, store, tables=["replay"], **parts).save(7)
        saved = {name: value.clone() for name, value in parts["model"].state_dict().items()}
        drawn = torch.rand(4)  # the first numbers after the checkpoint
        with torch.no_grad():
            parts["model"].weight.zero_()
        assert Checkpoint(tmp_path, other, tables=["replay"], **parts).load() == 7
        assert torch.equal(torch.rand(4), drawn)
        assert all(torch.equal(value, saved[name]) for name, value in parts["model"].state_dict().items())
        there = other.create_table("replay", {"x": "float32"}, capacity=1024)
        before, after = table.info().views[0], there.info().views[0]
        assert (after.items, after.priority_sum) == (before.items, before.priority_sum)


def test_an_error_leaves_the_checkpoint_before(tmp_path, parts, monkeypatch):
    from relive.torch import Checkpoint

    with relive.open() as store:
        table_of(store)
        checkpoint = Checkpoint(tmp_path, store, tables=["replay"], keep=2, **parts)
        assert checkpoint.load() is None
        checkpoint.save(1)

        def full(*_):
            raise OSError("no space")

        monkeypatch.setattr(torch, "save", full)
        with pytest.raises(OSError, match="no space"):
            checkpoint.save(2)
        monkeypatch.undo()
        assert checkpoint.steps() == [1] and os.listdir(tmp_path) == ["step-000000000001"]
        checkpoint.save(3)
        checkpoint.save(4)
        assert checkpoint.steps() == [3, 4]
        assert checkpoint.load(3) == 3


def test_mistakes(tmp_path, parts):
    from relive.torch import Checkpoint

    with relive.open() as store:
        table_of(store)
        checkpoint = Checkpoint(tmp_path, store, tables=["replay"], **parts)
        checkpoint.save(5)
        with pytest.raises(relive.AlreadyExists, match="later step"):
            checkpoint.save(5)
        with pytest.raises(relive.NotFound, match="no checkpoint of step 6"):
            checkpoint.load(6)
        with pytest.raises(relive.NotFound, match="target"):
            Checkpoint(tmp_path, store, target=parts["model"]).load()
        with pytest.raises(relive.InvalidArgument, match=r"\['replay'\]"):
            Checkpoint(tmp_path, store, tables="replay")
        with pytest.raises(relive.InvalidArgument, match="state_dict"):
            Checkpoint(tmp_path, store, model=3)
        state = tmp_path / "step-000000000005" / "state.pt"
        state.write_bytes(state.read_bytes()[:50])
        with pytest.raises(relive.ProtocolError, match="damaged"):
            checkpoint.load()
