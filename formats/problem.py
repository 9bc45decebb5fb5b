"""What a row of any format says of a problem, and the words that the formats share.

Values come as the files have them, which is in many ways: JSON within JSON, numbers where text is
meant, nulls. What has one meaning is read; what has none drops the row with a reason.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

HIDDEN = 40  # hidden cases, where a format does not say which are
LARGEST = 64 << 20  # characters of all cases of a problem
_INTERACTIVE = ("interactive problem", "interactor", "flush the output", "fflush")
_LIMIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_UNITS = {"ms": 0.001, "milliseconds": 0.001, "kilobytes": 1 / 1024, "kb": 1 / 1024,
          "gb": 1024, "gigabytes": 1024, "bytes": 2**-20}  # fmt: skip


class Dropped(Exception):
    """A row that can't be used; its text is the reason, the same for all such rows."""


class Case(NamedTuple):
    """One test case: what the program reads on stdin and what it must print."""

    input: str
    output: str


Cases = tuple[Case, ...]


@dataclass(frozen=True)
class Asked:
    """What a reader is asked for.

    Attributes:
        visible: how many cases are visible where a format does not say which are.
        extra: whether the cases beyond the hidden ones are wanted.
        interactive: whether interactive problems are.
        known: how many of the data set's right programs, and how many of its wrong ones.
    """

    visible: int = 8
    extra: bool = False
    interactive: bool = False
    known: int = 0


@dataclass(frozen=True)
class Problem:
    """What a row holds; the attributes are those of data.Task.

    `contest` is None where the format knows none: the task itself is then its cluster.
    """

    statement: str
    visible: Cases
    hidden: Cases
    extra: Cases = ()
    rating: int = 0
    contest: str | None = None
    function: str | None = None
    starter_code: str = ""
    checker: str | None = None
    time_limit: float | None = None
    memory_limit: float | None = None
    solutions: tuple[str, ...] = ()
    wrong_solutions: tuple[str, ...] = ()


def statement_of(value: Any, asked: Asked) -> str:
    """The statement; a row without one, or of an interactive problem, is dropped."""
    if not isinstance(value, str) or not value.strip():
        raise Dropped("no statement")
    if not asked.interactive and any(phrase in value.lower() for phrase in _INTERACTIVE):
        raise Dropped("interactive")
    return value


def title(statement: str) -> str:
    """What a problem without a name is called: the start of its statement."""
    return (statement.strip().splitlines() or [""])[0].strip("# *")[:100]


def digest(text: str) -> str:
    """12 hex digits that stand for a problem without a name."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def slug(name: str) -> str:
    """A name as a part of an id."""
    return re.sub(r"[^\w+.-]+", "-", name.strip()).strip("-")


def parsed(value: Any) -> Any:
    """JSON where it is text, also of text that is JSON; None where it is blank or missing."""
    for _ in range(2):
        if not isinstance(value, str):
            return value
        if not value.strip():
            return None
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):  # a number of thousands of digits is a ValueError
            raise Dropped("not JSON") from None
    return value


def text_of(value: Any) -> str:
    """A case's input or output as text: a number is its digits, a list has a line an item."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list) and all(isinstance(v, str | int | float) for v in value):
        return "\n".join(map(text_of, value))
    raise Dropped("a case that is not text")


def plain_case(given: Any, expected: Any) -> Case:
    return Case(text_of(given), text_of(expected))


def json_lines_case(given: Any, expected: Any) -> Case:
    """A call whose arguments are already a line of JSON each."""
    case = Case(text_of(given).strip("\r\n"), text_of(expected).strip())
    for line in (*case.input.splitlines(), case.output):
        if line.strip():
            parsed_once(line)
    return case


def arguments(given: Any) -> str:
    """The arguments of a call, a line of JSON each, of a list of them or the JSON of one."""
    if isinstance(given, str):
        lines = [line for line in given.splitlines() if line.strip()]
        given = parsed_once(given) if len(lines) <= 1 else [parsed_once(line) for line in lines]
    if not isinstance(given, list):
        raise Dropped("a call without a list of arguments")
    return "\n".join(map(as_json, given))


def values_of(outputs: list[Any]) -> list[Any]:
    """What calls must return. The sets' own graders take an output or the one item of a list for
    it, and most sets put each value into such a list: it is taken out when all are in one."""
    if all(isinstance(value, list) and len(value) == 1 for value in outputs):
        return [value[0] for value in outputs]
    return outputs


def function_of(value: Any) -> str | None:
    """A function's name, also of "Solution().solve" or "Solution.solve"; None for none."""
    found = word(value).rpartition(".")[2].removesuffix("()")
    if found and not found.isidentifier():
        raise Dropped("a function name that is none")
    return found or None


def parsed_once(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Dropped("a case that is not JSON") from None


def as_json(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):  # bytes or a time in a parquet file
        raise Dropped("a case that is not JSON") from None


def split(public: Iterable[Case], rest: Iterable[Case], asked: Asked) -> tuple[Cases, Cases, Cases]:
    """Visible, hidden and extra cases, where the format says at most which are public.

    A case that comes again is taken once.
    """
    seen: set[Case] = set()
    shown, others = (
        [case for case in part if not (case in seen or seen.add(case))]  # type: ignore[func-returns-value]
        for part in (public, rest)
    )
    if not shown:
        if not others:
            raise Dropped("no cases")
        first = min(asked.visible, len(others) // 2)
        shown, others = others[:first], others[first:]
    return checked(shown, others[:HIDDEN], others[HIDDEN:] if asked.extra else ())


def checked(
    visible: Sequence[Case], hidden: Sequence[Case], extra: Sequence[Case]
) -> tuple[Cases, Cases, Cases]:
    if not visible and not hidden:
        raise Dropped("no cases")
    if not visible:
        raise Dropped("no visible case")
    if not hidden:
        raise Dropped("no hidden case")
    parts = (tuple(visible), tuple(hidden), tuple(extra))
    if sum(len(case.input) + len(case.output) for part in parts for case in part) > LARGEST:
        raise Dropped("over 64 MiB")
    return parts


def number(value: Any) -> float | None:
    """A number above zero, also as text or with a unit ("2.0 seconds", "256 megabytes")."""
    if isinstance(value, str) and (match := _LIMIT.match(value)):
        value = float(match[1]) * _UNITS.get(match[2].lower(), 1)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def rating_of(value: Any) -> int:
    """A rating as a whole number, 0 for none; words like EASY are none."""
    return round(number(value) or 0)


def word(value: Any) -> str:
    """Text without blanks around it, a number as text, "" for none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or isinstance(value, bool):
        return ""
    return str(value).strip() if isinstance(value, str | int) else ""


def code(value: Any) -> str:
    """Code as text, "" for none."""
    return value if isinstance(value, str) and value.strip() else ""


def programs(value: Any, most: int, of: Any = None) -> tuple[str, ...]:
    """The first `most` distinct programs of a list, of JSON of one, or of one program.

    `of` is applied to each, to take a program out of its fences.
    """
    if not most or value is None:
        return ()
    if isinstance(value, str):
        try:
            items = json.loads(value) if value.lstrip().startswith("[") else [value]
        except (ValueError, RecursionError):
            items = [value]
    else:
        items = value
    found: dict[str, None] = {}
    for item in items if isinstance(items, list) else []:
        program = of(item) if of and isinstance(item, str) else item
        if isinstance(program, str) and program.strip():
            found[program] = None
        if len(found) == most:
            break
    return tuple(found)
