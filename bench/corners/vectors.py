"""One step of each of 64 environments."""

import numpy as np
import relive

from pair import Pair, Ring, case, open_table

ENVS, OBS, CAPACITY = 64, 17, 1 << 17


def step_of(rng):
    return {"obs": rng.standard_normal((ENVS, OBS), np.float32),
            "action": rng.standard_normal((ENVS, 6), np.float32),
            "reward": rng.standard_normal(ENVS, np.float32), "terminated": np.zeros(ENVS, bool),
            "truncated": np.zeros(ENVS, bool)}


def open_writer(stack, step):
    """A writer of steps like this one."""
    table = open_table(stack, {name: (step[name].shape[1:], "float32") for name in ("obs", "action", "reward")},
                       CAPACITY, views=[relive.View(selector="uniform")], max_writers=ENVS)
    return stack.enter_context(table.writer(ENVS))


def at_index(ring, rows):
    """The ring's extend for people who take all positions modulo the capacity."""
    at = (ring.position + np.arange(ENVS)) % ring.capacity
    for name, values in rows.items():
        ring.arrays[name][at] = values
    ring.position = (ring.position + ENVS) % ring.capacity


@case("vectors.append_numpy", "vectors.append_numpy_index")
def numpy_ring(stack, seed):
    step = step_of(np.random.default_rng(seed))
    ring = Ring(CAPACITY, {name: np.zeros((CAPACITY, *value.shape[1:]), value.dtype)
                           for name, value in step.items()}
                | {"next_obs": np.zeros((CAPACITY, OBS), np.float32)})
    writer = open_writer(stack, step)
    stored = {**step, "next_obs": step["obs"]}
    return [Pair("vectors.append_numpy", 3, lambda: writer.append(step), lambda: ring.extend(stored),
                 {"envs": ENVS, "capacity": CAPACITY}),
            Pair("vectors.append_numpy_index", 3, lambda: writer.append(step), lambda: at_index(ring, stored),
                 {"envs": ENVS, "capacity": CAPACITY})]


@case("vectors.append_sb3")
def sb3(stack, seed):
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import ReplayBuffer

    step = step_of(np.random.default_rng(seed))
    box = {n: Box(-np.inf, np.inf, (n,), np.float32) for n in (OBS, 6)}
    theirs = ReplayBuffer(CAPACITY, box[OBS], box[6], "cpu", ENVS, handle_timeout_termination=False)
    writer = open_writer(stack, step)
    infos = [{} for _ in range(ENVS)]
    return [Pair("vectors.append_sb3", 3, lambda: writer.append(step),
                 lambda: theirs.add(step["obs"], step["obs"], step["action"], step["reward"],
                                    step["terminated"], infos),
                 {"envs": ENVS, "capacity": CAPACITY})]


CASES = [numpy_ring, sb3]
