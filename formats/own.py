"""Our own format, for tasks that were in none: the README documents it."""

from __future__ import annotations

from typing import Any

from formats.problem import (
    Asked,
    Case,
    Dropped,
    Problem,
    checked,
    code,
    function_of,
    json_lines_case,
    number,
    parsed,
    plain_case,
    programs,
    rating_of,
    slug,
    word,
)
from sources import Row


def identify(row: Row) -> tuple[str, str]:
    name = word(row["id"])
    if not name:
        raise Dropped("no id")
    return slug(name), ""


def read(row: Row, asked: Asked) -> Problem:
    statement = row["statement"]
    if not isinstance(statement, str) or not statement.strip():
        raise Dropped("no statement")
    function = function_of(row["function"])
    parts = [
        [_case(item, function) for item in items(row[part])]
        for part in ("visible", "hidden", *(["extra"] if asked.extra else []))
    ]
    visible, hidden, extra = checked(parts[0], parts[1], parts[2] if asked.extra else ())
    return Problem(
        statement=statement,
        visible=visible,
        hidden=hidden,
        extra=extra,
        rating=rating_of(row["rating"]),
        contest=word(row["contest"]) or None,
        function=function,
        starter_code=code(row["starter_code"]),
        checker=code(row["checker"]) or None,
        time_limit=number(row["time_limit"]),
        memory_limit=number(row["memory_limit"]),
        solutions=programs(row["solutions"], asked.known),
        wrong_solutions=programs(row["wrong_solutions"], asked.known),
    )


def items(value: Any) -> list[dict[str, Any]]:
    """A list of objects, also as JSON."""
    found = parsed(value)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise Dropped("cases that are no list of objects")
    return found


def _case(item: dict[str, Any], function: str | None) -> Case:
    case = json_lines_case if function else plain_case
    return case(item.get("input"), item.get("output"))
