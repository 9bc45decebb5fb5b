"""Tasks: deepmind/code_contests rows, local parquet files or the shipped toy tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Case(NamedTuple):
    """One test case: what the program reads on stdin and what it must print."""

    input: str
    output: str


@dataclass(frozen=True)
class Task:
    """One contest problem.

    Attributes:
        id: unique and stable, e.g. "test/1575_A".
        name: the dataset's name, e.g. "1575_A. Another Sorting Problem".
        contest: the cluster of tasks that are not independent of each other, e.g. "1575".
        statement: the problem text.
        rating: Codeforces rating, 0 when unknown.
        visible: public cases and the first 8 generated ones; their share passed is the fitness.
        hidden: private cases and the next 32 generated ones; passing them too is a rescue.
        extra: the generated cases beyond those, empty unless asked for.
    """

    id: str
    name: str
    contest: str
    statement: str
    rating: int
    visible: tuple[Case, ...]
    hidden: tuple[Case, ...]
    extra: tuple[Case, ...] = ()
