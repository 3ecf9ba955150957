"""An episode replay buffer for RLlib's new API stack that keeps its steps in a table of Relive::

    config = DQNConfig().training(n_step=3, replay_buffer_config={
        "type": "relive.adaptors.rllib.ReliveEpisodeReplayBuffer",
        "capacity": 1_000_000, "alpha": 0.6, "beta": 0.4, "n_step": 3, "store": "shm:default"})

Give ``type`` as text, as RLlib compares it with text. ``sample`` returns transitions or n-step returns,
as episodes of one step. Not covered: sequences for stateful modules, which raise NotImplementedError;
several agents; the old API stack; and SAC, which takes no type but RLlib's own four.
"""

from __future__ import annotations

import collections
import copy
from typing import Any

import numpy as np
from ray.rllib.core import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils import force_list
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

from .. import errors
from .._nested import flatten
from ..signature import columns_of
from ..store import Store
from ..store import open as open_store
from ..views import View
from . import _rows

__all__ = ["ReliveEpisodeReplayBuffer"]

_LEAST_PRIORITY = 1e-12  # RLlib's

# Rows that a table has at least, for each open episode and each step of a return.
_LEAST_CAPACITY = 64


class ReliveEpisodeReplayBuffer(PrioritizedEpisodeReplayBuffer):
    """A ``replay_buffer_config["type"]`` for RLlib. The parameters that are not listed here are those of
    its PrioritizedEpisodeReplayBuffer.

    :param capacity: rows that stay drawable: one for each step, and one for the last observation of
        each episode.
    :param alpha: priority exponent; 0 = uniform draws without priorities.
    :param n_step: the longest return that ``sample`` will be asked for, in steps.
    :param store: a URI for :func:`relive.open`, or an open :class:`relive.Store`.
    :param name: name of the table. Processes that give the same store and name share it.
    :param max_episodes: episodes of this buffer that may be open at once. When one more begins, the one
        that got no step for the longest time ends where it is.
    :param max_writers: open episodes of all processes that share the table; 0 = ``max_episodes``.
    :param shards: number of parts of the table, spread over the memory nodes.
    :param beta: ignored: ``sample`` has its own.
    :param options: those of :func:`relive.open`.
    """

    # A PrioritizedEpisodeReplayBuffer by name only: RLlib asks for that where it updates
    # priorities. Its trees are never made.
    def __init__(self, capacity: int = 10_000, *, batch_size_B: int = 16, batch_length_T: int = 1,
                 alpha: float = 1.0, metrics_num_episodes_for_smoothing: int = 100,
                 n_step: int = 1, store: Any = "embed:", name: str = "replay",
                 max_episodes: int = 16, max_writers: int = 0, shards: int = 1,
                 beta: float | None = None, **options: Any) -> None:
        EpisodeReplayBuffer.__init__(
            self, capacity, batch_size_B=batch_size_B, batch_length_T=batch_length_T,
            metrics_num_episodes_for_smoothing=metrics_num_episodes_for_smoothing)
        self._alpha, self._n_step, self._name = alpha, n_step, name
        self._max_episodes = max_episodes
        self._table_options = dict(max_writers=max_writers or max_episodes, shards=shards)
        self._store = store if isinstance(store, Store) else open_store(store, **options)
        self._table: Any = None
        self._writer: Any = None
        self._samplers: dict[int, Any] = {}
        self._streams: collections.OrderedDict[Any, int] = collections.OrderedDict()  # of episodes
        self._following: dict[Any, Any] = {}  # last observation of the episodes that go on
        self._last_sampled_indices: Any = []  # keys
        self._num_episodes = 0

    @property
    def table(self) -> Any:
        """The :class:`relive.Table`; None until the first step, here or elsewhere, creates it."""
        if self._table is None and self._name in self._store.tables():
            self._table = self._store.table(self._name)
        return self._table

    # -------- in --------

    def add(self, episodes: Any, weight: float | None = None) -> None:
        """Appends the steps of episodes, which are copied. It blocks as :meth:`relive.Writer.extend`.

        :param episodes: an episode, or a list of them; whole ones, or the next parts of episodes that
            were added before.
        :param weight: priority of the new steps; None = the largest so far.
        """
        begun = steps = 0
        for episode in force_list(episodes):
            episode = copy.deepcopy(episode)
            if not episode.is_numpy:
                episode.to_numpy()
            begun += episode.id_ not in self._streams
            steps += len(episode)
            self._append(episode, weight)
        self._num_episodes += begun
        self._num_timesteps_added += steps
        self._log_added(begun, steps)

    def _append(self, episode, weight):
        n, done = len(episode), bool(episode.is_done)
        if n:
            values = {"obs": episode.get_observations(slice(0, n + done)),
                      "action": episode.get_actions(slice(0, n)),
                      "reward": np.asarray(episode.get_rewards(slice(0, n)), np.float32)}
            self._open_writer(values)
            self._extend(episode, values, weight)
            self._following[episode.id_] = episode.get_observations(n)
        if done and episode.id_ in self._streams:
            if n:
                self._forget(episode.id_)
            else:
                self._end(episode.id_)

    def _open_writer(self, values):
        if self._writer is not None:
            return
        if self.table is None:
            spec = {name: (array.shape[1:], array.dtype) for name, array in flatten(values).items()}
            view = View(n_step=self._n_step, alpha=self._alpha or 1.0, eps=_LEAST_PRIORITY,
                        selector="prioritized" if self._alpha > 0 else "uniform")
            least = _LEAST_CAPACITY * (self._n_step + 1) * self._table_options["max_writers"]
            self._table = self._store.create_table(
                self._name, columns_of(spec), max(self.capacity, least), views=[view],
                **self._table_options)
        self._writer = self.table.writer(self._max_episodes, autoreset="disabled")

    def _extend(self, episode, values, weight):
        """Appends steps, and behind the last one of an episode a row with the observation after it."""
        n = len(episode)
        number = np.arange(n + bool(episode.is_done))
        columns = {name: np.asarray(array) for name, array in flatten(values).items()}
        for name, array in columns.items():
            if len(array) < len(number):
                columns[name] = np.concatenate([array, array[-1:]])
        self._writer.extend(
            env=self._stream(episode.id_), **columns, final=number == n,
            terminated=(number == n - 1) & episode.is_terminated,
            truncated=(number == n - 1) & episode.is_truncated,
            td_error=None if weight is None else np.full(len(number), float(weight)))

    def _stream(self, episode_id):
        """Returns the index of the writer's environment that an episode is written to. If it is a new
        episode and all environments are in use, ends the episode that got no step for the longest
        time."""
        if episode_id not in self._streams:
            if len(self._streams) == self._max_episodes:
                self._end(next(iter(self._streams)))
            free = set(range(self._max_episodes)) - set(self._streams.values())
            self._streams[episode_id] = min(free)
        self._streams.move_to_end(episode_id)
        return self._streams[episode_id]

    def _end(self, episode_id):
        env, following = self._forget(episode_id)
        self._writer.end_episode(env=env, **flatten({"obs": following}))

    def _forget(self, episode_id):
        return self._streams.pop(episode_id), self._following.pop(episode_id)

    # -------- out --------

    def sample(self, num_items: int | None = None, *, batch_size_B: int | None = None,
               batch_length_T: int | None = None, n_step: Any = None, beta: float | None = 0.0,
               gamma: float = 0.99, include_infos: bool = False,
               include_extra_model_outputs: bool = False, to_numpy: bool = False,
               **kwargs: Any) -> Any:
        """Draws steps and returns them as a list of SingleAgentEpisode of one step each, in memory of
        their own: observation, action, n-step return, and the observation after the return. Extra model
        outputs are ``weights``, importance weights divided by the batch's largest, and ``n_step``, the
        steps of the return, fewer at the end of an episode.

        :param num_items, batch_size_B: number of steps; None = the buffer's batch_size_B.
        :param batch_length_T: None or 1.
        :param n_step: steps of the return; or a tuple (low, high): each call draws one, below high.
        :param beta: importance exponent; 0 = all weights 1.
        :param gamma: discount of the return.
        :param to_numpy: True = convert the episodes to numpy.
        :raises relive.Empty: no step was added yet.
        :raises NotImplementedError: an option asks for sequences, infos or extra model outputs.
        """
        if batch_length_T and batch_length_T > 1:
            raise NotImplementedError("sample: batch_length_T %d: use 1: sequences for stateful modules "
                                      "do not exist here" % batch_length_T)
        if include_infos or include_extra_model_outputs:
            raise NotImplementedError("sample: include_infos, include_extra_model_outputs: they are not "
                                      "stored: use columns of a table of your own")
        n = num_items or batch_size_B or self.batch_size_B
        steps = int(self.rng.integers(*n_step)) if isinstance(n_step, tuple) else n_step or 1
        with self._sampler(n, steps, gamma).sample(n, beta or 0.0) as drawn:
            batch = drawn.copy()
        self._last_sampled_indices = batch.key
        self.sampled_timesteps += n
        episodes = [_episode(batch, i) for i in range(n)]
        for episode in episodes if to_numpy else ():
            episode.to_numpy()
        self._log_sampled(batch)
        return episodes

    def _sampler(self, n, steps, gamma):
        if self.table is None:
            raise errors.Empty("sample: no step was added yet: add() episodes first")
        sampler, made_for = self._samplers.get(steps, (None, None))
        if sampler is None or made_for != gamma or sampler.batch_size < n:
            sampler = self.table.sampler(n, n_step=steps, gamma=gamma, prefetch=0)
            self._samplers[steps] = sampler, gamma
        return sampler

    def update_priorities(self, priorities: Any, module_id: Any = None) -> None:
        """Sets the priorities of the steps that the last ``sample`` returned. Steps that were overwritten
        are ignored. With alpha 0 it sets none.

        :param priorities: TD errors, one for each step.
        :param module_id: ignored.
        :raises ValueError: the number of priorities is not that of the steps.
        """
        keys, self._last_sampled_indices = self._last_sampled_indices, []
        if len(priorities) != len(keys):
            raise ValueError("update_priorities: %d priorities for %d sampled steps: give one for each"
                             % (len(priorities), len(keys)))
        if self._alpha > 0 and len(keys):
            self.table.update_priorities(keys, np.asarray(priorities, np.float32))

    # -------- counts --------

    def get_num_timesteps(self, module_id: Any = None) -> int:
        """Returns the number of steps that can be drawn."""
        return len(self.table) if self.table is not None else 0

    def get_num_episodes(self, module_id: Any = None) -> int:
        """Returns the number of episodes that were added to this buffer, also those that were
        overwritten."""
        return self._num_episodes

    def _log_added(self, episodes, steps):
        counts: dict[str, Any] = dict(num_episodes_added=episodes, num_env_steps_added=steps,
                                      num_episodes_evicted=0, num_env_steps_evicted=0)
        for kind, name in (("agent", DEFAULT_AGENT_ID), ("module", DEFAULT_MODULE_ID)):
            counts["%s_to_num_episodes_added" % kind] = {name: episodes}
            counts["%s_to_num_steps_added" % kind] = {name: steps}
            counts["%s_to_num_episodes_evicted" % kind] = {name: 0}
            counts["%s_to_num_steps_evicted" % kind] = {name: 0}
        self._update_add_metrics(**counts)

    def _log_sampled(self, batch):
        n, different, steps = batch.n, len(np.unique(batch.key)), float(batch.steps.mean())
        counts: dict[str, Any] = dict(
            num_env_steps_sampled=n, num_episodes_per_sample=different,
            num_env_steps_per_sample=different, sampled_n_step=steps, num_resamples=0)
        for kind, name in (("agent", DEFAULT_AGENT_ID), ("module", DEFAULT_MODULE_ID)):
            counts["%s_to_num_steps_sampled" % kind] = {name: n}
            counts["%s_to_num_episodes_per_sample" % kind] = {name: different}
            counts["%s_to_num_steps_per_sample" % kind] = {name: different}
            counts["%s_to_sampled_n_step" % kind] = {name: steps}
            counts["%s_to_num_resamples" % kind] = {name: 0}
        self._update_sample_metrics(**counts)

    # -------- checkpoints --------

    def get_state(self) -> dict[str, Any]:
        """Returns a checkpoint: the URI of the store and the counts, not the steps, which are made
        durable. NotImplementedError for ``embed:``, which ends with its process."""
        return {"uri": _rows.durable_uri(self._store), "name": self._name,
                "num_episodes": self._num_episodes,
                "num_timesteps_added": self._num_timesteps_added,
                "sampled_timesteps": self.sampled_timesteps}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the counts of a checkpoint. The steps are in the store already: ValueError if the
        checkpoint is of another store or table."""
        if (state["uri"], state["name"]) != (self._store.uri, self._name):
            raise ValueError("set_state: state of table %s of store %s, but this is table %s of %s" % (
                state["name"], state["uri"], self._name, self._store.uri))
        self._num_episodes = state["num_episodes"]
        self._num_timesteps_added = state["num_timesteps_added"]
        self.sampled_timesteps = state["sampled_timesteps"]


def _episode(batch, i):
    return SingleAgentEpisode(
        observations=[_part(batch.obs, i), _part(batch.next_obs, i)],
        actions=[_part(batch.action, i)], rewards=[float(batch.reward[i])],
        terminated=bool(batch.discount[i] == 0),
        extra_model_outputs={"weights": [batch.weight[i]], "n_step": [int(batch.steps[i])]},
        len_lookback_buffer=0)


def _part(values, i):
    if isinstance(values, dict):
        return {key: _part(value, i) for key, value in values.items()}
    return values[i]
