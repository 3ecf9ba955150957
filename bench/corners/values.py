"""Other values than numpy's: torch's tensors, and nested observations, beside numpy's and flat ones."""

import numpy as np
import relive

from pair import Pair, case, open_sampler, open_table

CAPACITY = 1 << 16


def fill(writer, step):
    for _ in range(1024):
        writer.append(step)


@case("values.torch_append", "values.torch_append_8", "values.torch_update")
def tensors(stack, seed):
    import torch

    rng = np.random.default_rng(seed)
    pairs = []
    for envs in (None, 8):
        shape = (envs,) if envs else ()
        step = {"obs": rng.standard_normal((*shape, 4), np.float32), "action": np.zeros(shape, np.int64),
                "reward": np.zeros(shape, np.float32), "terminated": np.zeros(shape, bool)}
        table = open_table(stack, {"obs": ((4,), "float32"), "action": "int64", "reward": "float32"},
                           CAPACITY, max_writers=8)
        writer = stack.enter_context(table.writer(envs))
        fill(writer, step)
        tensor = {name: torch.as_tensor(value) for name, value in step.items()}
        pairs.append(Pair("values.torch_append" + ("_%d" % envs if envs else ""), 1 / 1.3,
                          lambda w=writer, t=tensor: w.append(t), lambda w=writer, s=step: w.append(s),
                          {"envs": envs or 1}))
    sampler = open_sampler(stack, table, 256, seed)
    keys, td_error = sampler.sample().key.copy(), rng.random(256, np.float32)
    tensor = torch.from_numpy(td_error)
    pairs.append(Pair("values.torch_update", 1 / 1.3, lambda: sampler.update_priorities(keys, tensor),
                      lambda: sampler.update_priorities(keys, td_error), {"batch": 256}))
    return pairs


@case("values.nested_append")
def nested(stack, seed):
    rng = np.random.default_rng(seed)
    parts = {"image": rng.integers(0, 255, (8, 8), np.uint8), "speed": np.zeros(3, np.float32)}
    others = {"action": np.int64(0), "reward": np.float32(0), "terminated": False}
    step = {"obs": parts, **others}
    flat = {**parts, **others}
    columns = {"action": "int64", "reward": "float32"}
    shapes = {"image": ((8, 8), "uint8"), "speed": ((3,), "float32")}
    writers = []
    for signature, values in (({"obs": shapes, **columns}, step), ({**shapes, **columns}, flat)):
        table = open_table(stack, signature, CAPACITY, views=[relive.View(selector="uniform")])
        writers.append(stack.enter_context(table.writer()))
        fill(writers[-1], values)
    return [Pair("values.nested_append", 0.5, lambda: writers[0].append(step), lambda: writers[1].append(flat),
                 {"envs": 1})]


CASES = [tensors, nested]
