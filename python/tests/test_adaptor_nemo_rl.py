"""relive.adaptors.nemo_rl behind NeMo-RL's WeightSynchronizer: the real one where it is installed, else its abstract
methods as nemo_rl/weight_sync/interfaces.py has them (commit 00fa1285)."""

import abc
import sys
import types

import numpy as np
import pytest

import relive


@pytest.fixture
def adaptor(monkeypatch):
    try:
        import nemo_rl.weight_sync.interfaces  # noqa: F401
    except ImportError:
        def abstract(*parameters):
            return abc.abstractmethod(lambda self, **kwargs: None)

        base = abc.ABCMeta("WeightSynchronizer", (), {
            "sync_weights": abstract(), "is_stale": property(abstract()), "mark_stale": abstract(),
            "init_communicator": abstract(), "shutdown": abstract()})
        module = types.ModuleType("nemo_rl.weight_sync.interfaces")
        module.WeightSynchronizer = base
        for name in ("nemo_rl", "nemo_rl.weight_sync"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "relive.adaptors.nemo_rl", raising=False)
    import relive.adaptors.nemo_rl
    return relive.adaptors.nemo_rl


def test_syncs(adaptor):
    policy, loaded = {"w": np.zeros(5000, np.float32)}, []
    with relive.open("embed:") as store:
        weights = store.create_weights("policy", 1 << 20)
        sync = adaptor.ReliveWeightSynchronizer(weights, lambda: policy, loaded.append)
        assert sync.is_stale
        sync.init_communicator()
        for step in range(1, 5):
            policy["w"][step] = step
            sync.mark_stale()
            assert sync.is_stale
            metrics = sync.sync_weights()
            assert not sync.is_stale and metrics["version"] == step
            assert np.array_equal(loaded[-1]["w"], policy["w"]) and loaded[-1].version == step
        assert metrics["deltas"] > 0
        sync.shutdown()


def test_a_failed_load_stays_stale(adaptor):
    def load(generation):
        raise ValueError("no room")

    with relive.open("embed:") as store:
        weights = store.create_weights("policy", 1 << 20)
        sync = adaptor.ReliveWeightSynchronizer(weights, lambda: {"w": np.zeros(5)}, load)
        with pytest.raises(RuntimeError, match="version 1: no room"):
            sync.sync_weights()
        assert sync.is_stale
        with pytest.raises(NotImplementedError):
            sync.sync_weights(kv_scales={"layer": 1.0})
