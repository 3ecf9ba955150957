"""Checks of unsigned integers."""

import operator

from . import errors


def unsigned(name, value, least=0, bits=32):
    """Returns an integer of any type as an int, after checking that it is ``least`` to 2^bits - 1: the
    extension would drop higher bits. name: of the argument, for the message.

    >>> unsigned("stack", True, 1)
    1
    >>> unsigned("stack", 2**32, 1)
    Traceback (most recent call last):
    relive.errors.InvalidArgument: stack 4294967296, want an integer of 1 to 4294967295
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not least <= number < 2**bits:
        raise errors.InvalidArgument("%s %r, want an integer of %d to %d"
                                     % (name, value, least, 2**bits - 1))
    return number
