"""The formats of tasks, a table: what names a format, and how a row of it becomes a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from formats import code_contests, codeforces, lists, own, pairs
from formats.problem import Asked, Problem
from sources import DataError, Row


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        name: for the user.
        columns: a file that has all of them is of this format.
        others: columns that are read where they are there.
        programs: columns of solutions, read only when those are asked for.
        identify: row -> what makes its id unique in its file, and its name or "".
        read: row -> problem; both raise Dropped for a row that can't be used.
        check: a look at all column names, and at Arrow's schema where there is one; or None.
    """

    name: str
    columns: tuple[str, ...]
    others: tuple[str, ...]
    programs: tuple[str, ...]
    identify: Callable[[Row], tuple[str, str]]
    read: Callable[[Row, Asked], Problem]
    check: Callable[[Sequence[str], Any, str], None] | None = None

    def wanted(self, names: Sequence[str], solutions: bool) -> list[str]:
        """Of a file's columns those to read."""
        read = (*self.columns, *self.others, *(self.programs if solutions else ()))
        return [name for name in dict.fromkeys(read) if name in names]


FORMATS = (
    Format(
        "CodeContests",
        ("public_tests", "private_tests"),
        (*code_contests.NEEDED, *code_contests.LIMITS),
        code_contests.PROGRAMS,
        code_contests.identify,
        code_contests.read,
        code_contests.check,
    ),
    Format(
        "this project's own",
        ("id", "statement", "visible", "hidden"),
        ("extra", "rating", "contest", "time_limit", "memory_limit", "function", "starter_code",
         "checker"),
        ("solutions", "wrong_solutions"),
        own.identify,
        own.read,
    ),
    Format(
        "TACO and APPS",
        ("question", "input_output"),
        ("problem_id", "id", "name", "url", "starter_code", "time_limit", "memory_limit"),
        ("solutions",),
        pairs.identify_taco,
        pairs.read_taco,
    ),
    Format(
        "verl",
        ("prompt", "reward_model"),
        (),
        (),
        pairs.identify_verl,
        pairs.read_verl,
    ),
    Format(
        "NeMo-Gym",
        ("responses_create_params", "verifier_metadata"),
        (),
        (),
        pairs.identify_nemo,
        pairs.read_nemo,
    ),
    Format(
        "LiveCodeBench",
        ("question_content", "public_test_cases"),
        ("private_test_cases", "question_id", "question_title", "platform", "contest_id",
         "starter_code", "metadata"),
        (),
        lists.identify_livecodebench,
        lists.read_livecodebench,
    ),
    Format(
        "DeepCoder",
        ("problem", "tests"),
        ("starter_code", "metadata"),
        ("solutions",),
        lists.identify_deepcoder,
        lists.read_deepcoder,
    ),
    Format(
        "verifiable-coding-problems",
        ("verification_info",),
        ("problem_statement", "prompt", "problem_id", "metadata"),
        ("gold_standard_solution",),
        lists.identify_verifiable,
        lists.read_verifiable,
    ),
    Format(
        "open-r1/codeforces",
        ("official_tests", "examples"),
        ("id", "contest_id", "title", "description", "input_format", "output_format", "note",
         "interaction_format", "input_mode", "rating", "time_limit", "memory_limit",
         "generated_checker", "executable"),
        (),
        codeforces.identify,
        codeforces.read,
    ),
)  # fmt: skip


def format_of(names: Sequence[str], schema: Any, place: str) -> Format:
    """The format of a file with these columns; DataError names them and the formats known."""
    for entry in FORMATS:
        if set(entry.columns) <= set(names):
            if entry.check:
                entry.check(names, schema, place)
            return entry
    # A file that lost a column that names its format: say which, and not that it is unknown.
    if len({*code_contests.NEEDED} & set(names)) > len(code_contests.NEEDED) // 2:
        code_contests.check(names, schema, place)
    known = "; ".join(f"{entry.name} ({', '.join(entry.columns)})" for entry in FORMATS)
    found = ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
    raise DataError(f"{place} is of no known format: its columns are {found}; known are {known}")
