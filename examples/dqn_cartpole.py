"""DQN on CartPole-v1 with prioritized replay: double Q-learning, 3-step returns, PyTorch.

    pip install . torch gymnasium && python examples/dqn_cartpole.py

The learner publishes its weights in the store, and the actor, which may as well be another process, fetches them.
With --pool, batches land in a device pool, and the learner shares it with other jobs. Of a GPU it has the networks, too,
where torch has CUDA; else all is on the CPU:

    relive-poold --device host:1G & python examples/dqn_cartpole.py --pool 0        # or --device cuda:0

It ends when the last 100 episodes (--episodes) have a mean return of 475 (--until), or after --steps.
"""

import argparse
import collections
import contextlib
import sys
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import relive

ENVS, BATCH, N_STEP, GAMMA = 8, 128, 3, 0.99
LEARN_FROM = 1_000  # steps
TAU = 0.01          # of the target network, an update
PUBLISH_EVERY = 10  # updates
STAGING = 1 << 20   # bytes of a pool that batches need


def network(env):
    """Returns a network from (n, obs) observations to the Q-values of each action."""
    size = env.single_observation_space.shape[0]
    return nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                         nn.Linear(128, env.single_action_space.n))


def device_of(pool):
    """Returns where networks are: on the pool's GPU, if it has one and torch has CUDA."""
    if pool and pool.cuda is not None and torch.cuda.is_available():
        return torch.device("cuda", pool.cuda)
    return torch.device("cpu")


class Actor:
    """Steps the environments by an epsilon-greedy policy, and appends each step to the table."""

    def __init__(self, envs, table, weights, args):
        self.envs, self.net = envs, network(envs)
        self.weights, self.version = weights, 0
        self.writer = table.writer(envs)  # which say when they reset
        self.obs, _ = envs.reset(seed=args.seed)
        self.returns = np.zeros(ENVS)
        self.finished = collections.deque(maxlen=args.episodes)
        self.steps = 0

    @torch.no_grad()
    def act(self, epsilon):
        """Takes and appends one step of each environment."""
        new = self.weights.fetch(newer_than=self.version, into=self.net.state_dict())
        self.version = new.version if new else self.version
        action = self.net(torch.from_numpy(self.obs)).argmax(1).numpy()
        explore = np.random.random(ENVS) < epsilon
        action = np.where(explore, np.random.randint(0, 2, ENVS), action)
        following, reward, terminated, truncated, _ = self.envs.step(action)
        self.writer.append(obs=self.obs, action=action, reward=reward, terminated=terminated,
                           truncated=truncated, policy_version=self.version)
        self.obs = following
        self.steps += ENVS
        self.returns += reward
        for i in np.flatnonzero(terminated | truncated):
            self.finished.append(self.returns[i])
            self.returns[i] = 0

    def score(self):
        """Returns the mean return of the last --episodes episodes; 0 if none has ended."""
        return float(np.mean(self.finished)) if self.finished else 0.0

    def solved(self, until):
        """True if --episodes episodes have ended and their mean return is at least ``until``."""
        return len(self.finished) == self.finished.maxlen and self.score() >= until


class Learner:
    """Fits the network to batches of the table, and sets their priorities to the TD errors."""

    def __init__(self, envs, table, weights, pool=None):
        self.pool, self.device = pool, device_of(pool)
        with self.memory("persistent"):
            self.online, self.target = (network(envs).to(self.device) for _ in range(2))
        self.sampler = table.sampler(BATCH, gamma=GAMMA, prefetch=0, device=pool)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.weights, self.version, self.updates = weights, weights.info()["version"], 0
        self.publish()

    def memory(self, lifetime):
        """Returns a context manager in which tensors of the GPU are memory of the pool."""
        return self.pool.torch(lifetime) if self.device.type == "cuda" else contextlib.nullcontext()

    def publish(self):
        """Publishes the weights as the next version."""
        self.version += 1
        self.weights.publish({name: tensor.cpu() for name, tensor in self.online.state_dict().items()}, self.version)

    def learn(self, beta):
        """Draws a batch, takes one step of the optimizer when it is its turn, and updates the priorities."""
        batch = self.sampler.sample(BATCH, beta=beta)
        with self.pool.iteration() if self.pool else contextlib.nullcontext(), self.memory("iteration"):
            td_error = self.step(batch)
        self.sampler.update_priorities(batch.key, td_error=td_error)
        self.updates += 1
        if self.updates % PUBLISH_EVERY == 0:
            self.publish()

    def step(self, batch):
        """Takes one step of the optimizer on a batch; returns the (n,) TD errors."""
        obs, next_obs, action, reward, discount, weight = (
            torch.from_dlpack(batch[name] if self.device.type == "cuda" else np.asarray(batch[name]))
            for name in ("obs", "next_obs", "action", "reward", "discount", "weight"))
        with torch.no_grad():
            best = self.online(next_obs).argmax(1, keepdim=True)
            goal = reward + discount * self.target(next_obs).gather(1, best).squeeze(1)
        value = self.online(obs).gather(1, action[:, None]).squeeze(1)
        td_error = goal - value
        loss = (weight * nn.functional.smooth_l1_loss(value, goal, reduction="none")).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.online.parameters()):
                old.lerp_(new, TAU)
        return td_error.detach()


def show(actor, learner, max_steps, seconds):
    """Prints a line of progress, which replaces the former one on a terminal."""
    print("[%-30s] %6d steps, %6d updates, return %5.1f, %4.0f s" %
          ("#" * (30 * actor.steps // max_steps), actor.steps, learner.updates, actor.score(),
           seconds), end="\r" if sys.stdout.isatty() else "\n", flush=True)


def train(store, args, pool):
    """Acts and learns until solved, or for --steps; returns the actor."""
    envs = gym.make_vec("CartPole-v1", num_envs=ENVS)
    table = store.create_table("cartpole", relive.signature.of_env(envs), capacity=50_000,
                               max_writers=ENVS, views=[relive.View(n_step=N_STEP, alpha=0.6)])
    weights = store.create_weights("cartpole-policy", bytes=1 << 20)
    learner = Learner(envs, table, weights, pool)
    actor = Actor(envs, table, weights, args)
    began = time.monotonic()
    while actor.steps < args.steps and not actor.solved(args.until):
        actor.act(epsilon=max(0.01, 1.0 - actor.steps / 10_000))
        if actor.steps >= LEARN_FROM:
            for _ in range(2):
                learner.learn(beta=0.4 + 0.6 * actor.steps / args.steps)
        if actor.steps % 2_000 == 0:
            show(actor, learner, args.steps, time.monotonic() - began)
    learner.sampler.close()
    envs.close()
    return actor


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--store", default="embed:", help="URI (default: embed:)")
    parser.add_argument("--steps", type=int, default=150_000, help="at most (default: %(default)s)")
    parser.add_argument("--until", type=float, default=475.0, help="mean return that ends it")
    parser.add_argument("--episodes", type=int, default=100, help="last ones that the mean is of")
    parser.add_argument("--pool", help="name of a relive-poold: batches land there, and steps take turns")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("seed %d" % args.seed, flush=True)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        pool = args.pool and stack.enter_context(relive.Pool(args.pool, persistent=STAGING))
        actor = train(stack.enter_context(relive.open(args.store)), args, pool)
    solved = actor.solved(args.until)
    print("return of the last %d episodes: %.1f after %d steps, %s" % (
        len(actor.finished), actor.score(), actor.steps, "solved" if solved else "not solved"))
    return 0 if solved else 1


if __name__ == "__main__":
    raise SystemExit(main())
