"""Expected and printed output -> equal or not."""

from __future__ import annotations

import decimal
import itertools
import math
import re
from collections.abc import Iterator

_NUMBER = re.compile(rb"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?")
_SPACE = re.compile(rb"\s")
_BLOCK = 1 << 16
_TOLERANCE = decimal.Decimal("1e-6")
# Fifty digits and any exponent: a token of any length costs time linear in its length.
_EXACT = decimal.Context(prec=50, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])


def same_output(expected: bytes, got: bytes) -> bool:
    """Whether a contest's checker would take `got` for `expected`.

    Both are split on whitespace (ASCII; the bytes need not be UTF-8). A pair of tokens is equal as
    text; or as integers, exactly, whatever their length; or, when both are plain decimal or
    scientific numbers and not both integers, within 1e-6 of each other, absolute or relative to
    the expected one. `nan`, `inf`, `1_000`, `0x1f` and non-ASCII digits are not numbers.
    """
    if expected == got:
        return True
    pairs = itertools.zip_longest(_tokens(expected), _tokens(got))
    return all(_same_number(want, have) for want, have in pairs if want != have)


def _tokens(text: bytes) -> Iterator[bytes]:
    """The tokens of `text`, a block at a time: 16 MiB of digits are not 8 million objects."""
    return itertools.chain.from_iterable(_blocks(text))


def _blocks(text: bytes) -> Iterator[list[bytes]]:
    start = 0
    while start < len(text):
        space = _SPACE.search(text, start + _BLOCK)
        end = space.end() if space else len(text)
        yield text[start:end].split()
        start = end


def _same_number(expected: bytes | None, got: bytes | None) -> bool:
    """Whether two tokens that differ as text are the same number; None is a missing token."""
    if not (expected and got and _NUMBER.fullmatch(expected) and _NUMBER.fullmatch(got)):
        return False
    if expected.lstrip(b"+-").isdigit() and got.lstrip(b"+-").isdigit():
        return _integer(expected) == _integer(got)
    x, y = float(expected), float(got)
    share = abs(x - y) / (1e-6 * max(1.0, abs(x)))
    if share < 0.999 or 1.001 < share < math.inf:
        return share < 1
    want = _EXACT.create_decimal(expected.decode())
    have = _EXACT.create_decimal(got.decode())
    if not (want.is_finite() and have.is_finite()):
        return False  # exponents of 10^18 and more
    gap = _EXACT.subtract(want, have).copy_abs()
    return gap <= _EXACT.multiply(_TOLERANCE, max(want.copy_abs(), decimal.Decimal(1)))


def _integer(token: bytes) -> tuple[bool, bytes]:
    """Sign and digits without leading zeros: int() of a long text is slow, and refused."""
    digits = token.lstrip(b"+-0")
    return token.startswith(b"-") and bool(digits), digits
