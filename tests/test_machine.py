"""What the machine gives, from cgroups that are written here, and a sandbox that holds in part."""

import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import judge as judge_module
from data import Case, Task
from judge import Judge, Limits, SandboxError, default_workers
from sandbox.machine import cores, memory_mb

ROOT = Path(__file__).parent.parent
CASES = (Case("", "7"),)
TASK = Task("t", "t", "", "", 0, CASES, CASES)


def cgroup(folder: Path, lines: str, **files: str) -> tuple[Path, Path]:
    """A cgroup tree and a membership; a file's name has its path, with __ for each slash."""
    for name, text in files.items():
        path = folder / "tree" / name.replace("__", "/").replace("-", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (folder / "tree").mkdir(exist_ok=True)
    (folder / "self").write_text(lines)
    return folder / "tree", folder / "self"


V1 = "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n"


@pytest.mark.parametrize(
    ("lines", "files", "memory"),
    [
        ("0::/a/b\n", {"a__b__memory.max": "536870912"}, 512),
        ("0::/a/b\n", {"a__memory.max": "268435456", "a__b__memory.max": "max"}, 256),
        ("0::/\n", {"memory.max": "1073741824"}, 1024),
        ("0::/../host/path\n", {"memory.max": "1073741824"}, 1024),
        ("0::/not/there\n", {"memory.max": "1073741824"}, 1024),
        (V1, {"memory__docker__x__memory.limit_in_bytes": "536870912"}, 512),
        (V1, {"memory__memory.limit_in_bytes": "536870912"}, 512),
        (V1, {"memory__memory.limit_in_bytes": "9223372036854771712"}, None),
        ("0::/a\n", {"a__memory.max": "max"}, None),
        ("", {}, None),
    ],
)
def test_memory_is_the_least_that_a_cgroup_says(tmp_path, lines, files, memory):
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    assert memory_mb(*cgroup(tmp_path, lines, **files)) == (memory or whole)


@pytest.mark.parametrize(
    ("lines", "files", "count"),
    [
        ("0::/a\n", {"a__cpu.max": "100000 100000"}, 1),
        ("0::/a/b\n", {"a__cpu.max": "50000 100000", "a__b__cpu.max": "max 100000"}, 1),
        (V1, {"cpu,cpuacct__docker__x__cpu.cfs_quota_us": "100000",
              "cpu,cpuacct__docker__x__cpu.cfs_period_us": "100000"}, 1),
        (V1, {"cpu__cpu.cfs_quota_us": "-1", "cpu__cpu.cfs_period_us": "100000"}, None),
        ("0::/a\n", {"a__cpu.max": "max 100000"}, None),
        ("0::/a\n", {"a__cpu.max": "6400000 100000"}, None),
    ],
)  # fmt: skip
def test_cores_are_bounded_by_a_quota(tmp_path, lines, files, count):
    assert cores(*cgroup(tmp_path, lines, **files)) == (count or len(os.sched_getaffinity(0)))


def test_a_refused_affinity_is_no_error(monkeypatch, tmp_path):
    def refuse(pid: int) -> set[int]:
        raise PermissionError(1, "refused")

    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    assert cores(*cgroup(tmp_path, "")) == os.cpu_count()


def test_workers_fit_into_the_memory(monkeypatch):
    monkeypatch.setattr(judge_module, "memory_mb", lambda: 2500)
    monkeypatch.setattr(judge_module, "cores", lambda: 8)
    assert default_workers(Limits(memory_mb=1024, output_mb=16)) == 2
    assert default_workers(Limits(memory_mb=4096)) == 1
    report = asyncio.run(checked(limits=Limits(memory_mb=4096)))
    assert "a case may take 4096 MiB and 2500 are to be had" in report.line
    report.check()


async def checked(**options):
    async with Judge(1, **options) as judge:
        return await asyncio.to_thread(judge.self_check)


def test_a_part_of_the_sandbox_is_refused_unless_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(judge_module, "_has", lambda layer: layer == "seccomp")
    whole = asyncio.run(checked())
    with pytest.raises(SandboxError, match=r"Landlock .*--sandbox partial"):
        whole.check()
    part = asyncio.run(checked(sandbox="partial"))
    part.check()
    assert part.line.startswith("sandbox: PARTIAL: held by seccomp, ")
    assert "a program could read" in part.line  # the attack was made, and this is what it found
    assert "connect" not in part.line


def test_with_no_layer_at_all_the_attack_is_still_made(monkeypatch):
    monkeypatch.setattr(judge_module, "_has", lambda layer: False)
    part = asyncio.run(checked(sandbox="partial"))
    part.check()
    assert "a program could read, write, connect, fork" in part.line


def test_a_partial_sandbox_gives_the_same_verdicts(monkeypatch):
    monkeypatch.setattr(judge_module, "_has", lambda layer: layer == "Landlock")

    async def body():
        async with Judge(1, sandbox="partial") as judge:
            programs = ("print(7)", "print(8)", "1/0")
            return [(await judge.grade(program, TASK)).verdict for program in programs]

    assert asyncio.run(body()) == ["accepted", "wrong answer", "runtime error"]


def test_threads_start_whatever_the_limit_of_the_stack():
    """Without a size of its own a thread's stack is as large as the limit was at the start."""
    program = "import threading\ne = threading.Event()\n" \
        "T = [threading.Thread(target=e.wait, daemon=True) for _ in range(16)]\n" \
        "for t in T: t.start()\ne.set()\nprint(7)"  # fmt: skip
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    large = 256 << 20

    async def body():
        async with Judge(1) as judge:
            return await judge.grade(program, TASK)

    resource.setrlimit(resource.RLIMIT_STACK, (large, hard))
    try:
        assert asyncio.run(body()).accepted
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


def test_a_hard_limit_of_the_stack_is_said(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    small = 8 << 20
    program = "import sys, asyncio; sys.path[:0] = sys.argv[1:]; import test_machine as t\n" \
        "print(asyncio.run(t.checked()).line)"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT), str(ROOT / "tests")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (small, small)),
    )
    assert "the hard limit of the stack is 8 MiB here (ulimit -Hs)" in done.stdout, done.stderr
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_STACK)
