"""The program a judge's worker process runs: one program after another, one fork a case.

Theory of operation. Three kinds of process, each the parent of the next:

    worker    a warm interpreter (main() below) that has imported what contest programs import and
              taken the limits. It reads no program. One a judge thread, for many programs.
    program   a fork of the worker. It compiles the program once, forks a case whenever it is told
              to and says how it ended.
    case      a fork of the program process. It runs the code as `__main__`.

The judge (channel.py) owns three unnamed in-memory files that are the worker's stdin, stdout and
stderr. It writes a case's input into the first and reads what was printed from the others, so
nothing is pumped through pipes, output is limited by a file size limit, and a case costs one
message each way. Expected outputs never leave the judge: no process here has ever seen one.

What holds a case, from the kernel, with no root, no container and no helper program:

    no_new_privs, no capabilities; no descriptor but 0, 1, 2; no environment
    rlimits    memory, file size (= output), open files, CPU time, no core file
    Landlock   reads the interpreter's own library, nothing else: no other file, no TCP port, no
               signal to a process outside, no ptrace
    seccomp    a list of the system calls that computing and printing need. All else is refused:
               sockets, processes (threads are fine), signals, and whatever a kernel adds later.
    namespaces where the machine allows them: own process ids and /proc, no network device, own
               IPC

What none of them hides: a case can ask stat(2) whether a path exists and how large the file is,
read the clock, and measure how loaded the machine is.

The program process takes Landlock and most of the filter before it reads the program, for all of
its cases; each case adds the rest. The worker, outside of both, watches what runs and kills it at
its limits.

Nothing that a program does is trusted: the way it ended is what the kernel says (wait status and
CPU time), and its output is only ever compared with the expected one, by the judge.
"""

from __future__ import annotations

import _sitebuiltins
import _thread
import atexit
import builtins
import contextlib
import ctypes
import gc
import io
import math
import mmap
import os
import re
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import CodeType, ModuleType
from typing import Any, NoReturn

from sandbox import drivers
from sandbox.cage import (
    DIE_WITH_PARENT,
    LINUX,
    NO_CALL,
    OPEN_FILES,
    TICK_SECONDS,
    Cage,
    die_with_parent,
    isolate,
    libc,
    limit,
    set_limit,
)

# A reply to the judge: kind, wait status, CPU seconds, why it was stopped. The kinds:
#   R ready (status 1: in namespaces) | P compiled | S did not compile | C a case ended
#   E the program process ended | X a process could not be locked in
REPLY = struct.Struct("=cidB")
TIMES = struct.Struct("=dd")  # behind the command for a program: CPU and wall seconds a case
CPU, WALL, THREADS = 1, 2, 3  # why; 0: it ended by itself
FILENAME = "program.py"  # what tracebacks call the program
BUSY_SHARE = 0.5  # a case that wants to run for less than this share of its time is asleep
STARVED_WALLS = 10  # wall limits that a starved but busy case may take
MAX_THREADS = 256

# What a case costs is mostly its fork, and that grows with what the worker has imported: pages to
# copy and shared libraries to map. So it imports little more than it needs itself.
PRELOAD = ("collections", "functools", "itertools", "math", "operator", "re", "string", "typing")
OUR_FRAMES = 6  # below the frame of a program's first line
COMPILING_FRAMES = 1  # one is not there yet when it is compiled
# What a program imports is imported in its program process, so that its cases need not. Some of it
# loads shared libraries from outside of Python's own folders, which no case may read.
_IMPORTED = re.compile(
    rb"""\bfrom[ \t]+([\w.]+)[ \t]+import\b[ \t]*(\([^)]*\)|(?:\\\r?\n|[^\r\n;#\\])*)"""
    rb"""|\bimport[ \t]+((?:\\\r?\n|[\w., \t])+)|\b(?:__import__|import_module)\(\s*['"]([\w.]+)"""
)
# Modules that do more than to define something when they are imported.
NOT_PRELOADED = {"__main__", "antigravity", "idlelib", "site", "test", "this", "turtledemo"}
# What these import only when they are used, where that loads such a library.
LATER = {
    b"codecs": ("zlib", "bz2", "binascii"),
    b"dbm": ("dbm.gnu", "dbm.ndbm"),
    b"shelve": ("dbm.gnu", "dbm.ndbm"),
    b"tarfile": ("gzip", "bz2", "lzma"),
}


def main() -> None:
    """Serve programs until the judge closes its end of the socket."""
    sock = int(sys.argv[1])
    cpu_seconds, wall_seconds = float(sys.argv[2]), float(sys.argv[3])
    memory, output = int(sys.argv[4]), int(sys.argv[5])
    layers = sys.argv[6].split()
    for name, most in (("RLIMIT_AS", memory), ("RLIMIT_FSIZE", output + 1)):
        hard = resource.getrlimit(getattr(resource, name))[1]
        if hard != resource.RLIM_INFINITY and hard < most:  # a verdict would mean less than it says
            sys.exit(f"the hard limit {name} is {hard} here, a case may take {most} (see ulimit)")
    sys.path.pop()  # our folder: a program must not find us
    for name in [name for name in sys.modules if name.partition(".")[0] == "sandbox"]:
        del sys.modules[name]
    isolated = bool(layers) and isolate()
    preload(PRELOAD)
    for name in ("exit", "quit"):  # the site module, which is not loaded, would define them
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    sys.set_int_max_str_digits(0)  # contests print long integers
    os.environ.clear()
    sys.argv[:] = [FILENAME]
    hide_frames(OUR_FRAMES)
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedWriter(Errors(2, "w", closefd=False)),
        errors="backslashreplace",
        line_buffering=True,
    )
    sys.stderr.mode = "w"  # type: ignore[misc]  # as an interpreter's own has
    cage = Cage(layers) if layers else None
    worker = _Worker(sock, cpu_seconds, wall_seconds, cage)
    warm_up()
    share_code()
    gc.collect()
    gc.freeze()
    if hasattr(libc, "malloc_trim"):  # glibc: give back what it took to build all this
        libc.malloc_trim(0)
    limit(memory, output)
    worker.reply(b"R", int(isolated))
    worker.serve()
    os._exit(0)


def preload(names: Iterable[str], parts: Sequence[str] = ()) -> None:
    """Import modules, with `parts` of them, but without what they want done after each fork.

    threading would visit its locks, which nobody holds here, and random would seed itself anew:
    that would double the cost of a fork, and no program would run twice with the same numbers.
    """
    register, os.register_at_fork = os.register_at_fork, lambda **_: None
    try:
        for name in names:
            with contextlib.suppress(Exception):  # not on this system, or not in this interpreter
                __import__(name, fromlist=parts)
    finally:
        os.register_at_fork = register
    if "random" in sys.modules:
        sys.modules["random"].seed(0)


def imports(source: bytes) -> Iterator[tuple[str, list[str]]]:
    """Modules of the standard library that a program imports, with what it takes from each."""
    for package, taken, *modules in dict.fromkeys(_IMPORTED.findall(source)):
        parts = set(re.findall(r"\w+", taken.decode(errors="replace"))) - NOT_PRELOADED
        for words in map(
            str.split, b",".join((package, *modules)).replace(b"\\", b" ").decode().split(",")
        ):
            names = words[0].split(".") if words else [""]  # of `a.b as c` the first word
            if names[0] in sys.stdlib_module_names and NOT_PRELOADED.isdisjoint(names):
                yield words[0], sorted(parts)


def preload_named(source: bytes) -> None:
    """Import what a program imports, and what that will import when it is used."""
    for name, parts in imports(source):
        preload((name,), parts)
    for word, names in LATER.items():
        if word in source:
            preload(names)
    if b"multiprocessing" in source:
        locks_of_threads()


def locks_of_threads() -> None:
    """Give multiprocessing locks for threads: its own need files, and no case has processes."""
    import multiprocessing.context
    import threading

    for name in ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"):
        make = getattr(threading, name)
        lock = lambda _, *arguments, make=make: make(*arguments)  # noqa: E731
        setattr(multiprocessing.context.BaseContext, name, lock)
        bound = getattr(multiprocessing.context._default_context, name)
        setattr(sys.modules["multiprocessing"], name, bound)


def hide_frames(
    ours: int,
    set_real: Callable[[int], None] = sys.setrecursionlimit,
    get_real: Callable[[], int] = sys.getrecursionlimit,
) -> None:
    """Have a program's recursion limit count its own frames only, as in a plain interpreter."""
    sys.setrecursionlimit = lambda limit: set_real(
        limit + ours if isinstance(limit, int) and 0 < limit < 1 << 30 else limit
    )
    sys.getrecursionlimit = lambda: get_real() - ours
    sys.setrecursionlimit(1000)


class Errors(io.FileIO):
    """stderr, which decides nothing: what no longer fits into it is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def warm_up() -> None:
    """Run a small program as a case would, so that what an interpreter caches is there for all.

    Each page that a case writes to is copied for it, which takes a microsecond or two. The first
    lookup of a method and the first calls of a function write to many.
    """
    code = compile("a, b = map(int, input().split())\nprint(a + b)\n", FILENAME, "exec")
    streams = sys.stdin, sys.stdout, sys.__stdout__
    os.pwrite(0, b"1 2\n", 0)
    for _ in range(20):  # the interpreter adapts a function to its use after 8 calls
        os.lseek(0, 0, os.SEEK_SET)
        with open(0, closefd=False) as sys.stdin, open(1, "w", closefd=False) as sys.stdout:
            sys.__stdout__ = sys.stdout  # type: ignore[misc]
            _run(code, {"__builtins__": builtins})
            _finish(0)
    sys.stdin, sys.stdout, sys.__stdout__ = streams  # type: ignore[misc]


def share_code() -> None:
    """Have forks take over the page tables of the interpreter's machine code.

    Linux copies them only where a mapping was written to; else each page that a case runs is found
    anew, forty times a case. So write a byte that is there already to the large mappings.
    """
    with contextlib.suppress(OSError):  # no /proc, or a kernel that forbids it: slower
        with open("/proc/self/maps") as file:
            mappings = [line.split() for line in file]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            for place, rights, *_ in mappings:
                start, end = (int(address, 16) for address in place.split("-"))
                if rights == "r-xp" and end - start >= 1 << 20:
                    memory.seek(start)
                    byte = memory.read(1)
                    memory.seek(start)
                    memory.write(byte)


def wanted_seconds(pid: int, cpu: float) -> float:
    """How long the threads of a process ran or waited for a core, summed; `cpu` if unknown."""
    try:
        seconds = 0.0
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                ran, waited, _ = map(int, file.read().split())
            seconds += (ran + waited) / 1e9
    except (OSError, ValueError):  # a kernel without these counts
        return cpu
    return max(seconds, cpu)


class _Worker:
    """The worker process, and in its forks the program process and the case.

    Attributes:
        running: memory that the worker shares with its program process: the id of the process to
            watch, 0 for none, and why it was killed.
        main: the module that cases run in.
        namespace: what the code of a case is run in: that of main, or a driver's.
    """

    def __init__(
        self,
        sock: int,
        cpu_seconds: float,
        wall_seconds: float,
        cage: Cage | None,
    ) -> None:
        self.sock, self.cage = sock, cage
        self.cpu_seconds, self.wall_seconds = cpu_seconds, wall_seconds
        self.shared = mmap.mmap(-1, mmap.PAGESIZE)
        self.running = memoryview(self.shared).cast("q")
        self.main = sys.modules["__main__"] = ModuleType("__main__")
        self.namespace: dict[str, Any] = self.main.__dict__
        self.namespace.update(__file__=FILENAME, __builtins__=builtins)

    def reply(self, kind: bytes, status: int, seconds: float = 0.0) -> None:
        os.write(self.sock, REPLY.pack(kind, status, seconds, self.running[1]))

    def serve(self) -> None:
        """The worker: fork a program process on demand, watch it and say how it ended."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))  # for watch()
        while message := os.read(self.sock, 1 + TIMES.size):
            command = message[:1]
            self.cpu_seconds, self.wall_seconds = TIMES.unpack(message[1:])
            self.running[0] = self.running[1] = 0
            pid = os.fork()
            if pid == 0:
                self.program(command)
            self.reply(b"E", *self.watch(pid))

    def watch(self, program: int) -> tuple[int, float]:
        """Until the program process ends, look now and then at what runs and stop it at its limits.

        Return its wait status and CPU seconds.

        It is done here so that a case that ends in time costs the program process one fork, one
        wait and one message.
        """
        judge, seen, start = os.getppid(), 0, 0.0  # 0 in a namespace: there isolate() looks
        while True:
            if LINUX:
                signal.sigtimedwait((signal.SIGCHLD,), TICK_SECONDS)
            else:
                time.sleep(0.01)
            pid, status, usage = os.wait4(program, os.WNOHANG)
            if pid:
                return status, usage.ru_utime + usage.ru_stime
            if os.getppid() != judge:  # which has died
                os.killpg(0, signal.SIGKILL)
            if self.running[0] != seen:
                seen, start = self.running[0], time.monotonic()
            elif seen:
                with contextlib.suppress(OSError):  # it ended just now
                    self.stop_if_over(seen, time.monotonic() - start)

    def stop_if_over(self, pid: int, wall: float) -> None:
        """Kill a process that is over its limits, and note which.

        Time is CPU time. The wall limit is for programs that sleep: one that is busy but gets
        little of a loaded machine may take several of them.
        """
        cpu = time.clock_gettime(~pid << 3 | 2) if LINUX else 0.0  # the clock of that process
        most = self.wall_seconds
        if wall > most and wanted_seconds(pid, cpu) > wall * BUSY_SHARE:
            most *= STARVED_WALLS
        if cpu > self.cpu_seconds:
            why = CPU
        elif wall > most:
            why = WALL
        elif LINUX and len(os.listdir(f"/proc/{pid}/task")) > MAX_THREADS:
            why = THREADS
        else:
            return
        if self.running[0] == pid:
            self.running[1] = why
            os.kill(pid, signal.SIGKILL)

    def program(self, command: bytes) -> NoReturn:
        """The program process: compile what stands in stdin's file, then run cases of it.

        The command is one of drivers.py. Of a function, its name stands behind the program and a
        null byte.
        """
        die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
        if LINUX:
            self.shared.madvise(mmap.MADV_DONTFORK)  # a case must not see it
        self.running[0] = os.getpid()  # a program can be written to be endless to compile
        try:
            source = os.pread(0, os.lseek(0, 0, os.SEEK_END), 0)
            function = b""
            if command == drivers.FUNCTION:
                source, _, function = source.rpartition(b"\0")
                preload(("json", *drivers.GIVEN, *drivers.GIVEN_NAMES))
                drivers.give_names(self.namespace)
            with contextlib.suppress(Exception):  # a source too long for it: the case will say so
                preload_named(source)
            # A net under watch(), which is finer. Each process counts from zero.
            set_limit(resource.RLIMIT_CPU, math.ceil(self.cpu_seconds) + 1)
            if self.cage:
                self.cage.enter()
        except BaseException as error:
            _print_error(error)
            self.reply(b"X", 0)
            os._exit(1)
        try:
            sys.setrecursionlimit(1000 - COMPILING_FRAMES)  # which bounds the compiler, too
            code = compile(source, FILENAME, "exec", dont_inherit=True)
            sys.setrecursionlimit(1000)
        except BaseException as error:
            _print_error(error)
            self.reply(b"S", 0)
            os._exit(0)
        # What a function or a checker says, it has said before it ends.
        thorough = command == drivers.PLAIN and may_print_at_its_end(source)
        if LINUX:  # what a case has no memory behind must not be freed when it ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.shared))
        del source
        if command == drivers.FUNCTION:
            run = partial(drivers.call, code, self.namespace, function.decode())
            code, self.namespace = drivers.driver(run)
            hide_frames(OUR_FRAMES + drivers.FUNCTION_FRAMES)
        elif command == drivers.CHECKER:
            code, self.namespace = drivers.driver(partial(drivers.check, code, self.namespace))
            hide_frames(OUR_FRAMES + drivers.CHECKER_FRAMES)
        gc.freeze()
        self.running[0] = 0
        self.reply(b"P", 0)
        self.cases(code, thorough)
        os._exit(0)

    def cases(self, code: CodeType, thorough: bool) -> None:
        """The program process: fork a case whenever it is told to, and say how it ended.

        A case locks up, runs the code and exits as an interpreter would. What it needs for that is
        bound here, since to look up a name is to write to pages that are then copied.
        """
        sock, running, namespace = self.sock, self.running, self.namespace
        # A program may replace all that it can reach; these it cannot.
        fork, leave, closerange, wait = os.fork, os._exit, os.closerange, os.waitpid
        read, write, pack = os.read, os.write, REPLY.pack
        (prctl, tie), (syscall, lock) = DIE_WITH_PARENT, self.cage.lock if self.cage else NO_CALL
        usage, children, spent = resource.getrusage, resource.RUSAGE_CHILDREN, 0.0
        end = max(sock + 1, OPEN_FILES)  # a library may hold a file open: libffi 3.5 does, its own
        while read(sock, 1) == b"C":
            running[1] = 0
            pid = fork()
            if not pid:
                prctl(*tie)
                if syscall(*lock):
                    self.reply(b"X", 0)
                    leave(1)
                closerange(3, end)
                status = _run(code, namespace)
                if thorough or getattr(sys, "stdout", None) is not sys.__dict__.get("__stdout__"):
                    gc.unfreeze()  # what the collector does not see is never finalized
                    raise SystemExit(status)  # through all frames: the interpreter ends as usual
                leave(_finish(status))
            running[0] = pid
            _, status = wait(pid, 0)
            running[0] = 0
            used = usage(children)
            before, spent = spent, used.ru_utime + used.ru_stime
            write(sock, pack(b"C", status, spent - before, running[1]))


# What a program must hold for its end to print more than sys.stdout's buffer: file objects that
# nobody closed, finalizers, generators and coroutines that wait within `try` or `with`, the buffers
# of the C library; and what can hide one of these.
_PRINTS_AT_END = re.compile(
    rb"open|riter|rapper|Buffered|File|__del__|async|await|finalize|weakref|Handler|types|exec|eval"
    rb"|import_module|__import__|__class__|setattr|type\(\s*sys"
)


def may_print_at_its_end(source: bytes) -> bool:
    """Whether only the interpreter's own finalization will do, which costs as much as a fork.

    Wrong only in that direction: a program that needs none is then merely slower.
    """
    pending = b"yield" in source and (b"try" in source or b"with" in source)
    streams = b"class" in source and b"IO" in source  # an end of a subclass of IOBase closes it
    return pending or streams or _PRINTS_AT_END.search(source) is not None


def _run(code: CodeType, namespace: dict[str, Any]) -> int:
    """Run a program; return the exit status."""
    try:
        exec(code, namespace)
    except SystemExit as stop:
        return _exit_status(stop.code)
    except BaseException as error:
        if sys.excepthook is sys.__excepthook__:
            _print_error(error)
        else:
            sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _finish(status: int) -> int:
    """What an interpreter does at its end that a plain program can see; return the exit status."""
    if _thread._count() and "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except BaseException as error:
        out = getattr(sys, "stdout", None)
        if out is not None and not getattr(out, "closed", False):
            _print_error(error)
            return status or 120
    return status


def _exit_status(code: object) -> int:
    """What sys.exit(code) makes of its argument."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _print_error(error: BaseException) -> None:
    """Write a traceback of the innermost line of the program, without our frames, to stderr.

    The traceback module would take seconds and much memory after a deep recursion.
    """
    try:
        where, trace = "", error.__traceback__
        while trace:
            if trace.tb_frame.f_code.co_filename == FILENAME:
                name = trace.tb_frame.f_code.co_name
                where = f'  File "{FILENAME}", line {trace.tb_lineno}, in {name}\n'
            trace = trace.tb_next
        if isinstance(error, SyntaxError):
            where, message = f'  File "{FILENAME}", line {error.lineno}\n', error.msg
        else:
            message = str(error)
        kind = type(error)
        module = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "."
        name = module + kind.__qualname__
        text = f"{name}: {message}" if message else name
        text = f"\nTraceback (most recent call last):\n{where}{text[:10000]}\n"
    except BaseException:  # no memory left to say it, or a __str__ that raises
        text = f"\n{type(error).__name__}\n"
    try:
        os.write(2, text.encode("utf-8", "backslashreplace"))
    except OSError:  # closed by the program, or full
        return
