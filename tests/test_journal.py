"""The journal, on real files, with real second processes, kills and full disks."""

import asyncio
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from data import Case, Task
from folder import JournalError, check_folder
from journal import Journal
from judge import CheckerFault, Failure, JudgeFault, Judgement
from policy import Reply
from regrade import regrade
from swarm import Key, Record, Rollout, TaskFacts, derive_seed

ROOT = Path(__file__).parent.parent
SETTINGS = {"model": "m", "sampling": {"temperature": 1.0, "max_tokens": 2048}, "splits": ("a",)}
FACTS = TaskFacts("t/1_A", "1", 1500, 2, 3, 1, "cases", "messages")
MESSAGES = [{"role": "user", "content": "Print a + b."}]


def judged(verdict: str = "wrong answer") -> Judgement:
    if verdict == "accepted":
        return Judgement("accepted", 2, 2, 3, 3, None, 0.25)
    failure = Failure(1, False, "wrong answer", "1 2", "3", "4")
    return Judgement(verdict, 1, 2, 0, 3, failure, 0.5, cut_short=True)


def rollout(particle=0, *, arm="base", task="t/1_A", number=0, text="x", judgement=None, **more):
    reply = Reply(text, "thought", "stop", None, 10, 20, None, 1.5)
    fields = {"seed": 2**53 - 1, "messages_hash": "m", "program": "print(1)", **more}
    key = Key(arm, task, number, particle)
    return Rollout(key, reply=reply, judgement=judgement or judged(), **fields)


def unjudged(particle=0) -> Rollout:
    return replace(rollout(particle), judgement=None)


def records(journal: Journal) -> list[Record]:
    return [record for group in journal.records.values() for record in group.values()]


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]


def fill(folder: Path, n: int = 3) -> None:
    with Journal.open(folder, SETTINGS) as journal:
        journal.add_task(FACTS, MESSAGES)
        for particle in range(n):
            journal.append(rollout(particle))


def child(code: str, folder: Path, **more) -> subprocess.Popen:
    """A Python process with this file's names at hand."""
    start = "import sys; from test_journal import *; folder = Path(sys.argv[1])\n"
    return subprocess.Popen(
        [sys.executable, "-c", start + code, str(folder)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
        text=True,
        **more,
    )


# What goes in comes back.


def test_everything_comes_back(tmp_path):
    out = tmp_path / "deep" / "out"
    one, two, three = rollout(0), rollout(1, judgement=judged("accepted")), unjudged(2)
    with Journal.open(out, SETTINGS) as journal:
        journal.add_task(FACTS, MESSAGES)
        assert journal.append(one) == Record.of(one)
        assert journal.append(two) == Record.of(two)
        assert journal.append(three) is None
        journal.add_check("extra", "t/1_A", 2**64 - 1, 4, 5)
        journal.add_load({"read": 3, "dropped": {"no cases": 2}})
        live = (journal.records, journal.facts, journal.checks, journal.load)

    for again in (Journal.read(out), Journal.open(out, SETTINGS)):
        with again as journal:
            assert (journal.records, journal.facts, journal.checks, journal.load) == live
            assert journal.records == {
                ("base", "t/1_A"): {(0, 0): Record.of(one), (0, 1): Record.of(two)}
            }
            assert journal.checks == {("extra", "t/1_A", 2**64 - 1): (4, 5)}
            assert journal.settings == {**SETTINGS, "splits": ["a"]}
            assert [journal.get(r.key) for r in (one, two, three)] == [one, two, three]
            assert journal.get(Key("ring", "t/1_A", 0, 0)) is None
            assert journal.fresh_messages("t/1_A") == MESSAGES


def test_any_text_comes_back(tmp_path):
    rng = random.Random(0)
    pieces = ["\n", "\r\n", "\u2028", "\0", '"', "\\", "\\u0041", "é", "\U0001f600", "\x85", "```"]
    # Half a surrogate pair: what a server's cut-off \ud83d escape becomes.
    halves = ["\ud83d", "\udfff"]
    texts = ["", *pieces, *halves, '{"kind": "header"}\n']
    texts += ["".join(rng.choices([*pieces, "a\ud83d", "\ude00b"], k=20)) for _ in range(200)]
    texts = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    texts += halves
    rollouts = [rollout(n, text=text, program=text) for n, text in enumerate(texts)]
    with Journal.open(tmp_path, SETTINGS) as journal:
        live = [journal.append(r) for r in rollouts]
    with closing(Journal.read(tmp_path)) as journal:
        assert [journal.get(r.key) for r in rollouts] == rollouts
        assert records(journal) == live == [Record.of(r) for r in rollouts]


def test_two_halves_of_a_character_have_one_hash():
    # JSON makes one character of them, and the report must not depend on who read the text.
    assert (
        Record.of(rollout(text="\ud83d\ude00")).reply_hash
        == Record.of(rollout(text="\U0001f600")).reply_hash
    )


def test_no_program_and_odd_outcomes_come_back(tmp_path):
    reply = Reply("", "", "none", "prompt too long", None, None, None, 0.0)
    judgement = Judgement("no program", 0, 2, 0, 3, None, 0.0)
    one = Rollout(Key("star", "t/1_A", 2, 7), 0, "m", reply, None, judgement)
    with Journal.open(tmp_path, SETTINGS) as journal:
        journal.append(one)
    with closing(Journal.read(tmp_path)) as journal:
        assert journal.get(one.key) == one
        (record,) = records(journal)
    assert (record.program_hash, record.outcome) == (0, "prompt too long")


def test_a_later_line_counts(tmp_path):
    with Journal.open(tmp_path, SETTINGS) as journal:
        journal.append(unjudged())
        assert journal.get(unjudged().key) == unjudged()
        assert not records(journal)
        journal.append(rollout())
        assert journal.get(rollout().key) == rollout()
    with closing(Journal.read(tmp_path)) as journal:
        assert records(journal) == [Record.of(rollout())]
        assert journal.get(rollout().key) == rollout()


def test_a_reply_that_was_not_judged_is_checked(tmp_path):
    odd = replace(unjudged(7), key=Key("base", 't/1, "seed": ] }', 0, 7))
    with Journal.open(tmp_path, SETTINGS) as journal:
        for one in (unjudged(0), odd, unjudged(1), rollout(1)):
            journal.append(one)
    with closing(Journal.read(tmp_path)) as journal:
        assert journal.get(odd.key) == odd
    path = tmp_path / "rollouts.jsonl"
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*whole[:2], whole[2][:-9] + "\n", *whole[3:]]))
    with pytest.raises(JournalError, match="line 3 is damaged"):
        Journal.read(tmp_path)


def test_the_same_is_not_written_twice(tmp_path):
    load = {"read": 3, "splits": ("test", "valid")}
    for _ in range(2):
        with Journal.open(tmp_path, SETTINGS) as journal:
            journal.add_task(FACTS, MESSAGES)
            journal.add_load(load)
    kinds = [line["kind"] for line in lines(tmp_path)]
    assert kinds == ["header", "sitting", "task", "load", "sitting"]


def test_time_is_summed_over_sittings(tmp_path):
    fill(tmp_path, 2)
    ats = iter([0, 100, 101, 102, 110, 5000, 5001, 4000, 5003, 9000])
    path = tmp_path / "rollouts.jsonl"
    with Journal.open(tmp_path, SETTINGS) as journal:
        for particle in range(3):  # the clock is set back at the second
            journal.append(rollout(particle))
    with Journal.open(tmp_path, SETTINGS):
        pass
    path.write_text(
        "".join(json.dumps({**line, "at": next(ats)}) + "\n" for line in lines(tmp_path))
    )
    with closing(Journal.read(tmp_path)) as journal:
        assert journal.wall_seconds == 10 + 3 + 0


def test_memory_holds_no_text(tmp_path):
    marker = "a text that must not stay in memory "
    with Journal.open(tmp_path, SETTINGS) as journal:
        journal.add_task(FACTS, [{"role": "user", "content": marker * 9}])
        for particle in range(50):
            text = f"{marker} {particle}"
            journal.append(rollout(particle, text=text, program=text))
        held = reachable_strings(journal)
    assert not [text for text in held if marker in text]
    # Recurring strings are held once: 50 records share one copy of their task, arm and verdict.
    assert len(held) < 40


def reachable_strings(thing: object) -> list[str]:
    seen: dict[int, object] = {}
    todo = [thing]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, type):
            continue
        seen[id(item)] = item
        if not callable(item):
            todo += gc.get_referents(item)
    return [item for item in seen.values() if isinstance(item, str)]


# What is refused.


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({"model": "n"}, "model m -> n"),
        ({"sampling": {"temperature": 0.5, "max_tokens": 2048}}, "sampling.temperature 1.0 -> 0.5"),
        ({"sampling": {"temperature": 1.0}}, "sampling.max_tokens 2048 -> (not there)"),
        ({"seed": 1, "splits": ["b"]}, "splits ['a'] -> ['b'], seed (not there) -> 1"),
        ({"model": "n" * 500}, "model m -> " + "n" * 57 + "..."),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path, now, told):
    fill(tmp_path)
    before = (tmp_path / "rollouts.jsonl").read_bytes()
    with pytest.raises(JournalError) as error:
        Journal.open(tmp_path, {**SETTINGS, **now})
    assert f"settings: {told}; " in str(error.value)
    assert "--out" in str(error.value)
    assert "--overwrite" in str(error.value)
    assert (tmp_path / "rollouts.jsonl").read_bytes() == before
    with Journal.open(tmp_path, SETTINGS) as journal:  # the lock was let go
        assert len(records(journal)) == 3


def test_overwrite_sets_aside_what_is_there(tmp_path):
    fill(tmp_path)
    before = (tmp_path / "rollouts.jsonl").read_bytes()
    for name in ("rollouts-1.jsonl", "rollouts-2.jsonl"):
        with Journal.open(tmp_path, {"model": name}, overwrite=True) as journal:
            assert journal.moved == tmp_path / name
            assert not records(journal)
    assert (tmp_path / "rollouts-1.jsonl").read_bytes() == before
    with Journal.open(tmp_path / "new", SETTINGS, overwrite=True) as journal:
        assert journal.moved is None


@pytest.mark.parametrize(
    ("change", "told"),
    [({"cases_hash": "x"}, "its cases changed"), ({"messages_hash": "x"}, "its prompt changed")],
)
def test_a_task_that_changed_is_refused(tmp_path, change, told):
    fill(tmp_path)
    with Journal.open(tmp_path, SETTINGS) as journal:
        with pytest.raises(JournalError, match=told) as error:
            journal.add_task(replace(FACTS, **change), MESSAGES)
        assert "t/1_A" in str(error.value)
        journal.add_task(replace(FACTS, rating=1600), MESSAGES)
    with closing(Journal.read(tmp_path)) as journal:
        assert journal.facts["t/1_A"].rating == 1600


@pytest.mark.parametrize(
    "bad",
    [
        b"\n",
        b"not json\n",
        b'{"kind": "rollout", "arm": "base"\n',
        b'{"kind": "reply", "arm": "base"\n',
        b'{"kind": "reply", "arm": "base", "seed": 1}\n',
        b'{"kind": "rollout", "at": 1.0, "arm": "base"}\n',
        b'{"kind": "surprise", "at": 1.0}\n',
        b'{"kind": "header", "format": 1, "settings": {}}\n',
        b'["kind"]\n',
        b"7\n",
        b"\xff\xfe\n",
        b"\0\0\0\0\n",
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_a_damaged_line_stops_with_its_number(tmp_path, bad, last):
    fill(tmp_path)
    path = tmp_path / "rollouts.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    at = len(whole) if last else 4
    damaged = b"".join([*whole[:at], bad, *whole[at:]])
    path.write_bytes(damaged)
    for opened in (Journal.read, lambda out: Journal.open(out, SETTINGS)):
        with pytest.raises(JournalError, match=f"rollouts.jsonl, line {at + 1} is damaged"):
            opened(tmp_path)
    assert path.read_bytes() == damaged


def test_a_file_that_is_no_journal_is_left_alone(tmp_path):
    (tmp_path / "rollouts.jsonl").write_text('{"task": "x"}\n')
    with pytest.raises(JournalError, match="does not begin with the settings of a run"):
        Journal.open(tmp_path, SETTINGS)
    (tmp_path / "rollouts.jsonl").write_text('{"kind": "header", "format": 9, "settings": {}}\n')
    with pytest.raises(JournalError, match="has format 9"):
        Journal.open(tmp_path, SETTINGS)


def test_the_advice_on_a_damaged_line_works(tmp_path):
    fill(tmp_path)
    path = tmp_path / "rollouts.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*whole[:4], b"{}\n", *whole[4:]]))
    with pytest.raises(JournalError) as error:
        Journal.open(tmp_path, SETTINGS)
    command = re.search(r"\((sed .*?)\)", str(error.value))[1]
    subprocess.run(["bash", "-c", command], check=True)
    with Journal.open(tmp_path, SETTINGS) as journal:
        assert len(records(journal)) == 3
    assert b"{}\n" in (tmp_path / "rollouts.jsonl.bak").read_bytes()


def test_a_lost_header_is_not_answered_with_deleting_lines(tmp_path):
    fill(tmp_path)
    path = tmp_path / "rollouts.jsonl"
    header, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rest))
    for opened in (Journal.read, lambda out: Journal.open(out, SETTINGS)):
        with pytest.raises(JournalError, match="first line was lost") as error:
            opened(tmp_path)
        assert "sed" not in str(error.value)
    assert path.read_bytes() == b"".join(rest)
    path.write_bytes(header + b"".join(rest))
    with Journal.open(tmp_path, SETTINGS) as journal:
        assert len(records(journal)) == 3


def of_run(seed: int, particle: int, *, judged: bool = True) -> Rollout:
    key = rollout(particle).key
    made = rollout(particle, seed=derive_seed(seed, key))
    return made if judged else replace(made, judgement=None)


@pytest.mark.parametrize("judged", [True, False])
def test_rollouts_of_another_run_put_into_the_file_are_refused(tmp_path, judged):
    for seed in (0, 1):
        settings = {"seed": seed}
        with Journal.open(tmp_path / str(seed), settings) as journal:
            for particle in range(seed * 4, seed * 4 + 4):
                journal.append(of_run(seed, particle, judged=judged))
    path, other = (tmp_path / name / "rollouts.jsonl" for name in "01")
    appended = other.read_bytes().splitlines(keepends=True)[2:]
    path.write_bytes(path.read_bytes() + b"".join(appended))
    for opened in (Journal.read, lambda out: Journal.open(out, {"seed": 0})):
        with pytest.raises(JournalError, match="line 7 is a rollout of another run"):
            opened(tmp_path / "0")


def test_seeds_of_another_version_are_taken(tmp_path):
    for _ in range(2):
        with Journal.open(tmp_path, {"seed": 0}) as journal:
            journal.append(rollout(0))
            journal.append(of_run(0, 1))
    with Journal.open(tmp_path, {"seed": 0}) as journal:
        assert len(records(journal)) == 2


@pytest.mark.parametrize(
    ("changed", "way"),
    [
        ({"limits": {"memory_mb": 256}}, "--regrade --out FOLDER --memory-mb 256"),
        ({"sandbox": False}, "--regrade --out FOLDER --sandbox off"),
        ({"python": "3.14"}, "--regrade --out FOLDER"),
        ({"recipe": 2, "sandbox": "partial"}, "--regrade --out FOLDER --sandbox partial"),
        ({"seed": 1, "python": "3.14"}, "run with the old ones"),
    ],
)
def test_other_settings_name_the_way_on(tmp_path, changed, way):
    settings = {"recipe": 1, "seed": 0, "limits": {"memory_mb": 1024}, "sandbox": True}
    settings["python"] = "3.11"
    Journal.open(tmp_path, settings).close()
    with pytest.raises(JournalError) as error:
        Journal.open(tmp_path, {**settings, **changed})
    assert way.replace("FOLDER", str(tmp_path)) in str(error.value)


def judged_twice(folder: Path, count: int) -> None:
    """Each reply before and after it was judged, and one that was not."""
    with Journal.open(folder, SETTINGS) as journal:
        journal.add_task(FACTS, MESSAGES)
        for particle in range(count):
            made = rollout(particle, text=f"reply {particle}" * 50)
            journal.append(replace(made, judgement=None))
            journal.append(made)
        journal.add_load({"read": 1})
        journal.append(unjudged(count))
        journal.add_check("extra", "t/1_A", 1, 2, 3)


def test_replies_that_were_judged_are_left_out_at_a_start(tmp_path, monkeypatch):
    judged_twice(tmp_path, 20)
    before = lines(tmp_path)
    Journal.open(tmp_path, SETTINGS).close()  # a small file is left as it is
    assert lines(tmp_path)[:-1] == before
    monkeypatch.setattr("journal.COMPACT_BYTES", 1)
    reader = Journal.read(tmp_path)
    with Journal.open(tmp_path, SETTINGS) as journal:
        replies = [line for line in lines(tmp_path) if line["kind"] == "reply"]
        assert [line["particle"] for line in replies] == [20]
        assert len(records(journal)) == 20
        for particle in range(20):
            found = journal.get(Key("base", "t/1_A", 0, particle))
            assert found.reply.text == f"reply {particle}" * 50
        assert journal.get(Key("base", "t/1_A", 0, 20)).judgement is None
        assert journal.fresh_messages("t/1_A") == MESSAGES
        journal.append(rollout(20))
    kept = [line for line in before if line["kind"] != "reply" or line["particle"] == 20]
    assert [line for line in lines(tmp_path) if line["kind"] != "sitting"][: len(kept) - 1] == [
        line for line in kept if line["kind"] != "sitting"
    ]
    with reader:  # one that had the old file open goes on with it
        assert reader.get(Key("base", "t/1_A", 0, 3)).reply.text == "reply 3" * 50
    with Journal.read(tmp_path) as journal:
        assert len(records(journal)) == 21
        assert journal.checks == {("extra", "t/1_A", 1): (2, 3)}
    assert not (tmp_path / "rollouts.new").exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_ends_leaving_out_early_leaves_the_file(tmp_path, monkeypatch, error):
    judged_twice(tmp_path, 5)
    before = (tmp_path / "rollouts.jsonl").read_bytes()

    def fail(self: Path, target: Path) -> None:
        raise error

    monkeypatch.setattr("journal.COMPACT_BYTES", 1)
    monkeypatch.setattr(Path, "replace", fail)
    if isinstance(error, OSError):
        with Journal.open(tmp_path, SETTINGS) as journal:
            assert len(records(journal)) == 5
    else:
        with pytest.raises(KeyboardInterrupt):
            Journal.open(tmp_path, SETTINGS)
    assert (tmp_path / "rollouts.jsonl").read_bytes().startswith(before)
    assert not (tmp_path / "rollouts.new").exists()


def test_what_a_killed_start_left_is_removed(tmp_path):
    fill(tmp_path)
    (tmp_path / "rollouts.new").write_bytes(b"half")
    Journal.read(tmp_path).close()
    assert (tmp_path / "rollouts.new").exists()
    Journal.open(tmp_path, SETTINGS).close()
    assert not (tmp_path / "rollouts.new").exists()


def test_a_folder_that_is_not_ours_is_refused(tmp_path):
    outputs = ("results.json", "rescued.jsonl")
    check_folder(tmp_path / "new" / "one", outputs)
    assert not (tmp_path / "new").exists()
    (tmp_path / "other.txt").write_text("x")
    check_folder(tmp_path, outputs)
    (tmp_path / "rescued.jsonl").write_text("x")
    with pytest.raises(JournalError, match=r"holds rescued\.jsonl and not the rollouts\.jsonl"):
        check_folder(tmp_path, outputs)
    fill(tmp_path)
    check_folder(tmp_path, outputs)
    with pytest.raises(JournalError, match="not a folder"):
        check_folder(tmp_path / "other.txt" / "out", outputs)
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "away")
    with pytest.raises(JournalError, match="not a folder"):
        check_folder(tmp_path / "nowhere" / "out", outputs)


def test_nothing_to_read(tmp_path):
    for content in (None, "", '{"kind": "hea'):
        if content is not None:
            (tmp_path / "rollouts.jsonl").write_text(content)
        with pytest.raises(JournalError, match="nothing is saved at"):
            Journal.read(tmp_path)
    with pytest.raises(JournalError, match="nothing is saved at"):
        Journal.read(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="Not a directory") as error:
        Journal.open(tmp_path / "file" / "out", SETTINGS)
    assert "--out" in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(JournalError, match="cannot use /proc/"):
        Journal.open(Path("/proc/out"), SETTINGS)
    (tmp_path / "out" / "rollouts.jsonl").mkdir(parents=True)
    with pytest.raises(JournalError, match="Is a directory"):
        Journal.open(tmp_path / "out", SETTINGS)


# Two processes.


def test_a_second_process_is_refused_and_a_reader_is_not(tmp_path):
    code = """
with Journal.open(folder, SETTINGS) as journal:
    journal.append(rollout(0))
    print("open", flush=True)
    sys.stdin.read()
"""
    with child(code, tmp_path, stdin=subprocess.PIPE) as first:
        assert first.stdout.readline() == "open\n"
        with pytest.raises(JournalError, match="another run is writing"):
            Journal.open(tmp_path, SETTINGS)
        with pytest.raises(JournalError, match="another run is writing"):
            Journal.open(tmp_path, SETTINGS, overwrite=True)
        with (tmp_path / "rollouts.jsonl").open("a") as file:
            file.write('{"kind": "roll')  # as if in mid-write
        with closing(Journal.read(tmp_path)) as journal:
            assert len(records(journal)) == 1
        assert (tmp_path / "rollouts.jsonl").read_text().endswith('{"kind": "roll')
        first.kill()
    with Journal.open(tmp_path, SETTINGS) as journal:
        assert len(records(journal)) == 1


def test_a_child_that_outlives_a_killed_run_does_not_keep_the_lock(tmp_path):
    code = """
Journal.open(folder, SETTINGS)
if os.fork() == 0:
    print(os.getpid(), flush=True)
signal.pause()
"""
    with child(code, tmp_path) as first:
        orphan = int(first.stdout.readline())
        first.kill()
        first.wait()
        try:
            Journal.open(tmp_path, SETTINGS).close()
        finally:
            os.kill(orphan, signal.SIGKILL)


# Ends at any moment.


def test_a_journal_cut_anywhere_keeps_its_whole_lines(tmp_path):
    fill(tmp_path, 2)
    path = tmp_path / "rollouts.jsonl"
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    near_ends = {end + by for end in ends for by in (-2, -1, 0, 1)}
    for cut in sorted({*range(0, len(whole), 61), *near_ends} & {*range(len(whole))}):
        # A last line that lacks only its line end is whole, too.
        kept = sum(end <= cut + 1 for end in ends)
        path.write_bytes(whole[:cut])
        with Journal.open(tmp_path, SETTINGS) as journal:
            assert len(records(journal)) == max(0, kept - 3)
            journal.append(rollout(5))
        after = path.read_bytes()
        assert after.startswith(whole[: ends[kept - 1]] if kept else b"")
        new = [json.loads(line)["kind"] for line in after.splitlines()[kept:]]
        assert new == [*([] if kept else ["header"]), "sitting", "rollout"]


def test_zeros_that_a_power_failure_left_are_cut_off(tmp_path):
    fill(tmp_path, 2)
    with (tmp_path / "rollouts.jsonl").open("ab") as file:
        file.write(bytes(5000))
    with Journal.open(tmp_path, SETTINGS) as journal:
        assert len(records(journal)) == 2
    assert b"\0" not in (tmp_path / "rollouts.jsonl").read_bytes()


def test_kill_9_in_mid_write_loses_nothing_that_was_saved(tmp_path):
    code = """
with Journal.open(folder, SETTINGS) as journal:
    start = len(journal.records.get(("base", "t/1_A"), ()))
    for particle in range(start, 10**6):
        journal.append(rollout(particle, text="x" * 300_000))
        print(particle, flush=True)
"""
    rng = random.Random(0)
    for _ in range(5):
        with child(code, tmp_path) as writer:
            seen = int(writer.stdout.readline())
            for _ in range(rng.randrange(20)):
                seen = int(writer.stdout.readline())
            writer.kill()
            seen = max([seen, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        with closing(Journal.read(tmp_path)) as journal:
            found = {record.key.particle for record in records(journal)}
            # One more may be there: saved and not yet reported.
            assert set(range(seen + 1)) <= found <= set(range(seen + 2))
            assert len(journal.get(Key("base", "t/1_A", 0, seen)).reply.text) == 300_000


FILL_UP = """
with Journal.open(folder, SETTINGS) as journal:
    limit()
    saved = 0
    try:
        for particle in range(10**6):
            journal.append(rollout(particle, text="x" * 5000))
            saved += 1
    except JournalError as error:
        print(error)
    raw = (folder / "rollouts.jsonl").read_bytes()
    try:
        journal.append(rollout(10**6, text="x" * 5000))
    except JournalError:
        pass
    unlimit()
    journal.append(rollout(10**6))
    print(saved, flush=True)
"""


def check_filled(folder: Path, writer: subprocess.Popen, reason: str) -> None:
    message, saved = writer.stdout.readlines()
    assert reason in message
    assert "what was saved before is whole: free some space and run the same command" in message
    path = folder / "rollouts.jsonl"
    assert path.read_bytes().endswith(b"\n")
    with closing(Journal.read(folder)) as journal:
        particles = [record.key.particle for record in records(journal)]
    assert int(saved) > 3
    assert particles == [*range(int(saved)), 10**6]


def test_a_file_that_may_not_grow(tmp_path):
    code = """
import resource
def limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
def unlimit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
"""
    with child(code + FILL_UP, tmp_path) as writer:
        check_filled(tmp_path, writer, "File too large")


def test_a_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        (disk / "ballast").write_bytes(bytes(40_000))
        code = """
def limit():
    pass
def unlimit():
    (folder / "ballast").unlink()
"""
        with child(code + FILL_UP, disk) as writer:
            check_filled(disk, writer, "No space left on device")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# Judging again.

CASES = (Case("1 2", "3"), Case("2 2", "4"))
TASK = Task("t/1_A", "1_A. Sum", "1", "Print a + b.", 1500, CASES, CASES + CASES[:1])
TASKS = {"t/1_A": TASK}


class ByText:
    """A judge whose verdict is the program's own text; counts how many it holds at once."""

    def __init__(self, fault_at: int | None = None) -> None:
        self.fault_at = fault_at
        self.graded = self.held = self.most = 0

    async def grade(self, program: str | None, task: Task) -> Judgement:
        self.graded += 1
        self.held += 1
        self.most = max(self.most, self.held)
        number = self.graded
        for _ in range(number % 7):  # they end in another order than they began
            await asyncio.sleep(0)
        self.held -= 1
        if number == self.fault_at:
            raise JudgeFault("no process could be started")
        return judged(program or "no program")


def fill_for_regrade(folder: Path) -> None:
    facts = replace(FACTS, cases_hash=TASK.cases_hash)
    with Journal.open(folder, SETTINGS) as journal:
        journal.add_task(facts, MESSAGES)
        journal.add_load({"read": 1})
        journal.append(unjudged(0))
        journal.append(rollout(0, program="wrong answer"))
        journal.append(replace(unjudged(1), program="accepted"))
        journal.append(rollout(2, program=None, judgement=judged("no program")))
        journal.append(rollout(3, program="accepted"))
        journal.append(rollout(4, program="time limit"))
        journal.append(rollout(5, program="accepted", judgement=judged("accepted")))
        journal.add_check("extra", "t/1_A", 1, 2, 3)
    with Journal.open(folder, SETTINGS) as journal:
        for particle in range(6, 600):
            journal.append(rollout(particle, program="wrong answer"))


def test_regrade_puts_in_the_new_verdicts_and_drops_the_checks(tmp_path):
    fill_for_regrade(tmp_path)
    before = lines(tmp_path)
    judge = ByText()
    now = {**SETTINGS, "limits": {"cpu_seconds": 9}}
    with Journal.open(tmp_path, SETTINGS) as journal:
        assert journal.saved + journal.waiting == 600  # what a bar counts up to
        done: list[None] = []
        found = asyncio.run(regrade(journal, judge, TASKS, now, lambda: done.append(None)))
        assert found.total == judge.graded == len(done) == 600
        assert found.changed == 3
        assert found.by_verdict == {
            "unjudged -> accepted": 1,
            "wrong answer -> accepted": 1,
            "wrong answer -> time limit": 1,
        }
        assert judge.most <= 256
        verdicts = {record.key.particle: record.verdict for record in records(journal)}
        assert verdicts == {
            **dict.fromkeys(range(600), "wrong answer"),
            1: "accepted",
            2: "no program",
            3: "accepted",
            4: "time limit",
            5: "accepted",
        }
        assert journal.settings == {**now, "splits": ["a"]}
        journal.append(rollout(1000))  # it goes on in the new file

    after = lines(tmp_path)
    # Less the reply that was judged later and the check; one more is the sitting of the regrade.
    del before[4]
    before = [line for line in before if line["kind"] != "check"]
    assert len(after) == len(before) + 2
    redone = {"kind": "rollout", "judgement": None}
    for old, new in zip(before[1:], after[1:], strict=False):
        assert new["kind"] == old["kind"].replace("reply", "rollout")
        assert old | redone == new | redone
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rollouts.jsonl", "rollouts.lock"]
    with Journal.open(tmp_path, now) as journal:
        assert len(records(journal)) == 601


def test_regrade_by_another_recipe_takes_the_programs_from_the_replies_again(tmp_path):
    text = "```python\naccepted\n```\n```python\nwrong(\n```"
    old, now = {**SETTINGS, "recipe": 1}, {**SETTINGS, "recipe": 2}
    with Journal.open(tmp_path, old) as journal:
        journal.add_task(replace(FACTS, cases_hash=TASK.cases_hash), MESSAGES)
        journal.add_load({"read": 1})
        before = rollout(0, program="wrong(")
        journal.append(replace(before, reply=replace(before.reply, text=text)))
    with Journal.open(tmp_path, old) as journal:
        asyncio.run(regrade(journal, ByText(), TASKS, old))
        assert next(iter(records(journal))).verdict == "wrong("
        asyncio.run(regrade(journal, ByText(), TASKS, now))
        assert next(iter(records(journal))).verdict == "accepted"
    with pytest.raises(JournalError, match="recipe 2 -> 1"):
        Journal.open(tmp_path, old)


class NoChecker(ByText):
    async def grade(self, program: str | None, task: Task) -> Judgement:
        if program == "accepted":
            raise CheckerFault("its checker gave no answer")
        return await super().grade(program, task)


def test_a_task_that_is_left_out_stays_so_until_a_regrade_can_judge_it(tmp_path):
    fill_for_regrade(tmp_path)
    with Journal.open(tmp_path, SETTINGS) as journal:
        judged = journal.saved
        journal.leave_out("t/1_A", "first")
    with Journal.open(tmp_path, SETTINGS) as journal:
        assert journal.left_out == {"t/1_A": "first"}
        found = asyncio.run(regrade(journal, NoChecker(), TASKS, SETTINGS))
        assert journal.left_out == {"t/1_A": "its checker gave no answer"}
        assert found.by_verdict["wrong answer -> unjudged"] == 1
        assert found.by_verdict["accepted -> unjudged"] == 1
        assert (journal.saved, journal.waiting) == (judged - 2, 3)
    with Journal.open(tmp_path, SETTINGS) as journal:
        assert journal.left_out == {"t/1_A": "its checker gave no answer"}
        asyncio.run(regrade(journal, ByText(), TASKS, SETTINGS))
        assert not journal.left_out
        assert (journal.saved, journal.waiting) == (judged + 1, 0)


def test_a_judge_fault_leaves_the_journal_as_it_was(tmp_path):
    fill_for_regrade(tmp_path)
    with Journal.open(tmp_path, SETTINGS) as journal:
        before = (tmp_path / "rollouts.jsonl").read_bytes()
        with pytest.raises(JudgeFault):
            asyncio.run(regrade(journal, ByText(fault_at=500), TASKS, SETTINGS))
        assert (tmp_path / "rollouts.jsonl").read_bytes() == before
        assert not (tmp_path / "rollouts.new").exists()
        assert journal.append(rollout(1000))


def test_regrade_needs_the_same_tasks(tmp_path):
    fill_for_regrade(tmp_path)
    other = {"t/1_A": replace(TASK, hidden=CASES)}
    with Journal.open(tmp_path, SETTINGS) as journal:
        with pytest.raises(JournalError, match="t/1_A, which is not among the tasks"):
            asyncio.run(regrade(journal, ByText(), {}, SETTINGS))
        with pytest.raises(JournalError, match="its cases changed"):
            asyncio.run(regrade(journal, ByText(), other, SETTINGS))


def test_what_each_server_answered_is_summed_over_the_sittings(tmp_path):
    for served in (
        {"http://a/v1": 3, "http://b/v1": 0},
        {},
        {"http://a/v1": 0},
        {"http://b/v1": 2},
    ):
        with Journal.open(tmp_path, {}) as journal:
            journal.add_served(served)
    with Journal.read(tmp_path) as journal:
        assert journal.served == {"http://a/v1": 3, "http://b/v1": 2}
