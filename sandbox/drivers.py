"""How a case runs a program that is no plain script: a function that is called, or a checker.

Both stand between the worker and the program's code and run in the case's own process. What they
read comes from the judge through the file that is the case's stdin; nothing of it is ever taken
for code, for a path or for a number.
"""

from __future__ import annotations

import io
import os
import struct
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

# Commands of the judge: what the source in stdin's file is.
PLAIN, FUNCTION, CHECKER = b"P", b"F", b"K"
FUNCTION_FRAMES, CHECKER_FRAMES = 1, 3  # of these below what they run, beyond those of a script
MARK = b"\x1e"  # around the value that a function returned; JSON has none inside
SIZES = struct.Struct("=QQQ")  # of a checker's three files, which follow one another
CHECKED_FILES = ("input.txt", "correct_output.txt", "solution_output.txt")
FILENAME = "<driver>"  # no line of it is shown in a traceback

# What a function's program need not import, as on the sites that such tasks come from.
GIVEN = ("bisect", "collections", "functools", "heapq", "itertools", "math", "operator", "random",
         "re", "string", "sys")  # fmt: skip
GIVEN_NAMES = ("typing", "bisect", "collections", "functools", "heapq", "itertools")
GIVEN_MATH = ("ceil", "comb", "floor", "gcd", "inf", "lcm", "log", "log2", "perm", "pi", "sqrt")


def driver(run: Callable[[], None]) -> tuple[CodeType, dict[str, Any]]:
    """Code, and the names that it needs, which runs what is to be run."""
    return compile("run()", FILENAME, "exec"), {"__builtins__": __builtins__, "run": run}


def give_names(namespace: dict[str, Any]) -> None:
    """Put into a program's namespace what it need not import."""
    for name in GIVEN_NAMES:
        module = __import__(name)
        public = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
        namespace.update({each: getattr(module, each) for each in public})
    math = __import__("math")
    namespace.update({name: getattr(math, name) for name in GIVEN_MATH})
    namespace.update({name: __import__(name) for name in GIVEN})


def call(code: CodeType, namespace: dict[str, Any], function: str) -> None:
    """Run a program, call its function with the case's arguments, and print what it returned.

    What the program itself prints decides nothing: the value stands between marks.
    """
    import json

    namespace["__name__"] = "solution"  # what is guarded by __main__ is not asked for
    size = os.lseek(0, 0, os.SEEK_END)
    lines = os.pread(0, size, 0).decode("utf-8", "surrogatepass").split("\n")
    arguments = [json.loads(line) for line in lines if line.strip()]
    exec(code, namespace)
    value = find(namespace, function)(*arguments)
    try:
        text = json.dumps(value)
    except TypeError as error:
        raise TypeError(f"{function} returned no JSON value: {error}") from None
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
    data = MARK + text.encode() + MARK
    while data:
        data = data[os.write(1, data) :]


def find(namespace: dict[str, Any], function: str) -> Callable[..., Any]:
    """The function, or the method of a class Solution."""
    if hasattr(namespace.get("Solution"), function):
        found: Callable[..., Any] = getattr(namespace["Solution"](), function)
        return found
    if function in namespace:
        found = namespace[function]
        return found  # noqa: RET504
    raise NameError(f"no function {function} and no class Solution with it is defined")


def check(code: CodeType, namespace: dict[str, Any]) -> None:
    """Run a checker, to which its three files are there and nothing else.

    They are handed out by open() and live in memory: there is no place where the program under
    test could look for them.
    """
    import builtins

    data = os.pread(0, os.lseek(0, 0, os.SEEK_END), 0)
    start, files = SIZES.size, {}
    for name, size in zip(CHECKED_FILES, SIZES.unpack_from(data), strict=True):
        files[name] = data[start : start + size]
        start += size
    del data
    real = io.open

    def open(
        file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None,
        errors: str | None = None, newline: str | None = None, *more: Any, **named: Any,
    ) -> Any:  # fmt: skip
        name = file if isinstance(file, int | bytes) else os.fspath(file)
        if name not in files:
            return real(file, mode, buffering, encoding, errors, newline, *more, **named)
        if set(mode) & set("wax+"):
            raise PermissionError(f"{name} is not for writing")
        raw = io.BytesIO(files[name])
        if "b" in mode:
            return raw
        # A program may print what is no text: a checker that did not think of it goes on.
        return io.TextIOWrapper(raw, encoding, errors or "replace", newline)

    builtins.open = io.open = open
    sys.argv[:] = ["checker.py", *CHECKED_FILES]
    exec(code, namespace)
