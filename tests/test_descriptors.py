"""The limit of open files, and errors for want of them, in processes of their own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def limited(limits: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'{limits}; exec "$@"', "bash", sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_the_soft_limit_is_raised_as_far_as_the_hard_one():
    code = (
        "import descriptors as d; print(d.raise_limit(50), d.raise_limit(300), d.raise_limit(999))"
    )
    done = limited("ulimit -Sn 100; ulimit -Hn 400", "-c", code)
    assert done.stdout.split() == ["100", "300", "400"], done.stderr


def test_a_run_with_too_few_descriptors_is_refused_with_a_number_that_fits(tmp_path):
    address = [
        "--tasks",
        "toy",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--out",
        str(tmp_path / "o"),
    ]
    done = limited("ulimit -n 300", "run.py", *address, "--concurrency", "500")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: 500 requests in flight need ")
    fits = line.split("--concurrency ")[1].split(",")[0]
    done = limited("ulimit -n 300", "run.py", *address, "--concurrency", fits)
    assert "cannot connect" in done.stderr.splitlines()[-1]


def test_want_of_descriptors_is_no_outage_and_no_bad_file(tmp_path):
    code = """
import os, resource, sys
import openai, httpx2
from data import DataError, load_tasks
from descriptors import exhausted
from policy.failures import explain
import pyarrow.parquet as pq
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    assert exhausted(error)
    connection = openai.APIConnectionError(request=httpx2.Request("GET", "http://x"))
    connection.__cause__ = httpx2.ConnectError("too many")
    connection.__cause__.__context__ = error
    print(type(explain(connection, "http://x", "m")).__name__)
connection.__cause__.__context__ = ConnectionRefusedError(111, "refused")
print(type(explain(connection, "http://x", "m")).__name__)
try:
    load_tasks(sys.argv[1])
except DataError as error:
    for fd in held:
        os.close(fd)
    print(error)
"""
    path = tmp_path / "some.parquet"
    path.write_bytes(b"PAR1")
    done = limited("true", "-c", code, str(path))
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == "EndpointRefused"
    assert second != first  # a server that is not there is waited for
    assert "too few file descriptors" in third
