"""A replay buffer for Stable-Baselines3 that keeps its transitions in a table of Relive::

    from relive.adaptors.sb3 import ReliveReplayBuffer

    model = DQN("MlpPolicy", env, replay_buffer_class=ReliveReplayBuffer,
                replay_buffer_kwargs=dict(store="shm:default", n_steps=3, gamma=0.99))

Each observation is stored once: the next observation of a transition is read from the row after it.
So a transition can be drawn when the one after it was added. Observations may be dicts. Draws are
uniform, as the algorithms of Stable-Baselines3 expect.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

from .. import _core, errors
from ..store import Store
from ..store import open as open_store
from ..views import View

__all__ = ["ReliveReplayBuffer"]

# Rows that a table has at least, for each environment and each step of a return.
_LEAST_CAPACITY = 64

_BOOL, _FLOAT = np.dtype(bool), np.dtype(np.float32)


def _shaped(value, dtype, shape):
    """Returns an array of a dtype, or any if None, and a shape: the value itself, if it is one."""
    if type(value) is np.ndarray and value.shape == shape and (dtype is None or value.dtype is dtype):
        return value
    return np.asarray(value, dtype).reshape(shape)


class ReliveReplayBuffer(ReplayBuffer):
    """A ``replay_buffer_class`` for Stable-Baselines3. The parameters that are not listed here are those
    of its own ReplayBuffer.

    :param buffer_size: rows that stay drawable: one for each transition, and one for the last
        observation of each episode.
    :param optimize_memory_usage: leave it False: no observation is stored twice in any case.
    :param store: a URI for :func:`relive.open`, or an open :class:`relive.Store`.
    :param name: name of the table. Processes that give the same store and name share it.
    :param n_steps: steps of the return. With more than one the samples' ``discounts`` are set.
    :param gamma: discount of the n-step return.
    :param max_writers: environments of all processes that share the table; 0 = ``n_envs``.
    :param shards: number of parts of the table, spread over the memory nodes.
    :param timeout: seconds that ``sample`` waits for transitions that can be drawn.
    :param options: those of :func:`relive.open`.
    :raises ValueError: optimize_memory_usage is True.
    """

    # A ReplayBuffer by name only: load_replay_buffer asks for that. Its arrays are never made.
    def __init__(self, buffer_size: int, observation_space: spaces.Space,
                 action_space: spaces.Space, device: Any = "auto", n_envs: int = 1,
                 optimize_memory_usage: bool = False, handle_timeout_termination: bool = True, *,
                 store: Any = "embed:", name: str = "replay", n_steps: int = 1,
                 gamma: float = 0.99, max_writers: int = 0, shards: int = 1,
                 timeout: float = 5.0, **options: Any) -> None:
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        if optimize_memory_usage:
            raise ValueError("optimize_memory_usage: leave it False: observations are stored once")
        self.optimize_memory_usage = False
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps, self.gamma = n_steps, gamma
        self._action_dtype = np.dtype(self._maybe_cast_dtype(action_space.dtype))
        self.name = name
        self._arguments = dict(max_writers=max_writers or n_envs, shards=shards)
        self._timeout, self._options = timeout, options
        self.store = store if isinstance(store, Store) else open_store(store, **options)
        self._open()

    def _open(self):
        writers = self._arguments["max_writers"]
        least = _LEAST_CAPACITY * writers * (self.n_steps + 1)
        self.table = self.store.create_table(
            self.name, self._signature(), max(self.buffer_size, least),
            views=[View(selector="uniform", n_step=self.n_steps)], **self._arguments)
        self._writer = self.table.writer(self.n_envs, autoreset="same_step")
        self._sampler: Any = None
        self._following: dict[str, tuple[bytes, np.dtype]] = {}  # next observations of the last call, by column
        self._ended = np.zeros(self.n_envs, bool)  # by the last call

        shapes = self.obs_shape if isinstance(self.obs_shape, dict) else {}
        self._shapes: Any = {name: (self.n_envs, *shape) for name, shape in (
            ("action", (self.action_dim,)), ("reward", ()),
            *(("obs__" + key, shape) for key, shape in shapes.items()))}
        if not shapes:
            self._shapes["obs"] = (self.n_envs, *self.obs_shape)

    def _signature(self):
        if isinstance(self.observation_space, spaces.Dict):
            obs = {key: (self.obs_shape[key], space.dtype)
                   for key, space in self.observation_space.spaces.items()}
        else:
            obs = (self.obs_shape, self.observation_space.dtype)
        action = (self.action_dim,), self._action_dtype
        return {"obs": obs, "action": action, "reward": "float32"}

    # -------- in --------

    def add(self, obs: Any, next_obs: Any, action: np.ndarray, reward: np.ndarray,
            done: np.ndarray, infos: list[dict[str, Any]]) -> None:
        """Appends one step of each environment. The values are copied.

        :param obs, next_obs: (n_envs, \\*shape), or dicts of such.
        :param action: (n_envs, action_dim), or (n_envs,).
        :param reward, done: (n_envs,).
        :param infos: the dicts of the environments, whose ``TimeLimit.truncated`` is read.
        """
        steps, following = self._columns(obs), self._columns(next_obs)
        for name, (before, _) in self._following.items():
            if before != steps[name].tobytes():
                self._end_what_was_left(steps)
                break
        ended = steps["terminated"] = _shaped(done, _BOOL, self._shapes["reward"])
        steps["action"] = _shaped(action, self._action_dtype, self._shapes["action"])
        steps["reward"] = _shaped(reward, _FLOAT, self._shapes["reward"])
        if b"\1" in ended.tobytes():
            self._add_ends(steps, following, infos)
        _core.Writer.append(self._writer, steps)  # whose own append splits nested values
        for name, value in following.items():
            self._following[name] = value.tobytes(), value.dtype
        self._ended = ended
        self._count()

    def _add_ends(self, steps, following, infos):
        """Adds what the writer takes where an episode ends."""
        steps.update(("final_" + name, value) for name, value in following.items())
        if self.handle_timeout_termination:
            timeout = np.array([info.get("TimeLimit.truncated", False) for info in infos], bool)
            ended = steps["terminated"]
            steps["terminated"], steps["truncated"] = ended & ~timeout, ended & timeout

    def _columns(self, obs):
        if not isinstance(obs, dict):
            return {"obs": _shaped(obs, None, self._shapes["obs"])}
        return {"obs__" + key: _shaped(obs[key], None, self._shapes["obs__" + key]) for key in self.obs_shape}

    def _end_what_was_left(self, obs):
        """Ends the episodes of environments whose ``obs`` is not the next observation of the last
        add(): another call of learn() has reset them without a done."""
        goes_on = np.ones(self.n_envs, bool)
        last = {name: np.frombuffer(*before).reshape(self._shapes[name])
                for name, before in self._following.items()}
        for name, value in last.items():
            same = (value == obs[name]) | ((value != value) & (obs[name] != obs[name]))
            goes_on &= same.reshape(self.n_envs, -1).all(axis=1)
        for i in np.flatnonzero(~goes_on & ~self._ended):
            self._writer.end_episode(env=int(i), **{name: value[i] for name, value in last.items()})

    def _count(self):
        """Advances ``pos`` by 1; when buffer_size transitions were added, sets ``full``, and ``pos`` to
        0. Stable-Baselines3 reads both."""
        self.pos += 1
        if self.pos * self.n_envs >= self.buffer_size:
            self.full = True
            self.pos = 0

    # -------- out --------

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """Draws transitions, or n-step returns, and returns them as the samples of Stable-Baselines3. The
        tensors have memory of their own.

        :param batch_size: number of transitions.
        :param env: a VecNormalize that normalizes observations and rewards; None = as stored.
        :raises relive.Timeout: no transition can be drawn within ``timeout`` seconds.
        """
        if self._sampler is None or self._sampler.batch_size < batch_size:
            self._sampler = self.table.sampler(batch_size, prefetch=0, beta=0.0, gamma=self.gamma)
        with self._draw(batch_size) as batch:
            obs = self._observations(batch, "", env)
            kind = DictReplayBufferSamples if isinstance(obs, dict) else ReplayBufferSamples
            discounts = self.gamma**batch.steps[:, None].astype(np.float32)
            return kind(
                obs, self.to_torch(batch.action), self._observations(batch, "next_", env),
                self.to_torch((batch.discount == 0).astype(np.float32)[:, None]),
                self.to_torch(self._normalize_reward(batch.reward[:, None], env)),
                self.to_torch(discounts) if self.n_steps > 1 else None)

    def _draw(self, batch_size):
        try:
            return self._sampler.sample(batch_size, timeout=self._timeout)
        except errors.Timeout as error:
            raise errors.Timeout(
                "sample: no transition can be drawn yet: it takes %d more steps after it was added: "
                "raise learning_starts: %s" % (self.n_steps, error)) from error

    def _observations(self, batch, prefix, env):
        if not isinstance(self.observation_space, spaces.Dict):
            return self.to_torch(self._normalize_obs(batch[prefix + "obs"], env))
        obs = {key: batch["%sobs__%s" % (prefix, key)] for key in self.obs_shape}
        return {key: self.to_torch(value) for key, value in self._normalize_obs(obs, env).items()}

    def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
        raise NotImplementedError("_get_samples: transitions have no positions here: use sample()")

    def size(self) -> int:
        """Returns the number of transitions that can be drawn."""
        return len(self.table)

    def reset(self) -> None:
        """Deletes the table with all transitions, for all processes, and creates it anew."""
        self.pos, self.full = 0, False
        self.table.close(wait=False)
        self.store.drop_table(self.name)
        self._open()

    # -------- save_replay_buffer --------

    def __getstate__(self) -> dict[str, Any]:
        """Returns what save_replay_buffer writes: the URI of the store, not the transitions. They must
        be in the store when the file is loaded. TypeError for ``embed:``, which ends with its
        process."""
        if self.store.uri == "embed:":
            raise TypeError("save: a store of embed: ends with its process: use \"embed:FILE\" or "
                            "\"shm:NAME\"")
        self.store.persist()
        gone = ("store", "table", "_writer", "_sampler", "_following")
        state = {name: value for name, value in self.__dict__.items() if name not in gone}
        return {**state, "store": self.store.uri}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.store = open_store(state["store"], **self._options)
        self._open()
