"""The program a judge's worker process runs: one program after another, one fork a case.

Theory of operation. Three kinds of process, each the parent of the next:

    worker    a warm interpreter (main() below) that has imported what contest programs import and
              taken the limits. It reads no program. One a judge thread, for many programs.
    program   a fork of the worker. It compiles the program once, forks a case whenever it is told
              to and says how it ended.
    case      a fork of the program process. It runs the code as `__main__`.

The judge (judge.py) owns three unnamed in-memory files that are the worker's stdin, stdout and
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

The filter is built here in plain Python and installed raw. libseccomp (through pyseccomp) would
need a system library, builds a filter with each load (about 1 ms, as much as the whole case) and
walks its rules one by one; ours is a binary search, built once. The Landlock packages on PyPI do
three system calls through ctypes, as this file does, and know fewer versions of the interface.

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
import math
import mmap
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable
from types import CodeType, ModuleType
from typing import Any, NoReturn

# A reply to the judge: kind, wait status, CPU seconds, why it was stopped. The kinds:
#   R ready (status 1: in namespaces) | P compiled | S did not compile | C a case ended
#   E the program process ended | X a process could not be locked in
REPLY = struct.Struct("=cidB")
CPU, WALL, THREADS = 1, 2, 3  # why; 0: it ended by itself
FILENAME = "program.py"  # what tracebacks call the program
TICK_SECONDS = 0.1  # how often a running case is looked at
BUSY_SHARE = 0.5  # a case that wants to run for less than this share of its time is asleep
STARVED_WALLS = 10  # wall limits that a starved but busy case may take
OPEN_FILES = 64
STACK_BYTES = 256 << 20  # soft limit of the main thread's stack: contests give what memory allows
MAX_THREADS = 256

# What a case costs is mostly its fork, and that grows with what the worker has imported: pages to
# copy and shared libraries to map. So it imports little more than it needs itself.
PRELOAD = ("collections", "functools", "itertools", "math", "operator", "re", "string", "typing")
# Imported in the program process when the program names them, so that its cases need not. Some
# load shared libraries from outside of Python's own folders, which no case may read.
PRELOAD_IF_NAMED = (
    b"array ast base64 binascii bisect bz2 calendar cmath copy csv ctypes dataclasses datetime "
    b"decimal fractions hashlib heapq inspect json lzma numbers pickle pprint queue random secrets "
    b"statistics struct textwrap threading timeit traceback unicodedata uuid zlib"
).split()


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
    del sys.modules[__name__]
    isolated = bool(layers) and _isolate()
    preload(PRELOAD)
    for name in ("exit", "quit"):  # the site module, which is not loaded, would define them
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    sys.set_int_max_str_digits(0)  # contests print long integers
    os.environ.clear()
    sys.argv[:] = [FILENAME]
    sys.setrecursionlimit(1000 + 5)  # the frames that are ours
    cage = Cage(layers) if layers else None
    worker = _Worker(sock, cpu_seconds, wall_seconds, cage)
    warm_up()
    share_code()
    gc.collect()
    gc.freeze()
    if hasattr(_libc, "malloc_trim"):  # glibc: give back what it took to build all this
        _libc.malloc_trim(0)
    limit(memory, output)
    worker.reply(b"R", int(isolated))
    worker.serve()
    os._exit(0)


def preload(names: Iterable[str]) -> None:
    """Import modules without what they want done after each fork.

    threading would visit its locks, which nobody holds here, and random would seed itself anew:
    that would double the cost of a fork, and no program would run twice with the same numbers.
    """
    register, os.register_at_fork = os.register_at_fork, lambda **_: None
    try:
        for name in names:
            with contextlib.suppress(ImportError):  # an interpreter built without that library
                __import__(name)
    finally:
        os.register_at_fork = register
    if "random" in sys.modules:
        sys.modules["random"].seed(0)


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
            _run(code, {"__builtins__": builtins}, thorough=False)
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


def limit(memory: int, output: int) -> None:
    """Take the limits, in bytes, that a case inherits."""
    for kind, most in (
        (resource.RLIMIT_CORE, 1),  # 0 would still feed a core_pattern that is a pipe
        (resource.RLIMIT_FSIZE, output + 1),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_AS, memory),
    ):
        set_limit(kind, most)
    set_limit(resource.RLIMIT_STACK, STACK_BYTES, for_good=False)


def set_limit(kind: int, most: int, for_good: bool = True) -> None:
    """Set a limit, to no more than is allowed; unless `for_good`, it can be raised again."""
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(kind, (most, most if for_good else hard))
    except ValueError:
        if _LINUX:  # macOS refuses some: https://github.com/python/cpython/issues/78783
            raise


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
        self.main.__dict__.update(__file__=FILENAME, __builtins__=builtins)

    def reply(self, kind: bytes, status: int, seconds: float = 0.0) -> None:
        os.write(self.sock, REPLY.pack(kind, status, seconds, self.running[1]))

    def serve(self) -> None:
        """The worker: fork a program process on demand, watch it and say how it ended."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))  # for watch()
        while os.read(self.sock, 1):
            self.running[0] = self.running[1] = 0
            pid = os.fork()
            if pid == 0:
                self.program()
            self.reply(b"E", *self.watch(pid))

    def watch(self, program: int) -> tuple[int, float]:
        """Until the program process ends, look now and then at what runs and stop it at its limits.

        Return its wait status and CPU seconds.

        It is done here so that a case that ends in time costs the program process one fork, one
        wait and one message.
        """
        judge, seen, start = os.getppid(), 0, 0.0  # 0 in a namespace: there _isolate() looks
        while True:
            if _LINUX:
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
        cpu = time.clock_gettime(~pid << 3 | 2) if _LINUX else 0.0  # the clock of that process
        most = self.wall_seconds
        if wall > most and wanted_seconds(pid, cpu) > wall * BUSY_SHARE:
            most *= STARVED_WALLS
        if cpu > self.cpu_seconds:
            why = CPU
        elif wall > most:
            why = WALL
        elif _LINUX and len(os.listdir(f"/proc/{pid}/task")) > MAX_THREADS:
            why = THREADS
        else:
            return
        if self.running[0] == pid:
            self.running[1] = why
            os.kill(pid, signal.SIGKILL)

    def program(self) -> NoReturn:
        """The program process: compile what stands in stdin's file, then run cases of it."""
        _die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
        if _LINUX:
            self.shared.madvise(mmap.MADV_DONTFORK)  # a case must not see it
        self.running[0] = os.getpid()  # a program can be written to be endless to compile
        try:
            source = os.pread(0, os.lseek(0, 0, os.SEEK_END), 0)
            if named := [name.decode() for name in PRELOAD_IF_NAMED if name in source]:
                preload(named)
            # A net under watch(), which is finer. Each process counts from zero.
            set_limit(resource.RLIMIT_CPU, math.ceil(self.cpu_seconds) + 1)
            if self.cage:
                self.cage.enter()
        except BaseException as error:
            _print_error(error)
            self.reply(b"X", 0)
            os._exit(1)
        try:
            code = compile(source, FILENAME, "exec", dont_inherit=True)
        except BaseException as error:
            _print_error(error)
            self.reply(b"S", 0)
            os._exit(0)
        # Whether ending the interpreter may print: files that were not closed, __del__.
        thorough = any(word in source for word in (b"open", b"Writer", b"Wrapper", b"__del__"))
        del source
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
        sock, running, namespace = self.sock, self.running, self.main.__dict__
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
                leave(_run(code, namespace, thorough))
            running[0] = pid
            _, status = wait(pid, 0)
            running[0] = 0
            used = usage(children)
            before, spent = spent, used.ru_utime + used.ru_stime
            write(sock, pack(b"C", status, spent - before, running[1]))


def _run(code: CodeType, namespace: dict[str, Any], thorough: bool) -> int:
    """Run a program, then what an interpreter does at its end; return the exit status."""
    try:
        exec(code, namespace)
        status = 0
    except SystemExit as stop:
        status = _exit_status(stop.code)
    except BaseException as error:
        status = 1
        if sys.excepthook is sys.__excepthook__:
            _print_error(error)
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    if _thread._count():
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except BaseException as error:
        if sys.stdout is not None and not getattr(sys.stdout, "closed", False):
            _print_error(error)
            status = status or 120
    if thorough or sys.stdout is not sys.__stdout__:
        namespace.clear()
        gc.collect()
        with contextlib.suppress(BaseException):
            sys.__stdout__.flush()  # type: ignore[union-attr]
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


# --- the kernel -----------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_plain_libc = ctypes.PyDLL(None)  # keeps no errno and the interpreter's lock: half the cost
_LINUX = sys.platform == "linux"
_SYSCALLS = {  # name: (x86_64, aarch64)
    "capset": (126, 91),
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, audit code
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
NAMESPACES = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000
# ... of users, mounts, process ids, network, IPC
MS_PRIVATE, MS_NO_EXTRAS = 0x44000, 0xE  # with all below; no set-user-id, devices or programs
NOT_ISOLATED = 99  # exit status


def _syscall(name: str, *arguments: Any) -> int:
    """Make a system call that libc has no function for; OSError when it fails."""
    number = _SYSCALLS[name][_ARCHITECTURES[os.uname().machine][0]]
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


# Calls that are made in each case, with their arguments; not 0 when they fail.
NO_CALL: tuple[Callable[..., int], tuple[Any, ...]] = (int, ())
DIE_WITH_PARENT = NO_CALL
if _LINUX:
    DIE_WITH_PARENT = (_plain_libc.prctl, (PR_SET_PDEATHSIG, int(signal.SIGKILL)))


def _die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    call, arguments = DIE_WITH_PARENT
    call(*arguments)


def landlock_abi() -> int:
    """The version of Landlock that this kernel has, 0 for none."""
    try:
        return _syscall("landlock_create_ruleset", None, 0, 1)
    except (OSError, KeyError):
        return 0


def _isolate() -> bool:
    """Go on in a process with namespaces of its own, or in this one when that is not allowed.

    With its own process ids and its own /proc a case sees no other process, also none to ask
    stat(2) about, and the network has no device. The processes that were left behind wait for
    the new one, and end with it or with the judge.
    """
    pid = os.fork()
    if pid:
        if _wait_until_end(pid):
            os._exit(0)
        return False
    _die_with_parent()
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(NAMESPACES) == 0:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with contextlib.suppress(OSError), open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        pid = os.fork()
        if pid == 0:
            _die_with_parent()
            alone = _libc.mount(None, b"/", None, MS_PRIVATE, None) == 0
            if alone and _libc.mount(b"proc", b"/proc", b"proc", MS_NO_EXTRAS, None) == 0:
                return True
            os._exit(NOT_ISOLATED)
        if _wait_until_end(pid):
            os._exit(0)
    os._exit(NOT_ISOLATED)


def _wait_until_end(pid: int) -> bool:
    """Wait for a process that may have isolated itself, and say whether it had."""
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    while os.getppid() == parent:
        signal.sigtimedwait((signal.SIGCHLD,), TICK_SECONDS)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
            return status != NOT_ISOLATED << 8
    os.killpg(0, signal.SIGKILL)
    return True


def seccomp_works() -> bool:
    """Whether this kernel and architecture have the filters that are written here."""
    try:
        return _syscall("seccomp", 2, 0, struct.pack("=I", EPERM & 0x7FFF0000)) == 0
    except (OSError, KeyError):
        return False


class Cage:
    """What the program process and its cases lock themselves in with, prepared in the worker.

    Landlock and a filter of all system calls are taken by the program process, once, since they
    cost as much as a third of a case; a case adds a short filter of what was left for forking it.

    Attributes:
        lock: the call that takes the rest from a case: forking, waiting, its tie to its parent.
    """

    lock = NO_CALL

    def __init__(self, layers: list[str]) -> None:
        _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _syscall("capset", struct.pack("=Ii", 0x20080522, 0), bytes(24))
        self.layers = layers
        if "Landlock" in layers:
            self.ruleset = _landlock_ruleset(_library_paths())
        if "seccomp" in layers:
            self.prepare_filters()

    def prepare_filters(self) -> None:
        machine = os.uname().machine
        self.code, self.filters = [], []
        for instructions in (_program_filter(machine), _case_filter(machine)):
            code = ctypes.create_string_buffer(b"".join(instructions))
            self.code.append(code)
            pointer = ctypes.addressof(code)
            self.filters.append(struct.pack("HxxxxxxP", len(instructions), pointer))
        seccomp = _SYSCALLS["seccomp"][_ARCHITECTURES[machine][0]]
        self.lock = (_plain_libc.syscall, (seccomp, 1, 4, self.filters[1]))

    def enter(self) -> None:
        """Lock the program process in: from here on it reads the library and forks cases."""
        if "Landlock" in self.layers:
            _syscall("landlock_restrict_self", self.ruleset, 0)
            os.close(self.ruleset)
        if "seccomp" in self.layers:
            _syscall("seccomp", 1, 4, self.filters[0])


def _library_paths() -> list[str]:
    """The interpreter's own library: standard modules without the installed packages."""
    folders = [path for path in sys.path if os.path.isdir(path)]
    entries = [os.path.join(folder, name) for folder in folders for name in os.listdir(folder)]
    skip = ("site-packages", "dist-packages")
    paths = [path for path in entries if os.path.basename(path) not in skip]
    return paths + [path for path in sys.path if os.path.isfile(path)]


def _landlock_ruleset(paths: list[str]) -> int:
    """A descriptor of the rules: read `paths`, and nothing else that Landlock knows of."""
    abi = landlock_abi()
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1  # all rights of that version
    ports = 3 if abi >= 4 else 0
    scopes = 3 if abi >= 6 else 0
    rules = struct.pack("=QQQ", files, ports, scopes)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _syscall("landlock_create_ruleset", rules, size, 0)
    for path in paths:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = 4 | 8 if os.path.isdir(path) else 4  # read files, list directories
        _syscall("landlock_add_rule", ruleset, 1, struct.pack("=Qi", rights, handle), 0)
        os.close(handle)
    return ruleset


# --- the seccomp filter ---------------------------------------------------------------------

LD, JEQ, JGE, JSET, RET = 0x20, 0x15, 0x35, 0x45, 0x06  # classic BPF operations
ALLOW, KILL = 0x7FFF0000, 0x80000000
SUCCEED, EPERM, ENOTTY, ENOSYS = (0x50000 | e for e in (0, 1, 25, 38))
CLONE_THREAD, THREAD_FLAGS = 0x10000, 0x7D0F00  # what glibc and musl start threads with
FORK_FLAGS = (0x1200011, 0x11)  # what they fork with
F_SETFL, FIONBIO = 4, 0x5421  # fcntl, ioctl: flags of a descriptor, among them non-blocking
NAMES = (15, 16, 0x53564D41)  # prctl: names of threads and of memory
NEWEST = 470  # system calls above are unknown here: libraries must find them missing

# System calls that only compute, print, read what may be read, or look at this process.
# name: (x86_64, aarch64), None where the architecture has no such call
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "open": (2, None),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "pipe": (22, None),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "msync": (26, 227),
    "mincore": (27, 232),
    "madvise": (28, 233),
    "dup": (32, 23),
    "dup2": (33, None),
    "pause": (34, None),
    "nanosleep": (35, 101),
    "getitimer": (36, 102),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "sendfile": (40, 71),
    "exit": (60, 93),
    "uname": (63, 160),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "ftruncate": (77, 46),
    "getdents": (78, None),
    "getcwd": (79, 17),
    "readlink": (89, None),
    "gettimeofday": (96, 169),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    "arch_prctl": (158, None),
    "gettid": (186, 178),
    "time": (201, None),
    "futex": (202, 98),
    "epoll_create": (213, None),
    "getdents64": (217, 61),
    "set_tid_address": (218, 96),
    "exit_group": (231, 94),
    "epoll_wait": (232, None),
    "epoll_ctl": (233, 21),
    "openat": (257, 56),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "epoll_pwait": (281, 22),
    "eventfd2": (290, 19),
    "epoll_create1": (291, 20),
    "dup3": (292, 24),
    "pipe2": (293, 59),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "statx": (332, 291),
    "rseq": (334, 293),
    "close_range": (436, 436),
    "faccessat2": (439, 439),
}
# What the program process needs to fork its cases and lock them in, and no case has.
FORKING: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None),
    "wait4": (61, 260),
    "seccomp": (317, 277),
}
CHECKED = {  # calls that are allowed for some arguments, see _checks
    "ioctl": (16, 29),
    "clone": (56, 220),
    "fcntl": (72, 25),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "sched_getaffinity": (204, 123),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "clone3": (435, 435),
}


def _op(code: int, k: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, k)


def _jump(code: int, k: int, if_true: int, if_false: int) -> bytes:
    """A comparison with `k` and how many instructions to skip after it."""
    return struct.pack("=HBBI", code, if_true, if_false, k)


def _load(argument: int, half: int = 0) -> bytes:
    """Load the low (0) or high (1) half of a system call's argument."""
    return _op(LD, 16 + 8 * argument + 4 * half)


def _one_of(argument: int, values: tuple[int, ...], otherwise: int) -> list[bytes]:
    """Allow the call when an argument is one of `values`."""
    last = len(values)
    tests = [_jump(JEQ, value, last - i, 0) for i, value in enumerate(values)]
    return [_load(argument), *tests, _op(RET, otherwise), _op(RET, ALLOW)]


def _succeed(argument: int, value: int) -> list[bytes]:
    """Do nothing, and say that it worked, when an argument is `value`."""
    return [_load(argument), _jump(JEQ, value, 0, 1), _op(RET, SUCCEED)]


def _checks() -> dict[str, list[bytes]]:
    """The filter's code for each call in CHECKED."""
    own_clocks = [_load(0), _jump(JGE, 16, 0, 1), _op(RET, EPERM), _op(RET, ALLOW)]
    return {
        # Ask for a terminal, bytes to read or close-on-exec; nothing here is a terminal.
        "ioctl": [
            *_succeed(1, FIONBIO),
            *_one_of(1, (0x5401, 0x5413, 0x541B, 0x5450, 0x5451), ENOTTY),
        ],
        "clone": [  # threads, with no flag that starting one does not need, and the fork of a case
            _load(0),
            _jump(JSET, ~THREAD_FLAGS & 0xFFFFFFFF, 2, 0),
            _jump(JSET, CLONE_THREAD, 0, 1),
            _op(RET, ALLOW),
            *_one_of(0, FORK_FLAGS, EPERM),
        ],
        # Duplicate and look. The flags of descriptors 0 to 2 are shared with later cases, so
        # setting them (F_SETFL, and FIONBIO above) is a success that does nothing.
        "fcntl": [*_succeed(1, F_SETFL), *_one_of(1, (0, 1, 2, 3, 1030), EPERM)],
        "prctl": _one_of(0, (*NAMES, PR_SET_PDEATHSIG), EPERM),
        # Look at its own limits, and set those of data, stack and address space. With a CPU limit
        # of its own a program could end by SIGKILL, which would look as if it came from outside.
        "prlimit64": [
            _load(0),
            _jump(JEQ, 0, 1, 0),
            _op(RET, EPERM),
            _load(2, 0),
            _jump(JEQ, 0, 0, 3),
            _load(2, 1),
            _jump(JEQ, 0, 0, 1),
            _op(RET, ALLOW),
            *_one_of(1, (2, 3, 9), EPERM),
        ],
        "clone3": [_op(RET, ENOSYS)],  # its flags lie in memory; libc then takes clone
        "sched_getaffinity": _one_of(0, (0,), EPERM),
        "clock_gettime": own_clocks,  # negative ones are those of other processes
        "clock_getres": own_clocks,
        "clock_nanosleep": own_clocks,
    }


def _program_filter(machine: str) -> list[bytes]:
    """Refuse foreign system call tables, then search for the number."""
    column, audit = _ARCHITECTURES[machine]
    actions: dict[int | None, list[bytes]] = {}
    actions |= {numbers[column]: [_op(RET, ALLOW)] for numbers in (ALLOWED | FORKING).values()}
    actions |= {CHECKED[name][column]: code for name, code in _checks().items()}
    ranges: list[tuple[int, list[bytes]]] = []  # first number, what happens from there on
    for number in range(NEWEST + 1):
        action = actions.get(number, [_op(RET, EPERM)])
        if not ranges or ranges[-1][1] != action:
            ranges.append((number, action))
    ranges.append((NEWEST + 1, [_op(RET, ENOSYS)]))
    head = [_op(LD, 4), _jump(JEQ, audit, 1, 0), _op(RET, KILL), _op(LD, 0)]
    return head + _search(ranges)


def _case_filter(machine: str) -> list[bytes]:
    """Refuse what the filter above left to the program process."""
    column, _ = _ARCHITECTURES[machine]
    code = [_op(LD, 0)]
    for number in (numbers[column] for numbers in FORKING.values()):
        if number is not None:
            code += [_jump(JEQ, number, 0, 1), _op(RET, EPERM)]
    threads = [_load(0), _jump(JSET, CLONE_THREAD, 1, 0), _op(RET, EPERM), _op(RET, ALLOW)]
    names = _one_of(0, NAMES, EPERM)
    for name, check in (("clone", threads), ("prctl", names)):
        code += [_jump(JEQ, CHECKED[name][column], 0, len(check)), *check]
    return [*code, _op(RET, ALLOW)]


def _search(ranges: list[tuple[int, list[bytes]]]) -> list[bytes]:
    """A binary search over `ranges` for the loaded number."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    low, high = _search(ranges[:middle]), _search(ranges[middle:])
    return [_jump(JGE, ranges[middle][0], len(low), 0), *low, *high]
