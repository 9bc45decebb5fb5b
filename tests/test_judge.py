"""The judge on programs that mean no harm: verdicts, limits, what a contest would accept."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import Case, Task
from judge import Judge, JudgeFault, Judgement, Limits, clip

ROOT = Path(__file__).resolve().parent.parent
SUM = "a, b = map(int, input().split())\nprint(a + b)\n"


QUICK = Limits(cpu_seconds=1, wall_seconds=2)


def task(*visible: tuple[str, str], hidden: Iterable[tuple[str, str]] = ()) -> Task:
    given, checked = (tuple(Case(*case) for case in cases) for cases in (visible, hidden))
    return Task("test/t", "t", "t", "", 0, given, checked)


SUMS = task(("1 2\n", "3\n"), ("10 20\n", "30\n"), hidden=[("5 6\n", "11\n"), ("0 0\n", "0\n")])


def judge_all(
    programs: Iterable[str | None],
    on: Task = SUMS,
    limits: Limits = QUICK,
    workers: int = 2,
    every_case: bool = False,
) -> list[Judgement]:
    async def run() -> list[Judgement]:
        async with Judge(workers, limits) as judge:
            grades = [judge.grade(text, on, every_case=every_case) for text in programs]
            return await asyncio.gather(*grades)

    return asyncio.run(run())


def judge_one(
    program: str | None,
    on: Task = SUMS,
    limits: Limits = QUICK,
    every_case: bool = False,
) -> Judgement:
    return judge_all([program], on, limits, 1, every_case)[0]


# Each prints the sum of the two numbers of its input, as a contest would accept it.
ACCEPTED = {
    "plain": SUM,
    "exit": SUM + "exit()\nprint(1)\n",
    "quit": SUM + "quit(0)\nprint(1)\n",
    "exit none": SUM + "exit(None)\n",
    "sys.exit": "import sys\n" + SUM + "sys.exit(0)\n",
    "raise SystemExit": SUM + "raise SystemExit\n",
    "os._exit": "import os, sys\n" + SUM + "sys.stdout.flush()\nos._exit(0)\n",
    "main guard": """
        def main():
            a, b = map(int, input().split())
            print(a + b)
        if __name__ == "__main__":
            main()
        """,
    "input at the end": """
        total = 0
        while True:
            try:
                total += sum(map(int, input().split()))
            except EOFError:
                break
        print(total)
        """,
    "buffer": "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))\n",
    "buffer out": """
        import sys
        sys.stdout.buffer.write(b"%d" % sum(map(int, sys.stdin.buffer.readline().split())))
        """,
    "stdin lines": "import sys\nfor line in sys.stdin: print(sum(map(int, line.split())))\n",
    "open(0)": "print(sum(map(int, open(0).read().split())))\n",
    "open(0) input": "input = open(0).readline\n" + SUM,
    "stdin replaced by open(0)": "import sys\nsys.stdin = open(0)\n" + SUM,
    "/dev/stdin": "print(sum(map(int, open('/dev/stdin').read().split())))\n",
    "/dev/stdout": "import sys\nsys.stdout = open('/dev/stdout', 'w')\n" + SUM,
    "os.read": "import os\nprint(sum(map(int, os.read(0, 10**6).split())))\n",
    "os.fstat": """
        import io, os
        data = io.BytesIO(os.read(0, os.fstat(0).st_size))
        print(sum(map(int, data.readline().split())))
        """,
    "os.write": "import os\nos.write(1, b'%d' % sum(map(int, input().split())))\n",
    "sys.__stdout__": "import io, sys\nsys.stdout = io.StringIO()\n"
    + SUM.replace("print(a + b)", "sys.__stdout__.write(str(a + b))"),
    "open(1) not closed": "out = open(1, 'w')\nout.write(str(sum(map(int, input().split()))))\n",
    "fast io": """
        import os, sys
        from io import BytesIO, IOBase
        class FastIO(IOBase):
            newlines = 0
            def __init__(self, file):
                self._fd = file.fileno()
                self.buffer = BytesIO()
                self.writable = "x" in file.mode or "r" not in file.mode
                self.write = self.buffer.write if self.writable else None
            def readline(self):
                while self.newlines == 0:
                    b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
                    self.newlines = b.count(b"\\n") + (not b)
                    ptr = self.buffer.tell()
                    self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
                self.newlines -= 1
                return self.buffer.readline()
            def flush(self):
                if self.writable:
                    os.write(self._fd, self.buffer.getvalue())
                    self.buffer.truncate(0), self.buffer.seek(0)
        class IOWrapper(IOBase):
            def __init__(self, file):
                self.buffer = FastIO(file)
                self.flush = self.buffer.flush
                self.writable = self.buffer.writable
                self.write = lambda s: self.buffer.write(s.encode("ascii"))
                self.readline = lambda: self.buffer.readline().decode("ascii")
        sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)
        input = lambda: sys.stdin.readline().rstrip("\\r\\n")
        a, b = map(int, input().split())
        print(a + b)
        """,
    "deep recursion in a thread": """
        import sys, threading
        sys.setrecursionlimit(10**6)
        threading.stack_size(2**27)
        def depth(n):
            return 0 if n == 0 else 1 + depth(n - 1)
        def main():
            a, b = map(int, input().split())
            assert depth(200000) == 200000
            print(a + b)
        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
        """,
    "a thread that is not joined": """
        import threading, time
        def main():
            time.sleep(0.05)
            print(sum(map(int, input().split())))
        threading.Thread(target=main).start()
        """,
    "recursion to the default limit": "f = lambda n: n and 1 + f(n - 1)\nf(990)\n" + SUM,
    "stack limit raised": """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY,) * 2)
        """
    + SUM,
    "recursion through a cache": """
        import sys
        from functools import lru_cache
        sys.setrecursionlimit(10**6)
        @lru_cache(None)
        def depth(n):
            return 0 if n == 0 else 1 + depth(n - 1)
        depth(20000)
        a, b = map(int, input().split())
        print(a + b)
        """,
    "atexit": """
        import atexit
        a, b = map(int, input().split())
        atexit.register(lambda: print(a + b))
        """,
    "a __del__ at the end": """
        class Printer:
            def __del__(self):
                print(sum(map(int, input().split())))
        printer = Printer()
        """,
    "no final newline": SUM.replace("(a + b)", "(a + b, end='')"),
    "flush": SUM.replace("(a + b)", "(a + b, flush=True)"),
    "SIGPIPE": "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + SUM,
    "nonblocking stdin": "import os\nos.set_blocking(0, False)\n" + SUM,
    "shadowed builtins": "id = max = sum = list = dict = type = str = 0\n" + SUM,
    "pickle": """
        import copy, pickle
        class Pair:
            def __init__(self, a, b):
                self.a, self.b = a, b
        pair = pickle.loads(pickle.dumps(Pair(*map(int, input().split()))))
        print(copy.deepcopy(pair).a + pair.b)
        """,
    "dataclass": """
        from __future__ import annotations
        from dataclasses import dataclass, field
        @dataclass(order=True)
        class Pair:
            a: int
            b: int
            rest: list[int] = field(default_factory=list)
        pair = Pair(*map(int, input().split()))
        print(pair.a + pair.b)
        """,
    "type hints": """
        import typing
        from typing import Dict, List, Optional
        def add(a: "int", b: Optional[int] = None) -> List[int]:
            return [a + b]
        typing.get_type_hints(add)
        print(*add(*map(int, input().split())))
        """,
    "named tuple, enum": """
        from collections import namedtuple
        from enum import Enum
        class Side(Enum):
            LEFT = 1
        P = namedtuple("P", "a b")
        p = P(*map(int, input().split()))
        print(p.a + p.b * Side.LEFT.value)
        """,
    "tabs": "def f():\n\ta, b = map(int, input().split())\n\tprint(a + b)\nf()\n",
    "CRLF": SUM.replace("\n", "\r\n"),
    "BOM": "\ufeff" + SUM,
    "coding line": "# -*- coding: utf-8 -*-\n" + SUM,
    "non-ASCII names": "größe, число = map(int, input().split())\nprint(größe + число)\n",
    "no final newline in the program": SUM.rstrip(),
    "long integers": SUM + "len(str(10**5000))\n",
    "stderr": "import sys\nprint('accepted', file=sys.stderr)\n" + SUM,
    "assert": "assert __debug__\n" + SUM,
    "contest imports": """
        import sys, os, math, cmath, random, re, string, time, copy, queue, array, struct, json
        import bisect, heapq, itertools, functools, operator, collections, fractions, decimal
        import datetime, statistics, hashlib, zlib, io, threading, typing, enum, textwrap, bz2
        """
    + SUM,
    "an import by name": "__import__('calendar').isleap(2000)\n" + SUM,
    "an exception caught": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\n" + SUM,
    "memory caught": "try:\n    bytearray(1 << 33)\nexcept MemoryError:\n    pass\n" + SUM,
    "main module": "import __main__, sys\nassert sys.modules['__main__'].SEEN\n",
}
if sys.version_info >= (3, 12):  # these have limits of their own for recursion through C code
    del ACCEPTED["recursion through a cache"]
ACCEPTED["main module"] = (
    "import __main__\nSEEN = 1\nassert __main__.SEEN and __name__ == '__main__'\n" + SUM
)


def dedent(program: str) -> str:
    """Programs above are indented for reading; those that mix are a block and then SUM."""
    if program.startswith("\n") and program.endswith(SUM) and program != SUM:
        return textwrap.dedent(program.removesuffix(SUM)) + SUM
    return textwrap.dedent(program)


def test_what_a_contest_accepts_is_accepted() -> None:
    judged = judge_all(map(dedent, ACCEPTED.values()))
    refused = {
        name: judgement.first_failure
        for name, judgement in zip(ACCEPTED, judged, strict=True)
        if not judgement.accepted
    }
    assert refused == {}


FAILING = {
    "wrong": ("print(3)", "wrong answer", "3\n"),
    "nothing": ("", "no program", ""),
    "first line only": (SUM + "print(1)", "wrong answer", "3\n1\n"),
    "exception": ("x = 1\n\n1 / 0", "runtime error", "line 3: ZeroDivisionError: division by zero"),
    "in a function": (
        "def f():\n    raise KeyError('k')\nf()",
        "runtime error",
        "line 2: KeyError: 'k'",
    ),
    "own exception": ("class E(Exception): pass\nraise E", "runtime error", "line 2: E"),
    "syntax": ("x = 1\ndef f(:\n", "runtime error", "line 2: SyntaxError: invalid syntax"),
    "indentation": (
        "if 1:\nx = 1\n",
        "runtime error",
        "line 2: IndentationError: expected an indented block after 'if' statement on line 1",
    ),
    "null byte": ("x = '\0'", "runtime error", None),
    "surrogate": ("x = '\ud800'", "runtime error", None),
    "exit 1 after the answer": (SUM + "exit(1)", "runtime error", "exit status 1"),
    "exit with a text": (SUM + "exit('bad')", "runtime error", "bad"),
    "os._exit": ("import os\nos._exit(3)", "runtime error", "exit status 3"),
    "numpy": (
        "import numpy",
        "runtime error",
        "line 1: ModuleNotFoundError: No module named 'numpy'",
    ),
    "segfault": (
        "import ctypes\nctypes.string_at(0)",
        "runtime error",
        "killed by signal 11 (SIGSEGV)",
    ),
    "abort": ("import os\nos.abort()", "runtime error", None),
    "raised signal": ("import signal\nsignal.raise_signal(9)", "runtime error", None),
    "recursion": (
        "f = lambda: f()\nf()",
        "runtime error",
        "line 1: RecursionError: maximum recursion depth exceeded",
    ),
    "closed stdout": (SUM + "import os\nos.close(1)", "runtime error", None),
    "loop": ("while True: pass", "time limit", "ran out of time (1 s of CPU)"),
    "loop in C": ("list(__import__('itertools').product(range(99), repeat=5))", None, None),
    "loop in compile": ("x = " + "-" * 3000 + "1", "runtime error", None),
    "nesting that no parser takes": ("x = " + "-" * 100_000 + "1", "runtime error", None),
    "sleep": ("import time\ntime.sleep(60)", "time limit", "ran out of time (2 s, mostly asleep)"),
    "endless thread": (
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()",
        "time limit",
        None,
    ),
    "memory": ("x = bytearray(2 << 30)", "memory limit", "ran out of memory (1024 MiB)"),
    "memory in steps": ("x = []\nwhile True: x.append(bytes(10**7))", "memory limit", None),
    "output": ("while True: print('x' * 99)", "output limit", "printed more than 16 MiB"),
    "output, errors caught": (
        "import os\nwhile True:\n    try: os.write(1, b'x' * 10**6)\n    except OSError: break",
        "output limit",
        None,
    ),
    "threads": (
        "import threading, time\nthreading.stack_size(32768)\n"
        "while True: threading.Thread(target=time.sleep, args=(9,)).start()",
        "runtime error",
        None,
    ),
}
if sys.version_info >= (3, 12):  # these compile it
    del FAILING["loop in compile"]


def test_verdicts_and_what_is_shown() -> None:
    judged = judge_all(program for program, _, _ in FAILING.values())
    for (name, (_, verdict, got)), judgement in zip(FAILING.items(), judged, strict=True):
        assert judgement.verdict == verdict or verdict is None, (name, judgement)
        assert not judgement.accepted, name
        if got:
            assert judgement.first_failure is not None
            assert judgement.first_failure.got == got, name


def test_counts_and_the_first_failure() -> None:
    judgement = judge_one("a, b = map(int, input().split())\nprint(a + b if a < 9 else 0)\n")
    assert (judgement.visible_passed, judgement.visible_total) == (1, 2)
    assert (judgement.hidden_passed, judgement.hidden_total) == (0, 2)
    assert judgement.fitness == 0.5
    failure = judgement.first_failure
    assert failure is not None
    assert (failure.case, failure.hidden) == (1, False)
    assert (failure.input, failure.expected, failure.got) == ("10 20\n", "30\n", "0\n")


def test_every_visible_case_runs_and_hidden_ones_stop_at_the_first_failure() -> None:
    cases = [(f"{i} 1\n", f"{i + 1}\n") for i in range(6)]
    on = task(*cases[:2], hidden=cases[2:])
    judgement = judge_one("a, b = map(int, input().split())\nprint(a + b if a != 3 else 0)\n", on)
    assert (judgement.visible_passed, judgement.hidden_passed) == (2, 1)
    assert judgement.first_failure is not None
    assert (judgement.first_failure.case, judgement.first_failure.hidden) == (1, True)
    judgement = judge_one(
        "a, b = map(int, input().split())\nprint(a + b if a != 3 else 0)\n", on, every_case=True
    )
    assert (judgement.visible_passed, judgement.hidden_passed) == (2, 3)
    judgement = judge_one("a, b = map(int, input().split())\nprint(a + b if a else 0)\n", on)
    assert (judgement.visible_passed, judgement.hidden_passed) == (1, 0)
    assert not judgement.cut_short


def test_a_program_that_ran_out_of_time_twice_runs_no_further() -> None:
    on = task(*[(f"{i}\n", f"{i}\n") for i in range(9)])
    judgement = judge_one(
        "n = int(input())\nwhile n > 2: pass\nprint(n)",
        on,
        Limits(cpu_seconds=0.3, wall_seconds=9),
    )
    assert judgement.cut_short
    assert judgement.verdict == "time limit"
    assert judgement.visible_passed == 3
    assert 0.6 <= judgement.cpu_seconds < 2


def test_fractions_of_a_second_count() -> None:
    program = "import time\nwhile time.process_time() < 0.6: pass\n" + SUM
    assert judge_one(program, limits=Limits(cpu_seconds=0.4)).verdict == "time limit"
    assert judge_one(program, limits=Limits(cpu_seconds=5)).accepted


def test_limits_are_those_asked_for() -> None:
    limits = Limits(memory_mb=256, output_mb=1)
    memory, output, fits = judge_all(
        ["x = bytearray(300 << 20)", "print('x' * (1 << 20))", "x = bytearray(150 << 20)\n" + SUM],
        limits=limits,
    )
    assert memory.verdict == "memory limit"
    assert output.verdict == "output limit"
    assert fits.accepted


def test_three_megabytes_of_output_and_ten_of_input_are_whole() -> None:
    numbers = " ".join(map(str, range(10**6)))
    on = task((numbers + "\n" + "7" * 3_000_000, numbers), ("1\n2\n", "1\n"))
    assert judge_one("print(*map(int, input().split()))", on, Limits()).accepted
    truncated = judge_one("print(input()[:-1])", on, Limits())
    assert truncated.verdict == "wrong answer"
    assert truncated.first_failure is not None
    assert len(truncated.first_failure.got) < 1100
    assert "more characters" in truncated.first_failure.input


def test_nothing_carries_over_to_the_next_case() -> None:
    on = task(*[("1 2\n", "3\n")] * 4)
    program = """
        import sys, builtins, os, resource, threading, time, random
        assert not hasattr(builtins, "left")
        assert "left" not in globals() and "left" not in os.environ
        assert threading.active_count() == 1
        assert random.random() == random.Random(0).random()
        assert os.lseek(0, 0, os.SEEK_CUR) == 0 and os.fstat(1).st_size == 0
        assert sys.getrecursionlimit() < 2000
        builtins.left = left = os.environ["left"] = "x"
        sys.setrecursionlimit(5000)
        resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        os.write(0, b"9 9 9 9 9 9 9")
        os.lseek(0, 0, 0)
        os.ftruncate(0, 100)
        os.set_blocking(1, False)
        print("3", flush=True)
        """
    judgement = judge_one(dedent(program), on)
    assert judgement.accepted, judgement.first_failure


def test_only_three_descriptors_no_environment_no_arguments_and_no_module_of_ours() -> None:
    program = """
        import os, sys
        for fd in range(3, 64):
            try:
                os.fstat(fd)
            except OSError:
                continue
            raise SystemExit(f"descriptor {fd}")
        assert not os.environ and sys.argv == ["program.py"]
        ours = [name for name in sys.modules if name.partition(".")[0] in ("sandbox", "judge")]
        assert not ours, ours
        try:
            import sandbox
        except ModuleNotFoundError:
            pass
        else:
            raise SystemExit("a module of ours")
        """
    judgement = judge_one(dedent(program) + SUM)
    assert judgement.accepted, judgement.first_failure


def test_a_randomised_program_gets_the_same_verdict_twice() -> None:
    program = "import random\nprint(random.random(), hash('text'))\n"
    prints = [
        judgement.first_failure.got
        for judgement in judge_all([program + f"#{i}" for i in range(6)], workers=3)
        if judgement.first_failure
    ]
    assert len(prints) == 6
    assert len(set(prints)) == 1


def test_none_blank_and_twice_the_same() -> None:
    async def run() -> None:
        async with Judge(1) as judge:
            for text in (None, "", " \n\t"):
                judgement = await judge.grade(text, SUMS)
                assert judgement.verdict == "no program"
                assert (judgement.visible_total, judgement.hidden_total) == (2, 2)
                assert judgement.first_failure is None
                assert judgement.fitness == 0
            first, second = await asyncio.gather(judge.grade(SUM, SUMS), judge.grade(SUM, SUMS))
            assert first is second
            assert await judge.grade(SUM, SUMS) is first
            assert await judge.grade(SUM, SUMS, every_case=True) is not first

    asyncio.run(run())


def test_a_cancelled_grade_leaves_the_pool_whole() -> None:
    async def run() -> None:
        async with Judge(1, Limits(cpu_seconds=1)) as judge:
            slow = asyncio.create_task(judge.grade("while True: pass", SUMS))
            await asyncio.sleep(0.2)
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert (await judge.grade(SUM, SUMS)).accepted

    asyncio.run(run())


def children() -> list[int]:
    """Processes whose parent is this one, ended or not."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in path.read_text().split()]


def test_leaving_ends_all_processes_also_in_the_middle_of_a_case() -> None:
    async def run() -> None:
        async with Judge(2) as judge:
            jobs = [asyncio.create_task(judge.grade(f"while True: {i}", SUMS)) for i in range(4)]
            await asyncio.sleep(0.3)
        ended = await asyncio.gather(*jobs, return_exceptions=True)
        assert all(isinstance(error, JudgeFault | asyncio.CancelledError) for error in ended)

    before = children()
    asyncio.run(run())
    assert children() == before


def test_a_judge_that_is_killed_leaves_no_process() -> None:
    code = """
        import asyncio, sys
        from judge import Judge
        from tests.test_judge import SUMS
        async def run():
            async with Judge(1) as judge:
                job = asyncio.create_task(judge.grade("import time\\ntime.sleep(60)", SUMS))
                await asyncio.sleep(0.5)
                print(*(worker.process.pid for worker in judge._all), flush=True)
                await job
        asyncio.run(run())
        """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, cwd=ROOT
    )
    with process:
        assert process.stdout is not None
        session = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)

    async def gone() -> None:
        while True:
            try:
                os.killpg(session, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(gone(), 20))


def test_the_same_verdicts_with_one_and_with_eight_workers() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\n"
    programs = [
        f"{text}\n#{i}" for i in range(4) for text in (SUM, "print(3)", "1 / 0", busy + SUM)
    ]
    limits = Limits(cpu_seconds=3, wall_seconds=0.5)  # eight on two cores take longer than the wall
    on = task(("1 2\n", "3\n"))
    one, eight = (
        [judgement.verdict for judgement in judge_all(programs, on, limits, workers)]
        for workers in (1, 8)
    )
    assert one == eight
    assert one[3] == "accepted"


def test_self_check_says_what_holds() -> None:
    judge = Judge(1)
    try:
        report = judge.self_check()
    finally:
        judge._close()
    assert "\n" not in report.line
    assert "Landlock" in report.line
    assert report.missing == ()


def test_without_a_sandbox_the_verdicts_are_the_same_and_it_says_so() -> None:
    async def run() -> None:
        async with Judge(1, sandbox=False) as judge:
            assert (await judge.grade(SUM, SUMS)).accepted
            assert (await judge.grade("1 / 0", SUMS)).verdict == "runtime error"
            assert "OFF" in judge.self_check().line

    asyncio.run(run())


def test_clip_says_how_much_was_cut() -> None:
    assert clip("abc", 3) == "abc"
    assert clip("abcd", 3) == "abc... (1 more characters)"


# --- command line ---------------------------------------------------------------------------


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    """A parquet file of one task of sums with two visible, one hidden and two further cases."""

    def cases(numbers: range) -> dict[str, list[str]]:
        return {"input": [f"{n} 1\n" for n in numbers], "output": [f"{n + 1}\n" for n in numbers]}

    row = {
        "name": "1_A. Sum",
        "description": "Add.",
        "public_tests": cases(range(1)),
        "private_tests": cases(range(1, 2)),
        "generated_tests": cases(range(2, 45)),
        "cf_rating": 800,
        "cf_contest_id": 1,
        "input_file": "",
        "output_file": "",
    }
    path = tmp_path / "tasks.parquet"
    pq.write_table(pa.Table.from_pylist([row]), path)
    return path


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "judge.py", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_rows_come_out_in_order_and_without_the_program(tmp_path: Path, tasks_file: Path) -> None:
    rows = [
        {"task": "1_A. Sum", "program": "import time\ntime.sleep(0.02)\n" + SUM, "note": 1},
        {"task": "tasks/1_A", "program": SUM.replace("+ b", "- b")},
        {"task": "1_A. Sum", "program": None},
    ]
    programs, out = tmp_path / "programs.jsonl", tmp_path / "verdicts.jsonl"
    programs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = command(programs, "--tasks", tasks_file, "--out", out, "--workers", 2, "--all-cases")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "sandbox" in done.stderr
    verdicts = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["verdict"] for row in verdicts] == ["accepted", "wrong answer", "no program"]
    assert verdicts[0]["note"] == 1
    assert not any("program" in row for row in verdicts)
    assert (verdicts[0]["passed"], verdicts[0]["hidden_total"]) == (45, 36)
    assert verdicts[0]["first_failure"] is None
    assert verdicts[1]["first_failure"]["got"] == "-1\n"
    assert command(programs, "--tasks", tasks_file).stdout.count("\n") == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: not JSON"),
        ("{}", 'line 1: needs "task" and "program"'),
        ('{"task": "x", "program": ""}', "task 'x' is unknown"),
        ('{"task": "1_A. Sum", "program": 1}', "line 1: the program is not a text"),
    ],
)
def test_a_row_that_cannot_be_judged_is_one_clear_line(
    tmp_path: Path, tasks_file: Path, line: str, message: str
) -> None:
    programs = tmp_path / "programs.jsonl"
    programs.write_text(line + "\n")
    done = command(programs, "--tasks", tasks_file)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_missing_files_and_bad_limits(tmp_path: Path, tasks_file: Path) -> None:
    done = command(tmp_path / "none.jsonl", "--tasks", tasks_file)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert command("x", "--tasks", "y", "--cpu-seconds", "0").returncode == 2


def test_a_task_can_have_a_time_limit_of_its_own() -> None:
    cases = (Case("", "1"),)
    spin = "import time\nwhile time.process_time() < 1.15: pass\nprint(1)"
    tasks = [
        Task(f"t{limit}", "t", "", "", 0, cases, cases, time_limit=limit)
        for limit in (None, 0.01, 4.0)
    ]

    async def body(limits: Limits, *tasks: Task) -> list[str]:
        async with Judge(2, limits) as judge:
            return [(await judge.grade(spin, task)).verdict for task in tasks]

    assert asyncio.run(body(Limits(), tasks[1])) == ["accepted"]
    by_factor = asyncio.run(body(Limits(cpu_seconds=0.5, time_factor=0.75), *tasks))
    assert by_factor == ["time limit", "time limit", "accepted"]
    assert Limits(time_factor=2).of(0.1).cpu_seconds == 1.0
    assert Limits(time_factor=2).of(30).wall_seconds == 120.0
