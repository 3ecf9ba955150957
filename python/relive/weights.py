"""Weights: versions of many tensors, from a learner to every actor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from . import _bfloat16, _core, _into, errors
from ._closing import Handle
from ._convert import _host_array
from ._integer import unsigned

_SLICE_NS = 50_000_000  # longest delay of a signal
_ANCHOR, _NEW_TREE, _FINITE = 1, 2, 4  # as enum rlv_publish_flags
_REPAIRED = 1
_CHECKS = {"changes": 0, "full": 1}  # as enum rlv_weights_check
_NAMES = {number: name for name, number in _core.dtypes.items()}


class Generation(Mapping[str, np.ndarray]):
    """One version of all tensors: a mapping from names to read-only numpy arrays, which stay valid and the
    same as long as they are referenced. :meth:`Weights.fetch` and :meth:`Weights.map` return it.

    Memory is taken twice for the versions that a handle fetches in turn; arrays that are kept longer keep
    theirs beside it.
    """

    def __init__(self, found: Any) -> None:
        self.version, tensors, self.deltas, flags = found
        #: True if the handle's own copy was found to be damaged, and was read again.
        self.repaired = bool(flags & _REPAIRED)
        self._arrays = {name: _array(*tensor) for name, *tensor, _ in tensors}
        #: Names of the arrays that are memory of the store: :meth:`Weights.map`.
        self.mapped = frozenset(name for name, *_, mapped in tensors if mapped)

    def nested(self) -> dict[str, Any]:
        """Returns the arrays in nested dicts, as the names with ``/`` in them say. Lists and tuples come
        back as dicts from "0", "1", ..."""
        tree: dict[str, Any] = {}
        for name, array in self.items():
            *parents, last = name.split("/")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = array
        return tree

    def torch(self) -> dict[str, Any]:
        """Returns copies as torch tensors, as ``load_state_dict`` wants them."""
        return {name: _into.torch_copy(array) for name, array in self.items()}

    def copy_to(self, into: Any) -> None:
        """Copies tensors into arrays of the caller, which are found by name: numpy arrays or torch tensors, as in a
        ``state_dict``, in dicts, lists and tuples as :meth:`Weights.publish` takes them. They may be fewer than this version
        has. Floats are converted to the array's dtype. After an error nothing was written.

        :raises InvalidArgument: there is no such tensor, or it has another shape or dtype.
        """
        pairs = [(name, _into.target(name, value, self)) for name, value in _flatten(into, "")]
        for name, target in pairs:
            target.assign(self[name])

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self):
        return "<relive.Generation version %d, %d tensors>" % (self.version, len(self))


class Stream(Iterator[tuple[str, np.ndarray]]):
    """Names and arrays of one version, each when it is there, while others are on their way: first what was published
    first. :meth:`Weights.stream` returns it. Arrays are as those of a :class:`Generation`: read-only, checked, and the same as long as they
    are referenced.

    Nothing is held in the store between two arrays. If the version is dropped before all were read,
    the next one raises :class:`relive.Busy`; the arrays before it stay right, and the others never come. When all were given,
    ``fetch`` returns the same version without another read.
    """

    def __init__(self, core: Any, found: Any, ready: int) -> None:
        self._core, self._ready, self._given = core, ready, 0
        generation = Generation(found) if found else None
        self._memory = found[1][0][1] if found and found[1] else None  # all arrays have one
        self._items = list(generation.items()) if generation else []
        #: The version, or None if there was none in time.
        self.version = generation.version if generation else None

    def __next__(self) -> tuple[str, np.ndarray]:
        if self._given == len(self._items):
            raise StopIteration
        if self._given == self._ready:
            self._ready = self._core.more(self._memory, self._ready)
        self._given += 1
        return self._items[self._given - 1]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self):
        return "<relive.Stream version %s, %d of %d tensors given>" % (self.version, self._given, len(self))


class ShardStream(Iterator[tuple[int, str, np.ndarray]]):
    """Ranks, names and arrays of one version of :class:`Shards`, each when it is there, while others are on their way: the first array
    of each rank, then the second of each, and so on. :meth:`Shards.stream` returns it. What holds for :class:`Stream` holds for it.
    """

    def __init__(self, core: Any, found: Any, ready: list[int]) -> None:
        self._core, self._ready = core, ready
        generations = [Generation(one) for one in found]
        self._memory = [one[1][0][1] for one in found]  # all arrays of a rank have one
        items = [list(generation.items()) for generation in generations]
        self._order = [(rank, i) for i in range(max(map(len, items), default=0))
                       for rank in range(len(items)) if i < len(items[rank])]
        self._items, self._given = items, 0
        #: The version, or None if there was none in time.
        self.version = generations[0].version if generations else None

    def __next__(self) -> tuple[int, str, np.ndarray]:
        if self._given == len(self._order):
            raise StopIteration
        rank, i = self._order[self._given]
        while self._ready[rank] <= i:
            self._ready = self._core.more(self._memory, self._ready)
        self._given += 1
        return rank, *self._items[rank][i]

    def __len__(self) -> int:
        return len(self._order)

    def __repr__(self):
        return "<relive.ShardStream version %s, %d of %d tensors given>" % (self.version, self._given, len(self))


class Weights(Handle):
    """A handle of weights. :meth:`relive.Store.create_weights` and :meth:`relive.Store.weights` return it.

    It is a context manager, which closes it. Threads may share it: calls wait for each other.
    """

    def __init__(self, store: Any, core: Any) -> None:
        self.store = store
        self._core = core

    def publish(self, tensors: Any, version: int, *, dtype: str | None = None, finite: bool = False,
                anchor: bool = False, new_tree: bool = False,
                priority: Callable[[str], Any] | None = None) -> None:
        """Publishes all tensors as one version: every reader sees all of it or nothing. Tensors in the same memory, such as tied
        parameters of torch, are converted, stored and sent once; a reader's arrays of them share memory, too.

        :param tensors: a dict from names to arrays: of numpy, JAX or torch (a ``state_dict``). Dicts, lists
            and tuples may be nested; names are then joined by ``/``. Put first what readers need first.
        :param version: above all before it.
        :param dtype: ``"bfloat16"`` or ``"float16"``: of what are floats. None = as they are.
        :param finite: refuse NaN and infinity.
        :param anchor: store all tensors, also where few elements have changed.
        :param new_tree: names, dtypes and shapes may differ from the version before.
        :param priority: a function of a tensor's name: those with the lowest results come first, so readers get them first; equal ones
            stay in their order. None = the order of ``tensors``. The same for all versions.
        :raises AlreadyExists: that version, or a newer one, was published before.
        :raises Busy: another handle published meanwhile.
        :raises InvalidArgument: another tree than before; not finite; or larger than the weights' ``bytes``.
        :raises NoSpace: the heap is full.
        """
        flags = _ANCHOR * anchor | _NEW_TREE * new_tree | _FINITE * finite
        _publish(self._core, _ordered(tensors, priority), version, dtype, flags)

    def fetch(self, newer_than: int = 0, timeout: float | None = 0, *,
              into: Any = None) -> Generation | None:
        """Returns the newest version if it is above ``newer_than``; else waits for one, and returns None
        when the time is over. At the price of a look if there is nothing new.

        :param timeout: seconds; None = for ever.
        :param into: arrays or torch tensors, as ``model.state_dict()``, that the version is copied into: see
            :meth:`Generation.copy_to`.
        """
        generation = self._newest(newer_than, timeout, False)
        if generation is not None and into is not None:
            generation.copy_to(into)
        return generation

    def map(self, newer_than: int = 0, timeout: float | None = 0) -> Generation | None:
        """As :meth:`fetch` without a copy, on the publisher's host: arrays are memory of the store. It is not used again as long as
        an array is referenced, while versions are published; so let go of old ones. Checksums are not compared. Close the
        handle after its arrays, and let go of them before the weights are dropped. A version of less than 64 KiB is copied:
        :attr:`Generation.mapped` has the names of those that are not.

        :raises Unsupported: another host, an embedded store, weights with copies; or the newest version
            is a delta: publish with ``anchor=True``, or create the weights with ``anchor_every=1``.
        :raises Busy: seven mapped versions are referenced.
        """
        return self._newest(newer_than, timeout, True)

    def _newest(self, newer_than, timeout, mapped):
        for left in _slices(timeout):
            found = self._core.fetch(newer_than, left, mapped)
            if found is not None:
                return Generation(found)
        return None

    def stream(self, newer_than: int = 0, timeout: float | None = 0) -> Stream:
        """Returns the arrays of the newest version one by one, as they arrive, if it is above ``newer_than``; else waits for one. There are
        none when the time is over::

            for name, array in weights.stream(newer_than=have):
                parameters[name].copy_(torch.from_numpy(array))

        Reads bring as many bytes as :meth:`limit` says, 16 MiB without it. A version that is made from deltas comes at once, as its check is of
        all.

        :param timeout: seconds; None = for ever.
        """
        for left in _slices(timeout):
            begun = self._core.begin(newer_than, left)
            if begun is not None:
                return Stream(self._core, *begun)
        return Stream(self._core, None, 0)

    def get(self, version: int) -> Generation:
        """Returns that version.

        :raises NotFound: it was not published, or is not kept any more.
        """
        return Generation(self._core.get(version))

    def watch(self, version: int = 0, timeout: float | None = None) -> int:
        """Blocks until the newest version is above ``version``, and returns it.

        :param timeout: seconds; None = for ever.
        :raises Timeout: there was none within the timeout.
        """
        for left in _slices(timeout):
            newest = self._core.watch(version, left)
            if newest:
                return newest
        raise errors.Timeout("watch: no version above %d within %g s" % (version, timeout))

    def limit(self, bytes: int) -> None:
        """Bounds how many bytes of all tensors are under way at once in later calls over a wire, so that batches on the same link
        wait for no more than that.

        :param bytes: at least 4096; 0 = 16 MiB, as without the call.
        """
        self._core.limit(unsigned("bytes", bytes, bits=64))

    def check(self, what: str) -> None:
        """Sets how later fetches check what deltas have made.

        :param what: ``"changes"``: by sums that are kept up from the elements that change; ``"full"``: also by the sum of all elements, which takes a pass
            over all tensors. A version whose sum is wrong is read again: :attr:`Generation.repaired`.
        """
        self._core.check(_check_number(what))

    def info(self) -> dict[str, Any]:
        """Returns counts of the weights and of this handle, as ``struct rlv_weights_info`` of
        ``relive/weights.h``."""
        return self._core.info()


class Shards(Handle):
    """A handle of weights that several ranks publish together. :meth:`relive.Store.shards` returns it. A version is there
    when all ranks have published it.

    It is a context manager, which closes it. Threads may share it: calls wait for each other.
    """

    def __init__(self, store: Any, core: Any) -> None:
        self.store = store
        self._core = core

    def publish(self, tensors: Any, version: int, *, dtype: str | None = None, finite: bool = False,
                anchor: bool = False, new_tree: bool = False,
                priority: Callable[[str], Any] | None = None) -> None:
        """Publishes the tensors of this handle's rank, as :meth:`Weights.publish` does, with the same options.

        :raises Busy: the slowest rank is ``keep`` versions behind.
        :raises InvalidArgument: the handle only reads.
        """
        flags = _ANCHOR * anchor | _NEW_TREE * new_tree | _FINITE * finite
        _publish(self._core, _ordered(tensors, priority), version, dtype, flags)

    def fetch(self, newer_than: int = 0, timeout: float | None = 0) -> list[Generation] | None:
        """Returns the newest version that all ranks have, if it is above ``newer_than``: a :class:`Generation` of each
        rank. Else waits for one, and returns None when the time is over.

        :param timeout: seconds; None = for ever.
        """
        for left in _slices(timeout):
            found = self._core.fetch(newer_than, left)
            if found is not None:
                return [Generation(one) for one in found]
        return None

    def stream(self, newer_than: int = 0, timeout: float | None = 0) -> ShardStream:
        """Returns the arrays of the newest version that all ranks have one by one, as they arrive, if it is above ``newer_than``; else
        waits for one. There are none when the time is over::

            for rank, name, array in shards.stream(newer_than=have):
                place(rank, name, array)

        :param timeout: seconds; None = for ever.
        """
        for left in _slices(timeout):
            begun = self._core.begin(newer_than, left)
            if begun is not None:
                return ShardStream(self._core, *begun)
        return ShardStream(self._core, [], [])

    def limit(self, bytes: int) -> None:
        """As :meth:`Weights.limit`, for each rank."""
        self._core.limit(unsigned("bytes", bytes, bits=64))

    def check(self, what: str) -> None:
        """As :meth:`Weights.check`, for each rank."""
        self._core.check(_check_number(what))

    def newest(self) -> int:
        """Returns the newest version that all ranks have; 0 if there is none."""
        return self._core.newest()


def _check_number(what):
    if what not in _CHECKS:
        raise errors.InvalidArgument("check: %r, want \"changes\" or \"full\"" % (what,))
    return _CHECKS[what]


def _publish(core, tensors, version, dtype, flags):
    made: dict[tuple, tuple] = {}
    core.publish([_tensor(name, value, dtype, made) for name, value in tensors], version, flags)


def _ordered(tensors, priority):
    """Returns the leaves of nested dicts, lists and tuples with their names, as readers get them."""
    leaves = _flatten(tensors, "")
    return leaves if priority is None else sorted(leaves, key=lambda leaf: priority(leaf[0]))


def _slices(timeout):
    """Yields the times in ns that calls may wait, until the timeout is over."""
    end = None if timeout is None else time.monotonic_ns() + round(timeout * 1e9)
    left = _SLICE_NS
    while left:
        left = _SLICE_NS if end is None else min(_SLICE_NS, max(0, end - time.monotonic_ns()))
        yield left


def _flatten(value, name):
    """Yields (name, leaf) of nested dicts, lists and tuples."""
    if isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    if not hasattr(value, "items"):
        if not name:
            raise errors.InvalidArgument("publish: tensors of type %s: want a dict"
                                         % type(value).__name__)
        yield name, value
        return
    for key, item in value.items():
        yield from _flatten(item, "%s/%s" % (name, key) if name else str(key))


def _tensor(name, value, dtype, made):
    """Returns (name, number of the dtype, shape, buffer). made: of arrays that came before, by their memory; so that what is tied
    is converted once, and its buffer is the same."""
    array = _host_array(value, name)
    is_bf16 = _bfloat16.is_bfloat16(array.dtype) or str(getattr(value, "dtype", "")) == "torch.bfloat16"
    if dtype not in (None, "bfloat16", "float16"):
        raise errors.InvalidArgument("publish: dtype %r, want \"bfloat16\" or \"float16\"" % (dtype,))
    memory = array.__array_interface__["data"][0], array.dtype, array.shape, array.strides, is_bf16
    if memory not in made:
        made[memory] = (*_stored(name, array, dtype, is_bf16), array)  # which keeps its address
    return name, *made[memory][:3]


def _stored(name, array, dtype, is_bf16):
    """Returns (number of the dtype, shape, buffer)."""
    if dtype == "bfloat16" and array.dtype.kind == "f" and not is_bf16:
        array, is_bf16 = _bfloat16.bits(array, name), True
    elif dtype == "float16" and array.dtype.kind == "f" and not is_bf16:
        array = array.astype(np.float16)
    if is_bf16:
        array = array.view(np.uint16)
    number = _core.dtypes.get(_bfloat16.NAME if is_bf16 else array.dtype.name)
    if number is None:
        raise errors.InvalidArgument("%s: dtype %s cannot be stored" % (name, array.dtype))
    shape = array.shape
    array = np.ascontiguousarray(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return number, shape, array.reshape(-1).view(np.uint8)


def _array(memory, number, shape, offset, size):
    array = np.frombuffer(memory, np.uint8, size, offset) if size else np.empty(0, np.uint8)
    array = array.view(_bfloat16.numpy_dtype(_NAMES[number])).reshape(shape)
    array.flags.writeable = False
    return array
