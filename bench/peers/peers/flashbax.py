"""flashbax: a prioritised flat buffer, its functions jitted and the state donated, as its docs have it.
The flat buffer keeps steps and gives pairs of them, so next_obs is read and not stored."""

import importlib.metadata

import flashbax as fbx
import jax
import jax.numpy as jnp
import numpy as np
from flashbax.buffers import sum_tree

from workloads import ALPHA, BATCH, BETA, row_bytes

jax.config.update("jax_platforms", "cpu")

OF_JAX = {np.int64: np.int32}  # it has no 64-bit types unless told


def version():
    return importlib.metadata.version("flashbax") + " jax " + jax.__version__


def cut(shape, rows):
    return {name: value for name, value in rows.items() if name != "next_obs"}


class Peer:
    def __init__(self, shape, columns, capacity):
        kept = {n: (d, OF_JAX.get(t, t)) for n, (d, t) in columns.items() if n != "next_obs"}
        self._step = row_bytes(kept)

        def make(sequences):
            return fbx.make_prioritised_flat_buffer(
                max_length=capacity, min_length=BATCH, sample_batch_size=BATCH,
                add_sequences=sequences, add_batch_size=None, priority_exponent=ALPHA)

        one, many = make(False), make(True)

        def sample(state, key):
            key, use = jax.random.split(key)
            batch = many.sample(state, use)
            weight = jnp.power(batch.probabilities, -BETA)
            return batch, weight / jnp.max(weight), key

        self._state = many.init({n: jnp.zeros(d, t) for n, (d, t) in kept.items()})
        self._add1 = jax.jit(one.add, donate_argnums=0)
        self._add = jax.jit(many.add, donate_argnums=0)
        self._set = jax.jit(many.set_priorities, donate_argnums=0)
        self._sample = jax.jit(sample)
        self._key = jax.random.PRNGKey(0)

    def insert1(self, row):
        self._state = self._add1(self._state, row)

    def insert(self, rows):
        self._state = self._add(self._state, rows)

    def sample(self):
        batch, weight, self._key = self._sample(self._state, self._key)
        jax.block_until_ready((batch, weight))
        return batch, weight

    def update(self, drawn, td_error):
        self._state = self._set(self._state, drawn[0].indices, td_error)
        jax.block_until_ready(self._state.sum_tree_state)

    def view(self, drawn):
        pair, weight = drawn[0].experience, drawn[1]
        return {**pair.first, "next_obs": pair.second["obs"], "weight": weight}

    def bytes_per_step(self):
        return self._step

    def close(self):
        pass


class Tree:
    """flashbax's sum tree alone."""

    def __init__(self, capacity, seed):
        rng = np.random.default_rng(seed)
        levels = [rng.random(capacity, dtype=np.float32) + np.float32(0.01)]
        while len(levels[0]) > 1:
            levels.insert(0, levels[0][0::2] + levels[0][1::2])
        state = sum_tree.init(capacity)
        nodes = np.zeros(state.nodes.shape, np.float32)
        nodes[:2 * capacity - 1] = np.concatenate(levels)
        self._state = state.replace(nodes=jnp.asarray(nodes))
        self._sample = jax.jit(lambda state, key: sum_tree.stratified_sample(state, BATCH, key))
        self._set = jax.jit(sum_tree.set_batch_scan, donate_argnums=0)
        self._random = list(jax.random.split(jax.random.PRNGKey(seed), 64))
        self._keys = [jnp.asarray(rng.integers(0, capacity, BATCH)) for _ in range(1024)]
        self._values = [jnp.asarray(rng.random(BATCH, dtype=np.float32)) for _ in range(64)]

    def calls(self):
        def draw(i):
            self._sample(self._state, self._random[i % 64]).block_until_ready()

        def update(i):
            self._state = self._set(self._state, self._keys[i % 1024], self._values[i % 64])
            self._state.nodes.block_until_ready()
        return {"draw": (None, draw), "update": (None, update)}
