"""Twelve small problems that are shipped, so that the recipe runs without a download."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Solve = Callable[[str], str]


@dataclass(frozen=True)
class Toy:
    """One toy problem.

    Attributes:
        title: first line of the statement, e.g. "1_A. Sum over the lines".
        rating: 0 when unrated.
        story: the statement between the title and the example.
        solve: the reference solution, input text -> output text.
        inputs: seeded generator -> the visible and the hidden inputs, the example first.
        wrong: usual wrong ideas; each fails a hidden case.
    """

    title: str
    rating: int
    story: str
    solve: Solve
    inputs: Callable[[random.Random], tuple[list[str], list[str]]]
    wrong: tuple[Solve, ...] = ()

    def cases(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return the visible and the hidden (input, output) pairs, the same at every call."""
        visible, hidden = self.inputs(random.Random(self.title))
        return _answered(visible, self.solve), _answered(hidden, self.solve)

    @property
    def statement(self) -> str:
        given, expected = self.cases()[0][0]
        return f"{self.title}\n\n{self.story}\n\nExample\n\nInput\n\n{given}\nOutput\n\n{expected}"

    @property
    def reference(self) -> str:
        """The reference solution as a program."""
        return program(self.solve)


def _answered(inputs: Iterable[str], solve: Solve) -> list[tuple[str, str]]:
    return [(text, solve(text) + "\n") for text in inputs]


def program(solve: Solve) -> str:
    """Return a whole program whose text is the function's own source."""
    main = f"print({solve.__name__}(sys.stdin.read()))"
    return f"import sys\n\n\n{inspect.getsource(solve)}\n\n{main}\n"


# --- 1_A ---------------------------------------------------------------------------------------


def total(text: str) -> str:
    numbers = list(map(int, text.split()))
    return str(sum(numbers[1 : numbers[0] + 1]))


def total_of_one_line(text: str) -> str:
    return str(sum(map(int, text.splitlines()[1].split())))


def total_inputs(rng: random.Random) -> tuple[list[str], list[str]]:
    def make(count: int, width: int) -> str:
        numbers = [str(rng.randint(-(10**9), 10**9)) for _ in range(count)]
        lines = [" ".join(numbers[i : i + width]) for i in range(0, count, width)]
        return f"{count}\n" + "\n".join(lines) + "\n"

    visible = ["3\n1 2\n3\n", "1\n-5\n", make(4, 4), make(6, 6)]
    return visible, [make(rng.randint(2, 60), rng.randint(1, 12)) for _ in range(12)]


TOY = (
    Toy(
        "1_A. Sum over the lines",
        0,
        "You are given n integers. Print their sum.\n\nInput\n\nThe first line contains n "
        "(1 ≤ n ≤ 1000). The n integers follow, each between -10^9 and 10^9. They may be spread "
        "over any number of lines.\n\nOutput\n\nPrint one integer: the sum.",
        total,
        total_inputs,
        (total_of_one_line,),
    ),
)
