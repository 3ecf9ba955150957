"""What a case gives to the harness."""

import dataclasses
from collections.abc import Callable
from typing import Any

import relive


@dataclasses.dataclass
class Pair:
    name: str
    want: float  # least ratio
    ours: Callable[[], object]
    peer: Callable[[], object]
    params: dict[str, Any]
    limit: float | None = None  # most microseconds of ours


def case(*names):
    """Marks a function (stack, seed) -> list of Pair with the names of its pairs. What it opens, it enters
    into the stack."""
    def mark(function):
        function.names = names
        return function
    return mark


def open_table(stack, signature, capacity, **options):
    store = stack.enter_context(relive.open("embed:"))
    return store.create_table("replay", signature, capacity, **options)


def open_sampler(stack, table, n, seed, **options):
    return stack.enter_context(table.sampler(n, prefetch=0, seed=seed, **options))


def drawing(sampler):
    """A function that draws a batch and makes an array of each column, as a learner does."""
    def draw():
        batch = sampler.sample()
        return [batch[name] for name in batch.names]
    return draw


class Ring:
    """The replay buffer that people write: an array for each column, a position, and whether it is full."""

    def __init__(self, capacity, arrays):
        self.capacity, self.arrays = capacity, arrays
        self.position, self.full = 0, False

    def extend(self, rows):
        n = len(next(iter(rows.values())))
        end = self.position + n
        for name, values in rows.items():
            if end <= self.capacity:
                self.arrays[name][self.position:end] = values
            else:
                first = self.capacity - self.position
                self.arrays[name][self.position:] = values[:first]
                self.arrays[name][:end - self.capacity] = values[first:]
        self.full |= end >= self.capacity
        self.position = end % self.capacity

    def append(self, row):
        for name, value in row.items():
            self.arrays[name][self.position] = value
        self.position += 1
        if self.position == self.capacity:
            self.full, self.position = True, 0
