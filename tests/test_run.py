"""The command line: flags, mistakes, and errors that end with one line."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from data import DataError, load_tasks
from judge import JudgeFault, Limits, default_workers
from policy import BudgetSpent, PolicyError, Stopped
from policy.key import DEFAULT_BASE_URL, find_key
from progress import Progress, amount
from settings import Config, parse
from stopping import to_go_on
from swarm import Key, Record
from versions import git_commit

ROOT = Path(__file__).parent.parent


def test_every_flag_has_help_that_states_its_default(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = " ".join(capsys.readouterr().out.split("options:")[1].split())
    parts = re.split(r" (?=--[a-z])", text)
    described = {part.split()[0].rstrip(","): part for part in parts if "(default" in part}
    for item in fields(Config):
        if "help" in item.metadata:
            assert "--" + item.name.replace("_", "-") in described
    for name in ("cpu-seconds", "wall-seconds", "memory-mb", "output-mb", "sandbox"):
        assert f"--{name}" in described


def test_flags_become_the_configuration():
    config = parse(
        ["--arms", "resample, star", "--seed", "7", "--sandbox", "off", "--cpu-seconds", "2.5",
         "--noise-runs", "2", "--thinking"]
    )  # fmt: skip
    assert config.arms == ("resample", "star")
    assert config.all_arms == ["resample", "star", "noise-1", "noise-2"]
    assert (config.seed, config.thinking, config.sandbox) == (7, True, False)
    assert config.limits.cpu_seconds == 2.5
    assert config.folder == Path("out")
    assert parse([]).arms == ("resample", "solo", "ring", "star")


def test_a_dry_run_is_two_noise_runs_of_the_toy_tasks_in_a_folder_of_its_own():
    config = parse(["--dry-run"])
    assert (config.tasks, config.noise_runs) == ("toy", 2)
    assert config.limits.cpu_seconds == 1
    assert config.folder == Path("out/dry-run")


@pytest.mark.parametrize(
    "argv",
    [
        ["--arms", "resample,comet"],
        ["--arms", "ring,ring"],
        ["--arms", "ring", "--noise-runs", "1"],
        ["--band", "lucky"],
        ["--limit", "0"],
        ["--group", "1"],
        ["--rounds", "0"],
        ["--group", "7", "--arms", "resample,von-neumann"],
        ["--max-tokens", "0"],
        ["--concurrency", "0"],
        ["--temperature", "-1"],
        ["--temperature", "nan"],
        ["--judge-workers", "0"],
        ["--export", "parquet"],
        ["--require-extra"],
        ["--noise-runs", "-1"],
        ["--dry"],
        ["--seed", "-1"],
        ["--seed", "99999999999999999999"],
        ["--temperature", "inf"],
        ["--max-tokens", "99999999999"],
        ["--give-up-after", "inf"],
        ["--limit", "1e3"],
        ["--wall-seconds", "1e300"],
        ["--cpu-seconds", "0"],
        ["--memory-mb", "8"],
        ["--arms", ""],
        ["--out", ""],
        ["--model", ""],
        ["--splits", "test,spring"],
    ],
)
def test_a_mistake_in_the_flags_is_refused(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(argv)
    assert stop.value.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "argv",
    [
        "--reuse --seed 3",
        "--reuse --overwrite",
        "--reuse --limit 5",
        "--reuse --sandbox off",
        "--reuse --tasks toy",
        "--reuse --judge-workers 1",
        "--reuse --calibrate --sandbox off",
        "--reuse --calibrate --cpu-seconds 6",
        "--regrade --max-tokens 5",
        "--regrade --overwrite",
        "--dry-run --tasks mine.parquet",
        "--dry-run --base-url http://localhost:1/v1",
        "--dry-run --max-total-tokens 9",
        "--dry-run --reuse --seed 1",
        "--tasks toy --splits test",
    ],
)
def test_a_flag_without_effect_is_refused(argv, capsys):
    with pytest.raises(SystemExit):
        parse(argv.split())
    last = capsys.readouterr().err.splitlines()[-1]
    assert argv.split()[-1] in last or argv.split()[-2] in last


@pytest.mark.parametrize(
    "argv",
    [
        "--reuse --band near-miss --arms resample,ring --noise-runs 0",
        "--reuse --calibrate --tasks elsewhere --judge-workers 1",
        "--regrade --calibrate --cpu-seconds 2 --sandbox off --tasks elsewhere --band near-miss",
        "--dry-run --tasks toy --seed 3 --limit 4 --overwrite --calibrate --memory-mb 256",
    ],
)
def test_a_flag_with_an_effect_is_taken(argv):
    parse(argv.split())


def test_a_dry_run_does_as_it_is_told():
    config = parse(["--dry-run", "--noise-runs", "0", "--cpu-seconds", "6"])
    assert (config.noise_runs, config.limits.cpu_seconds) == (0, 6)
    assert parse(["--dry-run", "--arms", "ring"]).noise_runs == 0


def test_what_was_given_is_not_written():
    config = parse(["--limit", "3", "--sandbox", "off"])
    assert config.given == {"limit", "sandbox"}
    assert "given" not in config.saved
    assert json.loads(json.dumps(config.saved))["limit"] == 3


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--tasks", "nowhere.parquet", "--base-url", "http://127.0.0.1:9/v1"], "no such file"),
        (["--tasks", "toy"], "no key for the hosted model"),
        (["--tasks", "toy", "--base-url", "http://127.0.0.1:9/v1"], "cannot connect"),
        (["--tasks", "toy", "--base-url", "localhost:8000"], "http://"),
        (["--tasks", "toy", "--base-url", "http://localhost:99999/v1"], "a port is"),
    ],
)
def test_an_error_of_the_user_is_one_line(argv, said, tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, str(ROOT / "run.py"), *argv, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def started(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """run.py without a key, a home or a network."""
    return subprocess.run(
        [sys.executable, *argv],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HF_ENDPOINT": "http://127.0.0.1:9", **env},
    )


def test_flags_folder_and_key_are_looked_at_before_the_tasks(tmp_path):
    run, out = str(ROOT / "run.py"), str(tmp_path / "out")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "results.json").write_text("theirs")
    key = {"WHILEAI_API_KEY": "x", "HF_HOME": str(tmp_path / "hub")}
    for argv, env, said in (
        ([run, "--out", str(tmp_path / "taken")], key, "holds results.json and not the"),
        ([run, "--out", out], {}, "no key for the hosted model"),
        ([run, "--out", out, "--base-url", "ftp://x"], key, "http://"),
        ([run, "--out", out], key, "can't get the test split"),
    ):
        done = started(*argv, **env)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()  # and no line of the hub's client
        assert line.startswith("error: ")
        assert said in line
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "taken" / "results.json").read_text() == "theirs"


def test_a_home_is_known_by_its_sign(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse(["--out=~/x"]).folder == tmp_path / "x"


def test_a_run_by_a_user_without_a_home(tmp_path, monkeypatch, capsys):
    def no_home(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    monkeypatch.setattr(Path, "home", no_home)
    for name in ("WHILEAI_API_KEY", "WHILEAI_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit):
        parse(["--out", "~/x"])
    assert "home" in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(PolicyError, match="no key"):
        find_key(DEFAULT_BASE_URL)
    with pytest.raises(DataError, match="home"):
        load_tasks("~/x.parquet")


@pytest.mark.parametrize("safe", [["-P"], []])
def test_the_project_is_found_whatever_the_path_holds(safe, tmp_path):
    done = started(*safe, str(ROOT / "run.py"), "--reuse", "--out", str(tmp_path),
                   **({} if safe else {"PYTHONSAFEPATH": "1"}))  # fmt: skip
    assert "error: nothing is saved" in done.stderr


def test_control_c_while_modules_are_imported_is_no_traceback(tmp_path):
    code = """
import runpy, signal, sys, os
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = [sys.argv[1], "--reuse"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    done = started("-c", code, str(ROOT / "run.py"), PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_workers_are_counted_where_the_affinity_is_refused(monkeypatch):
    def refuse(pid: int) -> set[int]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_getaffinity", refuse, raising=False)
    assert default_workers(Limits()) >= 1


def test_the_way_on_is_a_command_that_works(monkeypatch):
    def way(line: str, error: BaseException, workers: int = 2) -> str:
        monkeypatch.setattr(sys, "orig_argv", line.split())
        config = parse(line.split()[2:])
        return to_go_on(config, error, workers)

    stopped = Stopped("no new request is started")
    assert way("python3 run.py --seed 1 --overwrite", stopped) == "python3 run.py --seed 1"
    spent = BudgetSpent("spent")
    expected = "python run.py --limit 3 --max-total-tokens 2000"
    assert way("python run.py --max-total-tokens 1000 --limit 3", spent) == expected
    assert way("python run.py --max-total-tokens=1000 --limit 3", spent) == expected
    short = JudgeFault("is memory short?")
    assert way("python run.py", short) == "python run.py --judge-workers 1"
    assert way("python run.py --judge-workers 8", short, 8) == "python run.py --judge-workers 1"
    assert way("python run.py --judge-workers 1", short, 1) == "python run.py --judge-workers 1"


def test_the_bar_and_its_facts_fit_80_columns(tmp_path):
    """In a real terminal of 80 columns, and every fact is on it."""
    code = """
import sys, time
from types import SimpleNamespace
from progress import Progress
from test_run import record
policy = SimpleNamespace(in_flight=1024, retries=31, sampled=123456, estimated=True)
progress = Progress(planned=34000, saved=12000, policy=policy, max_tokens=10)
arms = ["resample", "solo", "ring", "star", "von-neumann", "noise-1", "noise-2"]
for number in range(300):
    for arm in arms:
        progress.add(record(0, task=f"t/{number}", arm=arm))
progress.facts.show(progress.rescues(), progress.state(progress.started + 9))
progress.close()
"""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=theirs, stderr=theirs,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
    )  # fmt: skip
    os.close(theirs)
    screen = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 65536):
            screen += chunk
    os.close(ours)
    assert process.wait() == 0
    shown = re.split(r"[\r\n]|\x1b\[A", screen.decode())
    assert max(map(len, shown)) <= 80
    assert any(
        "rescues: resample 300 ring 300 solo 300 star 300 von-neumann 300 noise 300/300" in line
        for line in shown
    )
    assert any("100% truncated, 1024 in flight, 31 retries" in line for line in shown)
    bars = [line for line in shown if "/34000" in line]
    assert max(line.count("█") for line in bars) >= 5


def record(particle: int, *, task: str = "t/1", arm: str = "base", reply: int = 1) -> Record:
    verdict = "accepted" if arm != "base" else "wrong answer"
    key = Key(arm, task, 0, particle)
    return Record(key, verdict, 0, 1, "length", None, 1, 10, None, reply, 1, 0.0, 0.0)


def test_progress_counts_and_warns_once_of_a_server_that_repeats_itself(capsys):
    policy = SimpleNamespace(in_flight=64, retries=2, sampled=560, estimated=False)
    progress = Progress(planned=100, saved=0, policy=policy, max_tokens=10)
    for task in range(6):
        for particle in range(8):
            progress.add(record(particle, task=f"t/{task}"))
    for particle in range(8):
        progress.add(record(particle, arm="ring"))
    progress.skip(16)
    said = capsys.readouterr().err
    assert said.count("WARNING") == 1
    assert "in 3 of 3 base groups" in said
    assert progress.total == 84
    assert progress.rescued == {"ring": 1}
    state = progress.state(progress.started + 1)
    assert progress.rescues() == "rescues: ring 1"
    assert state == "560 tokens/s, 100% truncated, 64 in flight, 2 retries"
    policy.estimated = True
    assert progress.state(progress.started + 1).startswith("about 560 tokens/s, ")


def test_progress_warns_once_of_a_window_that_cuts_replies(capsys):
    policy = SimpleNamespace(in_flight=64, retries=2, sampled=0, estimated=False)
    progress = Progress(planned=100, saved=0, policy=policy, max_tokens=256)
    whole = record(0)
    for tokens in (256, 255, None):  # the limit itself, one less, and unknown
        progress.add(replace(whole, completion_tokens=tokens))
    progress.add(replace(whole, completion_tokens=9, finish_reason="stop"))
    assert capsys.readouterr().err == ""
    for arm in ("base", "star"):
        cut = record(1, arm=arm)
        progress.add(replace(cut, completion_tokens=234, prompt_tokens=166))
    said = capsys.readouterr().err
    assert said.count("WARNING: a reply was cut after 234 tokens, and --max-tokens is 256") == 1
    assert f"a window of {166 + 3 * 256} tokens" in said


def test_small_amounts_of_tokens_are_not_rounded_away():
    assert (amount(49_152), amount(1_234_567)) == ("49,152", "1.2M")


def test_the_commit_is_read_from_the_checkout():
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    assert git_commit() == (git.stdout.strip() if git.returncode == 0 else None)


def test_the_way_on_shows_no_password(monkeypatch):
    argv = ["python", "run.py", "--base-url=http://u:secret@h/v1", "--base-url", "http://t@i/v1"]
    monkeypatch.setattr(sys, "orig_argv", argv)
    shown = to_go_on(parse(argv[2:]), KeyboardInterrupt(), 1)
    assert shown == "python run.py --base-url=http://h/v1 --base-url http://i/v1"


def test_addresses_are_given_by_commas_or_one_by_one_and_saved_without_passwords():
    given = ["--base-url", "http://a/v1,http://u:secret@b/v1", "--base-url", "http://c/v1"]
    config = parse(given)
    assert config.base_url == ("http://a/v1", "http://u:secret@b/v1", "http://c/v1")
    assert config.saved["base_url"] == ["http://a/v1", "http://b/v1", "http://c/v1"]
    assert parse([]).base_url == (DEFAULT_BASE_URL,)


@pytest.mark.parametrize(
    "argv",
    [
        ["--extra-body", "[1]"],
        ["--extra-body", "{bad"],
        ["--extra-body", '{"top_p": NaN}'],
        ["--extra-body", '{"seed": 1}'],
        ["--extra-body", '{"max_completion_tokens": 1}'],
        ["--stream", "maybe"],
        ["--read-timeout", "0"],
        ["--sample-timeout", "inf"],
    ],
)
def test_a_mistake_in_the_flags_of_the_client_is_refused(argv, capsys):
    with pytest.raises(SystemExit):
        parse(argv)
    assert argv[0] in capsys.readouterr().err.splitlines()[-1]
