"""A replay buffer of Stable-Baselines3 whose transitions lie in a table of Relive::

    from relive.adaptors.sb3 import ReliveReplayBuffer

    model = DQN("MlpPolicy", env, replay_buffer_class=ReliveReplayBuffer,
                replay_buffer_kwargs=dict(store="shm:default", n_steps=3, gamma=0.99))

Each observation is stored once; the next one is read from the row that follows, so a transition can
be drawn when the next one was added. Observations may be dicts. Draws are uniform, as the
algorithms expect.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

from .. import errors
from ..store import Store
from ..store import open as open_store
from ..views import View

__all__ = ["ReliveReplayBuffer"]

# Rows for each environment, and step of a window, that a table has room for at least.
_LEAST_CAPACITY = 64


class ReliveReplayBuffer(ReplayBuffer):
    """The first parameters are those of Stable-Baselines3's replay buffers.

    ``buffer_size`` counts rows: each transition, and the last observation of each episode.

    :param optimize_memory_usage: leave it False: nothing is stored twice in any case.
    :param store: what :func:`relive.open` takes, or an open :class:`relive.Store`.
    :param name: of the table; processes that give the same store and name share it.
    :param n_steps: of the return; the samples' ``discounts`` are set if there are several.
    :param gamma: discount of the n-step return.
    :param max_writers: environments of all processes together; 0 = ``n_envs``.
    :param shards: parts of the table, spread over the memory nodes.
    :param timeout: seconds that ``sample`` waits for a first transition.
    :param options: of :func:`relive.open`.
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
        self._following: Any = None  # next observations of the last call, by column
        self._ended = np.zeros(self.n_envs, bool)  # by the last call

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
        """One step of each environment."""
        obs, next_obs = self._columns(obs), self._columns(next_obs)
        done = np.asarray(done, bool).reshape(self.n_envs)
        timeout = np.zeros(self.n_envs, bool)
        if self.handle_timeout_termination:
            timeout[:] = [info.get("TimeLimit.truncated", False) for info in infos]
        self._end_what_was_left(obs)
        self._writer.append(
            **obs, **{"final_" + name: value for name, value in next_obs.items()},
            action=np.asarray(action, self._action_dtype).reshape(self.n_envs, self.action_dim),
            reward=np.asarray(reward, np.float32).reshape(self.n_envs),
            terminated=done & ~timeout, truncated=done & timeout)
        self._following = {name: value.copy() for name, value in next_obs.items()}
        self._ended = done
        self._count()

    def _columns(self, obs):
        if not isinstance(obs, dict):
            return {"obs": np.asarray(obs).reshape(self.n_envs, *self.obs_shape)}
        return {"obs__" + key: np.asarray(obs[key]).reshape(self.n_envs, *shape)
                for key, shape in self.obs_shape.items()}

    def _end_what_was_left(self, obs):
        """An environment that was reset without a done, as by another call of learn()."""
        if self._following is None:
            return
        goes_on = np.ones(self.n_envs, bool)
        for name, value in obs.items():
            before = self._following[name]
            same = (value == before) | ((value != value) & (before != before))
            goes_on &= same.reshape(self.n_envs, -1).all(axis=1)
        for i in np.flatnonzero(~goes_on & ~self._ended):
            self._writer.end_episode(
                env=int(i), **{name: value[i] for name, value in self._following.items()})

    def _count(self):
        """What Stable-Baselines3 asks of a buffer's position."""
        self.pos += 1
        if self.pos * self.n_envs >= self.buffer_size:
            self.full = True
            self.pos = 0

    # -------- out --------

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """Transitions, or n-step returns, as tensors of their own memory."""
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
                "no transition can be drawn yet: one is complete %d steps after it was added: "
                "learn later (learning_starts): %s" % (self.n_steps, error)) from error

    def _observations(self, batch, prefix, env):
        if not isinstance(self.observation_space, spaces.Dict):
            return self.to_torch(self._normalize_obs(batch[prefix + "obs"], env))
        obs = {key: batch["%sobs__%s" % (prefix, key)] for key in self.obs_shape}
        return {key: self.to_torch(value) for key, value in self._normalize_obs(obs, env).items()}

    def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
        raise NotImplementedError("transitions are drawn, not addressed: use sample()")

    def size(self) -> int:
        """Transitions that can be drawn."""
        return len(self.table)

    def reset(self) -> None:
        """Drops the table, for everybody, and makes it anew."""
        self.pos, self.full = 0, False
        self.table.close(wait=False)
        self.store.drop_table(self.name)
        self._open()

    # -------- save_replay_buffer --------

    def __getstate__(self) -> dict[str, Any]:
        """Where the transitions are: they are not in the file, and must be there when it is
        loaded."""
        if self.store.uri == "embed:":
            raise TypeError("embed: is gone with this process: use \"embed:FILE\" or \"shm:NAME\"")
        self.store.persist()
        gone = ("store", "table", "_writer", "_sampler", "_following")
        state = {name: value for name, value in self.__dict__.items() if name not in gone}
        return {**state, "store": self.store.uri}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.store = open_store(state["store"], **self._options)
        self._open()
