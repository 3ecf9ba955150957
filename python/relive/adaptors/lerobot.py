"""A replay buffer for LeRobot (``lerobot.rl.buffer.ReplayBuffer``) that keeps its transitions in a table of
Relive::

    from relive.adaptors.lerobot import ReliveReplayBuffer

    buffer = ReliveReplayBuffer(100_000, "cuda:0", state_keys, store="shm:default")
    buffer.add(state, action, reward, next_state, done, truncated, complementary_info)
    for batch in buffer.get_iterator(256):
        ...

Each state is stored once: the next state of a transition is read from the row after it. So a transition
can be drawn when the one after it was added, or when its episode ended. Images are stored as uint8.
"""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from lerobot.rl.buffer import BatchTransition, ReplayBuffer, random_shift
from lerobot.utils.constants import ACTION, DONE, OBS_IMAGE, REWARD

from .. import _core, errors
from ..signature import Column
from ..store import Store
from ..store import open as open_store
from ..views import View

__all__ = ["ReliveReplayBuffer"]

_PLAIN, _SCALED, _INFO = "state", "scaled", "info"  # first parts of the names of columns
_PAD = 4  # pixels that random_shift moves an image by, at most
_FRAMES = {"float32": np.float32, "uint8": np.uint8}
_LEAST_CAPACITY = 64  # rows for each writer


class _StateColumn(NamedTuple):
    """A column with a part of the state. ``divisor``: of what is stored; None = it is no frame."""

    key: str
    name: str
    divisor: int | None


class ReliveReplayBuffer(ReplayBuffer):
    """A ``ReplayBuffer`` for LeRobot. The parameters that are not listed here are those of its own class.

    :param capacity: rows that stay drawable: one for each transition, and one for the last state of each
        episode.
    :param storage_device, optimize_memory: ignored: states are on the host, each once.
    :param store: a URI for :func:`relive.open`, or an open :class:`relive.Store`.
    :param name: name of the table. Processes that give the same store and name share it.
    :param frames: dtype of images in batches: ``"float32"``, as in LeRobot; or ``"uint8"``, as they are
        stored, a quarter of the bytes to copy: divide those that were given as floats by 255.
    :param quantize: True = float images, of values from 0 to 1, are stored as uint8, in steps of 1/255,
        which loses nothing of camera images. False = as float32.
    :param max_writers: processes that add.
    :param shards: number of parts of the table, spread over the memory nodes.
    :param timeout: seconds that ``sample`` waits for transitions that can be drawn.
    :param options: those of :func:`relive.open`.
    :raises ValueError: capacity or frames is invalid.
    """

    # A ReplayBuffer for isinstance and for its iterators. Its tensors are never made.
    def __init__(self, capacity: int, device: str = "cuda:0", state_keys: Sequence[str] | None = None,
                 image_augmentation_function: Callable[..., Any] | None = None, use_drq: bool = True,
                 storage_device: str = "cpu", optimize_memory: bool = False, *,
                 store: Any = "embed:", name: str = "replay", frames: str = "float32",
                 quantize: bool = True, max_writers: int = 1, shards: int = 1, timeout: float = 5.0,
                 **options: Any) -> None:
        if capacity <= 0 or frames not in _FRAMES:
            raise ValueError("ReliveReplayBuffer: capacity %r, frames %r: want 1 or more, and one of %s"
                             % (capacity, frames, ", ".join(_FRAMES)))
        self.capacity, self.device, self.use_drq = capacity, device, use_drq
        self.storage_device, self.optimize_memory = storage_device, optimize_memory
        self.state_keys = [] if state_keys is None else state_keys
        self.image_augmentation_function = image_augmentation_function
        self.name = name
        self._frames, self._quantize, self._timeout = frames, quantize, timeout
        self._arguments = dict(max_writers=max_writers, shards=shards)
        self.store = store if isinstance(store, Store) else open_store(store, **options)
        self.table: Any = None
        self._writer: Any = None
        self._following: Any = None  # next state of the last add(), by column; None = its episode ended
        self._reused = _Reused()
        self._threads = concurrent.futures.ThreadPoolExecutor(torch.get_num_threads())
        if name in self.store.tables():
            self._use(self.store.table(name))

    def __len__(self) -> int:
        """The number of transitions that can be drawn."""
        return 0 if self.table is None else len(self.table)

    @property
    def initialized(self) -> bool:
        """True if the table exists: a transition was added, by this process or another."""
        return self.table is not None

    @property
    def size(self) -> int:
        """The number of transitions that can be drawn."""
        return len(self)

    def close(self) -> None:
        """Closes the store, also if it was given."""
        self._threads.shutdown(wait=False)
        self.store.close(wait=False)

    # -------- in --------

    def _initialize_storage(self, state, action, complementary_info=None):
        columns = [self._column_of(key, value) for key, value in state.items()]
        columns += [Column("action", tuple(action.squeeze(0).shape), "float32", "plain")]
        columns += [Column(name, (), dtype, "plain")
                    for name, dtype in (("reward", "float32"), ("ended", "bool"), ("cut", "bool"))]
        columns += [Column("%s__%s" % (_INFO, key), _array(value).shape, "float32", "plain")
                    for key, value in (complementary_info or {}).items()]
        least = _LEAST_CAPACITY * self._arguments["max_writers"]
        self._use(self.store.create_table(self.name, columns, max(self.capacity, least),
                                          views=[View(selector="uniform")], **self._arguments))

    def _column_of(self, key, value):
        is_frame = _is_frame(key, value)
        is_scaled = is_frame and self._quantize and value.is_floating_point()
        stored = "uint8" if is_scaled or (is_frame and value.dtype == torch.uint8) else "float32"
        return Column("%s__%s" % (_SCALED if is_scaled else _PLAIN, key), tuple(value.squeeze(0).shape),
                      stored, "obs")

    def _use(self, table):
        self.table = table
        self._states: list[_StateColumn] = []
        self._infos: dict[str, Any] = {}  # name of the column -> its value where none is given
        for column in table.columns:
            kind, _, key = column.name.partition("__")
            if kind in (_PLAIN, _SCALED):
                divisor = (255 if kind == _SCALED else 1) if column.dtype == "uint8" else None
                self._states.append(_StateColumn(key, column.name, divisor))
            elif kind == _INFO:
                self._infos[column.name] = np.zeros(column.shape, np.float32)

    def add(self, state: dict[str, torch.Tensor], action: torch.Tensor, reward: float,
            next_state: dict[str, torch.Tensor], done: bool, truncated: bool,
            complementary_info: dict[str, Any] | None = None) -> None:
        """Appends a transition. The values are copied.

        :param state, next_state: a tensor by key, with or without a first dimension of 1.
        :param action: a tensor, with or without a first dimension of 1.
        :param complementary_info: tensors or numbers; those of the first transition are stored.
        :raises ValueError: an image has values outside 0 to 1.
        """
        if self.table is None:
            self._initialize_storage(state, action, complementary_info)
        if self._writer is None:
            self._writer = self.table.writer()
        row, following = self._stored(state), self._stored(next_state)
        if self._following is not None and not _are_equal(row, self._following):
            self._writer.end_episode(self._following)  # this is no continuation
        ended = bool(done) or bool(truncated)
        info = {"%s__%s" % (_INFO, key): _array(value)
                for key, value in (complementary_info or {}).items()}
        if ended:
            row.update(("final_" + name, value) for name, value in following.items())
        row.update((name, info.get(name, default)) for name, default in self._infos.items())
        self._writer.append(row, action=_array(action), reward=np.float32(reward), ended=bool(done),
                            cut=bool(truncated), terminated=bool(done), truncated=ended and not done)
        self._following = None if ended else following

    def _stored(self, state):
        """Returns a state as arrays by column, which share no memory with it."""
        return {name: _quantized(key, state[key]) if name.startswith(_SCALED) else
                state[key].detach().squeeze(0).cpu().numpy().astype(
                    np.float32 if divisor is None else np.uint8)
                for key, name, divisor in self._states}

    # -------- out --------

    def sample(self, batch_size: int) -> BatchTransition:
        """Draws transitions, and returns them as LeRobot's own buffer does. The tensors have memory of their
        own.

        :param batch_size: most transitions; fewer if fewer can be drawn.
        :raises RuntimeError: nothing was added.
        :raises relive.Timeout: no transition can be drawn within ``timeout`` seconds.
        """
        if self.table is None:
            raise RuntimeError("sample: the buffer is empty: add transitions first")
        with self._draw(min(batch_size, max(len(self), 1))) as batch:
            state, next_state = self._states_of(batch)
            info = {name.partition("__")[2]: self._tensor(batch[name]) for name in self._infos}
            return BatchTransition(
                state=state, action=self._tensor(batch["action"]), reward=self._tensor(batch["reward"]),
                next_state=next_state, done=self._tensor(batch["ended"]).float(),
                truncated=self._tensor(batch["cut"]).float(), complementary_info=info or None)

    def _draw(self, n):
        try:
            return self.table.sample(n, beta=0.0, timeout=self._timeout)
        except errors.Timeout as error:
            raise errors.Timeout("sample: no transition can be drawn yet: one can when the next was added, or "
                                 "its episode ended: add more first: %s" % error) from error

    def _tensor(self, array):
        return torch.from_numpy(array.copy()).to(self.device)

    def _states_of(self, batch):
        """Returns the states and the next states of a batch, dicts of tensors, images augmented."""
        on_host = torch.device(self.device).type == "cpu"
        images = [column.key for column in self._states if column.key.startswith(OBS_IMAGE)
                  and self.use_drq]
        moved = [column.key for column in self._states if column.key in images
                 and column.divisor and on_host and self.image_augmentation_function is None]
        states: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        copies = []
        for key, name, divisor in self._states:
            for state, prefix in zip(states, ("", "next_")):
                array = batch[prefix + name]
                if divisor and on_host:
                    state[key], copy = self._frames_of(array, divisor, key in moved)
                    copies.append(copy)
                else:
                    state[key] = self._on_device(array, divisor)
        for copied in [self._threads.submit(_core.move_frames, *copy) for copy in copies]:
            copied.result()
        self._augment(states, [key for key in images if key not in moved])
        return states

    def _frames_of(self, array, divisor, is_moved):
        """Returns a tensor for frames, and the arguments of move_frames that fill it."""
        out, tensor = self._reused.empty(array.shape, _FRAMES[self._frames])
        shifts = torch.randint(-_PAD, _PAD + 1, (len(array), 2), dtype=torch.int32).numpy()
        return tensor, (array, out, shifts if is_moved else None, divisor)

    def _on_device(self, array, divisor):
        tensor = self._tensor(array)
        if divisor is None or self._frames == "uint8":
            return tensor
        return tensor.float().div_(divisor)

    def _augment(self, states, keys):
        """Augments images by LeRobot's function or the user's, all at once, as LeRobot does."""
        if not keys:
            return
        parts = [state[key] for key in keys for state in states]
        function = self.image_augmentation_function or random_shift
        augmented = iter(function(torch.cat(parts)).split(len(parts[0])))
        for key in keys:
            for state in states:
                state[key] = next(augmented)

    # -------- datasets --------

    @classmethod
    def from_lerobot_dataset(cls, lerobot_dataset: Any, device: str = "cuda:0",
                             state_keys: Sequence[str] | None = None, capacity: int | None = None,
                             image_augmentation_function: Callable[..., Any] | None = None,
                             use_drq: bool = True, storage_device: str = "cpu",
                             optimize_memory: bool = False, **options: Any) -> ReliveReplayBuffer:
        """Returns a buffer with the transitions of a LeRobotDataset. Each frame is read once, and one
        is in memory at a time.

        :param capacity: None = as many as the dataset's frames, and an eighth more for the ends of episodes.
        :param options: the other parameters of the class.
        :raises ValueError: no state_keys, or the capacity is less than the frames.
        """
        frames = len(lerobot_dataset)
        if state_keys is None or (capacity is not None and capacity < frames):
            raise ValueError("from_lerobot_dataset: state_keys %r, capacity %r: want the keys of the state, and "
                             "at least %d" % (state_keys, capacity, frames))
        buffer = cls(frames + frames // 8 if capacity is None else capacity, device, state_keys,
                     image_augmentation_function, use_drq, storage_device, optimize_memory, **options)
        for transition in _transitions(lerobot_dataset, state_keys):
            buffer.add(**transition, truncated=False)
        return buffer

    def to_lerobot_dataset(self, repo_id: str, fps: int = 1, root: Any = None,
                           task_name: str = "from_replay_buffer") -> Any:
        """Writes the transitions that can be drawn, oldest first, to a new LeRobotDataset on the disk, and
        returns it. One batch is in memory at a time.

        :param repo_id, fps, root: as for ``LeRobotDataset.create``.
        :param task_name: the task of all frames.
        :raises ValueError: there is no such transition.
        """
        if len(self) == 0:
            raise ValueError("to_lerobot_dataset: the buffer is empty: add transitions first")
        return ReplayBuffer.to_lerobot_dataset(_Export(self), repo_id, fps, root, task_name)


# -------- values --------


def _is_frame(key, value):
    return key.startswith(OBS_IMAGE) and value.squeeze(0).ndim == 3


def _array(value):
    """Returns an action or a part of complementary_info as an array of float32."""
    if isinstance(value, torch.Tensor):
        return value.detach().squeeze(0).cpu().numpy().astype(np.float32)
    if not isinstance(value, (int, float)):
        raise ValueError("add: complementary_info %r: want a tensor or a number" % (value,))
    return np.float32(value)


def _quantized(key, frame):
    # numpy's, as torch has its threads wait for each other in each of these steps
    values = frame.detach().squeeze(0).cpu().numpy()
    if not (values.min() >= 0 and values.max() <= 1):
        raise ValueError("add: image %r has values outside 0 to 1: scale it, or open the buffer with "
                         "quantize=False" % key)
    return np.rint(values * np.float32(255)).astype(np.uint8)


def _are_equal(row, other):
    """True if two rows have the same bytes."""
    return all(value.tobytes() == other[name].tobytes() for name, value in row.items())


def _transitions(dataset, state_keys) -> Iterator[dict[str, Any]]:
    """Yields what add() takes for each frame of a dataset. A next state is that of the next frame, if that
    is of the same episode, else the frame's own."""
    following = dataset[0] if len(dataset) else None
    for i in range(1, len(dataset) + 1):
        frame, following = following, dataset[i] if i < len(dataset) else None
        is_last = following is None or following["episode_index"] != frame["episode_index"]
        done = bool(frame[DONE].item()) if DONE in frame else is_last
        after = frame if done or is_last else following
        info = {key.removeprefix("complementary_info."): value for key, value in frame.items()
                if key.startswith("complementary_info.")}
        yield dict(state={key: frame[key] for key in state_keys}, action=frame[ACTION],
                   reward=float(frame[REWARD].item()), done=done,
                   next_state={key: after[key] for key in state_keys}, complementary_info=info or None)


class _Reused:
    """Memory for the frames of batches, which is used again when no tensor refers to it: the system takes
    longer to give new memory than it takes to fill it."""

    def __init__(self):
        self._lock = threading.Lock()
        self._arrays: dict[Any, list[np.ndarray]] = {}

    def empty(self, shape, dtype):
        """Returns an array of any contents, and a tensor of the same memory."""
        with self._lock:
            arrays = self._arrays.setdefault((shape, dtype), [])
            array = next((arrays[i] for i in range(len(arrays)) if sys.getrefcount(arrays[i]) == 2), None)
            if array is None:
                array = np.empty(shape, dtype)
                arrays.append(array)
            return array, torch.from_numpy(array)


class _Export:
    """What LeRobot's to_lerobot_dataset reads of a buffer, by position and in order, from a scan."""

    def __init__(self, buffer):
        self.size = self.capacity = len(buffer)
        self.position = 0
        self._scan = buffer.table.scan(batch=64)
        self._batch: Any = None
        self._begin = self._end = 0  # positions of the batch's first item, and behind its last
        self.states = {key: _Exported(self, name, divisor) for key, name, divisor in buffer._states}
        self.actions, self.rewards = _Exported(self, "action"), _Exported(self, "reward")
        self.dones, self.truncateds = _Exported(self, "ended"), _Exported(self, "cut")
        self.complementary_info = {name.partition("__")[2]: _Exported(self, name) for name in buffer._infos}
        self.complementary_info_keys = list(self.complementary_info)
        self.has_complementary_info = bool(self.complementary_info)

    def at(self, name, position):
        """Returns one value; no position is before the last one that was asked for by a batch."""
        while position >= self._end:
            self._batch = next(self._scan)
            self._begin, self._end = self._end, self._end + self._batch.n
        return self._batch[name][position - self._begin]


class _Exported:
    def __init__(self, export, name, divisor=None):
        self._export, self._name, self._divisor = export, name, divisor

    def __getitem__(self, position):
        tensor = torch.from_numpy(np.array(self._export.at(self._name, position)))
        return tensor if self._divisor is None else tensor.float().div_(self._divisor)
