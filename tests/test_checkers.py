"""Tasks with a checker: what it decides, what its faults are, and what cannot reach it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from data import Case, Task
from judge import CheckerFault, Judge, Judgement, Limits

QUICK = Limits(cpu_seconds=1, wall_seconds=2, output_mb=4)

# Takes any two numbers of the given sum.
SUM = """
import sys

def main():
    total = int(open(sys.argv[1]).read())
    with open(sys.argv[2]) as file:
        assert sum(map(int, file.read().split())) == total
    try:
        a, b = map(int, open(sys.argv[3]).read().split())
    except ValueError:
        print(0)
        return
    print("looked at it")
    print(1 if a + b == total else 0)

main()
"""


def task(checker: str, *cases: tuple[str, str]) -> Task:
    given = tuple(Case(*case) for case in cases or (("7\n", "3 4\n"), ("10\n", "5 5\n")))
    return Task("own/t", "t", "own", "Two numbers.", 0, given, given, checker=checker)


def judge_all(programs: list[str], on: Task, workers: int = 2) -> list[Judgement | CheckerFault]:
    async def run() -> list[Judgement | CheckerFault]:
        async with Judge(workers, QUICK) as judge:
            grades = (judge.grade(text, on) for text in programs)
            found = await asyncio.gather(*grades, return_exceptions=True)
            for each in found:
                if not isinstance(each, Judgement | CheckerFault):
                    raise each
            return found  # type: ignore[return-value]

    return asyncio.run(run())


def verdicts(programs: list[str], on: Task) -> list[str]:
    return [
        each.verdict if isinstance(each, Judgement) else str(each)
        for each in judge_all(programs, on)
    ]


def test_a_checker_decides() -> None:
    programs = [
        "n = int(input())\nprint(0, n)",
        "n = int(input())\nprint(n, 0)",
        "n = int(input())\nprint(3, n - 3)",
        "n = int(input())\nprint(1, n)",
        "n = int(input())\nprint(3, 4)",
        "print('none')",
        "print(1 / 0)",
        "while 1: pass",
    ]
    found = judge_all(programs, task(SUM))
    assert [each.verdict for each in found if isinstance(each, Judgement)] == [
        *["accepted"] * 3, *["wrong answer"] * 3, "runtime error", "time limit",
    ]  # fmt: skip
    wrong = found[4]
    assert isinstance(wrong, Judgement)
    assert (wrong.visible_passed, wrong.hidden_passed) == (1, 0)
    assert wrong.first_failure is not None
    assert wrong.first_failure.got == "3 4\n"


def test_a_checker_of_a_function_sees_its_value() -> None:
    checker = "import json, sys\nprint(int(sorted(json.load(open(sys.argv[3]))) == [1, 2]))"
    on = replace(task(checker, ("[2, 1]", "[1, 2]")), function="f")
    assert verdicts(["def f(a):\n    print(0)\n    return a", "def f(a):\n    return 3"], on) == [
        "accepted",
        "the checker of own/t gave no answer: line 2: TypeError: 'int' object is not iterable",
    ]


READS = {
    "open": "open(sys.argv[3]).read()",
    "open, binary": "open(sys.argv[3], 'rb').read().decode()",
    "open, by lines": "''.join([*open(file=sys.argv[3], mode='rt', encoding='utf-8')])",
    "io": "__import__('io').open(sys.argv[3], newline='').read()",
    "pathlib": "__import__('pathlib').Path(sys.argv[3]).read_text()",
    "pathlib, open": "__import__('pathlib').Path(sys.argv[3]).open().read()",
    "codecs": "__import__('codecs').open(sys.argv[3], encoding='utf-8').read()",
    "fileinput": "''.join(__import__('fileinput').input(sys.argv[3:]))",
    "twice": "open(sys.argv[3]).read() and open(sys.argv[3]).read()",
}


@pytest.mark.parametrize("how", READS)
def test_ways_to_read(how: str) -> None:
    checker = f"import sys\nprint(int({READS[how]}.split() == ['a', 'b']))"
    assert verdicts(["print('a b')", "print('a c')"], task(checker)) == ["accepted", "wrong answer"]


def test_a_checker_reads_its_three_files_and_nothing_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("1")
    (tmp_path / "input.txt").write_text("1")
    places = [secret, "/etc/passwd", tmp_path / "input.txt", "/proc/self/environ", "other.txt"]
    checker = f"""
import os, sys
for place in {[*map(str, places)]!r}:
    try:
        open(place).read()
        print(place)
    except OSError:
        pass
for attack in (
    lambda: open(sys.argv[1], "w"), lambda: open("new", "w"), lambda: os.fork(),
    lambda: os.listdir("/"), lambda: os.read(3, 1), lambda: os.kill(os.getppid(), 9),
    lambda: __import__("socket").socket(),
):
    try:
        attack()
        print("attack")
    except OSError:
        pass
print(len(sys.argv), sys.stdin.read() == "", sys.argv[0] == "checker.py")
print(1 if sys.stdout else 0)
"""
    on = task(checker)
    assert verdicts(["print(1)"], on) == ["accepted"]
    strict = checker.replace(
        "print(1 if", "sys.stdout.flush(); n = os.fstat(1).st_size; print(1 if"
    )
    strict = strict.replace("if sys.stdout", "if n == len('4 True True\\n')")
    assert verdicts(["print(1)"], task(strict)) == ["accepted"]


FAULTS = {
    "raise ValueError('no')": "line 1: ValueError: no",
    "import sys\nsys.exit(2)": "exit status 2",
    "print(1)\nraise SystemExit(1)": "exit status 1",
    "print('yes')": "it printed 'yes' instead of 0 or 1",
    "print('1.0')": "it printed '1.0' instead of 0 or 1",
    "print(1, 'point')": "it printed 'point' instead of 0 or 1",
    "pass": "it printed nothing",
    "print(": "it does not compile: line 1: SyntaxError: '(' was never closed",
    "print('x' * 2**21, 1)": "printed more than 1 MiB",
    "x = [0] * 2**28": "ran out of memory (1024 MiB)",
    "import os\nos.kill(1, 9)": "line 2: PermissionError: [Errno 1] Operation not permitted",
    "open('input.txt', 'w')": "line 1: PermissionError: input.txt is not for writing",
}


@pytest.mark.parametrize("checker", FAULTS)
def test_a_fault_is_no_verdict(checker: str) -> None:
    expected = f"the checker of own/t gave no answer: {FAULTS[checker]}"
    assert verdicts(["print(1)"], task(checker)) == [expected]


def test_a_checker_that_hangs_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judge.checker_limits", lambda limits: replace(limits, wall_seconds=1))
    for checker, why in {
        "while 1: pass": "ran out of time (1 s of CPU)",
        "import time\ntime.sleep(99)": "ran out of time (1 s, mostly asleep)",
    }.items():
        assert verdicts(["print(1)"], task(checker)) == [
            f"the checker of own/t gave no answer: {why}"
        ]


def test_the_judge_goes_on_after_a_fault() -> None:
    async def run() -> list[str]:
        async with Judge(1, QUICK) as judge:
            for _ in range(2):  # it is not remembered: a later run may mend it
                with pytest.raises(CheckerFault):
                    await judge.grade("print(1)", task("1 / 0"))
            found = [await judge.grade("print(0, input())", task(SUM))]
            found.append(await judge.grade("print(1, input())", task(SUM)))
            return [each.verdict for each in found]

    assert asyncio.run(run()) == ["accepted", "wrong answer"]


# What a program may print to get at its checker.
PRINTED = {
    "huge": "print('1' * (3 << 20))",
    "many words": "print('1 ' * (1 << 20))",
    "binary": "import os\nos.write(1, bytes(range(256)) * 100)",
    "null bytes": "print('\\0' * 100 + '1')",
    "a path": "print('/etc/passwd')",
    "a file of the checker": "print('correct_output.txt')",
    "a file that it is named like": "print('input.txt\\ncorrect_output.txt')",
    "source": "print('print(1)\\nraise SystemExit(0)\\n__import__(\"os\")._exit(0)')",
    "an answer": "print('0 0\\n1')",
    "nothing": "pass",
    "sizes of files": "import os\nos.write(1, b'\\x03' + b'\\0' * 23 + b'7 0')",
    "numbers that are hard to read": "print('9' * (1 << 20), 1)",
    "unpickled": "print(\"cos\\nsystem\\n(S'true'\\ntR.\")",
}


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_cannot_get_at_the_checker(name: str) -> None:
    checker = """
import sys
given, expected, printed = (open(name).read() for name in sys.argv[1:])
assert given in ("7\\n", "10\\n") and expected in ("3 4\\n", "5 5\\n")
words = printed.split()
print(int(len(words) == 2 and all(word.isdecimal() and len(word) < 9 for word in words)
          and int(words[0]) + int(words[1]) == int(given)))
"""
    assert verdicts([PRINTED[name]], task(checker)) == ["wrong answer"]


def test_a_program_sees_nothing_of_its_checker() -> None:
    program = """
import os, sys
found = [name for name in ("input.txt", "correct_output.txt", "checker.py") if os.path.exists(name)]
found += [number for number in range(3, 64) if os.path.exists(f"/proc/self/fd/{number}")]
found += [name for name in ("checker", "check", "call") if name in globals()]
found += [module for module in sys.modules if module.startswith("sandbox")]
n = int(input())
print(*([0, n] if not found else found))
"""
    assert verdicts([program], task(SUM)) == ["accepted"]


def test_a_checker_that_runs_what_was_printed_stays_in_its_cage() -> None:
    """Such a checker can be talked into an answer; it cannot be made to do anything else."""
    checker = "import sys\nprint(eval(open(sys.argv[3]).read()))"
    programs = [
        "print(1)",
        "print(\"open('/etc/passwd').read()\")",
        "print(\"__import__('os').listdir('/')\")",
    ]
    found = verdicts(programs, task(checker))
    assert found[0] == "accepted"
    assert all("PermissionError" in each for each in found[1:])
