"""Expected and printed output -> equal or not."""

from __future__ import annotations

import decimal
import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

_NUMBER = re.compile(rb"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?")
_INTEGER = re.compile(rb"[+-]?\d++")
_PADDED = re.compile(rb"[+-]?0\d++")
_SPACE = re.compile(rb"\s")
_BLOCK = 1 << 16
_TOLERANCE = decimal.Decimal("1e-6")
# Any exponent; whoever asks says how many digits: a long token costs time linear in its length.
_EXACT = decimal.Context(prec=50, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])


def same_output(expected: bytes, got: bytes, any_case: bool = False) -> bool:
    """Whether a contest's checker would take `got` for `expected`.

    Both are split on whitespace (ASCII; the bytes need not be UTF-8). A pair of tokens is equal as
    text, or as numbers (plain decimal or scientific ones; `nan`, `inf`, `1_000`, `0x1f` and
    non-ASCII digits are none). What was expected decides how:

    - an integer is equal to a printed integer exactly, whatever their length, and to a printed
      decimal within an absolute 1e-6 of it, exactly computed: references print reals as `3`;
    - digits with a leading zero, such as `00101`, are a text;
    - any other number is equal to one within 1e-6 of it, absolute or relative.

    Args:
        any_case: ASCII letters are equal in both cases, see `letters_in_any_case`.
    """
    if expected == got:
        return True
    if any_case:
        expected, got = expected.lower(), got.lower()
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
    if _INTEGER.fullmatch(expected):
        if _PADDED.fullmatch(expected):
            return False
        if _INTEGER.fullmatch(got):
            return _integer(expected) == _integer(got)
        return _near_integer(expected, got)
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


def _near_integer(expected: bytes, got: bytes) -> bool:
    """Whether a decimal lies within an absolute 1e-6 of an integer."""
    if len(expected) < 9:  # a float of it errs by less than 1e-8
        gap = abs(float(expected) - float(got))
        if not 0.9e-6 < gap < 1.1e-6:
            return gap < 1e-6
    exact = _EXACT.copy()
    exact.prec = len(expected) + len(got) + 10
    want = exact.create_decimal(expected.decode())
    have = exact.create_decimal(got.decode())
    if not want:
        return have.copy_abs() <= _TOLERANCE
    if not have.is_finite() or abs(want.adjusted() - have.adjusted()) > 1:
        return False  # and its digits, written out, could be too many to hold
    return exact.subtract(want, have).copy_abs() <= _TOLERANCE


# --- values ---


class _Number(str):
    """A number as it stands in a JSON text."""


def same_value(expected: str, got: bytes, any_case: bool = False) -> bool:
    """Whether two JSON texts hold the same value.

    Numbers are compared as `same_output` does, so that 2 is 2.0 and digits are never lost; true
    and false are 1 and 0, as in Python. Strings are equal letter by letter (with `any_case` in
    both cases), lists item by item, objects whatever the order of their keys. What is no JSON is
    equal to nothing.
    """
    try:
        wanted, printed = _value(expected), _value(got.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    pairs = [(wanted, printed)]
    while pairs:  # no recursion: a value can be nested deeply
        want, have = (_plain(value) for value in pairs.pop())
        if isinstance(want, _Number) and isinstance(have, _Number):
            same = want == have or _same_number(want.encode(), have.encode())
        elif type(want) is not type(have):
            same = False
        elif isinstance(want, list):
            same = len(want) == len(have)
            pairs += zip(want, have, strict=False)
        elif isinstance(want, dict):
            same = want.keys() == have.keys()
            pairs += [(value, have.get(key)) for key, value in want.items()]
        elif isinstance(want, str) and any_case:
            same = want == have or _lowered(want) == _lowered(have)
        else:
            same = want == have
        if not same:
            return False
    return True


def _value(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def _lowered(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").lower()  # of ASCII letters only


def _plain(value: Any) -> Any:
    """True and false as numbers."""
    return _Number(int(value)) if isinstance(value, bool) else value


# --- letters in any case ---

_HEADING = re.compile(r"\W*(input|output|examples?|samples?|notes?|explanation)\b.{0,20}", re.I)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_BOTH = r"(?:upper|lower)[- ]?(?:case)?-?(?: letters?)? ?(?:or|and|/) ?(?:in )?(?:upper|lower)"
_ANY_CASE = re.compile(
    r"\b(?:letter|character|symbol)s?\b.{0,80}\b(?:any|either|arbitrary) (?:case|register)\b"
    r"|\b(?:print|output|write|display|answers?|(?-i:YES|NO))\b"
    r"(?:(?!\b(?:if|when|whether|unless|there)\b).){0,60}?"
    r"\b(?:any|arbitrary) (?:letter )?(?:case|register)"
    r" ?(?:[.;:!()]|$|,? (?:for|e\.g|so)\b)"
    rf"|\bany combination of {_BOTH}"
    r"|\b(?:can|may|could|allowed|accepted|any|free)\b.{0,80}"
    rf"(?:\bin (?:either |both |any )?|\((?:either )?){_BOTH}"
    r"|\b(?:register|case)\b.{0,40} (?:does not|doesn['\u2019]t|do not|don['\u2019]t) matter"
    r"|\b(?:register|case)\b.{0,40} (?:is|are) (?:ignored|irrelevant|insignificant"
    r"|not (?:important|significant|relevant|considered))"
    r"|\b(?:regardless|irrespective) of (?:the |their |its )?(?:letter )?(?:case|register)\b"
    r"|\bcase[- ]?insensitive|(?:\bnot|n['\u2019]t) case[- ]?sensitive",
    re.I,
)
_PRINTING = re.compile(
    r"\b(?:print|output|write|display|answer|checker|jury|judge|verdict)|\b(?-i:YES|Yes)\b", re.I
)
# How strings are to be ordered or compared is the task itself, unless the checker is meant.
_THE_TASK = re.compile(r"\b(?:sort|order|lexicograph|alphabet|compar|consist|contain)", re.I)
_CHECKER = re.compile(r"\b(?:checker|jury|judge|verdict)", re.I)
# Spellings that only stand there to show that case does not matter.
_SHOWN = re.compile(r"\b(?:yEs|yeS|YeS|yES|YEs|nO)\b")


def letters_in_any_case(statement: str) -> bool:
    """Whether a task's statement says that the letters of the output may be in any case.

    It must say so of the output: in a sentence that speaks of printing, or under the heading
    "Output". That strings of the input are compared without case says nothing.
    """
    if _SHOWN.search(statement):
        return True
    if not _ANY_CASE.search(" ".join(statement.split())):  # nearly all, and cheaply
        return False
    for paragraph, output in _paragraphs(statement):
        for sentence in _SENTENCE.split(paragraph):
            about = output or _PRINTING.search(sentence)
            task = _THE_TASK.search(sentence) and not _CHECKER.search(sentence)
            if about and not task and _ANY_CASE.search(sentence):
                return True
    return False


_SEVERAL = re.compile(
    r"\b(any of (them|these)\b|any (valid|correct|suitable|possible|such|optimal|appropriate|"
    r"acceptable) |any (answer|solution)|(multiple|several|many|more than one) (\w+ )?"
    r"(possible )?(answer|solution)|(print|output|find) any\b|in (any|arbitrary) order)",
    re.IGNORECASE,
)


def several_answers(statement: str) -> bool:
    """Whether a task's statement says that several answers are right.

    It takes the usual words for it anywhere: this only counts tasks, and changes no verdict.
    """
    return bool(_SEVERAL.search(" ".join(statement.split())))


def _paragraphs(statement: str) -> Iterator[tuple[str, bool]]:
    """Paragraphs, each as one line, and whether it stands under the heading "Output"."""
    lines: list[str] = []
    output = False
    for line in [*statement.splitlines(), ""]:
        heading = _HEADING.fullmatch(line.strip())
        if lines and (heading or not line.strip()):
            yield " ".join(lines), output
            lines = []
        if heading:
            output = heading[1].lower() == "output"
        elif line.strip():
            lines.append(" ".join(line.split()))
