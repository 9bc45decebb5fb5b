"""open-r1/codeforces (https://huggingface.co/datasets/open-r1/codeforces).

The statement's examples are visible and the official tests hidden. Some problems have a checker,
which takes every right answer.
"""

from __future__ import annotations

from typing import Any

from formats.own import items
from formats.problem import (
    Asked,
    Case,
    Dropped,
    Problem,
    code,
    number,
    plain_case,
    rating_of,
    slug,
    split,
    statement_of,
    word,
)
from sources import Row

PARTS = (("input_format", "Input"), ("output_format", "Output"))


def identify(row: Row) -> tuple[str, str]:
    name = word(row["id"])
    if not name:
        raise Dropped("no id")
    return slug(name.replace("/", "_")), word(row["title"])


def read(row: Row, asked: Asked) -> Problem:
    if word(row["interaction_format"]) and not asked.interactive:
        raise Dropped("interactive")
    if word(row["input_mode"]).lower() == "file":
        raise Dropped("named files")
    if row["executable"] is False:
        raise Dropped("not executable")
    examples = [_case(item) for item in items(row["examples"])]
    official = [_case(item) for item in items(row["official_tests"])]
    visible, hidden, extra = split(examples, official, asked)
    return Problem(
        statement=statement_of(_statement(row, examples), asked),
        visible=visible,
        hidden=hidden,
        extra=extra,
        rating=rating_of(row["rating"]),
        contest=word(row["contest_id"]) or None,
        checker=code(row["generated_checker"]) or None,
        time_limit=number(row["time_limit"]),
        memory_limit=number(row["memory_limit"]),
    )


def _case(item: dict[str, Any]) -> Case:
    return plain_case(item.get("input"), item.get("output"))


def _statement(row: Row, examples: list[Case]) -> str:
    """Title, description, input, output, examples and note, as on the site."""
    description = word(row["description"])
    if not description:
        return ""
    parts = [word(row["title"]), description]
    parts += [f"{head}\n\n{word(row[name])}" for name, head in PARTS if word(row[name])]
    if examples:
        shown = [f"Input\n\n{c.input.strip()}\n\nOutput\n\n{c.output.strip()}" for c in examples]
        parts.append("\n\n".join(["Examples", *shown]))
    if note := word(row["note"]):
        parts.append(f"Note\n\n{note}")
    return "\n\n".join(part for part in parts if part)
