"""What a program sees of its interpreter: the same as without a sandbox, but for what is held."""
# ruff: noqa: E501

from __future__ import annotations

import asyncio
import subprocess
import sys
import sysconfig
from pathlib import Path
from pkgutil import iter_modules

import pytest

from data import Case, Task
from judge import Judge, Judgement
from sandbox import worker

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
    "a generator that is closed": "def g():\n    try: yield\n    except GeneratorExit: print(7)\nx = g()\n"
    "next(x)",
    "a generator that catches all": "def g():\n    try: yield\n    except: print(7)\nx = g()\nnext(x)",
    "a coroutine of types": "import types\n@types.coroutine\ndef c():\n    try: yield\n"
    "    except GeneratorExit: print(7)\nx = c()\nx.send(None)",
    "a stream of its own": "import os, io\nclass Out(io.IOBase):\n    text = b''\n"
    "    def write(self, text): self.text += text\n"
    "    def flush(self): os.write(1, self.text); self.text = b''\nout = Out()\nout.write(b'7')",
    "a stream that prints when closed": "import io, sys\nclass Out(io.StringIO):\n    def close(self):\n"
    "        sys.__stdout__.write(self.getvalue()); super().close()\nout = Out()\nout.write('7')",
    "the type of sys.stdout": "import sys\nout = type(sys.stdout)(sys.stdout.buffer)\nout.write('7')",
    "the class of sys.stdout": "import sys\nout = sys.stdout.__class__(sys.stdout.buffer)\nout.write('7')",
    "an archive": "import zipfile, sys\nz = zipfile.ZipFile(sys.stdout.buffer, 'w')",
    "a method set later": "class A: pass\nsetattr(A, '__de' + 'l__', lambda self: print(7))\na = A()",
    "no sys.stdout": "import sys\nprint(7)\ndel sys.stdout",
    "no sys.__stdout__": "import sys\nprint(7)\ndel sys.__stdout__",
    "None for sys.stdout": "import sys\nprint(7)\nsys.stdout = None",
    "no module at all": "import sys\nprint(7)\nsys.modules.clear()",
    "an exit in a finalizer": "import sys\nclass A:\n    def __del__(self): print(7); sys.exit(3)\na = A()",
    "an executor": "from concurrent.futures import ThreadPoolExecutor\nimport time\n"
    "ThreadPoolExecutor().submit(lambda: (time.sleep(0.05), print(7)))",
    "a raw thread that goes on": "import _thread, time\n_thread.start_new_thread(time.sleep, (99,))\n"
    "time.sleep(0.05)\nprint(7)",
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
    "a socket pair, shut down": "import socket\na, b = socket.socketpair()\na.sendall(b'7')\n"
    "a.shutdown(socket.SHUT_WR)\nprint(b.recv(9).decode(), b.recv(9))",
    "a socket pair in a selector": "import selectors, socket\ns = selectors.DefaultSelector()\n"
    "a, b = socket.socketpair()\ns.register(a, 1)\nb.send(b'7')\n"
    "for key, _ in s.select(): print(key.fileobj.recv(9).decode())",
    "a socket pair that does not block": "import socket\na, b = socket.socketpair()\na.setblocking(False)\n"
    "try: a.recv(1)\nexcept BlockingIOError: print(7)",
    "streams of asyncio": "import asyncio, socket\nasync def m():\n    a, b = socket.socketpair()\n"
    "    r, w = await asyncio.open_connection(sock=a)\n    b.send(b'7\\n')\n"
    "    print((await r.readline()).decode())\nasyncio.run(m())",
    "sixteen threads": "import threading\ne = threading.Event()\n"
    "T = [threading.Thread(target=e.wait) for _ in range(16)]\nfor t in T: t.start()\ne.set()\n"
    "for t in T: t.join()\nprint(7)",
    "a hundred threads": "import threading\ne = threading.Event()\n"
    "T = [threading.Thread(target=e.wait) for _ in range(100)]\nfor t in T: t.start()\ne.set()\n"
    "for t in T: t.join()\nprint(7)",
    "gzip": "import gzip\nprint(gzip.decompress(gzip.compress(b'7')).decode())",
    "zipfile": "import io, zipfile\nb = io.BytesIO()\nz = zipfile.ZipFile(b, 'w', zipfile.ZIP_DEFLATED)\n"
    "z.writestr('a', '7')\nprint(z.read('a').decode())",
    "a tar file": "import io, tarfile\nb = io.BytesIO()\ntarfile.open(fileobj=b, mode='w:gz').close()\n"
    "print(len(tarfile.open(fileobj=io.BytesIO(b.getvalue())).getnames()))",
    "the hex codec": "import codecs\nprint(codecs.encode(b'7', 'hex').decode())",
    "a submodule": "from xml.sax import saxutils, handler\nimport email.mime.text as m, urllib.request\n"
    "print(saxutils.escape('<7'), m.MIMEText('7').as_string())",
    "a module by its name": "from importlib import import_module\n"
    "print(__import__('gzip').GzipFile.__name__, import_module('http.client').OK)",
    "an import over lines": "from email import (charset,\n    header as h)\nprint(h.Header('7'))",
    "an import of nothing": "try: import nowhere, zlib\nexcept ImportError: print(7)",
    "the zip codec": "import codecs\nprint(codecs.decode(codecs.encode(b'7', 'zip'), 'zip').decode())",
    "sqlite3": "import sqlite3\nprint(sqlite3.connect(':memory:').execute('select 7').fetchone()[0])",
    "the default recursion limit": "def f(n): return n and f(n - 1)\nn = 900\ntry:\n"
    "    while True: f(n); n += 1\nexcept RecursionError: print(n)",
    "a recursion limit of its own": "import sys\nsys.setrecursionlimit(3000)\n"
    "def f(n): return n and f(n - 1)\nn = 2900\ntry:\n    while True: f(n); n += 1\n"
    "except RecursionError: print(n, sys.getrecursionlimit())",
    "much on stderr": "import sys\nfor _ in range(20): print('x' * (1 << 20), file=sys.stderr)\nprint(7)",
}  # fmt: skip


@pytest.fixture(scope="module")
def judgements() -> dict[str, Judgement]:
    """Of all these programs, on one pool, against what a plain interpreter prints."""
    tasks = {}
    for name, program in AS_A_PLAIN_INTERPRETER.items():
        plain = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True)
        assert plain.returncode == 0, plain.stderr
        case = (Case("", plain.stdout.decode("utf-8", "surrogateescape")),)
        tasks[name] = Task(name, name, "", "", 0, case, case)

    async def body() -> list[Judgement]:
        async with Judge() as judge:
            return await asyncio.gather(
                *(judge.grade(AS_A_PLAIN_INTERPRETER[name], task) for name, task in tasks.items())
            )

    return dict(zip(tasks, asyncio.run(body()), strict=True))


@pytest.mark.parametrize("name", AS_A_PLAIN_INTERPRETER)
def test_it_prints_what_a_plain_interpreter_prints(
    judgements: dict[str, Judgement], name: str
) -> None:
    judgement = judgements[name]
    if judgement.first_failure and not judgement.first_failure.expected:
        assert judgement.first_failure.got == "7"  # what CPython loses may be lost, or not
    else:
        assert judgement.accepted, judgement


# Modules that do more than to define something when they are imported; these are not tried.
NOT_TRIED = {"antigravity", "this", "idlelib", "turtledemo", "test", "__main__"}


def modules() -> list[str]:
    """Every module of the standard library, with all submodules, but for tests."""
    found, todo = [], [(name, "") for name in sorted(sys.stdlib_module_names)]
    while todo:
        name, above = todo.pop()
        if name in NOT_TRIED or name in ("tests", "idle_test"):
            continue
        found.append(above + name)
        place = Path(sysconfig.get_path("stdlib"), *found[-1].split("."))
        if place.is_dir():
            todo += [(module.name, f"{above}{name}.") for module in iter_modules([str(place)])]
    return sorted(found)


def test_the_standard_library_can_be_imported() -> None:
    """One program a module, all in the sandbox; the same fail as in a plain interpreter."""
    names = modules()
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
        if judgement.first_failure and can_be_imported(name)
    }
    assert not failed
    assert sum(judgement.accepted for judgement in judgements.values()) > 500


def can_be_imported(name: str) -> bool:
    """By a plain interpreter of this kind."""
    program = f"import {name}\nprint(7)"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True)
    return done.returncode == 0 and done.stdout == b"7\n"


def test_tasks_of_one_id_are_told_apart_by_their_cases() -> None:
    one, two = ((Case("", answer),) for answer in "12")
    tasks = [Task("same", "same", "", "", 0, cases, cases) for cases in (one, two)]

    async def body() -> list[Judgement]:
        async with Judge(1) as judge:
            return [await judge.grade("print(1)", task) for task in tasks]

    assert [judgement.verdict for judgement in asyncio.run(body())] == ["accepted", "wrong answer"]


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("from bisect import bisect_left\nimport gzip\n", "bisect gzip"),
        ("from x import (\n  a,\n  b)\nimport heapq, zlib as z, os.path\n", "heapq zlib os.path"),
        (
            "import heapq, \\\n  gzip\nfrom math import \\\n  sqrt, gcd\nimport lzma",
            "heapq gzip math lzma",
        ),
        (
            "import sys;import gzip;from collections import deque;import bz2",
            "sys gzip collections bz2",
        ),
        ("from collections import deque  # of\r\nimport csv\r\n", "collections csv"),
        ("x = __import__('gzip')\nimportlib.import_module(\"bz2\")", "gzip bz2"),
        ("from heapq import *\nif 1: import gzip\nelse:\n\timport bz2", "heapq gzip bz2"),
        ("important = 1\nreimport = 2", ""),
    ],
)
def test_what_a_program_imports_is_loaded_before_it_is_locked_in(source: str, modules: str) -> None:
    assert {name for name, _ in worker.imports(source.encode())} == set(modules.split())
