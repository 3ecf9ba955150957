"""Waits of coroutines. A thread cannot be told to give up, so it waits in slices: a cancelled coroutine leaves
a thread that ends with its slice, and neither asyncio.run nor the end of the process waits longer for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from . import errors

_SLICE_S = 0.1

_Drawn = TypeVar("_Drawn")


async def draw(sample: Callable[[float], _Drawn], timeout: float | None) -> _Drawn:
    """Returns what sample(timeout) returns, called in threads. timeout None = without limit."""
    left = float("inf") if timeout is None else timeout
    end = time.monotonic() + left
    while True:
        try:
            return await asyncio.to_thread(sample, max(min(left, _SLICE_S), 0))
        except errors.Timeout:
            left = end - time.monotonic()
            if left <= 0:
                raise
