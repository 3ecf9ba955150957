"""flashbax: a prioritised flat buffer, jitted, its state donated as its own docs do."""

import importlib.metadata

import flashbax as fbx
import jax
import jax.numpy as jnp
import numpy as np

from workloads import ALPHA, BATCH, BETA

jax.config.update("jax_platforms", "cpu")


def version():
    return importlib.metadata.version("flashbax") + " jax " + jax.__version__


class Peer:
    """The flat buffer keeps steps and gives pairs of them: next_obs is read, not stored."""

    def __init__(self, shape, columns, capacity):
        kept = {n: (d, t) for n, (d, t) in columns.items() if n != "next_obs"}
        self._step = sum(int(np.prod(d)) * np.dtype(t).itemsize for d, t in kept.values())
        self._names = list(kept)
        first = {n: jnp.zeros(d, as_jax(t)) for n, (d, t) in kept.items()}

        def make(sequences):
            return fbx.make_prioritised_flat_buffer(
                max_length=capacity, min_length=BATCH, sample_batch_size=BATCH,
                add_sequences=sequences, add_batch_size=None, priority_exponent=ALPHA)

        self._one, self._many = make(False), make(True)
        self._state = self._many.init(first)
        self._add1 = jax.jit(self._one.add, donate_argnums=0)
        self._add = jax.jit(self._many.add, donate_argnums=0)
        self._update = jax.jit(self._many.set_priorities, donate_argnums=0)
        self._key = jax.random.PRNGKey(0)

        def sample(state, key):
            key, use = jax.random.split(key)
            batch = self._many.sample(state, use)
            weight = jnp.power(1.0 / jnp.maximum(batch.probabilities, 1e-12), BETA)
            return batch, weight / jnp.max(weight), key

        self._sample = jax.jit(sample)

    def _taken(self, rows):
        return {n: rows[n] for n in self._names}

    def insert1(self, row):
        self._state = self._add1(self._state, self._taken(row))

    def insert(self, rows):
        self._state = self._add(self._state, self._taken(rows))

    def sample(self):
        batch, weight, self._key = self._sample(self._state, self._key)
        jax.block_until_ready(weight)
        return batch

    def update(self, batch, td_error):
        self._state = self._update(self._state, batch.indices, jnp.asarray(td_error))
        jax.block_until_ready(self._state)

    def bytes_per_step(self):
        return self._step

    def close(self):
        pass


def as_jax(dtype):
    """JAX has no 64-bit types unless told; the others keep theirs."""
    return {np.int64: np.int32}.get(dtype, dtype)
