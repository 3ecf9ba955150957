"""Signatures of functions that pass their options on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec
    P = ParamSpec("P")
    T = TypeVar("T")


def options_of(kind: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Decorates a function that takes the arguments of ``kind``: ``help`` and type checkers see them."""
    def decorate(function):
        function.__signature__ = inspect.signature(kind)
        return function
    return decorate


def options_after(kind: Callable[Concatenate[Any, P], Any]
                  ) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """As options_of, for a method that takes the arguments of ``kind`` but the first, which it gives."""
    def decorate(function):
        first, *others = inspect.signature(kind).parameters.values()
        self = inspect.Parameter("self", first.kind)
        function.__signature__ = inspect.Signature([self, *others])
        return function
    return decorate
