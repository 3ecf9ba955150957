"""LeRobot's replay buffer and relive.adaptors.lerobot on its own transition of two cameras, in turn.

    build/adaptors/lerobot/bin/python bench/adaptor_lerobot.py [--transitions N] [--batch N] [--rounds N]
                                                                 [--seconds S] [--seed N] [--json]

with PYTHONPATH at a build's python/. Prints medians of batches a second with LeRobot's defaults (DrQ, batches
of floats), the ratio to LeRobot's, and the bytes of a stored transition.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

import torch
from lerobot.rl.buffer import ReplayBuffer, random_shift

from relive.adaptors.lerobot import ReliveReplayBuffer

CAMERAS = ("observation.images.front", "observation.images.wrist")


def fill(buffer, n, seed):
    generator = torch.Generator().manual_seed(seed)
    frames = [torch.randint(0, 256, (1, 3, 128, 128), generator=generator, dtype=torch.uint8).float() / 255
              for _ in range(64)]
    states = [{CAMERAS[0]: frames[i % 64], CAMERAS[1]: frames[i * 7 % 64],
               "observation.state": torch.full((1, 18), i / 100)} for i in range(100)]
    for i in range(n):
        buffer.add(states[i % 100], torch.zeros(1, 4), 1.0, states[(i + 1) % 100], i % 100 == 99, False,
                   {"discrete_penalty": torch.zeros(1)})


def stored_bytes(buffer):
    if isinstance(buffer, ReliveReplayBuffer):
        info = buffer.table.info()
        return (info.rows_bytes + info.tree_bytes) / info.capacity
    tensors = [*buffer.states.values(), *buffer.next_states.values(), *buffer.complementary_info.values(),
               buffer.actions, buffer.rewards, buffer.dones, buffer.truncateds]
    return sum(tensor.nbytes for tensor in tensors) / buffer.capacity


def commit():
    try:
        return subprocess.run(["git", "-C", str(pathlib.Path(__file__).resolve().parent), "describe", "--always",
                               "--dirty", "--abbrev=12"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def batches_a_second(buffer, batch, seconds):
    n, start, end = 0, time.perf_counter(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        buffer.sample(batch)
        n += 1
    return n / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transitions", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a window")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="an object a line")
    options = parser.parse_args()
    n = options.transitions
    room = n + n // 8  # for the last states of episodes
    buffers = {"lerobot": ReplayBuffer(n, "cpu"), "lerobot, eager": ReplayBuffer(
        n, "cpu", image_augmentation_function=random_shift), "relive": ReliveReplayBuffer(room, "cpu"),
               "relive, uint8": ReliveReplayBuffer(room, "cpu", frames="uint8")}
    for buffer in buffers.values():
        fill(buffer, n, options.seed)
        buffer.sample(options.batch)  # torch compiles
    rates = {name: [] for name in buffers}
    for _ in range(options.rounds):
        for name, buffer in buffers.items():
            rates[name].append(batches_a_second(buffer, options.batch, options.seconds))
    report(options, buffers, rates)


def report(options, buffers, rates):
    """Prints medians, and their ratios to LeRobot's faster way. A round has a window of each buffer."""
    medians = {name: statistics.median(rate) for name, rate in rates.items()}
    best = max(medians["lerobot"], medians["lerobot, eager"])
    for name, buffer in buffers.items():
        if options.json:
            print(json.dumps({
                "bench": "adaptor_lerobot", "metric": name, "unit": "batches/s", "value": round(medians[name], 2),
                "least": round(min(rates[name]), 2), "most": round(max(rates[name]), 2),
                "ratio": round(medians[name] / best, 2), "bytes_per_transition": round(stored_bytes(buffer)),
                "params": {key: getattr(options, key) for key in ("transitions", "batch", "rounds", "seconds", "seed")},
                "commit": commit()}))
            continue
        print("%-16s %8.2f batches/s %6.1fx %9d bytes a transition"
              % (name, medians[name], medians[name] / best, stored_bytes(buffer)))


if __name__ == "__main__":
    main()
