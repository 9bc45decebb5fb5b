"""run.py with streams and disks that fail: the report is shown where it can be."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from data import load_tasks

ROOT = Path(__file__).parent.parent
RUN = f"{sys.executable} {ROOT}/run.py"


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], cwd=cwd, capture_output=True, text=True
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr
    return done


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A folder with a small dry run in `out`."""
    folder = tmp_path_factory.mktemp("streams")
    assert shell(f"{RUN} --dry-run --limit 2 --noise-runs 0 --out out", folder).returncode == 0
    return folder


def test_a_reader_that_leaves(saved):
    for command in ("--reuse --out out", "--help"):
        done = shell(f"{RUN} {command} | head -1", saved)
        assert done.returncode == 0
        assert done.stderr == ""
        assert len(done.stdout.splitlines()) == 1


def test_a_closed_stdout(saved):
    (saved / "out" / "results.json").unlink()
    done = shell(f"{RUN} --reuse --out out >&-", saved)
    assert (done.returncode, done.stderr) == (0, "")
    assert (saved / "out" / "results.json").exists()


def test_a_full_stdout(saved):
    done = shell(f"{RUN} --reuse --out out > /dev/full", saved)
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: cannot print the report: No space .*results\.json .*\n", done.stderr
    )


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", "2> >(exit 0)"])
def test_a_dead_stderr_costs_no_report(saved, stderr):
    done = shell(f"{RUN} --dry-run --limit 2 --noise-runs 0 --out dead --overwrite {stderr}", saved)
    assert done.returncode == 0
    assert "Files: dead/results.json" in done.stdout
    before = (saved / "dead" / "rollouts.jsonl").read_text()
    assert "sandbox:" not in before.splitlines()[-1]  # what was meant for stderr is not in there


def test_no_stream_at_all(saved):
    done = shell(f"{RUN} --dry-run --limit 2 --out none <&- >&- 2>&-", saved)
    assert done.returncode == 0
    lines = (saved / "none" / "rollouts.jsonl").read_text().splitlines()
    assert all(line.startswith('{"kind": ') for line in lines)


def test_a_disk_that_takes_nothing_shows_the_report(saved, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        shell(f"cp -r out/. {disk}; rm {disk}/results.json", saved)
        for prepare, why in (
            (f"dd if=/dev/zero of={disk}/fill bs=4k", "No space left on device"),
            (f"rm {disk}/fill; mount -o remount,ro {disk}", "Read-only file system"),
        ):
            subprocess.run(["bash", "-c", prepare], capture_output=True)
            done = shell(f"{RUN} --reuse --out {disk}", saved)
            assert done.returncode == 1
            assert "What became learnable" in done.stdout
            assert f"results.json: {why}" in done.stderr
            assert len(done.stderr.splitlines()) == 1
        refused = shell(f"{RUN} --dry-run --out {disk}/new", saved)
        assert refused.returncode == 1
        assert "error: cannot use" in refused.stderr.splitlines()[-1]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_judge_py_and_its_streams(tmp_path):
    rows = '{"task": "1_A", "program": "print(1)"}\n' * 40
    (tmp_path / "bank.jsonl").write_text(
        rows.replace("1_A", load_tasks("toy", limit=1).tasks[0].id)
    )
    command = f"{sys.executable} {{}} {ROOT}/judge.py bank.jsonl --tasks toy"
    done = shell(f"{command.format('-P')} | head -1", tmp_path)
    assert len(done.stdout.splitlines()) == 1
    assert "error" not in done.stderr
    assert shell(f"{command.format('')} >/dev/full", tmp_path).stderr.endswith(
        "error: [Errno 28] No space left on device\n"
    )
    assert "give --out" in shell(f"{command.format('')} >&-", tmp_path).stderr
    verdicts = shell(f"{command.format('')} 2>&-", tmp_path).stdout.splitlines()
    assert len(verdicts) == 40
    assert all(line.startswith("{") for line in verdicts)
