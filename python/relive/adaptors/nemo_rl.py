"""NeMo-RL's weight synchronizer on weights of a Relive store.

The policy's side publishes, the generation's side fetches; both may be in one process or on different hosts.
"""

import threading

from nemo_rl.weight_sync.interfaces import WeightSynchronizer


class ReliveWeightSynchronizer(WeightSynchronizer):
    """Moves weights from a policy to the workers of generation.

    :param weights: a :class:`relive.Weights`.
    :param collect: called without arguments; returns the policy's tensors, as ``publish`` takes them.
    :param load: called with the :class:`relive.Generation` that the workers are to use; an error of it fails the
        sync. Workers on other hosts fetch themselves: load gives them ``generation.version``.
    """

    def __init__(self, weights, collect, load):
        self._weights, self._collect, self._load = weights, collect, load
        self._lock = threading.Lock()
        self._is_stale = True

    def sync_weights(self, *, timer=None, kv_scales=None):
        if kv_scales:
            raise NotImplementedError("kv_scales: publish them as tensors of collect")
        with self._lock:
            version = self._weights.info()["version"] + 1
            try:
                self._weights.publish(self._collect(), version, new_tree=True)
                generation = self._weights.fetch(newer_than=version - 1)
                self._load(generation)
            except Exception as error:
                raise RuntimeError("sync_weights: version %d: %s" % (version, error)) from error
            self._is_stale = False
        return {"version": float(version), "deltas": float(generation.deltas)}

    @property
    def is_stale(self):
        return self._is_stale

    def mark_stale(self):
        self._is_stale = True

    def init_communicator(self):
        pass

    def shutdown(self):
        self._weights.close()
