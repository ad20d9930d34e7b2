"""Arithmetic of money that does not depend on who calls it.

Python's decimals round to the precision of the thread's context, which any program may have set: with six digits, a
pool of 12,345,678.90 would lose its cents. What is decorated with :func:`exactly` has a context of its own.
"""

import functools
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, DivisionByZero, InvalidOperation, Overflow, localcontext
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

EXACT = Context(prec=100, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, DivisionByZero, Overflow])
"""Precise enough that no sum or product of amounts is ever rounded."""


def exactly(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Run ``function`` in the context :data:`EXACT`, whatever the caller's is."""

    @functools.wraps(function)
    def wrapped(*given: Given.args, **named: Given.kwargs) -> Result:
        with localcontext(EXACT):
            return function(*given, **named)

    return wrapped
