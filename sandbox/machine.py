"""What this machine gives to the judge: cores, memory, stack; by its cgroups and limits too."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def cores(root: Path = CGROUPS, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Cores that this process may use: affinity, and a cgroup's CPU quota rounded up."""
    try:
        count = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    except OSError:  # a container can refuse it
        count = os.cpu_count() or 1
    for folder in _folders("cpu", root, membership):
        quota, period = (
            _words(folder / "cpu.max")
            or (
                *_words(folder / "cpu.cfs_quota_us"),
                *_words(folder / "cpu.cfs_period_us"),
            )
            or ("max", "")
        )
        if quota.isdigit() and period.isdigit() and int(period):  # "max" and -1: no quota
            count = min(count, -(-int(quota) // int(period)))
    return max(1, count)


def memory_mb(root: Path = CGROUPS, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Memory that this process may use, MiB: the machine's, or less where a cgroup says so."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    for folder in _folders("memory", root, membership):
        for name in ("memory.max", "memory.limit_in_bytes"):
            (limit, *_) = _words(folder / name) or ("max",)
            if limit.isdigit():  # v1 says no limit with a number near 2^63
                most = min(most, int(limit) >> 20)
    return max(1, most)


def _folders(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """Of this process's cgroup and of those above it, with version 2 and version 1.

    Inside a container the path can be that of the host, and is then not there: the container's
    own limits lie at the top.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            top = root
        elif controller in controllers.split(","):
            top = next((p for p in (root / controllers, root / controller) if p.exists()), root)
        else:
            continue
        folder = top / path.lstrip("/")
        for place in (folder, *folder.parents):
            if place.is_dir():
                yield place
            if place == top:
                break


def _words(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text().split())
    except OSError:
        return ()
