"""What holds a case: resource limits, namespaces, Landlock, and the filter of system calls.

The Landlock packages on PyPI do three system calls through ctypes, as this file does, and know
fewer versions of the interface.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

from sandbox.seccomp import ARCHITECTURES, EPERM, PR_SET_PDEATHSIG, case_filter, program_filter

TICK_SECONDS = 0.1  # how often a process that is waited for is looked at
OPEN_FILES = 64
THREAD_STACK_BYTES = 8 << 20  # of a thread whose program asks for no other, as is usual
STACK_BYTES = 256 << 20  # soft limit of the main thread's stack: contests give what memory allows

libc = ctypes.CDLL(None, use_errno=True)
plain_libc = ctypes.PyDLL(None)  # keeps no errno and the interpreter's lock: half the cost
LINUX = sys.platform == "linux"
_SYSCALLS = {  # name: (x86_64, aarch64)
    "capset": (126, 91),
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}
PR_SET_NO_NEW_PRIVS = 38
NAMESPACES = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000
# ... of users, mounts, process ids, network, IPC
MS_PRIVATE, MS_NO_EXTRAS = 0x44000, 0xE  # with all below; no set-user-id, devices or programs
NOT_ISOLATED = 99  # exit status


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
    if hasattr(libc, "pthread_setattr_default_np"):  # glibc: else as much as `ulimit -s` was
        attributes = ctypes.create_string_buffer(256)  # a pthread_attr_t has 56 or 64 bytes
        libc.pthread_attr_init(attributes)
        libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(THREAD_STACK_BYTES))
        libc.pthread_setattr_default_np(attributes)


def set_limit(kind: int, most: int, for_good: bool = True) -> None:
    """Set a limit, to no more than is allowed; unless `for_good`, it can be raised again."""
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(kind, (most, most if for_good else hard))
    except ValueError:
        if LINUX:  # macOS refuses some: https://github.com/python/cpython/issues/78783
            raise


def _syscall(name: str, *arguments: Any) -> int:
    """Make a system call that libc has no function for; OSError when it fails."""
    number = _SYSCALLS[name][ARCHITECTURES[os.uname().machine][0]]
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


# Calls that are made in each case, with their arguments; not 0 when they fail.
NO_CALL: tuple[Callable[..., int], tuple[Any, ...]] = (int, ())
DIE_WITH_PARENT = NO_CALL
if LINUX:
    DIE_WITH_PARENT = (plain_libc.prctl, (PR_SET_PDEATHSIG, int(signal.SIGKILL)))


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    call, arguments = DIE_WITH_PARENT
    call(*arguments)


def landlock_abi() -> int:
    """The version of Landlock that this kernel has, 0 for none."""
    try:
        return _syscall("landlock_create_ruleset", None, 0, 1)
    except (OSError, KeyError):
        return 0


def isolate() -> bool:
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
    die_with_parent()
    user, group = os.getuid(), os.getgid()
    if libc.unshare(NAMESPACES) == 0:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with contextlib.suppress(OSError), open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        pid = os.fork()
        if pid == 0:
            die_with_parent()
            alone = libc.mount(None, b"/", None, MS_PRIVATE, None) == 0
            if alone and libc.mount(b"proc", b"/proc", b"proc", MS_NO_EXTRAS, None) == 0:
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
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _syscall("capset", struct.pack("=Ii", 0x20080522, 0), bytes(24))
        self.layers = layers
        if "Landlock" in layers:
            self.ruleset = _landlock_ruleset(_library_paths())
        if "seccomp" in layers:
            self.prepare_filters()

    def prepare_filters(self) -> None:
        machine = os.uname().machine
        self.code, self.filters = [], []
        for instructions in (program_filter(machine), case_filter(machine)):
            code = ctypes.create_string_buffer(b"".join(instructions))
            self.code.append(code)
            pointer = ctypes.addressof(code)
            self.filters.append(struct.pack("HxxxxxxP", len(instructions), pointer))
        seccomp = _SYSCALLS["seccomp"][ARCHITECTURES[machine][0]]
        self.lock = (plain_libc.syscall, (seccomp, 1, 4, self.filters[1]))

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
