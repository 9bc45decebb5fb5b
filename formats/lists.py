"""Formats whose cases are a list of objects: LiveCodeBench, DeepCoder, verifiable-coding-problems.

LiveCodeBench (https://huggingface.co/datasets/livecodebench/code_generation_lite) packs its private
cases as a pickle; formats/pickled.py reads the one string in it. In its cases of type "functional",
which DeepCoder took over, an input has an argument a line, as JSON. In PrimeIntellect's of type
"function_call" it is a list of arguments, or the JSON of one.
"""

from __future__ import annotations

from typing import Any

from formats.own import items
from formats.pairs import pairs
from formats.pickled import packed_json
from formats.problem import (
    Asked,
    Case,
    Dropped,
    Problem,
    arguments,
    as_json,
    code,
    digest,
    function_of,
    json_lines_case,
    parsed,
    parsed_once,
    plain_case,
    programs,
    rating_of,
    slug,
    split,
    statement_of,
    values_of,
    word,
)
from replies import extract_program
from sources import Row


def identify_livecodebench(row: Row) -> tuple[str, str]:
    name = word(row["question_id"])
    return slug(name) or _digest(row["question_content"]), word(row["question_title"])


def read_livecodebench(row: Row, asked: Asked) -> Problem:
    statement = statement_of(row["question_content"], asked)
    name = _function_of(row["metadata"])
    public = items(row["public_test_cases"])
    private = items(packed_json(row["private_test_cases"]))
    function, [shown, rest] = cases([public, private], name)
    visible, hidden, extra = split(shown, rest, asked)
    contest = "-".join(filter(None, (word(row["platform"]), word(row["contest_id"]))))
    return Problem(
        statement=statement,
        visible=visible,
        hidden=hidden,
        extra=extra,
        contest=contest if word(row["contest_id"]) else None,
        function=function,
        starter_code=code(row["starter_code"]),
    )


def identify_deepcoder(row: Row) -> tuple[str, str]:
    return _digest(row["problem"]), ""


def read_deepcoder(row: Row, asked: Asked) -> Problem:
    statement = statement_of(row["problem"], asked)
    tests = parsed(row["tests"])
    if isinstance(tests, dict):
        function, rest = pairs(tests)
    else:
        function, [rest] = cases([items(tests)], _function_of(row["metadata"]))
    visible, hidden, extra = split((), rest, asked)
    return Problem(
        statement=statement,
        visible=visible,
        hidden=hidden,
        extra=extra,
        function=function,
        starter_code=code(row["starter_code"]),
        solutions=programs(row["solutions"], asked.known, extract_program),
    )


def identify_verifiable(row: Row) -> tuple[str, str]:
    name = word(row["problem_id"])
    return slug(name) or _digest(row["problem_statement"] or row["prompt"]), ""


def read_verifiable(row: Row, asked: Asked) -> Problem:
    statement = statement_of(row["problem_statement"] or row["prompt"], asked)
    info = parsed(row["verification_info"])
    if not isinstance(info, dict):
        raise Dropped("no cases")
    if word(info.get("language")).lower() not in ("", "python", "python3", "py"):
        raise Dropped("other language")
    function, [rest] = cases([items(info.get("test_cases"))], None)
    visible, hidden, extra = split((), rest, asked)
    return Problem(
        statement=statement,
        visible=visible,
        hidden=hidden,
        extra=extra,
        rating=rating_of(_inner(row["metadata"], "cf_rating")),
        function=function,
        solutions=programs(row["gold_standard_solution"], asked.known, extract_program),
    )


def cases(lists: list[list[dict[str, Any]]], name: str | None) -> tuple[str | None, Any]:
    """The function's name, if it is one, and the cases of each list of objects.

    Args:
        lists: objects with "input", "output", and "testtype" or "type" and "fn_name".
        name: of the function, where the row says it beside its cases.
    """
    both = [item for part in lists for item in part]
    kinds = {_is_call(item) for item in both}
    if len(kinds) > 1:
        raise Dropped("calls and programs mixed")
    if not kinds or kinds == {False}:
        read = [[plain_case(i.get("input"), i.get("output")) for i in part] for part in lists]
        return None, read
    names = {function_of(item.get("fn_name")) or name for item in both}
    if len(names) > 1 or None in names:
        raise Dropped("calls of no function, or of several")
    return names.pop(), [_calls(part) for part in lists]


def _is_call(item: dict[str, Any]) -> bool:
    kind = word(item.get("testtype")) or word(item.get("type"))
    return kind in ("functional", "function_call", "function") or bool(word(item.get("fn_name")))


def _calls(part: list[dict[str, Any]]) -> list[Case]:
    if any(word(item.get("testtype")) for item in part):
        return [json_lines_case(item.get("input"), item.get("output")) for item in part]
    outputs = [item.get("output") for item in part]
    values = values_of([parsed_once(o) if isinstance(o, str) else o for o in outputs])
    return [
        Case(arguments(item.get("input")), as_json(value))
        for item, value in zip(part, values, strict=True)
    ]


def _function_of(metadata: Any) -> str | None:
    return function_of(_inner(metadata, "func_name") or _inner(metadata, "fn_name"))


def _inner(metadata: Any, name: str) -> Any:
    try:
        found = parsed(metadata)
    except Dropped:  # it need not be JSON
        return None
    return found.get(name) if isinstance(found, dict) else None


def _digest(statement: Any) -> str:
    if not isinstance(statement, str) or not statement.strip():
        raise Dropped("no statement")
    return digest(statement)
