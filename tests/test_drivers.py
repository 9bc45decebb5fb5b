"""Tasks that ask for a function: what is called, with what, and what its value is equal to."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest

from data import Case, Task
from judge import Judge, Judgement, Limits

TWICE = Task(
    "own/twice",
    "twice",
    "own",
    "Double each number.",
    0,
    (Case("[1, 2]\n10", "[12, 14]"), Case("[]\n3", "[]")),
    (Case("[0.5]\n-1", "[0.0]"),),
    function="twice",
)
PLAIN = "def twice(numbers, plus):\n    return [2 * n + plus for n in numbers]\n"


def judge_all(programs: list[str], on: Task) -> list[Judgement]:
    async def run() -> list[Judgement]:
        async with Judge(2, Limits(cpu_seconds=1, wall_seconds=2)) as judge:
            return await asyncio.gather(*(judge.grade(text, on) for text in programs))

    return asyncio.run(run())


def returning(value: str) -> str:
    return f"def f(*_):\n    return {value}\n"


def test_a_function_is_called_with_the_arguments_of_a_case() -> None:
    programs = {
        "a function": PLAIN,
        "a method of Solution": "class Solution:\n    def twice(self, numbers, plus):\n"
        "        return [2 * n + plus for n in numbers]\n",
        "with names that need no import": "class Solution:\n"
        "    def twice(self, numbers: List[int], plus: Optional[int]) -> List[int]:\n"
        "        heap = list(accumulate(deque(numbers)[:0] if 0 else [0]))\n"
        "        zero = int(math.sqrt(heap[0]))\n"
        "        return [2 * n + plus + zero for n in Counter(numbers).elements()]\n",
        "future annotations": "from __future__ import annotations\n" + PLAIN,
        "a lambda": "twice = lambda numbers, plus: [2 * n + plus for n in numbers]",
        "a tuple": "def twice(a, b):\n    return tuple(2 * n + b for n in a)",
        "that prints": "print('hello')\n" + PLAIN.replace("return", "print(numbers); return"),
        "that prints at its end": "import atexit\natexit.register(print, 'bye')\n" + PLAIN,
        "guarded by __main__": PLAIN + "if __name__ == '__main__':\n    print(twice(input()))\n",
        "that does not end its last line": PLAIN + "# done",
        "with a helper beside Solution": "class Solution:\n    pass\n" + PLAIN,
    }
    for name, judgement in zip(programs, judge_all(list(programs.values()), TWICE), strict=True):
        assert judgement.accepted, (name, judgement)


def test_what_is_not_accepted_and_why() -> None:
    programs = {
        "def other(a, b):\n    return []\n": "NameError: no function twice and no class Solution",
        "class Solution:\n    def other(self):\n        pass\n": "NameError: no function twice",
        "def twice(a):\n    return a\n": "TypeError: twice() takes 1 positional argument but 2",
        "def twice(a, b):\n    return {1}\n": "TypeError: twice returned no JSON value",
        "def twice(a, b):\n    return 1 / 0\n": "line 2: ZeroDivisionError",
        "def twice(a, b):\n": "line 1: IndentationError",
        "def twice(a, b):\n    raise SystemExit(3)\n": "exit status 3",
    }
    for (text, why), judgement in zip(
        programs.items(), judge_all(list(programs), TWICE), strict=True
    ):
        assert judgement.verdict == "runtime error", text
        assert judgement.first_failure is not None
        assert why in judgement.first_failure.got, text


def test_what_is_printed_instead_of_returned_is_nothing() -> None:
    programs = [
        "print([12, 14])\ndef twice(a, b):\n    return None\n",
        "print([12, 14])\nimport sys\nsys.exit(0)\n",
        "def twice(a, b):\n    print([12, 14])\n",
        "def twice(a, b):\n    return [12, 15]\n",
        "def twice(a, b):\n    return '[12, 14]'\n",
    ]
    found = judge_all(programs, TWICE)
    assert [each.verdict for each in found] == ["wrong answer"] * len(programs)
    assert found[3].first_failure is not None
    assert found[3].first_failure.got == "[12, 15]"
    assert found[0].first_failure is not None
    assert found[0].first_failure.got == "null"


@pytest.mark.parametrize(
    ("expected", "equal", "different"),
    [
        ("2", ["2", "2.0", "True + 1"], ["3", "'2'", "[2]", "None"]),
        ("1000000007", ["10**9 + 7", "1000000007.0"], ["1000000107.0", "10**9"]),
        ("12345678901234567890123", ["12345678901234567890123"], ["12345678901234567890124"]),
        ("0.3333333333", ["1 / 3", "0.333333"], ["0.33333"]),
        ("true", ["True", "1"], ["False", "'true'", "None"]),
        ("null", ["None"], ["0", "False", "[]"]),
        ('"a\\u00e9 007"', ["'a\u00e9 007'"], ["'a\u00e9 7'", "'A\u00e9 007'", "['a\u00e9 007']"]),
        ("[[1, 2], []]", ["[(1, 2), ()]", "((1.0, 2), [])"], ["[[1, 2]]", "[[2, 1], []]"]),
        ('{"a": 1, "2": [0.5]}', ["{2: [0.5], 'a': 1.0}"], ["{'a': 1}", "{'a': 1, '2': [0.6]}"]),
        ("Infinity", ["float('inf')"], ["float('nan')", "10**400"]),
    ],
)  # fmt: skip
def test_values(expected: str, equal: list[str], different: list[str]) -> None:
    case = Case("0", expected)
    on = Task("own/f", "f", "own", "f", 0, (case,), (case,), function="f")
    verdicts = [each.verdict for each in judge_all([*map(returning, equal + different)], on)]
    assert verdicts == ["accepted"] * len(equal) + ["wrong answer"] * len(different)


def test_a_function_and_a_checker_recurse_as_deep_as_in_a_plain_interpreter() -> None:
    depth = "def depth(n=1):\n    try:\n        return depth(n + 1)\n    except RecursionError:\n"
    depth = f"import sys\n{depth}        return n\n"
    function = f"{depth}def f(_):\n    return [depth(), sys.getrecursionlimit()]\n"
    plain = f"{function}print(f(0), '|', depth())"
    asked = subprocess.run([sys.executable, "-c", plain], capture_output=True, text=True)
    returned, _, printed = asked.stdout.partition("|")
    case = (Case("0", returned),)
    on = Task("own/f", "f", "own", "f", 0, case, case, function="f")
    checker = f"{depth}print(int(depth() == {printed.strip()}))"
    found = judge_all([function], on) + judge_all([function], replace(on, checker=checker))
    assert [each.verdict for each in found] == ["accepted"] * 2


def test_large_and_deep_values() -> None:
    case = Case(f"{[*range(50_000)]}\n{'[' * 500 + ']' * 500}", f"[{'7' * 20_000}, 50000]")
    on = Task("own/f", "f", "own", "f", 0, (case,), (case,), function="f")
    programs = [
        "def f(a, b):\n    return [int('7' * 20_000), len(a)]\n",
        "def f(a, b):\n    return [int('7' * 20_000) + 1, len(a)]\n",
        "def f(a, b):\n    for _ in range(10**5):\n        a = [a]\n    return a\n",
        "import os\ndef f(a, b):\n    os.write(1, b'\\x1e' + b'[' * 10**6 + b'\\x1e')\n"
        "    os._exit(0)\n",
    ]
    found = [each.verdict for each in judge_all(programs, on)]
    assert found == ["accepted", "wrong answer", "runtime error", "wrong answer"]
