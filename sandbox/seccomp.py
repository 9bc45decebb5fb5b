"""The system call filter: the table of what a program may call, and the code that checks it.

It is built here in plain Python and installed raw. libseccomp (through pyseccomp) would need a
system library, builds a filter with each load (about 1 ms, as much as a whole case) and walks its
rules one by one; this one is a binary search, built once a worker.
"""

from __future__ import annotations

import struct

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, audit code
PR_SET_PDEATHSIG = 1
LD, AND, JEQ, JGE, JSET, RET = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06  # classic BPF operations
ALLOW, KILL = 0x7FFF0000, 0x80000000
SUCCEED, EPERM, ENOTTY, ENOSYS = (0x50000 | e for e in (0, 1, 25, 38))
CLONE_THREAD, THREAD_FLAGS = 0x10000, 0x7D0F00  # what glibc and musl start threads with
FORK_FLAGS = (0x1200011, 0x11)  # what they fork with
AF_UNIX, SOCK_STREAM = 1, 1
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
    "recvfrom": (45, 207),
    "shutdown": (48, 210),
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
    "sendto": (44, 206),
    "socketpair": (53, 199),
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


def _only(argument: int, value: int) -> list[bytes]:
    """Refuse the call unless the low half of an argument is `value`."""
    return [_load(argument), _jump(JEQ, value, 1, 0), _op(RET, EPERM)]


def _succeed(argument: int, value: int) -> list[bytes]:
    """Do nothing, and say that it worked, when an argument is `value`."""
    return [_load(argument), _jump(JEQ, value, 0, 1), _op(RET, SUCCEED)]


def _checks() -> dict[str, list[bytes]]:
    """The filter's code for each call in CHECKED."""
    own_clocks = [_load(0), _jump(JGE, 16, 0, 1), _op(RET, EPERM), _op(RET, ALLOW)]
    return {
        # Ask for a terminal, bytes to read or close-on-exec; nothing here is a terminal. Whether
        # a descriptor blocks: files always do, so that of the first three nothing is changed.
        "ioctl": _one_of(1, (0x5401, 0x5413, 0x541B, FIONBIO, 0x5450, 0x5451), ENOTTY),
        # Sockets that lead nowhere but into this process, as event loops wake themselves with: a
        # pair of Unix stream sockets. They cannot be bound, connected or sent to an address, and
        # no descriptor can be sent through them.
        "socketpair": [
            *_only(0, AF_UNIX),
            _load(1),
            _op(AND, 0xF),
            _jump(JEQ, SOCK_STREAM, 1, 0),
            _op(RET, EPERM),
            _op(RET, ALLOW),
        ],
        "sendto": [
            *_only(4, 0),
            _load(4, 1),
            _jump(JEQ, 0, 1, 0),
            _op(RET, EPERM),
            _op(RET, ALLOW),
        ],
        "clone": [  # threads, with no flag that starting one does not need, and the fork of a case
            _load(0),
            _jump(JSET, ~THREAD_FLAGS & 0xFFFFFFFF, 2, 0),
            _jump(JSET, CLONE_THREAD, 0, 1),
            _op(RET, ALLOW),
            *_one_of(0, FORK_FLAGS, EPERM),
        ],
        # Duplicate and look. The flags of descriptors 0 to 2 are shared with later cases, so
        # setting them (F_SETFL) is a success that does nothing.
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


def program_filter(machine: str) -> list[bytes]:
    """Refuse foreign system call tables, then search for the number."""
    column, audit = ARCHITECTURES[machine]
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


def case_filter(machine: str) -> list[bytes]:
    """Refuse what the filter above left to the program process."""
    column, _ = ARCHITECTURES[machine]
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
