"""Checks of numbers and strings."""

import numbers
import operator

from . import errors


def unsigned(name, value, least=0, bits=32):
    """Returns an integer of any type as an int, after checking that it is ``least`` to 2^bits - 1: the
    extension would drop higher bits. name: of the argument, for the message.

    >>> unsigned("parts", True, 1)
    1
    >>> unsigned("parts", 2**32, 1)
    Traceback (most recent call last):
    relive.errors.InvalidArgument: parts 4294967296, want an integer of 1 to 4294967295
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not least <= number < 2**bits:
        raise errors.InvalidArgument("%s %r, want an integer of %d to %d"
                                     % (name, value, least, 2**bits - 1))
    return number


def real(name, value, least, most):
    """Returns a number as a float, after checking that it is ``least`` to ``most``."""
    if not isinstance(value, numbers.Real) or not least <= value <= most:
        raise errors.InvalidArgument("%s %r, want a number of %g to %g" % (name, value, least, most))
    return float(value)


def text(name, value):
    """Returns a string, after checking that it is one."""
    if not isinstance(value, str):
        raise errors.InvalidArgument("%s %r, want a string" % (name, value))
    return value
