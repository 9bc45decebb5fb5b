"""Rows of data sets that people have -> drafts of tasks: one entry a format.

A format is known by its columns. What it reads of a row is plain data (strings, numbers, lists,
dicts); a row that cannot be used raises Dropped with a reason, the same for all such rows, and
nothing is guessed at. Nothing of a data set is run here, and of pickles only text is read.

CodeContests itself, which is read without making Python objects of all of a row, is in data.py.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import pickle
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from replies import extract_program

Pair = tuple[str, str]  # what a program reads, what it must print

MOST_BYTES = 64 << 20  # of the cases of one task
INTERACTIVE = ("interactive problem", "interactor", "flush the output", "fflush")


class Dropped(Exception):
    """A row that can't be used; its text is the reason, the same for all such rows."""


@dataclass
class Draft:
    """What a format says of a task.

    Attributes:
        id: "" when the format has none; then the row's number serves.
        name, statement, contest, rating: as in data.Task; contest "" when there is none.
        public: cases that the format says are visible.
        rest: all others, in their order.
        hidden: the hidden ones, where the format names them; None: the first of the rest.
        function, starter_code, checker, time_limit, memory_limit, solutions, wrong_solutions: as
            in data.Task.
    """

    id: str
    name: str
    statement: str
    contest: str = ""
    rating: int = 0
    public: list[Pair] = field(default_factory=list)
    rest: list[Pair] = field(default_factory=list)
    hidden: list[Pair] | None = None
    function: str | None = None
    starter_code: str = ""
    checker: str | None = None
    time_limit: float | None = None
    memory_limit: int | None = None
    solutions: tuple[str, ...] = ()
    wrong_solutions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        name: what people call it.
        needs: columns that a row must have, by which it is known.
        also: further columns that are read where they are there.
        read: a row -> a draft; raises Dropped.
        known: columns of known solutions, read only when they are asked for.
    """

    name: str
    needs: tuple[str, ...]
    also: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Draft]
    known: tuple[str, ...] = ()


def format_of(columns: Iterable[str]) -> Format | None:
    """The first format whose columns are all there."""
    there = set(columns)
    return next((item for item in FORMATS if there.issuperset(item.needs)), None)


# --- values -------------------------------------------------------------------------------------


def decoded(value: Any) -> Any:
    """A value that may be JSON in a string, also twice; itself when it is no JSON."""
    for _ in range(3):
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value)
        except ValueError:
            break
    return value


def text(value: Any) -> str:
    """A text column; "" for null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Dropped("a text that is none")
    return value


def number(value: Any) -> float | None:
    """A number, also one in a string; None for null, NaN and what is none."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def rating_of(value: Any) -> int:
    return max(0, round(number(value) or 0))


def _as_text(value: Any) -> str:
    """One side of a case: a text, a number, or lines of these."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    raise Dropped("a case that is not text")


def _as_arguments(value: Any) -> str:
    """The arguments of a call, one JSON value a line; text that is JSON lines stays."""
    if isinstance(value, list):
        return "\n".join(json.dumps(argument) for argument in value)
    if isinstance(value, str) and value.strip():
        return "\n".join(json.dumps(_json(line)) for line in value.strip().splitlines())
    raise Dropped("a case that is not JSON")


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise Dropped("a case that is not JSON") from None


def pairs(inputs: Any, outputs: Any, function: str | None) -> list[Pair]:
    """Cases of two parallel lists.

    Of a call the expected value stands in a list of one, as in APPS, whose own checker takes the
    value in it or the list itself.
    """
    inputs, outputs = inputs or [], outputs or []
    if not (isinstance(inputs, list) and isinstance(outputs, list)):
        raise Dropped("cases that are no lists")
    if len(inputs) != len(outputs):
        raise Dropped("inputs and outputs differ in number")
    if function is None:
        return [(_as_text(i), _as_text(o)) for i, o in zip(inputs, outputs, strict=True)]
    return [
        (_as_arguments(i), json.dumps(o[0] if isinstance(o, list) and len(o) == 1 else o))
        for i, o in zip(inputs, outputs, strict=True)
    ]


def listed(cases: Any, function: str | None, *, wrapped: bool = False) -> list[Pair]:
    """Cases of a list of {"input", "output"}; of a call both are JSON, or `wrapped` in lists."""
    cases = decoded(cases) or []
    if not isinstance(cases, list):
        raise Dropped("cases that are no lists")
    found = []
    for case in map(decoded, cases):
        if not isinstance(case, dict) or case.get("input") is None or case.get("output") is None:
            raise Dropped("null in a case")
        given, expected = case["input"], case["output"]
        if function is None:
            found.append((_as_text(given), _as_text(expected)))
        elif wrapped:
            found += pairs([decoded(given)], [decoded(expected)], function)
        else:
            value = _json(expected) if isinstance(expected, str) else expected
            found.append((_as_arguments(given), json.dumps(value)))
    return found


def name_of(function: Any) -> str | None:
    """A function's name, also from "Solution().solve" or "Solution.solve"; None for none."""
    found = text(function).strip().rpartition(".")[2].removesuffix("()")
    if found and not found.isidentifier():
        raise Dropped("a function name that is none")
    return found or None


def programs(value: Any) -> tuple[str, ...]:
    """Solutions: a list, or JSON of one, or one text; a fenced one is taken out of its fence."""
    value = decoded(value) if isinstance(value, str) and value.lstrip().startswith("[") else value
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list):
        return ()
    found = (item for item in value if isinstance(item, str) and item.strip())
    return tuple(extract_program(item) or item if "```" in item else item for item in found)


def _first_text(row: Mapping[str, Any], *names: str) -> str:
    return next((str(row[name]) for name in names if row.get(name) not in (None, "")), "")


def _title(statement: str) -> str:
    return (statement.strip().splitlines() or [""])[0].strip("# *")[:100]


# --- one reader a format ------------------------------------------------------------------------


def _ours(row: Mapping[str, Any]) -> Draft:
    function = name_of(row.get("function"))
    identity = row["id"]
    if not isinstance(identity, str | int) or not str(identity).strip():
        raise Dropped("no id")
    return Draft(
        id=str(identity),
        name=_title(text(row["statement"])),
        statement=text(row["statement"]),
        contest=_first_text(row, "contest"),
        rating=rating_of(row.get("rating")),
        public=listed(row["visible"], function),
        hidden=listed(row["hidden"], function),
        rest=listed(row.get("extra"), function),
        function=function,
        starter_code=text(row.get("starter_code")),
        checker=text(row.get("checker")) or None,
        time_limit=number(row.get("time_limit")),
        memory_limit=_whole(row.get("memory_limit")),
        solutions=programs(row.get("solutions")),
        wrong_solutions=programs(row.get("wrong_solutions")),
    )


def _whole(value: Any) -> int | None:
    found = number(value)
    return None if found is None or found < 1 else int(found)


def _inputs_outputs(tests: Any, draft: Draft) -> Draft:
    """{"inputs", "outputs", "fn_name"?}, as TACO, APPS, verl and NeMo-Gym have it."""
    tests = decoded(tests)
    if not tests:
        raise Dropped("no cases")
    if isinstance(tests, list):
        draft.rest = listed(tests, draft.function)
        return draft
    if not isinstance(tests, dict):
        raise Dropped("cases that are no lists")
    draft.function = name_of(tests.get("fn_name")) or draft.function
    draft.rest = pairs(tests.get("inputs"), tests.get("outputs"), draft.function)
    return draft


def _apps(row: Mapping[str, Any]) -> Draft:
    statement = text(row["question"])
    draft = Draft(
        id=_first_text(row, "id", "problem_id", "task_id"),
        name=_first_text(row, "name") or _title(statement),
        statement=statement,
        starter_code=text(row.get("starter_code")),
        solutions=programs(row.get("solutions")),
    )
    return _inputs_outputs(row["input_output"], draft)


def _verl(row: Mapping[str, Any]) -> Draft:
    reward, info = decoded(row["reward_model"]), decoded(row.get("extra_info")) or {}
    if not isinstance(reward, dict):
        raise Dropped("no cases")
    statement = _asked(row["prompt"])
    identity = info.get("task_id", info.get("id", "")) if isinstance(info, dict) else ""
    draft = Draft(id=str(identity or ""), name=_title(statement), statement=statement)
    return _inputs_outputs(reward.get("ground_truth"), draft)


def _asked(prompt: Any) -> str:
    """The last user message of a prompt, which may be JSON or a text."""
    prompt = decoded(prompt)
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list):
        raise Dropped("no statement")
    asked = [m.get("content") for m in prompt if isinstance(m, dict) and m.get("role") == "user"]
    return text(asked[-1]) if asked else ""


def _nemo_gym(row: Mapping[str, Any]) -> Draft:
    asked, verifier = decoded(row["responses_create_params"]), decoded(row["verifier_metadata"])
    if not isinstance(asked, dict) or not isinstance(verifier, dict):
        raise Dropped("no cases")
    statement = _asked(asked.get("input"))
    identity = _first_text(row, "id") or _first_text(verifier, "problem_id", "id")
    draft = Draft(id=identity, name=_title(statement), statement=statement)
    return _inputs_outputs(verifier.get("unit_tests"), draft)


def _livecodebench(row: Mapping[str, Any]) -> Draft:
    about = decoded(row.get("metadata")) or {}
    function = name_of(about.get("func_name")) if isinstance(about, dict) else None
    return Draft(
        id=_first_text(row, "question_id"),
        name=_first_text(row, "question_title") or _title(text(row["question_content"])),
        statement=text(row["question_content"]),
        contest=_first_text(row, "contest_id"),
        public=listed(row["public_test_cases"], function),
        rest=listed(_unpacked(row.get("private_test_cases")), function),
        function=function,
        starter_code=text(row.get("starter_code")),
    )


# What base64, zlib and a damaged or hostile pickle raise.
BROKEN = (
    *(binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ImportError, MemoryError),
    *(ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError),
)


class _TextOnly(pickle.Unpickler):
    """Reads pickles of text: whatever would need a class or a function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not text")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("not text")


def _unpacked(value: Any) -> Any:
    """LiveCodeBench's private cases: JSON, or base64 of zlib of a pickle of JSON."""
    found = decoded(value)
    if not isinstance(found, str) or not found.strip():
        return found
    try:
        squeezed = zlib.decompressobj()
        plain = squeezed.decompress(base64.b64decode(found, validate=True), MOST_BYTES)
        if squeezed.unconsumed_tail:
            raise Dropped("cases over the size")
        inner = _TextOnly(io.BytesIO(plain)).load()
    except BROKEN:
        raise Dropped("private cases that can't be unpacked") from None
    if isinstance(inner, bytes):
        inner = inner.decode("utf-8", "replace")
    if not isinstance(inner, str):
        raise Dropped("private cases that can't be unpacked")
    return decoded(inner)


def _deepcoder(row: Mapping[str, Any]) -> Draft:
    about = decoded(row.get("metadata")) or {}
    statement = text(row["problem"])
    draft = Draft(
        id=_first_text(row, "id", "problem_id"),
        name=_title(statement),
        statement=statement,
        starter_code=text(row.get("starter_code")),
        function=name_of(about.get("func_name")) if isinstance(about, dict) else None,
        solutions=programs(row.get("solutions")),
    )
    tests = decoded(row["tests"])
    if isinstance(tests, list) and tests and isinstance(decoded(tests[0]), dict):
        kinds = {str(decoded(case).get("testtype", decoded(case).get("type"))) for case in tests}
        if "stdin" in " ".join(kinds):
            draft.function = None
    return _inputs_outputs(tests, draft)


def _verification_info(row: Mapping[str, Any]) -> Draft:
    statement = next(
        (text(row[n]) for n in ("problem_statement", "prompt", "problem") if row.get(n)), ""
    )
    info = decoded(row["verification_info"])
    if not isinstance(info, dict):
        raise Dropped("no cases")
    if text(info.get("language") or "python").lower() not in ("python", "python3", "py"):
        raise Dropped("other language")
    cases = [decoded(case) for case in decoded(info.get("test_cases")) or []]
    names = {case.get("fn_name") for case in cases if isinstance(case, dict)} - {None, ""}
    if len(names) > 1:
        raise Dropped("cases that call several functions")
    function = name_of(names.pop()) if names else None
    return Draft(
        id=_first_text(row, "problem_id", "in_source_id", "id"),
        name=_title(statement),
        statement=statement,
        rest=listed(cases, function, wrapped=True),
        function=function,
        solutions=programs(row.get("gold_standard_solution")),
    )


def _codeforces(row: Mapping[str, Any]) -> Draft:
    if text(row.get("input_mode") or "stdio").lower() not in ("stdio", "stdin"):
        raise Dropped("named files")
    if text(row.get("interaction_format")).strip():
        raise Dropped("interactive")
    if row.get("executable") is False:
        raise Dropped("not executable")
    examples = listed(row["examples"], None)
    official = [case for case in listed(row["official_tests"], None) if case not in examples]
    title = text(row.get("title"))
    parts = [title, text(row["description"])]
    for head, name in (("Input", "input_format"), ("Output", "output_format"), ("Note", "note")):
        if words := text(row.get(name)).strip():
            parts += [head, words]
    for given, expected in examples:
        parts += ["Example", f"Input\n{given.rstrip()}", f"Output\n{expected.rstrip()}"]
    return Draft(
        id=_first_text(row, "id").replace("/", "_"),
        name=title or _first_text(row, "id"),
        statement="\n\n".join(part.strip() for part in parts if part.strip()),
        contest=_first_text(row, "contest_id"),
        rating=rating_of(row.get("rating")),
        public=examples,
        rest=official,
        checker=text(row.get("generated_checker")) or None,
        time_limit=number(row.get("time_limit")),
        memory_limit=_whole(row.get("memory_limit")),
    )


# The most particular first: a row can have the columns of two.
FORMATS = (
    Format(
        "this project's own",
        ("id", "statement", "visible", "hidden"),
        ("extra", "rating", "contest", "time_limit", "memory_limit", "function", "starter_code",
         "checker"),
        _ours,
        ("solutions", "wrong_solutions"),
    ),
    Format(
        "open-r1/codeforces",
        ("official_tests", "examples", "description"),
        ("id", "contest_id", "rating", "title", "input_format", "output_format",
         "interaction_format", "note", "input_mode", "time_limit", "memory_limit",
         "generated_checker", "executable"),
        _codeforces,
    ),
    Format(
        "LiveCodeBench",
        ("question_content", "public_test_cases"),
        ("question_id", "question_title", "contest_id", "private_test_cases", "starter_code",
         "metadata"),
        _livecodebench,
    ),
    Format(
        "verifiable-coding-problems",
        ("verification_info",),
        ("problem_statement", "prompt", "problem", "problem_id", "in_source_id", "id"),
        _verification_info,
        ("gold_standard_solution",),
    ),
    Format(
        "TACO or APPS",
        ("question", "input_output"),
        ("id", "problem_id", "task_id", "name", "starter_code"),
        _apps,
        ("solutions",),
    ),
    Format(
        "DeepCoder",
        ("problem", "tests"),
        ("id", "problem_id", "starter_code", "metadata"),
        _deepcoder,
        ("solutions",),
    ),
    Format("verl", ("prompt", "reward_model"), ("data_source", "extra_info"), _verl),
    Format("NeMo-Gym", ("responses_create_params", "verifier_metadata"), ("id",), _nemo_gym),
)  # fmt: skip


def check(draft: Draft, *, interactive: bool) -> None:
    """Dropped for what no format may have: no statement, an interactive one, too many bytes."""
    if not draft.statement.strip():
        raise Dropped("no statement")
    words = draft.statement.lower()
    if not interactive and any(phrase in words for phrase in INTERACTIVE):
        raise Dropped("interactive")
    cases = [*draft.public, *draft.rest, *(draft.hidden or ())]
    if sum(len(given) + len(expected) for given, expected in cases) > MOST_BYTES:
        raise Dropped("cases over the size")


def slug(name: str) -> str:
    """A name as a part of an id."""
    return re.sub(r"[^\w+.-]+", "-", name.strip()).strip("-")
