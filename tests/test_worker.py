"""What a program sees of its interpreter: the same as without a sandbox, but for what is held."""
# ruff: noqa: E501

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from data import Case, Task
from judge import Judge, Judgement

# --- the end of a program, threads, recursion, the library ---------------------------------------

# Each prints the same here as under a plain interpreter.
AT_THE_END = {
    "a file in a class attribute": "class IO:\n    out = open(1, 'w')\nIO.out.write('7')",
    "a file in a cycle": "class A: pass\na = A()\na.a, a.f = a, open(1, 'w')\na.f.write('7')",
    "a lost file in a cycle": "class A: pass\na = A()\na.a, a.f = a, open(1, 'w')\na.f.write('7')\n"
    "del a",
    "a global file": "f = open(1, 'w')\nf.write('7')",
    "a file of a descriptor": "import os\nf = os.fdopen(1, 'w')\nf.write('7')",
    "a file in a list of itself": "L = [open(1, 'w')]\nL[0].write('7')\nL.append(L)",
    "a file, then exit": "import sys\nf = open(1, 'w')\nf.write('7')\nsys.exit()",
    "__del__ through sys.stdout": "import sys\nclass A:\n    def __del__(self): sys.stdout.write('7')\n"
    "a = A()",
    "__del__ in a cycle": "class A:\n    def __del__(self): print(7)\na = A()\na.a = a\ndel a",
    "a pending generator": "def g():\n    try: yield\n    finally: print(7)\nx = g()\nnext(x)",
    "a context that is not left": "from contextlib import contextmanager\n@contextmanager\ndef c():\n"
    "    try: yield\n    finally: print(7)\nm = c()\nm.__enter__()",
    "an async generator": "import asyncio\nasync def g():\n    try: yield 1\n    finally: print(7)\n"
    "async def m():\n    async for x in g(): break\nasyncio.run(m())",
    "weakref.finalize": "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 7)",
    "atexit": "import atexit\natexit.register(print, 7)",
    "a thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print(7)))"
    ".start()",
    "a logger": "import logging\nlogging.basicConfig(filename='/dev/stdout', format='%(message)s')\n"
    "logging.warning('7')",
    "the C library": "import ctypes\nctypes.CDLL(None).printf(b'7')",
    "another sys.stdout": "import io, sys\nsys.stdout = io.TextIOWrapper(io.FileIO(1, 'w'))\nprint(7)",
    "a closed sys.stdout": "import sys\nprint(7)\nsys.stdout.flush()\nsys.stdout.close()\nopen",
    "deep frames before": "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n and f(n - 1)\n"
    "f(50000)\nclass A:\n    def __del__(self): print(7)\na = A()",
}
AS_A_PLAIN_INTERPRETER = {
    **AT_THE_END,
    "asyncio": "import asyncio\nasync def m():\n    await asyncio.sleep(0.01)\n    print(7)\n"
    "asyncio.run(m())",
    "asyncio in threads": "import asyncio\nprint(asyncio.run(asyncio.to_thread(lambda: 7)))",
    "a pool of threads": "from multiprocessing.pool import ThreadPool\nwith ThreadPool(3) as pool:\n"
    "    print(sum(pool.map(int, '34')))",
    "multiprocessing.dummy": "from multiprocessing.dummy import Pool\nprint(sum(Pool(2).map(int, '34')))",
    "a queue of multiprocessing": "import multiprocessing\nq = multiprocessing.SimpleQueue()\nq.put(7)\n"
    "print(q.get())",
    "a socket pair": "import socket\na, b = socket.socketpair()\na.send(b'7')\nprint(b.recv(9).decode())",
    "sixteen threads": "import threading\ne = threading.Event()\n"
    "T = [threading.Thread(target=e.wait) for _ in range(16)]\nfor t in T: t.start()\ne.set()\n"
    "for t in T: t.join()\nprint(7)",
    "a hundred threads": "import threading\ne = threading.Event()\n"
    "T = [threading.Thread(target=e.wait) for _ in range(100)]\nfor t in T: t.start()\ne.set()\n"
    "for t in T: t.join()\nprint(7)",
    "gzip": "import gzip\nprint(gzip.decompress(gzip.compress(b'7')).decode())",
    "zipfile": "import io, zipfile\nb = io.BytesIO()\nz = zipfile.ZipFile(b, 'w', zipfile.ZIP_DEFLATED)\n"
    "z.writestr('a', '7')\nprint(z.read('a').decode())",
    "the zip codec": "import codecs\nprint(codecs.decode(codecs.encode(b'7', 'zip'), 'zip').decode())",
    "sqlite3": "import sqlite3\nprint(sqlite3.connect(':memory:').execute('select 7').fetchone()[0])",
    "the default recursion limit": "def f(n): return n and f(n - 1)\nn = 900\ntry:\n"
    "    while True: f(n); n += 1\nexcept RecursionError: print(n)",
    "a recursion limit of its own": "import sys\nsys.setrecursionlimit(3000)\n"
    "def f(n): return n and f(n - 1)\nn = 2900\ntry:\n    while True: f(n); n += 1\n"
    "except RecursionError: print(n, sys.getrecursionlimit())",
    "much on stderr": "import sys\nfor _ in range(20): print('x' * (1 << 20), file=sys.stderr)\nprint(7)",
}  # fmt: skip


@pytest.mark.parametrize("name", AS_A_PLAIN_INTERPRETER)
def test_it_prints_what_a_plain_interpreter_prints(name: str) -> None:
    program = AS_A_PLAIN_INTERPRETER[name]
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    case = (Case("", plain.stdout or "nothing"),)
    task = Task(name, name, "", "", 0, case, case)

    async def body() -> Judgement:
        async with Judge(1) as judge:
            return await judge.grade(program, task)

    judgement = asyncio.run(body())
    if plain.stdout:
        assert judgement.accepted, judgement
    else:  # what CPython loses may be lost
        assert judgement.first_failure is not None
        assert judgement.first_failure.got in ("", "7")


# Modules that are not to be imported by a case, with the reason.
NOT_IMPORTED = {
    "antigravity": "opens a browser",
    "this": "prints",
    **dict.fromkeys(("_tkinter", "idlelib", "tkinter", "turtle", "turtledemo"), "needs a screen"),
}


def test_the_standard_library_can_be_imported() -> None:
    """One program a module, all in the sandbox; the same fail as in a plain interpreter."""
    names = sorted(sys.stdlib_module_names - NOT_IMPORTED.keys())
    plain = subprocess.run(
        [sys.executable, "-W", "ignore", "-c",
         "import sys\nfor n in sys.argv[1:]:\n try: __import__(n)\n except BaseException: print(n)",
         *names],
        capture_output=True, text=True,
    )  # fmt: skip
    absent = set(plain.stdout.split())
    case = (Case("", "7"),)
    task = Task("t", "t", "", "", 0, case, case)

    async def body() -> list[Judgement]:
        async with Judge() as judge:
            return await asyncio.gather(
                *(judge.grade(f"import {name}\nprint(7)", task) for name in names)
            )

    judgements = dict(zip(names, asyncio.run(body()), strict=True))
    failed = {
        name: judgement.first_failure.got
        for name, judgement in judgements.items()
        if judgement.first_failure and name not in absent
    }
    assert not failed


def test_tasks_of_one_id_are_told_apart_by_their_cases() -> None:
    one, two = ((Case("", answer),) for answer in "12")
    tasks = [Task("same", "same", "", "", 0, cases, cases) for cases in (one, two)]

    async def body() -> list[Judgement]:
        async with Judge(1) as judge:
            return [await judge.grade("print(1)", task) for task in tasks]

    assert [judgement.verdict for judgement in asyncio.run(body())] == ["accepted", "wrong answer"]
