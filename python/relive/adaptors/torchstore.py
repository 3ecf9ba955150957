"""TorchStore's functions on a Relive store: ``import relive.adaptors.torchstore as ts``.

A ``state_dict`` is one version of weights: readers see all of it or nothing, while another is put. Single
tensors and objects are values under keys. Objects are pickled, as in TorchStore: open stores that you trust.
"""

import asyncio
import hashlib
import pickle

import torch

import relive
from relive import _into

DEFAULT_TORCHSTORE_NAME = "TorchStore"
_OBJECTS = "\x01objects"  # of a state_dict: its structure, and what is no tensor
_LEAST_BYTES = 1 << 20
_clients = {}


class LocalClient:
    """What :func:`client` returns: the functions of this module on one store."""

    def __init__(self, uri, name, bytes):
        self._store = relive.open(uri)
        self._values = self._store.create_kv(_name("v", name), bytes=bytes)
        self._prefix = name
        self._dicts = {}  # key -> weights

    def close(self):
        self._store.close()

    async def put(self, key, value):
        await asyncio.to_thread(self._values.put, key, pickle.dumps(_to_host(value), protocol=5))

    async def get(self, key, inplace_tensor=None, tensor_slice_spec=None):
        if tensor_slice_spec is not None:
            raise NotImplementedError("tensor_slice_spec: get the tensor and take a slice of it")
        try:
            found, _ = await asyncio.to_thread(self._values.get, key)
        except relive.NotFound:
            raise KeyError(key) from None
        value = pickle.loads(found)
        if inplace_tensor is None:
            return value
        inplace_tensor.detach().copy_(value)
        return inplace_tensor

    async def delete(self, key):
        try:
            await asyncio.to_thread(self._values.delete, key)
        except relive.NotFound:
            raise KeyError(key) from None

    async def keys(self, prefix=None):
        found = await asyncio.to_thread(lambda: [key.decode() for key in self._values.keys()])
        return sorted(key for key in found if prefix is None or key == prefix or key.startswith(prefix + "."))

    async def exists(self, key):
        return await asyncio.to_thread(self._values.__contains__, key)

    async def put_state_dict(self, state_dict, key):
        await asyncio.to_thread(self._put_dict, state_dict, key)

    async def get_state_dict(self, key, user_state_dict=None, strict=True):
        return await asyncio.to_thread(self._get_dict, key, user_state_dict, strict)

    def _put_dict(self, state_dict, key):
        tensors = {}
        structure = pickle.dumps(_split(state_dict, "", tensors))
        tensors = {name: _to_host(tensor) for name, tensor in tensors.items()}
        tensors[_OBJECTS] = torch.frombuffer(bytearray(structure), dtype=torch.uint8)
        weights = self._dicts.get(key)
        if weights is None:
            size = sum(t.numel() * t.element_size() + 64 for t in tensors.values())
            weights = self._open_dict(key, max(_LEAST_BYTES, size + size // 8))
        version = weights.info()["version"]
        try:
            weights.publish(tensors, version + 1)
        except relive.InvalidArgument:  # another structure than before
            weights.publish(tensors, version + 1, new_tree=True)

    def _open_dict(self, key, size):
        name = _name("w", self._prefix, key)
        try:
            self._dicts[key] = self._store.weights(name)
        except relive.NotFound:
            if size is None:
                raise KeyError(key) from None
            self._dicts[key] = self._store.create_weights(name, size)
        return self._dicts[key]

    def _get_dict(self, key, user_state_dict, strict):
        generation = (self._dicts.get(key) or self._open_dict(key, None)).fetch()
        structure = pickle.loads(generation[_OBJECTS].tobytes())
        if user_state_dict is None:
            return _join(structure, lambda name: _into.torch_copy(generation[name]))
        mine = {}
        same = _split(user_state_dict, "", mine)
        if strict and _shape(same) != _shape(structure):
            raise AssertionError("%s: the state_dict has another structure than the one that was put" % key)
        generation.copy_to({name: tensor for name, tensor in mine.items() if name in generation})
        return _join(structure, lambda name: mine[name] if name in mine else _into.torch_copy(generation[name]))


class _Tensor:
    """The place of a tensor in a structure."""

    def __init__(self, name):
        self.name = name


def _name(*parts):
    """A name of the store for any text."""
    return "ts-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _to_host(value):
    return value.detach().cpu().contiguous() if isinstance(value, torch.Tensor) else value


def _split(value, name, tensors):
    """Returns the structure, with a _Tensor for each tensor, which goes to tensors."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value
        return _Tensor(name)
    if isinstance(value, dict):
        return {key: _split(item, "%s/%s" % (name, key) if name else str(key), tensors)
                for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_split(item, "%s/%d" % (name, i), tensors) for i, item in enumerate(value))
    return value


def _join(value, tensor):
    if isinstance(value, _Tensor):
        return tensor(value.name)
    if isinstance(value, dict):
        return {key: _join(item, tensor) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_join(item, tensor) for item in value)
    return value


def _shape(value):
    """Keys and places, without values."""
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shape(item) for item in value]
    return isinstance(value, _Tensor)


async def initialize(num_storage_volumes=1, strategy=None, store_name=DEFAULT_TORCHSTORE_NAME, mesh=None, *,
                     uri="embed:", bytes=0):
    """Opens the store; volumes, strategy and mesh are what its memory nodes are.

    :param uri: of the store: the same in all processes.
    :param bytes: room for values of :func:`put`; those of :func:`put_state_dict` take room of their own.
    """
    await shutdown(store_name)
    _clients[store_name] = LocalClient(uri, store_name, bytes)


async def shutdown(store_name=DEFAULT_TORCHSTORE_NAME):
    reset_client(store_name)


def reset_client(store_name=DEFAULT_TORCHSTORE_NAME):
    mine = _clients.pop(store_name, None)
    if mine:
        mine.close()


async def client(store_name=DEFAULT_TORCHSTORE_NAME):
    try:
        return _clients[store_name]
    except KeyError:
        raise RuntimeError("%s: call initialize first" % store_name) from None


async def put(key, value, store_name=DEFAULT_TORCHSTORE_NAME):
    await (await client(store_name)).put(key, value)


async def get(key, inplace_tensor=None, tensor_slice_spec=None, store_name=DEFAULT_TORCHSTORE_NAME):
    return await (await client(store_name)).get(key, inplace_tensor, tensor_slice_spec)


async def delete(key, *, store_name=DEFAULT_TORCHSTORE_NAME):
    await (await client(store_name)).delete(key)


async def keys(prefix=None):
    return await (await client()).keys(prefix)


async def exists(key, store_name=DEFAULT_TORCHSTORE_NAME):
    return await (await client(store_name)).exists(key)


async def put_state_dict(state_dict, key, store_name=DEFAULT_TORCHSTORE_NAME):
    await (await client(store_name)).put_state_dict(state_dict, key)


async def get_state_dict(key, user_state_dict=None, strict=True, store_name=DEFAULT_TORCHSTORE_NAME):
    return await (await client(store_name)).get_state_dict(key, user_state_dict, strict)
