"""verl's checkpoint engine on weights of a Relive store: ``backend: relive`` with ``custom_backend_module:
relive.adaptors.verl``.

The trainer publishes, rollouts fetch whenever they like: no process group, no rank that waits for another. A
rollout that starts later, or again, needs nothing of the trainer. ``engine_kwargs: {relive: {uri:
"relive://HOST:PORT"}}`` says where the store is.
"""

import asyncio
import time

from verl.checkpoint_engine.base import CheckpointEngineRegistry, CheckpointEngineWithCache

import relive
from relive._into import torch_copy

_LOOK_S = 0.05


@CheckpointEngineRegistry.register("relive")
class ReliveCheckpointEngine(CheckpointEngineWithCache):
    """Sends the weights of step s as version s + 1.

    :param bucket_size: not needed; memory for one tensor at a time is taken beside the version's.
    :param is_master: the worker that publishes. The others of the trainer only take part in gathering tensors.
    :param uri: of the store.
    :param name: of the weights. A run that begins again at an older step needs another name, as versions rise.
    :param bytes: of all tensors; 0 = those of the first version.
    :param timeout: seconds that receive_weights waits for its version.
    """

    def __init__(self, bucket_size=0, is_master=False, *, uri, name="policy", bytes=0, keep=2, timeout=600.0):
        self._is_master = is_master
        self._name, self._bytes, self._keep, self._timeout = name, bytes, keep, timeout
        self._store = relive.open(uri)
        self._weights = None
        self._staged = {}  # tensors of the last version on the host
        self._newest = None

    def prepare(self):
        return {}

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        size = actor_wg_world_size + rollout_world_size
        ranks = list(range(size))
        return ({"rank": ranks[:actor_wg_world_size], "world_size": [size] * actor_wg_world_size},
                {"rank": ranks[actor_wg_world_size:], "world_size": [size] * rollout_world_size})

    def init_process_group(self, **kwargs):
        pass

    def finalize(self):
        pass

    def close(self):
        """Closes the store."""
        self._store.close()

    async def send_weights(self, weights, global_steps=None):
        names = []
        for name, tensor in weights:  # a collective: each worker of the trainer takes part
            if self._is_master:
                self._stage(name, tensor)
                names.append(name)
        if self._is_master:
            await asyncio.to_thread(self._publish, {name: self._staged[name] for name in names},
                                    global_steps)

    def _stage(self, name, tensor):
        """Copies a tensor to the host, since the generator may use its memory again."""
        tensor, old = tensor.detach(), self._staged.get(name)
        if old is not None and old.shape == tensor.shape and old.dtype == tensor.dtype:
            old.copy_(tensor)
        else:
            self._staged[name] = tensor.to("cpu", copy=True).contiguous()

    def _publish(self, tensors, global_steps):
        if self._weights is None:
            size = sum(tensor.numel() * tensor.element_size() + 64 for tensor in tensors.values())
            self._weights = self._store.create_weights(self._name, self._bytes or size, keep=self._keep)
        version = self._weights.info()["version"] if global_steps is None else global_steps
        self._weights.publish(tensors, version + 1, new_tree=True)

    def _fetch(self, than, timeout):
        """Returns the newest version above than; the last one if there is none within the timeout."""
        end = time.monotonic() + timeout
        while self._weights is None:
            try:
                self._weights = self._store.weights(self._name)
            except relive.NotFound:
                if time.monotonic() >= end:
                    return self._newest
                time.sleep(_LOOK_S)
        have = self._newest.version if self._newest else 0
        new = self._weights.fetch(max(than, have), max(0, end - time.monotonic()) if have <= than else 0)
        self._newest = new or self._newest
        return self._newest

    async def receive_weights(self, global_steps=None):
        than = global_steps or 0
        found = await asyncio.to_thread(self._fetch, than, self._timeout)
        if found is None or found.version <= than:
            raise relive.Timeout("receive_weights: no weights of step %d within %g s" % (than, self._timeout))
        for name, array in found.items():
            yield name, torch_copy(array)

    async def get_weights(self):
        found = self._newest or await asyncio.to_thread(self._fetch, 0, 0)
        if found is None:
            raise relive.NotFound("get_weights: nothing was sent yet")
        for name, array in found.items():
            yield name, torch_copy(array)
