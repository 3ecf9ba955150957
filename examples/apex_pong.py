"""Ape-X on Pong: several actor processes, each with its environments, and one learner, in PyTorch.

    pip install . torch gymnasium ale-py matplotlib
    relive up --size 2G && python examples/apex_pong.py

A frame is stored once, as bytes, and the view stacks four. The learner publishes its weights in the same
store, where actors fetch the newest ones, whole, and append each step with the version that they act on.
With --pool NAME batches land in that device pool (relive-poold --device host:1G, or cuda:0), and the learner takes turns with
the pool's other jobs. Of a GPU it has the learner's networks, too, where torch has CUDA; else all is on the CPU.
"""

import argparse
import collections
import contextlib
import multiprocessing
import sys
import time

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from torch import nn

import relive

ENVS, STACK, BATCH, N_STEP, GAMMA = 2, 4, 32, 3, 0.99
CAPACITY, LEARN_FROM, RETARGET = 100_000, 2_000, 500
STAGING = 16 << 20  # bytes of a pool that batches need
SIGNATURE = {"obs": ((84, 84), "uint8"), "action": "int64", "reward": "float32"}


def network():
    """Returns a network from stacks of frames to the Q-values of Pong's six actions."""
    return nn.Sequential(nn.Conv2d(STACK, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                         nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(),
                         nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6))


def device_of(pool):
    """Returns where the learner's networks are: on the pool's GPU, if it has one and torch has CUDA."""
    if pool and pool.cuda is not None and torch.cuda.is_available():
        return torch.device("cuda", pool.cuda)
    return torch.device("cpu")


def act(number, args, returns, stop):
    """Runs an actor's process until ``stop`` is set: steps its environments by the newest weights,
    and appends the steps."""
    torch.set_num_threads(1)
    rng = np.random.default_rng([args.seed, number])
    epsilon = 0.4 ** (1 + 7 * number / max(1, args.actors - 1))
    envs, net = AtariVectorEnv("pong", num_envs=ENVS, stack_num=1), network()
    step = version = 0
    frame = envs.reset(seed=args.seed * 1000 + number)[0]
    stack, ended, total = np.repeat(frame, STACK, axis=1), np.zeros(ENVS, bool), np.zeros(ENVS)
    with relive.open(args.store) as store, store.table("pong").writer(envs) as writer:
        weights = store.weights("pong-policy")
        while not stop.is_set():
            if step % 100 == 0:
                new = weights.fetch(newer_than=version, into=net.state_dict())
                version = new.version if new else version
            step += 1
            with torch.no_grad():
                action = net(torch.from_numpy(stack) / 255.0).argmax(1).numpy()
            action = np.where(rng.random(ENVS) < epsilon, rng.integers(0, 6, ENVS), action)
            frame, reward, terminated, truncated, _ = envs.step(action)
            writer.append(obs=stack[:, -1], action=action, reward=reward, terminated=terminated,
                          truncated=truncated, policy_version=version)
            stack = np.concatenate([stack[:, 1:], frame], axis=1)
            stack[ended] = frame[ended]  # which were reset
            ended, total = terminated | truncated, total + reward
            for i in np.flatnonzero(ended):
                returns.put(total[i])
                total[i] = 0


def learn(online, target, optimizer, batch, device):
    """Takes a step of double Q-learning on a batch; returns the (n,) TD errors."""
    obs, next_obs, action, reward, discount, weight = (
        torch.from_dlpack(array if device.type == "cuda" else np.asarray(array))
        for array in (batch.obs, batch.next_obs, batch.action, batch.reward, batch.discount, batch.weight))
    obs, next_obs = obs / 255.0, next_obs / 255.0
    with torch.no_grad():
        best = online(next_obs).argmax(1, keepdim=True)
        goal = reward + discount * target(next_obs).gather(1, best).squeeze(1)
    value = online(obs).gather(1, action[:, None]).squeeze(1)
    loss = weight * nn.functional.smooth_l1_loss(value, goal, reduction="none")
    optimizer.zero_grad()
    loss.mean().backward()
    optimizer.step()
    return (goal - value).detach()


def train(table, args, online, weights, returns, pool):
    """Runs the learner for --updates; returns rows of seconds, frames, updates and mean return."""
    device, began = device_of(pool), time.monotonic()

    def memory(lifetime):
        return pool.torch(lifetime) if device.type == "cuda" else contextlib.nullcontext()

    with memory("persistent"):
        online, target = online.to(device), network().to(device)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
    last, rows, begin = collections.deque(maxlen=20), [], weights.info()["version"]
    with table.sampler(BATCH, gamma=GAMMA, layout="window", prefetch=1, timeout=300,
                       device=pool) as sampler:
        for update in range(args.updates):
            if update % RETARGET == 0:
                target.load_state_dict(online.state_dict())
            batch = next(sampler)
            with pool.iteration() if pool else contextlib.nullcontext(), memory("iteration"):
                td_error = learn(online, target, optimizer, batch, device)
            sampler.update_priorities(batch.key, td_error)
            del batch  # the pool is closed when nothing of it is held
            if update % max(1, args.updates // 200) == 0:
                weights.publish({name: tensor.cpu() for name, tensor in online.state_dict().items()},
                                begin + update + 1)
                while not returns.empty():
                    last.append(returns.get())
                rows.append((time.monotonic() - began, table.info().views[0].inserted, update,
                             np.mean(last or [np.nan])))
                print("[%-30s] %5.0f s, %7d frames, %6d updates, return %5.1f" % (
                    "#" * (30 * update // args.updates), *rows[-1]),
                    end="\r" if sys.stdout.isatty() else "\n", flush=True)
    return np.array(rows)


def plot(rows, path):
    """Plots the mean return over frames, and the frames and updates per second."""
    import matplotlib.pyplot as plt
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    left.plot(rows[:, 1], rows[:, 3])
    left.set(xlabel="frames", ylabel="mean return of 20 episodes")
    for column, what in ((1, "frames"), (2, "updates")):
        right.plot(rows[1:, 0], np.diff(rows[:, column]) / np.diff(rows[:, 0]), label=what)
    right.set(xlabel="seconds", ylabel="a second", yscale="log")
    right.legend()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("store", "shm:default"), ("actors", 4), ("updates", 200_000),
                          ("learn-from", 10_000), ("plot", "apex_pong.png"), ("pool", ""), ("seed", 1)):
        parser.add_argument("--" + name, default=default, type=type(default))
    args = parser.parse_args()
    view = relive.View(stack=STACK, n_step=N_STEP,
                       rate_limiter=relive.RateLimiter.of_min_size(args.learn_from))
    processes = multiprocessing.get_context("spawn")
    returns, stop = processes.Queue(), processes.Event()
    with contextlib.ExitStack() as stack:
        pool = args.pool and stack.enter_context(relive.Pool(args.pool, persistent=STAGING))
        store = stack.enter_context(relive.open(args.store))
        table = store.create_table("pong", SIGNATURE, CAPACITY, views=[view],
                                   max_writers=ENVS * args.actors)
        online, weights = network(), store.create_weights("pong-policy", bytes=16 << 20)
        weights.publish(online.state_dict(), weights.info()["version"] + 1)
        actors = [processes.Process(target=act, args=(i, args, returns, stop), daemon=True)
                  for i in range(args.actors)]
        for actor in actors:
            actor.start()
        rows = train(table, args, online, weights, returns, pool)
        stop.set()
        for actor in actors:
            actor.join(30)
    plot(rows, args.plot)


if __name__ == "__main__":
    main()
