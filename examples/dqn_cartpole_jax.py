"""DQN on CartPole-v1 as in dqn_cartpole.py, in JAX: a step of the optimizer is one
compiled function.

    pip install . jax gymnasium && python examples/dqn_cartpole_jax.py

It ends when the last 100 episodes (--episodes) have a mean return of 475 (--until), or after --steps.
"""

import argparse
import collections
import functools
import sys
import time

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

import relive

ENVS, BATCH, N_STEP, GAMMA = 8, 128, 3, 0.99
LEARN_FROM, EXPLORE = 1_000, 10_000  # steps
RATE, TAU = 1e-3, 0.02


def init(seed, sizes):
    """Returns the state of training: both networks' weights, and Adam's moments and step count."""
    keys = jax.random.split(jax.random.PRNGKey(seed), len(sizes) - 1)
    params = [(jax.random.uniform(key, (n, m), minval=-n**-0.5, maxval=n**-0.5), jnp.zeros(m))
              for key, n, m in zip(keys, sizes, sizes[1:])]
    return {"online": params, "target": jax.tree.map(jnp.copy, params), "updates": jnp.zeros(()),
            "mean": jax.tree.map(jnp.zeros_like, params),
            "square": jax.tree.map(jnp.zeros_like, params)}


def q_values(params, obs):
    """Returns the Q-values of each action, (n, actions)."""
    for weights, bias in params[:-1]:
        obs = jax.nn.relu(obs @ weights + bias)
    return obs @ params[-1][0] + params[-1][1]


@jax.jit
def greedy(params, obs):
    """Returns the actions of the largest Q-values, (n,)."""
    return q_values(params, obs).argmax(1)


def loss(online, target, batch):
    """Returns the weighted Huber loss of double Q-learning, and the (n,) TD errors."""
    best = q_values(online, batch["next_obs"]).argmax(1)[:, None]
    following = jnp.take_along_axis(q_values(target, batch["next_obs"]), best, 1)[:, 0]
    value = jnp.take_along_axis(q_values(online, batch["obs"]), batch["action"][:, None], 1)[:, 0]
    error = jax.lax.stop_gradient(batch["reward"] + batch["discount"] * following) - value
    size = jnp.abs(error)
    return (batch["weight"] * jnp.where(size < 1, error**2 / 2, size - 0.5)).mean(), error


@functools.partial(jax.jit, donate_argnums=0)
def learn(state, batch, rate=RATE, tau=TAU):
    """Takes one step of Adam and moves the target network; returns the new state and the TD errors."""
    slopes, error = jax.grad(loss, has_aux=True)(state["online"], state["target"], batch)
    updates = state["updates"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], slopes)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, state["square"], slopes)
    scale = rate * jnp.sqrt(1 - 0.999**updates) / (1 - 0.9**updates)
    online = jax.tree.map(lambda p, m, s: p - scale * m / (jnp.sqrt(s) + 1e-8),
                          state["online"], mean, square)
    target = jax.tree.map(lambda t, p: t + tau * (p - t), state["target"], online)
    return {"online": online, "target": target, "updates": updates, "mean": mean,
            "square": square}, error


def train(store, args):
    """Acts and learns until solved, or for --steps; returns the last returns and the steps."""
    envs = gym.make_vec("CartPole-v1", num_envs=ENVS)
    table = store.create_table("cartpole", relive.signature.of_env(envs), capacity=50_000,
                               max_writers=ENVS, views=[relive.View(n_step=N_STEP)])
    state, rng = init(args.seed, (4, 128, 128, 2)), np.random.default_rng(args.seed)
    writer, sampler = table.writer(envs), table.sampler(BATCH, gamma=GAMMA, prefetch=1)
    finished, returns = collections.deque(maxlen=args.episodes), np.zeros(ENVS)
    obs, _ = envs.reset(seed=args.seed)
    began, steps = time.monotonic(), 0
    while steps < args.steps and not solved(finished, args.until):
        explore = rng.random(ENVS) < max(0.01, 1 - steps / EXPLORE)
        action = np.where(explore, rng.integers(0, 2, ENVS), greedy(state["online"], obs))
        following, reward, terminated, truncated, _ = envs.step(action)
        writer.append(obs=obs, action=action, reward=reward, terminated=terminated,
                      truncated=truncated)
        obs, steps, returns = following, steps + ENVS, returns + reward
        finished.extend(returns[terminated | truncated])
        returns[terminated | truncated] = 0
        for _ in range(2 if steps >= LEARN_FROM else 0):
            sampler.beta = 0.4 + 0.6 * steps / args.steps
            batch = next(sampler)
            state, error = learn(state, {name: batch[name] for name in (
                "obs", "action", "reward", "next_obs", "discount", "weight")})
            sampler.update_priorities(batch.key, td_error=np.asarray(error))
        if steps % 2_000 == 0:
            print("[%-30s] %6d steps, %6d updates, return %5.1f, %4.0f s" % (
                "#" * (30 * steps // args.steps), steps, state["updates"],
                np.mean(finished or [0]), time.monotonic() - began),
                end="\r" if sys.stdout.isatty() else "\n", flush=True)
    envs.close()
    return finished, steps


def solved(finished, until):
    """True if --episodes episodes have ended and their mean return is at least --until."""
    return len(finished) == finished.maxlen and np.mean(finished) >= until


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--store", default="embed:", help="URI (default: embed:)")
    parser.add_argument("--steps", type=int, default=150_000, help="at most (default: %(default)s)")
    parser.add_argument("--until", type=float, default=475.0, help="mean return that ends it")
    parser.add_argument("--episodes", type=int, default=100, help="last ones that the mean is of")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("seed %d" % args.seed, flush=True)
    with relive.open(args.store) as store:
        finished, steps = train(store, args)
    done = solved(finished, args.until)
    print("return of the last %d episodes: %.1f after %d steps, %s" % (
        len(finished), np.mean(finished), steps, "solved" if done else "not solved"))
    return 0 if done else 1


if __name__ == "__main__":
    raise SystemExit(main())
