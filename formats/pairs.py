"""Formats whose cases are two parallel lists: {"inputs", "outputs", "fn_name"?}.

TACO (https://huggingface.co/datasets/BAAI/TACO) and APPS have them as JSON in `input_output`,
verl's rows in `reward_model.ground_truth`, NeMo-Gym's in `verifier_metadata.unit_tests`.
"""

from __future__ import annotations

import re
from typing import Any

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
    number,
    parsed,
    plain_case,
    programs,
    slug,
    split,
    statement_of,
    values_of,
    word,
)
from replies import extract_program
from sources import Row

_CODEFORCES = re.compile(r"codeforces\.com/(?:problemset/problem|contest|gym)/(\d+)")


def identify_taco(row: Row) -> tuple[str, str]:
    given = word(row["problem_id"]) or word(row["id"])  # APPS, where they are numbers
    return slug(given) or _digest(row["question"]), word(row["name"])


def read_taco(row: Row, asked: Asked) -> Problem:
    statement = statement_of(row["question"], asked)
    function, cases = pairs(row["input_output"])
    url = _CODEFORCES.search(word(row["url"]))
    visible, hidden, extra = split((), cases, asked)
    return Problem(
        statement=statement,
        visible=visible,
        hidden=hidden,
        extra=extra,
        contest=url[1] if url else None,
        function=function,
        starter_code=code(row["starter_code"]),
        time_limit=number(row["time_limit"]),
        memory_limit=number(row["memory_limit"]),
        solutions=programs(row["solutions"], asked.known, extract_program),
    )


def identify_verl(row: Row) -> tuple[str, str]:
    return _digest(said(row["prompt"])), ""


def read_verl(row: Row, asked: Asked) -> Problem:
    reward = parsed(row["reward_model"])
    if not isinstance(reward, dict):
        raise Dropped("no cases")
    return _of_messages(row["prompt"], reward.get("ground_truth"), asked)


def identify_nemo(row: Row) -> tuple[str, str]:
    return _digest(said(_asked_of_nemo(row))), ""


def read_nemo(row: Row, asked: Asked) -> Problem:
    metadata = parsed(row["verifier_metadata"])
    if not isinstance(metadata, dict):
        raise Dropped("no cases")
    return _of_messages(_asked_of_nemo(row), metadata.get("unit_tests"), asked)


def _asked_of_nemo(row: Row) -> Any:
    parameters = parsed(row["responses_create_params"])
    return parameters.get("input") if isinstance(parameters, dict) else None


def _of_messages(messages: Any, tests: Any, asked: Asked) -> Problem:
    statement = statement_of(said(messages), asked)
    function, cases = pairs(tests)
    visible, hidden, extra = split((), cases, asked)
    return Problem(statement, visible, hidden, extra, function=function)


def said(messages: Any) -> str:
    """What the user says in a list of messages, or the text that stands in its place."""
    if isinstance(messages, str) and not messages.lstrip().startswith("["):
        return messages
    found = parsed(messages)
    users = [
        message["content"]
        for message in (found if isinstance(found, list) else [])
        if isinstance(message, dict) and message.get("role") == "user"
        and isinstance(message.get("content"), str)
    ]  # fmt: skip
    return "\n\n".join(users)


def _digest(statement: Any) -> str:
    if not isinstance(statement, str) or not statement.strip():
        raise Dropped("no statement")
    return digest(statement)


def pairs(value: Any) -> tuple[str | None, list[Case]]:
    """The function's name, if it is one, and the cases of {"inputs", "outputs", "fn_name"?}."""
    tests = parsed(value)
    if not isinstance(tests, dict):
        raise Dropped("no cases")
    inputs, outputs = parsed_list(tests.get("inputs")), parsed_list(tests.get("outputs"))
    if len(inputs) != len(outputs):
        raise Dropped("inputs and outputs differ in number")
    function = function_of(tests.get("fn_name"))
    if function is None:
        return None, list(map(plain_case, inputs, outputs))
    # An output is the value itself here, so that text is a string and no JSON.
    calls = zip(inputs, values_of(outputs), strict=True)
    return function, [Case(arguments(given), as_json(value)) for given, value in calls]


def parsed_list(value: Any) -> list[Any]:
    found = parsed(value)
    if found is None:
        return []
    if not isinstance(found, list):
        raise Dropped("cases that are no list")
    return found
