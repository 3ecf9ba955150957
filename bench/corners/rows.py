"""Large rows: tokens in a plain column, and observations of an image and a vector."""

import numpy as np
import relive

from pair import Pair, Ring, case, drawing, open_sampler, open_table

ROW = 4096  # int32: 16 KiB
CAPACITY = 1 << 14
FRAMES = 20_000


@case("rows.append_64", "rows.append_1", "rows.sample_16_memcpy", "rows.sample_256_memcpy",
      "rows.sample_16_numpy", "rows.sample_256_numpy")
def rows(stack, seed):
    rng = np.random.default_rng(seed)
    table = open_table(stack, {"tokens": ((ROW,), "int32")}, CAPACITY, views=[relive.View(selector="uniform")])
    writer = stack.enter_context(table.writer())
    ring = Ring(CAPACITY, {"tokens": np.zeros((CAPACITY, ROW), np.int32)})
    several = {"tokens": rng.integers(0, 1 << 17, (64, ROW), np.int32)}
    one = {"tokens": several["tokens"][0]}
    for _ in range(CAPACITY // 64 + 64):
        writer.extend(several)
        ring.extend(several)
    params = {"row_bytes": ROW * 4, "capacity": CAPACITY}
    pairs = [
        Pair("rows.append_64", 0.95, lambda: writer.extend(several), lambda: ring.extend(several), params),
        Pair("rows.append_1", 2.5, lambda: writer.append(one), lambda: ring.append(one), params)]
    for n in (16, 256):
        sampler = open_sampler(stack, table, n, seed)
        more = {**params, "batch": n}
        pairs += [
            Pair("rows.sample_%d_memcpy" % n, 0.95, drawing(sampler), copying(ring.arrays["tokens"], n), more),
            Pair("rows.sample_%d_numpy" % n, 1.5, drawing(sampler),
                 lambda n=n: ring.arrays["tokens"][rng.integers(0, CAPACITY, n)], more)]
    return pairs


def copying(array, n):
    """One memcpy of n rows, of all rows in turn, into one buffer."""
    to, parts, turn = np.empty_like(array[:n]), array.reshape(-1, n, *array.shape[1:]), [0]

    def copy():
        turn[0] = (turn[0] + 1) % len(parts)
        np.copyto(to, parts[turn[0]])
    return copy


@case("dict.sample_32", "dict.sample_256")
def dicts(stack, seed):
    rng = np.random.default_rng(seed)
    shapes = {"image": ((3, 84, 84), np.uint8), "vector": ((32,), np.float32), "action": ((), np.int64),
              "reward": ((), np.float32), "done": ((), bool)}
    table = open_table(stack, {"obs": {name: shapes[name] for name in ("image", "vector")},
                               "action": "int64", "reward": "float32"}, FRAMES,
                       views=[relive.View(selector="uniform")])
    arrays = {name: np.zeros((FRAMES, *shape), dtype) for name, (shape, dtype) in shapes.items()}
    arrays["image"][:] = rng.integers(0, 255, (1, 3, 84, 84), np.uint8)
    with table.writer() as writer:
        for at in range(0, FRAMES, 100):
            part = {name: array[at:at + 100] for name, array in arrays.items()}
            writer.extend(obs={"image": part["image"], "vector": part["vector"]}, action=part["action"],
                          reward=part["reward"])
    return [Pair("dict.sample_%d" % n, 2.5, drawing(open_sampler(stack, table, n, seed)),
                 taking(arrays, n, rng), {"capacity": FRAMES, "batch": n}) for n in (32, 256)]


def taking(arrays, n, rng):
    """The fastest way in numpy: take into arrays that are there."""
    names = [(name, 0) for name in arrays] + [("image", 1), ("vector", 1)]
    out = [np.empty_like(arrays[name][:n]) for name, _ in names]

    def draw():
        at = rng.integers(0, FRAMES - 1, n)
        for (name, later), to in zip(names, out):
            np.take(arrays[name], at + later, axis=0, out=to, mode="clip")
    return draw


CASES = [rows, dicts]
