"""Signatures of functions that pass their options on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _cures

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


def names_of(function: Callable[..., Any]) -> list[str]:
    """Returns the names of a function's options."""
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls", "table")]


def check_options(call: str, options: dict[str, Any], names: list[str]) -> None:
    """Raises the TypeError of :func:`known` for an option that is none of ``names``."""
    for option in options:
        if option not in names:
            raise TypeError(_cures.unknown_option(call, option, names))


def known(call: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function whose options have fixed names: another one raises a TypeError that says what to write. call: for
    the message."""
    def decorate(function):
        names = names_of(function)

        @functools.wraps(function)
        def checked(*values, **options):
            check_options(call, options, names)
            return function(*values, **options)
        return checked
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
