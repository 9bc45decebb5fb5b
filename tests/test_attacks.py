"""Hostile programs against the judge, each checked from outside.

An attack gets its target on stdin as JSON, so that the programs are plain text. Where it can be
done without harm the same program first runs with the sandbox off, and there it must succeed: an
attack that could not work anyway would prove nothing.

Three kinds of proof: a program that is to learn or to run something prints it, and it is the
expected output of its case, so that success would be "accepted"; a file, listener or process
outside is looked at; or the memory and the processes of the machine are watched meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import platform
import re
import resource
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data import Case, Task
from judge import Judge, Judgement, Limits

if sys.platform != "linux":
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

from sandbox import cage

if cage.landlock_abi() == 0:
    pytest.skip("this kernel has no Landlock", allow_module_level=True)

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=1.0, memory_mb=512, output_mb=4)
PRELUDE = """
import ctypes, json, os, signal, socket, struct, sys, threading, time
T = json.load(sys.stdin)
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*arguments):
    return libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
"""
# With ctypes a program ends with the interpreter's own finalization, with this it need not.
LIGHT_PRELUDE = """
import json, os, signal, socket, struct, sys, threading, time
T = json.load(sys.stdin)
"""


class Arena:
    """Two judges of one worker, sandbox on and off, and an event loop for them."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.judge = Judge(1, LIMITS)
        self.open = Judge(1, replace(LIMITS, wall_seconds=10.0), sandbox=False)
        self.count = 0
        self.bystanders: set[int] = set()  # children of ours that are no leftovers of a program

    def run(
        self,
        program: str,
        *cases: tuple[object, str],
        held: bool = True,
        prelude: bool = True,
        hidden: str = "never",
    ) -> Judgement:
        """Judge a program on cases of (what stdin says as JSON, what must be printed)."""
        self.count += 1
        visible = tuple(Case(json.dumps(given), want) for given, want in cases)
        task = Task(str(self.count), "", "", "", 0, visible, (Case("{}", hidden),))
        judge = self.judge if held else self.open
        source = PRELUDE + program if prelude else program
        judgement = self.loop.run_until_complete(judge.grade(source, task))
        for pid in set() if held else children(os.getpid()) - self.workers():
            if pid in self.bystanders:
                continue
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return judgement

    def workers(self) -> set[int]:
        return {w.process.pid for j in (self.judge, self.open) for w in j._all if w.process}

    def passes(self, program: str, given: object, want: str, held: bool = True) -> bool:
        return self.run(program, (given, want), held=held).visible_passed == 1

    def close(self) -> None:
        self.loop.run_until_complete(self.judge.__aexit__())
        self.loop.run_until_complete(self.open.__aexit__())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    """Meanwhile orphans become our children, so that none escapes the count."""
    subreaper = 36  # PR_SET_CHILD_SUBREAPER
    ctypes.CDLL(None).prctl(subreaper, 1, 0, 0, 0)
    arena = Arena()
    yield arena
    arena.close()
    assert not children(os.getpid())
    ctypes.CDLL(None).prctl(subreaper, 0, 0, 0, 0)


def children(parent: int) -> set[int]:
    """Processes whose parent is `parent`, zombies too."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            if int(fields[1]) == parent:
                found.add(int(entry.name))
    return found


def descendants(parent: int) -> set[int]:
    below = children(parent)
    return below.union(*map(descendants, below))


def state(pid: int) -> str:
    """R, S, T (stopped), Z (zombie) and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.fixture(autouse=True)
def no_process_is_left(arena: Arena) -> Iterator[None]:
    """After each attack only the workers may be there."""
    yield
    workers = arena.workers()
    assert children(os.getpid()) == workers
    for worker in (*arena.judge._all, *arena.open._all):
        # A worker in namespaces of its own is a child of a child of the one that was started.
        assert worker.process
        assert len(descendants(worker.process.pid)) == (2 if worker.isolated else 0)
    assert not [pid for pid in descendants(os.getpid()) if state(pid) in "TZ"]


# --- learning what is none of its business ---------------------------------------------------

SECRET = "secret" + secrets.token_hex(8)
BUFFER = ctypes.create_string_buffer(SECRET.encode())  # in this process's memory

READS = {
    "open": "print(open(T['file']).read())",
    "os.open": "print(os.read(os.open(T['file'], os.O_RDONLY), 99).decode())",
    "os.open without access time": "print(os.read(os.open(T['file'], 0x40000), 99).decode())",
    "openat2": """
how = struct.pack('QQQ', 0, 0, 0)
fd = syscall(437, -100, T['file'].encode(), how, 24)
print(os.read(fd, 99).decode())
""",
    "mmap": "import mmap; print(mmap.mmap(os.open(T['file'], 0), 0, prot=1)[:].decode())",
    "a library's reader": """
from importlib.machinery import SourceFileLoader
print(SourceFileLoader('x', T['file']).get_data(T['file']).decode())
""",
    "import": """
sys.path.insert(0, T['folder'])
import module
""",
    "exec of a file": "import runpy; runpy.run_path(T['folder'] + '/module.py')",
    "a link outside": "print(open(T['link']).read())",
    "up from the library": """
library = os.path.dirname(os.__file__)
print(open(library + '/..' * 20 + T['file']).read())
""",
    "up from a descriptor of the library": """
d = os.open(os.path.dirname(os.__file__), os.O_PATH)
print(os.read(os.open('../' * 20 + T['file'], 0, dir_fd=d), 99).decode())
""",
    "a reopened O_PATH descriptor": """
fd = os.open(T['file'], os.O_PATH)
print(open(f'/proc/self/fd/{fd}').read())
""",
    "its root directory in /proc": "print(open('/proc/self/root' + T['file']).read())",
    "its working directory in /proc": "print(open('/proc/self/cwd/' + T['file']).read())",
    "a thread's root directory in /proc": """
print(open(f'/proc/thread-self/root{T["file"]}').read())
""",
    "a list of a folder": "print(*os.listdir(T['folder']))",
    "a scan of a folder": "print(*(e.name for e in os.scandir(T['folder'])))",
    "glob": "import glob; print(*map(os.path.basename, glob.glob(T['folder'] + '/s*')))",
    "a descriptor of the judge": 'print(open(f\'/proc/{T["judge"]}/fd/{T["fd"]}\').read())',
    "an inherited descriptor": """
for fd in range(3, 4096):
    try: print(os.pread(fd, 99, 0).decode())
    except OSError: pass
""",
}
# What a run with the sandbox off does not give away either, or not on every machine.
READS_HELD_ALWAYS = {"an inherited descriptor"}


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A folder with a secret file, as the dataset's cache or a home would be."""
    folder = tmp_path_factory.mktemp("outside")
    file = folder / "test-00000-of-00001.parquet"
    file.write_text(SECRET)
    (folder / "module.py").write_text(f"print({SECRET!r})")
    link = folder.parent / "link"
    link.symlink_to(file)
    named = folder / "names"
    named.mkdir()
    (named / SECRET).write_text("")
    folder.chmod(0o755)
    fd = os.open(file, os.O_RDONLY)
    os.set_inheritable(fd, True)
    yield {"file": str(file), "link": str(link), "fd": fd, "judge": os.getpid()}
    os.close(fd)


@pytest.mark.parametrize("name", READS)
def test_it_reads_no_file(arena: Arena, outside: dict[str, Any], name: str) -> None:
    folder = Path(outside["file"]).parent
    lists = name in ("a list of a folder", "a scan of a folder", "glob")
    given = {**outside, "folder": str(folder / "names" if lists else folder)}
    if name not in READS_HELD_ALWAYS:
        assert arena.passes(READS[name], given, SECRET, held=False)
    judgement = arena.run(READS[name], (given, SECRET))
    assert judgement.visible_passed == 0
    assert judgement.first_failure
    assert SECRET not in judgement.first_failure.got


PRESENT = [
    p
    for p in ("/etc/passwd", "/etc/hostname", "/proc/cpuinfo", "/sys/kernel/mm")
    if os.path.exists(p)
]


@pytest.mark.parametrize("path", [*PRESENT, str(Path.home()), __file__, cage.__file__, "/dev/shm"])
def test_it_reads_nothing_of_the_machine(arena: Arena, path: str) -> None:
    program = """
path = T['path']
print('read', bool(os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(1)) or 1)
"""
    assert arena.passes(program, {"path": path}, "read True", held=False) or os.path.isdir(path)
    judgement = arena.run(program, ({"path": path}, "read True"))
    assert judgement.first_failure
    assert "read" not in judgement.first_failure.got
    assert judgement.first_failure.verdict == "runtime error"


MEMORY_READS = {
    "/proc/<judge>/mem": """
file = open(f'/proc/{T["judge"]}/mem', 'rb', 0)
file.seek(T['address'])
print(file.read(T['size']).decode())
""",
    "process_vm_readv": """
mine = ctypes.create_string_buffer(T['size'])
local = struct.pack('PN', ctypes.addressof(mine), T['size'])
remote = struct.pack('PN', T['address'], T['size'])
libc.process_vm_readv(T['judge'], local, 1, remote, 1, 0)
print(mine.value.decode())
""",
    "ptrace": """
libc.ptrace.restype = ctypes.c_long
libc.ptrace(16, T['judge'], 0, 0)
os.waitpid(T['judge'], 0x40000000)
print((libc.ptrace(1, T['judge'], ctypes.c_long(T['address']), 0)
       & (2**64 - 1)).to_bytes(8, 'little').decode())
""",
    "/proc/<judge>/environ": """
print(open(f'/proc/{T["judge"]}/environ').read().partition('ATTACK=')[2].partition(chr(0))[0])
""",
    "its own environment": "print(os.environ['ATTACK'])",
    "its own environment in libc": """
libc.getenv.restype = ctypes.c_char_p
print(libc.getenv(b'ATTACK').decode())
""",
    "/proc/self/environ": """
print(open('/proc/self/environ').read().partition('ATTACK=')[2].partition(chr(0))[0])
""",
    "its parents' /proc entries": """
for entry in 'environ', 'mem', 'maps', 'fd', 'cwd', 'root/etc/passwd', 'cmdline', 'status':
    try: open(f'/proc/{os.getppid()}/{entry}').read(); print(T['word'])
    except OSError: pass
""",
    "/proc/self/maps": "open('/proc/self/maps').read(); print(T['word'])",
    "/proc/self/mem": "open('/proc/self/mem', 'rb', 0); print(T['word'])",
    "/proc/self/auxv": "open('/proc/self/auxv', 'rb').read(); print(T['word'])",
}


@pytest.mark.parametrize("name", MEMORY_READS)
def test_it_reads_no_memory(arena: Arena, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("ATTACK", SECRET)
    size = 8 if name == "ptrace" else len(SECRET)
    address = ctypes.addressof(BUFFER)
    given = {"judge": os.getpid(), "address": address, "size": size, "word": SECRET[:size]}
    as_root = os.geteuid() == 0  # others may not look at a parent everywhere
    if as_root and name in ("/proc/<judge>/mem", "process_vm_readv", "/proc/self/mem"):
        assert arena.passes(MEMORY_READS[name], given, SECRET[:size], held=False)
    assert not arena.passes(MEMORY_READS[name], given, SECRET[:size])


SIGHT = {
    "a list of /proc": "assert [n for n in os.listdir('/proc') if n.isdigit()]",
    "stat in /proc": "os.stat(f'/proc/{T[\"pid\"]}')",
    "a link in /proc": "os.readlink(f'/proc/{T[\"pid\"]}/exe')",
    "signal 0": "os.kill(T['pid'], 0)",
    "affinity": "os.sched_getaffinity(T['pid'])",
    "limits": "import resource; resource.prlimit(T['pid'], resource.RLIMIT_NOFILE)",
    "priority": "os.getpriority(os.PRIO_PROCESS, T['pid'])",
    "scheduler": "os.sched_getscheduler(T['pid'])",
    "session": "os.getsid(T['pid'])",
    "CPU clock": "time.clock_gettime(~T['pid'] << 3 | 2)",
    "pidfd": "os.pidfd_open(T['pid'])",
}


@pytest.mark.parametrize("name", SIGHT)
def test_it_sees_no_other_process(arena: Arena, decoy: Decoy, name: str) -> None:
    given = {"pid": decoy.pid}
    program = SIGHT[name] + "\nprint('seen')"
    assert arena.passes(program, given, "seen", held=False)
    arena.run("", ({}, ""))
    if name == "stat in /proc" and not all(worker.isolated for worker in arena.judge._all):
        pytest.skip("no namespaces: Landlock hides what lies in a folder, not that it is there")
    assert not arena.passes(program, given, "seen")


HUNTS = {
    "garbage collector": """
import gc
held = [T]
for thing in gc.get_objects():
    for part in gc.get_referents(thing):
        look(part)
        if isinstance(part, (dict, list, tuple)):
            for text in gc.get_referents(part): look(text)
""",
    "frames": """
frame = sys._getframe()
while frame:
    for things in frame.f_locals, frame.f_globals:
        for thing in list(things.values()):
            look(thing)
            for text in list(getattr(thing, '__dict__', {}).values()): look(text)
    frame = frame.f_back
""",
    "modules": """
for module in list(sys.modules.values()):
    for text in list(getattr(module, '__dict__', {}).values()): look(text)
""",
    "heap": """
ends = os.pipe()
def readable(address, size=4096):  # the kernel answers EFAULT where we would crash
    got = libc.write(ends[1], ctypes.c_void_p(address), size)
    return os.read(ends[0], size) if got > 0 else b''
libc.sbrk.restype = ctypes.c_void_p
top = libc.sbrk(0)
near = [id(object()), id([]), ctypes.addressof(ctypes.create_string_buffer(9)), id('x' * 99999)]
places = [range(top - (4 << 20), top, 4096)]
places += [range((x & ~4095) - (4 << 20), (x & ~4095) + (4 << 20), 4096) for x in near]
for place in places:
    for address in place: look(readable(address))
""",
    "descriptors": """
for fd in range(4096):
    try: look(os.pread(fd, 1 << 20, 0))
    except OSError: pass
    try: look(os.readlink(f'/proc/self/fd/{fd}'))
    except OSError: pass
""",
}
# The words to find begin so; the text is put together, for the hunt not to find itself.
LOOK = """
import re
word = re.compile('expec' + 'ted-[0-9a-f]{16}')
def look(thing):
    if isinstance(thing, (bytes, bytearray)): thing = thing.decode('latin-1')
    if isinstance(thing, str):
        for found in word.findall(thing): os.write(1, found.encode() + b' ')
"""


@pytest.mark.parametrize("name", HUNTS)
def test_it_finds_no_expected_output_and_no_other_case(arena: Arena, name: str) -> None:
    words = ["expec" + "ted-" + secrets.token_hex(8) for _ in range(4)]
    cases: tuple[tuple[object, str], ...] = ({"word": words[0]}, words[1]), ({}, words[2])
    judgement = arena.run(LOOK + HUNTS[name], *cases, hidden=words[3])
    assert judgement.visible_passed == 0
    assert judgement.first_failure
    found = judgement.first_failure.got
    assert judgement.first_failure.verdict == "wrong answer", found
    assert not set(found.split()) & set(words[1:])
    if name not in ("frames", "modules"):
        assert words[0] in found  # the hunt works: it finds what its own case was given
    # Nor does the next case, or another program, find what one before it was given.
    judgement = arena.run(
        LOOK + HUNTS[name] + "\nif T: os.ftruncate(1, 0)", cases[0], ({}, words[0])
    )
    assert judgement.visible_passed == 0
    assert not arena.passes(LOOK + HUNTS[name], {}, words[0])


def test_it_reads_only_its_own_stdin(arena: Arena) -> None:
    """The input of the case before was longer, in the same place."""
    word = "input" + secrets.token_hex(8)
    program = """
import mmap
if not T:
    os.ftruncate(0, 1 << 20)
    text = os.pread(0, 1 << 20, 0) + mmap.mmap(0, 1 << 20, prot=1)[:]
    os.lseek(0, 0, 0)
    text += os.read(0, 1 << 20)
    print(text[text.find(b'input'):][:21].decode() if b'input' in text else '')
"""
    judgement = arena.run(program, ({"pad": "x" * 9999, "word": word}, ""), ({}, ""))
    assert judgement.visible_passed == 2, judgement


# --- changing files ---------------------------------------------------------------------------

WRITES = {
    "a new file": "open(T['folder'] + '/new', 'w').write('x')",
    "a new file beside it": "open(T['name'], 'w').write('x')",
    "overwrite": "open(T['file'], 'w').write('x')",
    "append": "open(T['file'], 'a').write('x')",
    "write in place": "open(T['file'], 'r+').write('x')",
    "truncate": "os.truncate(T['file'], 0)",
    "truncate on opening": "os.open(T['file'], os.O_RDONLY | os.O_TRUNC)",
    "a nameless file made visible": """
fd = os.open(T['folder'], os.O_TMPFILE | os.O_RDWR)
libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, (T['folder'] + '/new').encode(), 0x400)
""",
    "remove": "os.remove(T['file'])",
    "rename": "os.rename(T['file'], T['file'] + '2')",
    "a folder": "os.mkdir(T['folder'] + '/new')",
    "remove a folder": "os.rmdir(T['folder'] + '/empty')",
    "a symbolic link": "os.symlink('/etc/passwd', T['folder'] + '/new')",
    "a hard link": "os.link(T['file'], T['folder'] + '/new')",
    "through a link outside": "open(T['folder'] + '/link', 'w').write('x')",
    "a fifo": "os.mkfifo(T['folder'] + '/new')",
    "permissions": "os.chmod(T['file'], 0o777)",
    "times": "os.utime(T['file'], (1, 1))",
    "owner": "os.chown(T['file'], os.getuid(), os.getgid() or 1)",
    "attributes": "os.setxattr(T['file'], 'user.x', b'x')",
    "a socket's name": "socket.socket(socket.AF_UNIX).bind(T['folder'] + '/new')",
    "a database": """
fd = os.open(T['folder'] + '/new', os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b'x', 0)
""",
    "a log": "import logging; logging.FileHandler(T['folder'] + '/new')",
    "through /proc": "open('/proc/self/root' + T['file'], 'w').write('x')",
    "a device": "os.mknod(T['folder'] + '/new', 0o20666, os.makedev(1, 3))",
}
WRITES_OF_ROOT = {"a device"}
WRITES_HELD_ALWAYS = {"a new file beside it", "attributes", "owner"}


def snapshot(folder: Path) -> list[tuple[object, ...]]:
    """Everything about a folder and what lies in it."""
    found: list[tuple[object, ...]] = []
    for path in [folder, *sorted(folder.rglob("*"))]:
        info = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        what = (info.st_mode, info.st_uid, info.st_gid, info.st_nlink, info.st_mtime_ns)
        found.append((path.name, content, *what, *os.listxattr(path, follow_symlinks=False)))
    return found


def a_folder(path: Path) -> Path:
    path.mkdir()
    (path / "file").write_text("content")
    (path / "empty").mkdir()
    (path / "link").symlink_to(path / "file")
    return path


@pytest.mark.parametrize("name", WRITES)
def test_it_changes_no_file(arena: Arena, tmp_path: Path, name: str) -> None:
    program = WRITES[name] + "\nprint('written')"
    for held in (False, True):
        folder = a_folder(tmp_path / str(held))
        before = snapshot(folder)
        name_here = "attack" + secrets.token_hex(8)
        given = {"folder": str(folder), "file": str(folder / "file"), "name": name_here}
        judgement = arena.run(program, (given, "written"), held=held)
        if held:
            assert judgement.visible_passed == 0
            assert snapshot(folder) == before
        elif name not in WRITES_HELD_ALWAYS | (WRITES_OF_ROOT if os.geteuid() else set()):
            assert snapshot(folder) != before, judgement
        for place in (Path.cwd(), Path("/"), Path(cage.__file__).parent):
            assert not (held and (place / given["name"]).exists())
            (place / given["name"]).unlink(missing_ok=True)


KERNEL = [
    "sys/kernel/core_pattern",
    "sys/kernel/hostname",
    "sys/vm/overcommit_memory",
    "sysrq-trigger",
    "self/oom_score_adj",
    "self/uid_map",
    "self/comm",
    "self/mem",
    "self/clear_refs",
    "self/attr/current",
    "self/task/1/comm",
    "self/coredump_filter",
]


@pytest.mark.parametrize("path", KERNEL)
def test_it_opens_no_knob_of_the_kernel(arena: Arena, path: str) -> None:
    """Opening for writing is tried, nothing is written: with root's own /proc it would work."""
    program = "os.open('/proc/' + T['path'], os.O_WRONLY); print('opened')"
    assert not arena.passes(program, {"path": path}, "opened")


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "/var/tmp", "/run", "~", "/", "."])
def test_it_leaves_nothing_in_common_places(arena: Arena, place: str) -> None:
    path = Path(place).expanduser().absolute() / f"attack-{secrets.token_hex(8)}"
    program = "open(T['path'], 'w').write('x'); print('written')"
    assert not arena.passes(program, {"path": str(path)}, "written")
    assert not path.exists()


# --- the network ------------------------------------------------------------------------------

NETWORK = {
    "TCP": "socket.create_connection(('127.0.0.1', T['tcp'])).send(b'x')",
    "TCP, IPv6": "socket.create_connection(('::1', T['tcp6'])).send(b'x')",
    "UDP": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', T['udp']))",
    "AF_UNIX": """
s = socket.socket(socket.AF_UNIX)
s.connect(T['unix'])
s.send(b'x')
""",
    "AF_UNIX datagrams": """
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', T['datagram'])
""",
    "an abstract socket": "socket.socket(socket.AF_UNIX).connect(chr(0) + T['abstract'])",
    "http.client": """
import http.client
http.client.HTTPConnection('127.0.0.1', T['tcp'], timeout=0.2).request('GET', '/')
""",
    "asyncio": """
import asyncio
asyncio.run(asyncio.open_connection('127.0.0.1', T['tcp']))
""",
    "a raw system call": """
fd = syscall(T['socket'], 2, 1, 0)
address = struct.pack('!2xH4s8x', T['tcp'], bytes([127, 0, 0, 1]))
assert libc.connect(fd, b'\\2\\0' + address[2:], 16) == 0
""",
    "sockets by every number": """
address = struct.pack('!2xH4s8x', T['tcp'], bytes([127, 0, 0, 1]))
for fd in range(3, 2000): libc.connect(fd, b'\\2\\0' + address[2:], 16)
libc.connect(syscall(T['socket'], 2, 1, 0), b'\\2\\0' + address[2:], 16)
""",
    "the x32 table": "print(syscall(0x40000000 + 41, 2, 1, 0)); assert 0",
}
NETWORK_HELD_ALWAYS = {"the x32 table"}


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[tuple[dict[str, Any], Callable[[], list[str]]]]:
    """What to connect to, and a function that says which of them something came in at."""
    abstract = "attack" + secrets.token_hex(8)
    short = Path("/tmp") if len(str(tmp_path)) > 80 else tmp_path  # a socket's path is short
    unix, datagram = str(short / f"{abstract}.s"), str(short / f"{abstract}.d")
    with contextlib.ExitStack() as stack:
        made: dict[str, socket.socket] = {}
        for name, family, kind, address in (
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("unix", socket.AF_UNIX, socket.SOCK_STREAM, unix),
            ("datagram", socket.AF_UNIX, socket.SOCK_DGRAM, datagram),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract),
        ):
            with contextlib.suppress(OSError):  # a machine without IPv6
                made[name] = stack.enter_context(socket.socket(family, kind))
                made[name].bind(address)
                made[name].setblocking(False)
                if kind == socket.SOCK_STREAM:
                    made[name].listen()
        ports = {name: made[name].getsockname()[1] for name in ("tcp", "tcp6", "udp")}
        number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
        given = {**ports, "unix": unix, "datagram": datagram, "abstract": abstract}

        def reached() -> list[str]:
            names = []
            for name, listener in made.items():
                with contextlib.suppress(BlockingIOError):
                    if listener.type == socket.SOCK_STREAM:
                        listener.accept()[0].close()
                    else:
                        listener.recv(9)
                    names.append(name)
            return names

        yield {**given, "socket": number}, reached
        for path in (unix, datagram):
            Path(path).unlink()


@pytest.mark.parametrize("name", NETWORK)
def test_it_reaches_no_listener(
    arena: Arena, listeners: tuple[dict[str, Any], Callable[[], list[str]]], name: str
) -> None:
    given, reached = listeners
    program = NETWORK[name] + "\nprint('connected')"
    if name not in NETWORK_HELD_ALWAYS and (name != "TCP, IPv6" or given["tcp6"]):
        arena.run(program, (given, "connected"), held=False)
        assert reached()
    assert not arena.passes(program, given, "connected") or name == "sockets by every number"
    assert not reached()


# --- other processes --------------------------------------------------------------------------

STARTS = {  # each prints the word from another process, or as another program
    "fork": "if os.fork() == 0: os.write(1, T['word'].encode()); os._exit(0)\nos.wait()",
    "forkpty": """
pid, fd = os.forkpty()
if pid == 0: os.write(3, T['word'].encode()); os._exit(0)
print(T['word'])
""",
    "double fork": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.write(1, T['word'].encode())
    else: os.wait()
    os._exit(0)
os.wait()
""",
    "clone": """
if syscall(T['clone'], 17, 0, 0, 0, 0) == 0: os.write(1, T['word'].encode()); os._exit(0)
time.sleep(0.1)
""",
    "clone with the memory of its parent as a thread's flags": """
if syscall(T['clone'], 17 | 0x2000000, 0, 0, 0, 0) == 0:
    os.write(1, T['word'].encode()); os._exit(0)
time.sleep(0.1)
""",
    "clone3": """
arguments = struct.pack('QQQQQQQQ', 0, 0, 0, 0, 17, 0, 0, 0)
if libc.syscall(435, arguments, 64) == 0: os.write(1, T['word'].encode()); os._exit(0)
time.sleep(0.1)
""",
    "system": "os.system('echo ' + T['word'])",
    "popen": "print(os.popen('echo ' + T['word']).read())",
    "subprocess": "import subprocess; subprocess.run(['/bin/echo', T['word']])",
    "subprocess of Python": """
import subprocess
subprocess.run([T['python'], '-I', '-S', '-c', 'print(' + repr(T['word']) + ')'])
""",
    "posix_spawn": """
pid = os.posix_spawn('/bin/echo', ['echo', T['word']], {})
os.waitpid(pid, 0)
""",
    "exec": "os.execv('/bin/echo', ['echo', T['word']])",
    "exec by name": "os.execvpe('echo', ['echo', T['word']], {'PATH': '/bin:/usr/bin'})",
    "exec of the interpreter": """
os.execv(T['python'], ['python', '-I', '-S', '-c', 'print(' + repr(T['word']) + ')'])
""",
    "execveat": """
argv = (ctypes.c_char_p * 3)(b'echo', T['word'].encode(), None)
libc.syscall(T['execveat'], -100, b'/bin/echo', argv, None, 0)
""",
    "the dynamic loader": """
import glob
loader = glob.glob('/lib*/ld-linux*') + glob.glob('/lib/ld-*')
os.execv(loader[0], [loader[0], '/bin/echo', T['word']])
""",
    "multiprocessing by fork": """
import multiprocessing
process = multiprocessing.get_context('fork').Process(target=print, args=[T['word']])
process.start(); process.join()
""",
    "multiprocessing by spawn": """
import multiprocessing
process = multiprocessing.get_context('spawn').Process(target=print, args=[T['word']])
process.start(); process.join()
""",
    "a process pool": """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
with ProcessPoolExecutor(1, multiprocessing.get_context('fork')) as pool:
    print(pool.submit(str, T['word']).result())
""",
}
STARTS_HELD_ALWAYS = {
    "multiprocessing by spawn",
    "a process pool",
    "forkpty",
    "clone with the memory of its parent as a thread's flags",
    "the dynamic loader",
}


@pytest.mark.parametrize("name", STARTS)
def test_it_starts_no_process(arena: Arena, name: str) -> None:
    clone, execveat = {"x86_64": (56, 322), "aarch64": (220, 281)}[platform.machine()]
    word = "started" + secrets.token_hex(8)
    given = {"word": word, "python": sys.executable, "clone": clone, "execveat": execveat}
    if name not in STARTS_HELD_ALWAYS:
        assert arena.passes(STARTS[name], given, word, held=False)
    assert not arena.passes(STARTS[name], given, word)


SWARMS = {
    "a fork bomb": """
while True:
    try: os.fork()
    except OSError: pass
""",
    "a daemon": """
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: time.sleep(1000)
except OSError: pass
""",
    "a thread bomb": """
threading.stack_size(32768)
def wait(): time.sleep(1000)
started = 0
try:
    while True: threading.Thread(target=wait, daemon=True).start(); started += 1
finally:
    time.sleep(1000)
""",
    "a thread bomb of raw threads": """
import _thread
threading.stack_size(32768)
def spread():
    while True:
        try: _thread.start_new_thread(spread, ())
        except BaseException: pass
spread()
""",
    "threads that never end": """
for _ in range(8): threading.Thread(target=time.sleep, args=[1000]).start()
""",
    "threads that work on": """
def work():
    while True: pass
for _ in range(8): threading.Thread(target=work, daemon=True).start()
""",
}


@pytest.mark.parametrize("name", SWARMS)
def test_it_does_not_multiply(arena: Arena, name: str) -> None:
    with watching(arena) as peak:
        judgement = arena.run(SWARMS[name], ({}, "never"))
    assert judgement.visible_passed == 0
    assert peak["processes"] <= 6  # worker (3 in namespaces), program, case, a fork in between
    assert peak["threads"] < 10_000  # looked at every tenth of a second
    assert judgement.first_failure
    if "never end" in name:
        assert judgement.first_failure.verdict == "time limit"


class Decoy:
    """A process outside, of the same user, that tells of SIGWINCH and of nothing else."""

    def __init__(self) -> None:
        code = (
            "import os, signal, time\n"
            "signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'hit'))\n"
            "os.write(1, b'ready')\n"
            "while True: time.sleep(1000)\n"
        )
        command = [sys.executable, "-I", "-S", "-c", code]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True
        )
        self.pid = self.process.pid
        assert self.process.stdout
        self.fd = self.process.stdout.fileno()
        assert os.read(self.fd, 5) == b"ready"
        os.set_blocking(self.fd, False)

    def hits(self) -> bytes:
        try:
            return os.read(self.fd, 999)
        except BlockingIOError:
            return b""

    def facts(self) -> tuple[object, ...]:
        """What others could have changed of it."""
        return (
            self.process.poll(),
            state(self.pid) in "TtZ",
            *(resource.prlimit(self.pid, kind) for kind in range(16)),
            os.sched_getaffinity(self.pid),
            os.getpriority(os.PRIO_PROCESS, self.pid),
            os.sched_getscheduler(self.pid),
            Path(f"/proc/{self.pid}/oom_score_adj").read_text(),
        )


@pytest.fixture
def decoy(arena: Arena) -> Iterator[Decoy]:
    decoy = Decoy()
    arena.bystanders.add(decoy.pid)
    with decoy.process:
        yield decoy
        decoy.process.kill()
    arena.bystanders.clear()


SIGNALS = {
    "kill": "os.kill(T['pid'], signal.SIGWINCH)",
    "killpg": "os.killpg(T['pid'], signal.SIGWINCH)",
    "kill -1": "os.kill(-1, signal.SIGWINCH)",
    "tgkill": "assert syscall(T['tgkill'], T['pid'], T['pid'], 28) == 0",
    "tkill": "assert syscall(T['tkill'], T['pid'], 28) == 0",
    "pidfd": "signal.pidfd_send_signal(os.pidfd_open(T['pid']), signal.SIGWINCH)",
    "sigqueue": "assert libc.sigqueue(T['pid'], 28, None) == 0",
    "a thread of it": "signal.pthread_kill(T['pid'], signal.SIGWINCH)",
    "an owner of a descriptor": """
import fcntl
r, w = os.pipe()
fcntl.fcntl(r, fcntl.F_SETOWN, T['pid'])
fcntl.fcntl(r, 10, 28)
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b'x')
""",
    "a message queue": """
name = b'/attack'
fd = libc.mq_open(name, 0o102, 0o600, None)
assert fd >= 0
""",
}
SIGNALS_HELD_ALWAYS = {"kill -1", "a thread of it", "an owner of a descriptor", "a message queue"}


@pytest.mark.parametrize("name", SIGNALS)
def test_it_sends_no_signal(arena: Arena, decoy: Decoy, name: str) -> None:
    tgkill, tkill = {"x86_64": (234, 200), "aarch64": (131, 130)}[platform.machine()]
    given = {"pid": decoy.pid, "tgkill": tgkill, "tkill": tkill}
    program = SIGNALS[name] + "\nprint('sent')"
    if name not in SIGNALS_HELD_ALWAYS:
        assert arena.passes(program, given, "sent", held=False)
        assert decoy.hits()
    assert not arena.passes(program, given, "sent")
    assert not decoy.hits()


MEDDLING = {
    "limits": "import resource; resource.prlimit(T['pid'], resource.RLIMIT_NOFILE, (9, 9))",
    "priority": "os.setpriority(os.PRIO_PROCESS, T['pid'], 19)",
    "affinity": "os.sched_setaffinity(T['pid'], [min(os.sched_getaffinity(0))])",
    "scheduler": "os.sched_setscheduler(T['pid'], os.SCHED_IDLE, os.sched_param(0))",
    "memory killer's score": "open(f'/proc/{T[\"pid\"]}/oom_score_adj', 'w').write('999')",
    "ptrace attach": """
assert libc.ptrace(16, T['pid'], 0, 0) == 0
os.waitpid(T['pid'], 0x40000000)
""",
    "ptrace seize": "assert libc.ptrace(0x4206, T['pid'], 0, 0) == 0",
}


@pytest.mark.parametrize("name", MEDDLING)
def test_it_changes_nothing_of_another_process(arena: Arena, decoy: Decoy, name: str) -> None:
    program = MEDDLING[name] + "\nprint('done')"
    before = decoy.facts()
    assert not arena.passes(program, {"pid": decoy.pid}, "done")
    assert decoy.facts() == before
    alone = len(os.sched_getaffinity(0)) == 1
    traced = name.startswith("ptrace") and os.geteuid() != 0
    if not (traced or (name == "affinity" and alone)):
        assert arena.passes(program, {"pid": decoy.pid}, "done", held=False)
        assert name.startswith("ptrace") or decoy.facts() != before


PARENTS = {
    "kill": "os.kill({pid}, signal.SIGKILL)",
    "stop": "os.kill({pid}, signal.SIGSTOP)",
    "kill its group": "os.killpg(os.getpgid({pid}), signal.SIGKILL)",
    "kill by tgkill": "assert syscall(T['tgkill'], {pid}, {pid}, 9) == 0",
    "end of its CPU time": "import resource; resource.prlimit({pid}, resource.RLIMIT_CPU, (0, 0))",
    "no files for it": "import resource; resource.prlimit({pid}, resource.RLIMIT_NOFILE, (0, 0))",
    "no memory for it": "import resource; resource.prlimit({pid}, resource.RLIMIT_AS, (0, 0))",
}


@pytest.mark.parametrize("name", PARENTS)
@pytest.mark.parametrize("pid", ["os.getppid()", "T['worker']", "T['judge']"])
def test_it_does_no_harm_to_those_above(arena: Arena, name: str, pid: str) -> None:
    def limits() -> list[tuple[int, int]]:
        return [resource.prlimit(p, kind) for p in (worker, os.getpid()) for kind in range(16)]

    arena.run("", ({}, ""))
    (alive,) = arena.judge._all
    assert alive.process
    worker = alive.process.pid
    before = limits()
    tgkill = {"x86_64": 234, "aarch64": 131}[platform.machine()]
    given = {"judge": os.getpid(), "worker": worker, "tgkill": tgkill}
    program = PARENTS[name].format(pid=pid) + "\nprint('done')"
    judgement = arena.run(program, (given, "done"), (given, "done"))
    assert judgement.visible_passed == 0
    assert alive in arena.judge._all  # no worker was replaced
    assert limits() == before
    assert state(worker) not in "TZ"


WRITTEN = ctypes.create_string_buffer(b"untouched")
MEMORY_WRITES = {
    "process_vm_writev": """
mine = ctypes.create_string_buffer(b'attacked!')
local = struct.pack('PN', ctypes.addressof(mine), 9)
remote = struct.pack('PN', T['address'], 9)
libc.process_vm_writev(T['judge'], local, 1, remote, 1, 0)
""",
    "/proc/<judge>/mem": """
file = open(f'/proc/{T["judge"]}/mem', 'r+b', 0)
file.seek(T['address'])
file.write(b'attacked!')
""",
}


@pytest.mark.parametrize("name", MEMORY_WRITES)
def test_it_writes_to_no_memory_of_the_judge(arena: Arena, name: str) -> None:
    given = {"judge": os.getpid(), "address": ctypes.addressof(WRITTEN)}
    arena.run(MEMORY_WRITES[name], (given, "-"))
    assert WRITTEN.value == b"untouched"
    if os.geteuid() == 0:
        arena.run(MEMORY_WRITES[name], (given, "-"), held=False)
        assert WRITTEN.value == b"attacked!"
        WRITTEN.value = b"untouched"


# --- the machine's memory and time ------------------------------------------------------------

MIB = 1 << 20


def kilobytes(path: str, *names: str) -> int:
    """Sum of some fields of /proc/meminfo or of a process's status, in bytes."""
    with contextlib.suppress(OSError):
        lines = Path(path).read_text().splitlines()
        return sum(int(x.split()[1]) << 10 for x in lines if x.split(":")[0] in names)
    return 0


@contextlib.contextmanager
def watching(arena: Arena) -> Iterator[dict[str, int]]:
    """The most that the processes of the judge took at once, while the block ran.

    Keys: processes, threads, memory (theirs, pages of files in memory not counted), shared (the
    machine's memory in such files, beyond what it was), own (growth of this process).
    """
    arena.run("", ({}, ""))  # start the worker before
    (worker,) = arena.judge._all
    assert worker.process
    pid = worker.process.pid
    shared, own = kilobytes("/proc/meminfo", "Shmem"), kilobytes("/proc/self/status", "RssAnon")
    peak = dict.fromkeys(("processes", "threads", "memory", "shared", "own"), 0)
    done = threading.Event()

    def sample() -> None:
        below = descendants(pid) | {pid}
        status = [f"/proc/{p}/status" for p in below]
        now = {
            "processes": len(below),
            "threads": sum(kilobytes(s, "Threads") >> 10 for s in status),
            "memory": sum(kilobytes(s, "RssAnon") for s in status),
            "shared": kilobytes("/proc/meminfo", "Shmem") - shared,
            "own": kilobytes("/proc/self/status", "RssAnon") - own,
        }
        peak.update({key: max(value, peak[key]) for key, value in now.items()})

    def watch() -> None:
        while not done.wait(0.03):
            sample()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


STOPPED = {"runtime error", "memory limit", "time limit"}
BOMBS: dict[str, tuple[str, set[str]]] = {
    "8 GiB at once": ("x = bytearray(8 << 30)", {"memory limit"}),
    "8 GiB, lazily": ("""
import mmap
m = mmap.mmap(-1, 8 << 30)
m[0] = 1
""", {"runtime error", "memory limit"}),
    "8 GiB by malloc": ("""
libc.malloc.restype = ctypes.c_void_p
for _ in range(8192):
    at = libc.malloc(1 << 20)
    if at: ctypes.memset(at, 1, 1 << 20)
""", {"wrong answer"}),
    "a list without end": ("x = []\nwhile True: x.append(bytes(1 << 16))", {"memory limit"}),
    "a list of everything": ("""
import itertools
list(itertools.product(range(99), repeat=9))
""", {"memory limit", "time limit"}),
    "a string that doubles": ("x = 'a'\nwhile True: x += x", {"memory limit"}),
    "shared memory": ("""
import mmap
maps = []
while len(maps) < 8192:
    m = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    m[::4096] = b'x' * 256
    maps.append(m)
""", STOPPED),
    "memfds": ("""
held = []
for i in range(64):
    fd = os.memfd_create('x')
    os.ftruncate(fd, 1 << 22)
    held.append(os.write(fd, bytes(1 << 22)))
""", {"runtime error"}),
    "secret memfds": ("assert syscall(447, 0) >= 0", {"runtime error"}),
    "pipes": ("""
held = []
try:
    while True:
        held.append(os.pipe2(os.O_NONBLOCK))
        w = held[-1][1]
        libc.fcntl(w, 1031, 1 << 20)
        try:
            while os.write(w, bytes(4096)): pass
        except BlockingIOError: pass
except OSError: pass
print(len(held))
""", {"runtime error", "wrong answer", "time limit"}),
    "pipes made larger": ("""
r, w = os.pipe()
import fcntl
fcntl.fcntl(w, 1031, 1 << 20)
""", {"runtime error"}),
    "stdin, stdout and stderr as files": ("""
for fd in 0, 1, 2:
    try: os.ftruncate(fd, 8 << 30)
    except OSError: pass
    try:
        for i in range(8192): os.pwrite(fd, b'x' * (1 << 20), i << 20)
    except OSError: pass
""", {"output limit"}),
    "a hole in stdout": ("""
os.lseek(1, 8 << 30, 0)
os.write(1, b'x')
""", {"runtime error", "output limit"}),
    "its limits raised": ("""
import resource
for kind in range(16):
    try: resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError): pass
x = bytearray(8 << 30)
""", {"memory limit"}),
    "System V shared memory": ("assert libc.shmget(0, 1 << 30, 0o1600) >= 0", {"runtime error"}),
    "multiprocessing's shared memory": ("""
from multiprocessing.shared_memory import SharedMemory
m = SharedMemory(create=True, size=1 << 30)
""", {"runtime error", "memory limit"}),
    "locked memory": ("assert libc.mlockall(3) == 0", {"runtime error"}),
    "threads' stacks": ("""
threading.stack_size(256 << 20)
for _ in range(64): threading.Thread(target=time.sleep, args=[1]).start()
""", STOPPED),
    "recursion in Python": ("def f(): f()\nf()", {"runtime error"}),
    "recursion to a crash": ("""
sys.setrecursionlimit(10**9)
threading.stack_size(1 << 20)
def f(x): return [f(x)]
class A:
    def __repr__(self): return repr([self])
t = threading.Thread(target=repr, args=[A()])
t.start(); t.join()
f(0)
""", STOPPED),
    "a null pointer": ("ctypes.string_at(0)", {"runtime error"}),
    "an illegal instruction": ("""
import mmap
m = mmap.mmap(-1, 4096, prot=7)
m.write(b'\\x0f\\x0b' * 9)
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
""", {"runtime error"}),
    "an integer": ("x = 9 ** 9 ** 9", {"memory limit", "time limit"}),
    "an integer's digits": ("print(len(str(3 ** 10_000_000)))", {"time limit", "wrong answer"}),
    "a regular expression": ("import re; re.match('(a*)*b', 'a' * 60)", {"time limit"}),
    "a decimal": ("""
import decimal
decimal.getcontext().prec = 10**9
decimal.Decimal(2) ** 10**9 / 3
""", STOPPED),
    "a format": ("""
print('%999999999d' % 1)
""", {"output limit", "memory limit", "runtime error", "time limit"}),
    "a garbage collector that never ends": ("""
class A:
    def __del__(self): A()
A()
while True: pass
""", {"time limit"}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_stays_in_its_limits(arena: Arena, name: str) -> None:
    program, verdicts = BOMBS[name]
    with watching(arena) as peak:
        judgement = arena.run(program, ({}, "never"))
    assert judgement.visible_passed == 0
    # A machine that is slow today runs out of time before memory.
    assert judgement.verdict in verdicts | {"time limit"}, judgement
    assert peak["memory"] < (LIMITS.memory_mb + 100) * MIB
    assert peak["shared"] < 100 * MIB + LIMITS.memory_mb * MIB * (name == "shared memory")
    assert peak["own"] < 100 * MIB


SOURCE_BOMBS = {
    "brackets": "(" * 10_000,
    "blocks": "".join(" " * i + "if 1:\n" for i in range(2000)),
    "a sum": "x = " + "1+" * 100_000 + "1",
    "unary operators": "x = " + "-" * 200_000 + "1",
    "attributes": "x" + ".a" * 100_000,
    "comprehensions": "[" * 60 + "x" + " for x in y]" * 60,
    "a long constant": "x = 'a' * 10**10\ny = (1,) * 10**10\nz = 2 ** 10**10",
    "powers": "x = ((2 ** 99999) ** 99999) ** 99999",
    "classes": "class a: pass\n" * 20_000,
    "a long line": "x = [" + "1," * 2_000_000 + "]",
    "a null byte": "print(1)\0",
    "surrogates": "print('\ud800')",
    "an unknown encoding": "# coding: attack\nprint(1)",
    "an encoding that is no text": "# coding: zlib\nprint(1)",
    "16 MiB of a comment": "#" * (16 << 20),
}


@pytest.mark.parametrize("name", SOURCE_BOMBS)
def test_a_bomb_in_the_source_stays_in_its_limits(arena: Arena, name: str) -> None:
    with watching(arena) as peak:
        judgement = arena.run(SOURCE_BOMBS[name], ({}, "never"), prelude=False)
    assert judgement.visible_passed == 0
    assert judgement.verdict in ("runtime error", "memory limit", "time limit", "wrong answer")
    assert peak["memory"] < (LIMITS.memory_mb + 100) * MIB
    assert peak["own"] < 200 * MIB


OUTPUTS: dict[str, tuple[str, set[str]]] = {
    "without end": ("while True: print('x' * 99)", {"output limit"}),
    "a gigabyte without a newline": ("""
print('x' * (1 << 28), end='')
""", {"output limit", "memory limit", "runtime error"}),
    "by a system call": ("""
while True: libc.write(1, b'x' * 65536, 65536)
""", {"output limit", "time limit"}),
    "ignoring SIGXFSZ": ("""
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
while True:
    try: os.write(1, b'x' * 65536)
    except OSError: pass
""", {"output limit", "time limit"}),
    "then removed": ("""
try:
    while True: os.write(1, b'x' * 65536)
except OSError: os.ftruncate(1, 0); os.lseek(1, 0, 0)
os.write(1, b'never')
os._exit(1)
""", {"runtime error", "output limit"}),
    "in a finalizer": ("""
class A:
    def __del__(self):
        while True: os.write(1, b'x' * 65536)
a = A()
""", {"output limit", "runtime error", "time limit"}),
    "of a file that nobody closes": ("""
f = open(1, 'wb', 64 << 20)
f.write(bytes(32 << 20))
""", {"output limit", "runtime error"}),
    "into socket pairs": ("""
pairs = []
while True:
    try: pairs.append(socket.socketpair())
    except OSError: break
for pair in pairs:
    for end in pair:
        end.setblocking(False)
        try:
            while True: end.send(bytes(1 << 20))
        except BlockingIOError: pass
time.sleep(0.3)
""", {"wrong answer"}),
    "through sys.stderr": ("while True: sys.stderr.write('x' * 65536)", {"time limit"}),
    "on stderr": ("while True: os.write(2, b'x' * 65536)", {"runtime error", "output limit"}),
    "after the time limit": ("""
print('word', flush=True)
while True: pass
""", {"time limit"}),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_stays_in_its_limit(arena: Arena, name: str) -> None:
    program, verdicts = OUTPUTS[name]
    with watching(arena) as peak:
        judgement = arena.run(program, ({}, "word" if "after" in name else "never"))
    assert judgement.visible_passed == 0
    assert judgement.verdict in verdicts
    assert peak["own"] < 100 * MIB
    assert peak["shared"] < 100 * MIB


ENDLESS = {
    "a loop": "while True: pass",
    "a sleep": "time.sleep(1000)",
    "a pause": "signal.pause()",
    "a loop in C": "sum(iter(int, 1))",
    "ignoring signals": """
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass
""",
    "catching everything": """
def again(*_):
    while True:
        try:
            while True: pass
        except BaseException: pass
signal.signal(signal.SIGXCPU, again); signal.signal(signal.SIGTERM, again)
again()
""",
    "an exit that never ends": "import atexit; atexit.register(time.sleep, 1000); print('never')",
    "a thread that never ends": """
threading.Thread(target=time.sleep, args=[1000]).start(); print('never')
""",
    "a finalizer that never ends": """
class A:
    def __del__(self):
        while True: pass
a = A(); a.a = a
""",
    "a finalizer that sleeps": """
class A:
    def __del__(self): time.sleep(1000)
a = A()
print('never')
""",
    "a generator that never ends": """
def g():
    while True:
        try: yield
        except GeneratorExit: time.sleep(1000)
g = g(); next(g)
""",
    "an executor that never ends": """
from concurrent.futures import ThreadPoolExecutor
ThreadPoolExecutor().submit(time.sleep, 1000)
""",
    "a socket pair that nobody writes to": "a, b = socket.socketpair(); a.recv(1)",
    "a full socket pair": """
a, b = socket.socketpair()
while True: a.send(bytes(1 << 16))
""",
    "a deadlock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a read of nothing": "r, w = os.pipe(); os.read(r, 1)",
    "closed descriptors": "os.closerange(0, 4096)\nwhile True: pass",
    "a stop": """
try: signal.raise_signal(signal.SIGSTOP)
finally: time.sleep(1000)
""",
    "a trace": """
libc.ptrace(0, 0, 0, 0)
time.sleep(1000)
""",
    "a death signal refused": """
libc.prctl(1, 0, 0, 0, 0)
time.sleep(1000)
""",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_program_is_ended(arena: Arena, name: str) -> None:
    judgement = arena.run(ENDLESS[name], ({}, "never"))
    assert judgement.visible_passed == 0
    assert judgement.verdict == "time limit"
    assert arena.passes("print(T['a'])", {"a": 1}, "1")  # and the next one runs


# --- forging a verdict, and leaving something behind ------------------------------------------

FORGERIES = {
    "accepted on stderr": "print('accepted', file=sys.stderr); os.write(2, b'verdict: accepted')",
    "accepted on stdout": "print('accepted')",
    "right output, exit status 1": "print('word'); sys.exit(1)",
    "right output, then an exception": "print('word'); raise ValueError",
    "right output, then abort": "print('word', flush=True); os.abort()",
    "right output, then SIGTERM": """
print('word', flush=True)
signal.alarm(1)
time.sleep(9)
""",
    "right output, then a crash": "print('word', flush=True); ctypes.string_at(0)",
    "right output, then a failing exit function": """
import atexit
print('word', flush=True)
atexit.register(os._exit, 3)
""",
    "right output, then more": "print('word'); print('word')",
    "right output on stderr": "print('word', file=sys.stderr)",
    "an exit function that hides an exception": """
import atexit
sys.excepthook = lambda *_: None
raise ValueError
""",
    "a finalizer that leaves well": """
class A:
    def __del__(self): os._exit(0)
a = A()
sys.exit(3)
""",
    "a finalizer that prints the rest too late": """
class A:
    def __del__(self): os.write(1, b'word')
a = A()
1 / 0
""",
    "sys.exit patched": "sys.exit = os._exit = lambda *_: None; raise SystemExit(1)",
    "every exit patched": """
import builtins, posix
for module in os, posix, sys, builtins:
    for name in ('_exit', 'exit', 'quit', 'SystemExit', 'BaseException', 'Exception'):
        try: setattr(module, name, lambda *_: None)
        except BaseException: pass
sys.exit(3)
1 / 0
""",
    "the frames above": """
frame = sys._getframe()
while frame:
    for things in frame.f_globals, frame.f_locals:
        for name in list(things):
            if callable(things[name]) and name not in ('frame', 'things'):
                try: things[name] = lambda *_, **__: 0
                except BaseException: pass
    frame = frame.f_back
""",
    "equality patched": """
import builtins
class Same(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
builtins.str = builtins.bytes = Same
print(Same('x'))
""",
    "replies of a case to every descriptor": """
reply = struct.pack('=cidc', b'C', 0, 0.0, b'-')
for fd in range(4096):
    if fd != 2:
        try: os.write(fd, reply * 50)
        except OSError: pass
""",
    "replies of the program process to every descriptor": """
for fd in range(3, 4096):
    for kind in b'R', b'P', b'E', b'C':
        try: os.write(fd, struct.pack('=cidc', kind, 0, 0.0, b'-'))
        except OSError: pass
        try: socket.socket(fileno=fd).send(struct.pack('=cidc', kind, 0, 0.0, b'-'))
        except OSError: pass
""",
    "commands read from every descriptor": """
for fd in range(3, 4096):
    try: os.set_blocking(fd, False); os.read(fd, 9999)
    except OSError: pass
""",
    "descriptors by pidfd_getfd": """
me = syscall(434, os.getppid(), 0)
for fd in range(64):
    got = syscall(438, me, fd, 0)
    if got >= 0: os.write(got, struct.pack('=cidc', b'C', 0, 0.0, b'-'))
""",
    "descriptors of the parent in /proc": """
for fd in range(64):
    try:
        with open(f'/proc/{os.getppid()}/fd/{fd}', 'wb') as file:
            file.write(struct.pack('=cidc', b'C', 0, 0.0, b'-'))
    except OSError: pass
""",
    "a limit that kills": """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (0, 0))
while True: pass
""",
    "a killer's signal to itself": "os.kill(os.getpid(), signal.SIGKILL)",
    "the i386 system calls": """
import mmap
code = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, prot=7)
at = ctypes.addressof(ctypes.c_char.from_buffer(code))
code[512:516] = b'word'
code[:24] = (b'\\x53\\xb8\\4\\0\\0\\0\\xbb\\1\\0\\0\\0\\xb9' + struct.pack('I', at + 512)
             + b'\\xba\\4\\0\\0\\0\\xcd\\x80')[:24]
code[24:27] = b'\\x5b\\xc3\\x90'
ctypes.CFUNCTYPE(None)(at)()
""",
    "the x32 system calls": "syscall(0x40000001, 1, ctypes.c_char_p(b'word'), 4)",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_no_verdict_is_forged(arena: Arena, name: str) -> None:
    program = FORGERIES[name]
    sources = [PRELUDE + program]
    if not re.search("ctypes|libc|syscall", program):
        sources.append(LIGHT_PRELUDE + program)
    for source in sources:
        judgement = arena.run(source, ({}, "word"), ({}, "word"), prelude=False)
        assert judgement.visible_passed == 0, judgement
        assert judgement.verdict in ("wrong answer", "runtime error", "time limit")
    assert arena.passes("print(T['a'])", {"a": 1}, "1")


def test_a_judge_with_many_open_files_hands_down_none() -> None:
    """The descriptors of its workers then have high numbers."""
    program = """
import os, struct
print([fd for fd in range(3, 5000) if os.path.exists(f'/proc/self/fd/{fd}') or dup(fd)])
"""
    program = "def dup(fd):\n    try: return os.fstat(fd)\n    except OSError: return 0\n" + program
    program = "import os\n" + program
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]
    try:
        arena = Arena()
        judgement = arena.run(program, ({}, "[]"), prelude=False)
        assert judgement.visible_passed == 1, judgement
        for name in FORGERIES:
            if "every descriptor" in name:
                test_no_verdict_is_forged(arena, name)
        arena.close()
    finally:
        for fd in held:
            os.close(fd)


# Run first with {"first": true}; what follows prints "dirty" when it finds a trace of it.
TRACES = {
    "builtins": """
import builtins
if T: builtins.trace = 1
else: print('dirty' if hasattr(builtins, 'trace') else '')
""",
    "modules": """
import math
if T: math.trace = 1; sys.modules['trace'] = math
else: print('dirty' if hasattr(math, 'trace') or 'trace' in sys.modules else '')
""",
    "global names": "print('dirty' if 'trace' in globals() else '')\ntrace = 1",
    "the code of the program": """
def f(): return 'clean'
if T:
    constants = f.__code__.co_consts
    at = id(constants) + tuple.__basicsize__ + 8 * constants.index('clean')
    ctypes.c_void_p.from_address(at).value = id('dirty')
else: print('dirty' if f() != 'clean' else '')
""",
    "a constant of the interpreter": """
if T: ctypes.c_char.from_address(id(b'a') + bytes.__basicsize__ - 1).value = b'z'
else: print('dirty' if b'a'[0] != 97 else '')
""",
    "environment": "print('dirty' if 'TRACE' in os.environ else ''); os.environ['TRACE'] = '1'",
    "signal handlers": """
print('dirty' if signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN else '')
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
""",
    "signal mask": """
print('dirty' if signal.pthread_sigmask(signal.SIG_BLOCK, []) else '')
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
""",
    "limits": """
import resource
print('dirty' if resource.getrlimit(resource.RLIMIT_AS)[0] == 300 << 20 else '')
resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
""",
    "recursion limit": """
print('dirty' if sys.getrecursionlimit() > 5000 else ''); sys.setrecursionlimit(9999)
""",
    "descriptors": """
print('dirty' if os.path.exists('/proc/self/fd/50') else '')
os.dup2(0, 50)
""",
    "descriptors closed": """
try: print('' if os.fstat(2) else '')
except OSError: print('dirty')
os.close(2)
""",
    "flags of descriptors": """
import fcntl
flags = fcntl.fcntl(1, fcntl.F_GETFL)
if T: fcntl.fcntl(1, fcntl.F_SETFL, flags | os.O_APPEND | os.O_NONBLOCK)
else: print('dirty' if flags & (os.O_APPEND | os.O_NONBLOCK) else '')
""",
    "a descriptor that does not block": """
print('dirty' if not all(map(os.get_blocking, range(3))) else '')
for fd in range(3): os.set_blocking(fd, False)
""",
    "a duplicate that does not block": """
import fcntl
print('dirty' if not os.get_blocking(1) else '')
fcntl.ioctl(os.dup(1), 0x5421, struct.pack('i', 1))
""",
    "seals": """
import fcntl
if T:
    for fd in 0, 1, 2:
        try: fcntl.fcntl(fd, 1033, 15)
        except OSError: pass
else: print('')
""",
    "locks": """
import fcntl
if T:
    try: fcntl.flock(1, fcntl.LOCK_EX)
    except OSError: pass
else: print('')
""",
    "position in stdout": """
if T: os.lseek(1, 1 << 20, 0); os.lseek(0, 1 << 20, 0)
else: print('dirty' if os.lseek(1, 0, 1) else '')
""",
    "content of stdout": """
if T: os.write(1, b'dirty ' * 9)
else: os.lseek(1, 100, 0)
""",
    "a mapping of stdout": """
import mmap
if T: os.ftruncate(1, 4096); mmap.mmap(1, 4096)[:5] = b'dirty'
else: print('')
""",
    "owner and mode of stdout": """
if T:
    for fd in 0, 1, 2:
        try: os.fchmod(fd, 0)
        except OSError: pass
        try: os.fchown(fd, 1, 1)
        except OSError: pass
else: print('dirty' if not os.fstat(1).st_mode & 0o777 else '')
""",
    "a file": """
for name in '/tmp/trace', '/dev/shm/trace', 'trace':
    try: open(name); print('dirty')
    except OSError: pass
    try: open(name, 'w')
    except OSError: pass
""",
    "System V memory": """
print('dirty' if libc.shmget(4242, 1, 0o600) >= 0 else '')
libc.shmget(4242, 1, 0o1600)
""",
    "a POSIX queue": """
print('dirty' if libc.mq_open(b'/attack', 2) >= 0 else '')
libc.mq_open(b'/attack', 0o102, 0o600, None)
""",
    "a key": """
print('dirty' if libc.syscall(T and 0 or 250, 10, b'user', b'attack', 0) > 0 else '')
libc.syscall(248, b'user', b'attack', b'x', 1, -4)
""",
    "a thread": """
def later():
    time.sleep(0.05)
    os.write(1, b'dirty')
if T: threading.Thread(target=later, daemon=True).start()
else: time.sleep(0.1)
""",
    "random state": "import random\nprint(random.random() if T else '')\nrandom.seed(1)",
    "an exit function": """
import atexit
if T: atexit.register(lambda: print('dirty'))
""",
    "nice": """
print('dirty' if libc.getpriority(0, 0) > 0 else '')
libc.nice(19)
""",
    "its name": """
print('dirty' if open('/proc/self/comm').read() == 'trace' else '') if 0 else None
libc.prctl(15, b'trace', 0, 0, 0)
""",
    "the file mode mask": """
try: print('dirty' if os.umask(0o777) == 0o777 else '')
except OSError: print('')
""",
    "the working directory": """
try: os.chdir('/usr')
except OSError: pass
""",
}


@pytest.mark.parametrize("name", TRACES)
def test_nothing_is_left_for_the_next_case_or_program(arena: Arena, name: str) -> None:
    arena.run("", ({}, ""))
    (before,) = arena.judge._all
    judgement = arena.run(TRACES[name], ({"first": True}, "-"), ({}, ""), ({}, ""))
    assert judgement.visible_passed >= 2
    for extra in ("", "\n#"):  # the same again, as another program
        assert arena.passes(TRACES[name] + extra, {}, "")
    assert before in arena.judge._all  # the worker lived through it


# --- the kernel's other doors -----------------------------------------------------------------

# Harmless where they succeed. (x86_64, aarch64, arguments); a text is a pointer to it.
DOORS: dict[str, tuple[int, int, list[object]]] = {
    "socket": (41, 198, [1, 1, 0]),
    "socketpair of datagrams": (53, 199, [1, 2, 0, "pair------------"]),
    "socketpair of packets": (53, 199, [1, 5, 0, "pair------------"]),
    "socketpair of another family": (53, 199, [16, 1, 0, "pair------------"]),
    "sendto an address": (44, 206, [0, "x", 1, 0, "\x01\0/run/x\0", 9]),
    "sendmsg": (46, 211, [0, "x" * 64, 0]),
    "recvmsg": (47, 212, [0, "x" * 64, 0]),
    "bind": (49, 200, [0, "\x01\0/tmp/x\0", 9]),
    "connect": (42, 203, [0, "\x01\0/run/x\0", 9]),
    "bpf": (321, 280, [5, "x" * 128, 48]),
    "io_uring_setup": (425, 425, [1, "\0" * 120]),
    "userfaultfd": (323, 282, [1]),
    "perf_event_open": (298, 241, ["\0" * 128, 0, -1, -1, 0]),
    "memfd_create": (319, 279, ["x", 0]),
    "memfd_secret": (447, 447, [0]),
    "ptrace": (101, 117, [0, 0, 0, 0]),
    "add_key": (248, 217, ["user", "attack", "x", 1, -3]),
    "keyctl": (250, 219, [0, -3, 1]),
    "request_key": (249, 218, ["user", "attack", 0, -3]),
    "unshare user": (272, 97, [0x10000000]),
    "unshare files": (272, 97, [0x400]),
    "setns": (308, 268, [0, 0]),
    "mount": (165, 40, ["none", "/", 0, 0x44000, 0]),
    "umount": (166, 39, ["/attack", 2]),
    "fsopen": (430, 430, ["tmpfs", 0]),
    "open_tree": (428, 428, [-100, "/", 0]),
    "chroot": (161, 51, ["/"]),
    "pivot_root": (155, 41, [".", "."]),
    "chdir": (80, 49, ["/"]),
    "execve": (59, 221, ["/bin/true", 0, 0]),
    "setuid": (105, 146, [0]),
    "setgroups": (116, 159, [0, 0]),
    "setsid": (112, 157, []),
    "setpgid": (109, 154, [0, 0]),
    "personality": (135, 92, [0x0040000]),
    "modify_ldt": (154, 600, [0, "x" * 64, 64]),
    "iopl": (172, 600, [3]),
    "name_to_handle_at": (303, 264, [-100, "/", "\x80\0\0\0" + "x" * 200, "x" * 8, 0]),
    "open_by_handle_at": (304, 265, [-100, "\x08\0\0\0\1\0\0\0" + "\0" * 16, 0]),
    "inotify_init1": (294, 26, [0]),
    "fanotify_init": (300, 262, [0, 0]),
    "timerfd_create": (283, 85, [1, 0]),
    "signalfd4": (289, 74, [-1, "\0" * 8, 8, 0]),
    "timer_create": (222, 107, [1, 0, "x" * 8]),
    "shmget": (29, 194, [0, 4096, 0o1600]),
    "msgget": (68, 186, [0, 0o1600]),
    "semget": (64, 190, [0, 1, 0o1600]),
    "mq_open": (240, 180, ["attack", 0o102, 0o600, 0]),
    "pidfd_open": (434, 434, [1, 0]),
    "pidfd_getfd": (438, 438, [0, 0, 0]),
    "kcmp": (312, 272, [1, 1, 0, 0, 0]),
    "process_madvise": (440, 440, [0, 0, 0, 0, 0]),
    "migrate_pages": (256, 238, [0, 0, 0, 0]),
    "sched_setscheduler": (144, 119, [0, 3, "\0" * 8]),
    "sched_setattr": (314, 274, [0, "\x30\0\0\0" + "\0" * 60, 0]),
    "setpriority": (141, 140, [0, 0, 5]),
    "ioprio_set": (251, 30, [1, 0, 0x4007]),
    "seccomp": (317, 277, [0, 0, 0]),
    "sethostname": (170, 161, ["attack", 6]),
    "settimeofday": (164, 170, [0, 0]),
    "adjtimex": (159, 171, ["\0" * 256]),
    "syslog": (103, 116, [3, "x" * 64, 64]),
    "quotactl": (179, 60, [0x800001, 0, 0, 0]),
    "swapon": (167, 224, ["/attack", 0]),
    "init_module": (175, 105, ["x", 1, ""]),
    "kexec_load": (246, 104, [0, 0, 0, 0]),
    "vhangup": (153, 58, []),
    "mlockall": (151, 230, [1]),
    "splice": (275, 76, [0, 0, 1, 0, 1, 0]),
    "vmsplice": (278, 75, [1, "x" * 16, 1, 0]),
    "fallocate": (285, 47, [1, 0, 0, 1 << 16]),
    "copy_file_range": (326, 285, [0, 0, 1, 0, 1, 0]),
    "pkey_alloc": (330, 289, [0, 0]),
    "lsm_list_modules": (461, 461, ["x" * 64, "\x40\0\0\0\0\0\0\0", 0]),
    "an unknown call": (999, 999, []),
    "a negative call": (-1, -1, []),
}
# Allowed with these arguments, harmless to all outside of the case.
DOORS_THAT_MAY_OPEN = {"seccomp"}


@pytest.mark.parametrize("name", DOORS)
def test_a_system_call_that_is_not_needed_is_refused(arena: Arena, name: str) -> None:
    x86_64, aarch64, arguments = DOORS[name]
    number = {"x86_64": x86_64, "aarch64": aarch64}[platform.machine()]
    program = """
keep = [ctypes.create_string_buffer(a.encode('latin-1')) if isinstance(a, str) else a
        for a in T['arguments']]
result = libc.syscall(ctypes.c_long(T['number']), *(ctypes.c_long(a) if isinstance(a, int) else a
                      for a in keep))
print(result, ctypes.get_errno())
"""
    judgement = arena.run(program, ({"number": number, "arguments": arguments}, "0"))
    assert judgement.first_failure
    refused = judgement.first_failure.got.split()
    assert refused in (["-1", "1"], ["-1", "38"]), judgement  # EPERM or ENOSYS
