"""deepmind/code_contests (https://huggingface.co/datasets/deepmind/code_contests).

Visible cases are the public ones and the first 8 generated, hidden ones the private and the next
32 generated. Most of a row is other people's programs and generated cases beyond those.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from formats.problem import Asked, Case, Cases, Dropped, Problem, number, slug, statement_of
from sources import DataError, Row

VISIBLE_GENERATED = 8
HIDDEN_GENERATED = 32
TEXTS = ("name", "description", "input_file", "output_file")
NUMBERS = ("cf_contest_id", "cf_rating")
CASES = ("public_tests", "private_tests", "generated_tests")
NEEDED = (*TEXTS, *NUMBERS, *CASES)
LIMITS = ("time_limit", "memory_limit_bytes")
PROGRAMS = ("solutions", "incorrect_solutions")
PYTHON3 = 3  # the number of its language


def check(names: Sequence[str], schema: Any, place: str) -> None:
    """DataError when a column is missing or of another type; JSON has no types to check."""
    for name in NEEDED:
        if name not in names:
            raise DataError(f"{place}: the column {name!r} is missing; is it a CodeContests file?")
        if schema is None:
            continue
        kind = schema.field(name).type
        if name in NUMBERS:
            fits = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        elif name in TEXTS:
            fits = _is_text(kind)
        else:
            fits = pa.types.is_struct(kind) and all(
                kind.get_field_index(part) >= 0 and _is_texts(kind.field(part).type)
                for part in ("input", "output")
            )
        if not fits:
            raise DataError(f"{place}: the column {name!r} has the unexpected type {kind}")


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_texts(kind: Any) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list and _is_text(kind.value_type))


def identify(row: Row) -> tuple[str, str]:
    name = row["name"]
    if not isinstance(name, str) or not name.strip():
        raise Dropped("no name")
    return short(name), name


def read(row: Row, asked: Asked) -> Problem:
    statement = statement_of(row["description"], asked)
    if row["input_file"] or row["output_file"]:
        raise Dropped("named files")
    shown = VISIBLE_GENERATED
    used = shown + HIDDEN_GENERATED
    generated = _cases(row.view("generated_tests"), None if asked.extra else used)
    visible = _cases(row.view("public_tests")) + generated[:shown]
    hidden = _cases(row.view("private_tests")) + generated[shown:used]
    if not visible:
        raise Dropped("no visible case")
    if not hidden:
        raise Dropped("no hidden case")
    memory = number(row["memory_limit_bytes"])
    return Problem(
        statement=statement,
        visible=visible,
        hidden=hidden,
        extra=generated[used:],
        rating=round(number(row["cf_rating"]) or 0),
        contest=_contest(row),
        time_limit=_seconds(row["time_limit"]),
        memory_limit=memory / 2**20 if memory else None,
        solutions=_python3(row.view("solutions"), asked.known),
        wrong_solutions=_python3(row.view("incorrect_solutions"), asked.known),
    )


def _contest(row: Row) -> str | None:
    contest = number(row["cf_contest_id"])
    return str(round(contest)) if contest else contest_digits(row["name"])


def _seconds(limit: Any) -> float | None:
    if not isinstance(limit, dict):
        return None
    return ((limit.get("seconds") or 0) + (limit.get("nanos") or 0) / 1e9) or None


def _cases(tests: Any, stop: int | None = None) -> Cases:
    """The first `stop` cases of two parallel lists."""
    tests = tests if isinstance(tests, dict) else {}
    inputs, outputs = tests.get("input"), tests.get("output")
    if inputs is None and outputs is None:
        return ()
    if inputs is None or outputs is None or len(inputs) != len(outputs):
        raise Dropped("inputs and outputs differ in number")
    cases = tuple(map(Case, inputs[:stop], outputs[:stop]))
    if any(text is None for case in cases for text in case):
        raise Dropped("null in a case")
    if not all(isinstance(text, str) for case in cases for text in case):
        raise Dropped("a case that is not text")
    return cases


def _python3(solutions: Any, most: int) -> tuple[str, ...]:
    """The first `most` distinct Python 3 programs of parallel lists of languages and programs."""
    if not most or not isinstance(solutions, dict):
        return ()
    languages, texts = solutions.get("language"), solutions.get("solution")
    if languages is None or texts is None or len(languages) != len(texts):
        return ()
    found: dict[str, None] = {}
    for index, language in enumerate(languages[:]):
        if language == PYTHON3 and len(found) < most:
            [program] = texts[index : index + 1]
            if program and program.strip():
                found[program] = None
    return tuple(found)


_CODEFORCES = re.compile(r"(\d+)_[A-Z]\d*(?=\.)")  # "1157_C2. Increasing Subsequence"
_AIZU_ATCODER = re.compile(r"p\d+(?= )")  # "p02608 AtCoder Beginner Contest 172 - ..."


def short(name: str) -> str:
    """What identifies a problem in its name: the contest id, else the name as a slug."""
    name = name.strip()
    match = _CODEFORCES.match(name) or _AIZU_ATCODER.match(name)
    return match[0] if match else slug(name)


def contest_digits(name: str) -> str | None:
    match = _CODEFORCES.match(name.strip())
    return match[1] if match else None
