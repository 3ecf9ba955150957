#!/usr/bin/env python3
"""Steps a second of N processes that train the same network on one GPU at the same time.

    bench/gpu/corun.py mlp|cnn N SECONDS
"""

import multiprocessing
import sys
import time


def network(torch, kind):
    nn = torch.nn
    if kind == "mlp":
        layers = [nn.Linear(376, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)]
        return nn.Sequential(*layers).cuda(), torch.randn(1024, 376, device="cuda")
    layers = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1),
              nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)]
    return nn.Sequential(*layers).cuda(), torch.randn(512, 4, 84, 84, device="cuda")


def train(kind, seconds, barrier, rates):
    import torch
    torch.set_num_threads(1)
    net, data = network(torch, kind)
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        optimizer.zero_grad(set_to_none=True)
        net(data).square().mean().backward()
        optimizer.step()

    for _ in range(20):
        step()
    torch.cuda.synchronize()
    barrier.wait()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        steps += 5
    rates.put(steps / (time.perf_counter() - began))


def main():
    kind, n, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    spawn = multiprocessing.get_context("spawn")
    barrier, rates = spawn.Barrier(n), spawn.Queue()
    processes = [spawn.Process(target=train, args=(kind, seconds, barrier, rates)) for _ in range(n)]
    for process in processes:
        process.start()
    each = [rates.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    print("corun", kind, n, "processes: steps/s", round(sum(each), 1), [round(rate, 1) for rate in each])


if __name__ == "__main__":
    main()
