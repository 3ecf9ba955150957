"""Actors and a learner as Ray actors, on any number of hosts. Steps, batches and weights go through Relive.

    pip install . ray torch gymnasium
    relive up && python examples/ray_apex.py
    python examples/ray_apex.py --ray auto --store relive://HOST:7117      # on a cluster of Ray

Ray starts the processes and restarts those that die. An actor or a learner that comes back goes on with the
newest weights of the store.
"""

import argparse
import os
import time

import gymnasium as gym
import numpy as np
import ray
import torch
from torch import nn

import relive

ENVS, BATCH, GAMMA, TAU = 8, 128, 0.99, 0.01
REMOTE = dict(num_cpus=0.5, max_restarts=-1, max_task_retries=-1)
SIGNATURE = {"obs": ((4,), "float32"), "action": "int64", "reward": "float32"}


def network():
    """Returns a network from observations of CartPole to the Q-values of its two actions."""
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                         nn.Linear(128, 2))


@ray.remote(**REMOTE)
class Actor:
    """Steps environments and appends the steps to the table."""

    def __init__(self, store, number, actors):
        torch.set_num_threads(1)
        self.store = relive.open(store)
        self.envs, self.net = gym.make_vec("CartPole-v1", num_envs=ENVS), network()
        self.writer = self.store.table("ray-apex").writer(self.envs)
        self.epsilon = 0.4 ** (1 + 7 * number / max(1, actors - 1))
        self.rng = np.random.default_rng(number)
        self.obs, _ = self.envs.reset(seed=number)
        self.returns = np.zeros(ENVS)
        self.weights, self.version = self.store.weights("ray-apex-policy"), 0

    def act(self, steps):
        """Takes and appends ``steps`` steps of each environment; returns the returns of the episodes that
        ended."""
        new = self.weights.fetch(newer_than=self.version, into=self.net.state_dict())
        self.version = new.version if new else self.version
        finished = []
        for _ in range(steps):
            with torch.no_grad():
                action = self.net(torch.from_numpy(self.obs)).argmax(1).numpy()
            explore = self.rng.random(ENVS) < self.epsilon
            action = np.where(explore, self.rng.integers(0, 2, ENVS), action)
            following, reward, terminated, truncated, _ = self.envs.step(action)
            self.writer.append(obs=self.obs, action=action, reward=reward, terminated=terminated,
                               truncated=truncated, policy_version=self.version)
            self.obs, self.returns = following, self.returns + reward
            ended = terminated | truncated
            finished += self.returns[ended].tolist()
            self.returns[ended] = 0
        return finished

    def close(self):
        """Closes the store, and with it the writer."""
        self.store.close()


@ray.remote(**REMOTE)
class Learner:
    """Samples from the table, learns, and sets the priorities to the TD errors."""

    def __init__(self, store):
        torch.set_num_threads(1)
        self.store = relive.open(store)
        self.sampler = self.store.table("ray-apex").sampler(BATCH, gamma=GAMMA, prefetch=1)
        self.online, self.target = network(), network()
        self.weights = self.store.weights("ray-apex-policy")
        self.version = self.weights.fetch(into=self.online.state_dict()).version
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)

    def learn(self, updates):
        """Takes ``updates`` steps of the optimizer, and publishes the weights."""
        for _ in range(updates):
            batch = next(self.sampler)
            obs, next_obs, action, reward, discount, weight = (
                torch.from_dlpack(batch[name])
                for name in ("obs", "next_obs", "action", "reward", "discount", "weight"))
            with torch.no_grad():
                best = self.online(next_obs).argmax(1, keepdim=True)
                goal = reward + discount * self.target(next_obs).gather(1, best).squeeze(1)
            value = self.online(obs).gather(1, action[:, None]).squeeze(1)
            loss = weight * nn.functional.smooth_l1_loss(value, goal, reduction="none")
            self.optimizer.zero_grad()
            loss.mean().backward()
            self.optimizer.step()
            self.sampler.update_priorities(batch.key, td_error=(goal - value).detach())
            with torch.no_grad():
                for old, new in zip(self.target.parameters(), self.online.parameters()):
                    old.lerp_(new, TAU)
        self.version += 1
        self.weights.publish(self.online.state_dict(), self.version)


def train(args):
    """Runs --rounds rounds of the learner, which waits for no actor, and no actor for it."""
    actors = [Actor.remote(args.store, i, args.actors) for i in range(args.actors)]
    learner, rounds = Learner.remote(args.store), 0
    acting = {actor.act.remote(50): actor for actor in actors}
    learning = learner.learn.remote(args.round)
    last, began = [], time.monotonic()
    while rounds < args.rounds:
        (done,), _ = ray.wait([learning, *acting])
        if done != learning:
            last = (last + ray.get(done))[-20:]
            actor = acting.pop(done)
            acting[actor.act.remote(50)] = actor
            continue
        ray.get(done)
        rounds += 1
        learning = learner.learn.remote(args.round)
        print("[%-30s] %6d updates, return %5.1f, %4.0f s" % (
            "#" * (30 * rounds // args.rounds), rounds * args.round, np.mean(last or [np.nan]),
            time.monotonic() - began), flush=True)
    ray.get([learning, *acting])
    ray.get([actor.close.remote() for actor in actors])


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("store", "shm:default"), ("ray", "local"), ("actors", 4),
                          ("rounds", 200), ("round", 100)):
        parser.add_argument("--" + name, default=default, type=type(default))
    args = parser.parse_args()
    secrets = {name: os.environ[name] for name in ("RELIVE_TOKEN", "RELIVE_RUNTIME_DIR")
               if name in os.environ}
    ray.init(address=None if args.ray == "local" else args.ray, include_dashboard=False,
             runtime_env={"env_vars": secrets})
    view = relive.View(n_step=3, rate_limiter=relive.RateLimiter.of_min_size(1_000))
    with relive.open(args.store) as store:
        store.create_table("ray-apex", SIGNATURE, 100_000, views=[view],
                           max_writers=2 * ENVS * args.actors)  # the dead keep theirs a while
        weights = store.create_weights("ray-apex-policy", bytes=1 << 20)
        weights.publish(network().state_dict(), weights.info()["version"] + 1)
        train(args)


if __name__ == "__main__":
    main()
