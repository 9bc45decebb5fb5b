"""The journal: out/rollouts.jsonl, in which nothing that was paid for is lost.

A run asks for some 35,000 replies over hours, and anything can end it: Ctrl-C, a crash, kill -9,
a full disk. So a reply is saved as it comes, a rollout is one JSON line as soon as it is judged,
and the next run reads the lines back and asks only for what is not there.

Theory of operation:

- A line is one write to a file opened for appending. Killing the process at any moment loses at
  most the line being written; that torn end is cut off when the journal is next opened. Anything
  else that is malformed was not our doing and stops with its line number.
- Lines reach the disk (fsync) at most SYNC_SECONDS apart and at the end, so that a power failure
  costs the last seconds and killing the process costs nothing.
- A write that fails (a full disk) is taken back, so that the file still ends with a whole line.
- The first line holds the settings that shape a rollout. Other settings are refused: rollouts of
  two recipes in one report would be worth nothing.
- Memory holds numbers (swarm.Record) and file offsets. Texts stay in the file and are read back
  one at a time, so that a run over the train split (1,500,000 rollouts) fits.
- A lock file keeps a second process out. Reading needs no lock: lines are only ever added.

The lines, by their "kind": "header" (first, and only there), "sitting" (a process opened the
journal), "load" (what was read and dropped), "task", "reply" (a rollout that waits for the judge),
"rollout" (a judged one), "check", "audit" (the known programs of a task), "served" (requests that
each server answered in a sitting) and "look" (a report was made of more tasks than before). Of two
lines about the same thing the later one counts.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from agree import clip, other_settings, other_task
from audits import Audit, audit_of
from folder import NAME, JournalError, sync_folder, told, write_all
from lines import DAMAGE, REPLY, ROLLOUT, as_read, encode, key_of, record_of, rollout_of
from policy import Message
from swarm import Key, Record, Rollout, TaskFacts, derive_seed

FORMAT = 1
SYNC_SECONDS = 5.0
COMPACT_BYTES, COMPACT_SHARE = 1 << 20, 0.1  # outdated lines that are worth a new file


class Journal:
    """The rollouts of one out folder.

    Attributes:
        path: the file.
        settings: what shaped the rollouts, from the header.
        records: (arm, task) -> (round, particle) -> Record, of the judged rollouts.
        facts: task id -> TaskFacts.
        checks: (kind, task, program_hash) -> (passed, total), numbers of cases.
        audits: task id -> Audit, what its known programs came to.
        left_out: task id -> why nothing can be said of it: its checker gave no answer.
        load: what was read and dropped, as add_load got it last; None before.
        looks: the times that a report was made of more tasks than before: {"tasks": ids that were
            new, "of": how many looks were planned, 1 without a plan}.
        served: requests that each server answered, over all sittings.
        moved: where `overwrite` put the file that was there, else None.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is read yet: use Journal.open or Journal.read."""
        self.path = path
        self.moved: Path | None = None
        self._fd = self._lock = -1
        self._synced = time.monotonic()
        self._forget()

    def _forget(self) -> None:
        self.settings: dict[str, Any] = {}
        self.records: dict[tuple[str, str], dict[tuple[int, int], Record]] = {}
        self.facts: dict[str, TaskFacts] = {}
        self.checks: dict[tuple[str, str, int], tuple[int, int]] = {}
        self.audits: dict[str, Audit] = {}
        self.left_out: dict[str, str] = {}
        self.load: dict[str, Any] | None = None
        self.looks: list[dict[str, Any]] = []
        self.served: Counter[str] = Counter()
        self._rollout_at: dict[Key, int] = {}  # offset of the line that counts
        self._waiting_at: dict[Key, int] = {}  # the same for replies that are not judged
        self._task_at: dict[str, int] = {}
        self._end = 0  # offset behind the last whole line
        self._outdated = 0  # bytes of replies that were judged later on
        self._seeds_tell: bool | None = None  # see _check_seed; None before the first rollout
        self._torn = False  # whether a failed write may have left something there
        self._past_seconds = self._started = self._last = 0.0

    @classmethod
    def open(cls, folder: Path, settings: dict[str, Any], *, overwrite: bool = False) -> Journal:
        """Lock the journal of a folder, read it back and make it ready for more.

        Args:
            folder: made when it is not there.
            settings: what shapes a rollout, JSON-ready.
            overwrite: begin an empty journal; one that is there is renamed, see `moved`.

        Raises:
            JournalError: another process has it; it was written with other settings; a line is
                malformed; the folder cannot be written.
        """
        journal = cls(folder / NAME)
        try:
            with told(journal.path):
                folder.mkdir(parents=True, exist_ok=True)
                journal._take_lock()
                journal.new_path.unlink(missing_ok=True)  # of a start or --regrade that was killed
                if overwrite:
                    journal._move_aside()
                journal._open_file(os.O_RDWR | os.O_APPEND | os.O_CREAT)
                journal._replay()
                journal._mend()
                journal._compact()
            journal._begin(settings)
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def read(cls, folder: Path) -> Journal:
        """Read back the journal of a folder, even while another process writes it.

        Nothing is changed and nothing can be added. Raises JournalError when nothing is there
        or a line is malformed.
        """
        journal = cls(folder / NAME)
        try:
            with told(journal.path):
                if not journal.path.exists():
                    journal._refuse_empty()
                journal._open_file(os.O_RDONLY)
                journal._replay()
            if not journal._end:
                journal._refuse_empty()
        except BaseException:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        """Bring everything to the disk and let go of the lock. May be called twice."""
        if self._lock >= 0 and self._fd >= 0:
            # A failure here has been told by the write before, or costs nothing: the next open
            # cuts off what is torn.
            with suppress(OSError):
                self._untear()
                os.fsync(self._fd)
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def new_path(self) -> Path:
        """Where a new file is written that will take the place of this one."""
        return self.path.with_suffix(".new")

    @property
    def saved(self) -> int:
        """How many judged rollouts it holds."""
        return sum(len(records) for records in self.records.values())

    @property
    def waiting(self) -> int:
        """How many replies it holds that wait for the judge."""
        return len(self._waiting_at)

    @property
    def wall_seconds(self) -> float:
        """Time spent over all sittings, each from its start to its last line."""
        return self._past_seconds + self._last - self._started

    def get(self, key: Key) -> Rollout | None:
        """The whole rollout, judged or not, read back from the file; None when not there."""
        offset = self.offset_of(key)
        return None if offset is None else rollout_of(self._line(offset))

    def fresh_messages(self, task_id: str) -> list[Message]:
        """The fresh prompt of a task, read back from the file; KeyError for an unknown task."""
        messages: list[Message] = self._line(self._task_at[task_id])["messages"]
        return messages

    def append(self, rollout: Rollout) -> Record | None:
        """Save a rollout; its record, or None when it is not judged. Raises JournalError."""
        fields = {
            **rollout.key._asdict(),
            "seed": rollout.seed,
            "messages_hash": rollout.messages_hash,
            "reply": asdict(rollout.reply),
            "program": rollout.program,
        }
        if rollout.judgement is None:
            self._add("reply", **fields, judgement=None)
            return None
        self._add("rollout", **fields, judgement=asdict(rollout.judgement))
        arm, task, round_, particle = rollout.key
        return self.records[arm, task][round_, particle]

    def add_task(self, facts: TaskFacts, messages: list[Message]) -> None:
        """Save what the statistics need of a task, and its fresh prompt.

        Raises JournalError when the journal has rollouts of other cases or another prompt under
        the same id.
        """
        saved = self.facts.get(facts.id)
        if saved == facts:
            return
        if saved is not None:
            refusal = other_task(self.path, saved, facts.cases_hash, facts.messages_hash)
            if refusal:
                raise JournalError(refusal)
        self._add("task", facts=asdict(facts), messages=messages)

    def add_check(self, kind: str, task: str, program_hash: int, passed: int, total: int) -> None:
        """Save how many cases of some kind ("extra", "hidden") a program passed."""
        self._add("check", program=[kind, task, program_hash], cases=[passed, total])

    def add_audit(self, task: str, audit: Audit) -> None:
        """Save what the known programs of a task came to."""
        self._add("audit", task=task, audit=audit._asdict())

    def leave_out(self, task_id: str, reason: str) -> None:
        """Save that nothing can be said of a task, and why."""
        self._add("left_out", task=task_id, reason=reason)

    def add_look(self, tasks: Iterable[str], of: int) -> None:
        """Save that a report is made of these tasks, unless it was made of all of them before."""
        seen = {task for look in self.looks for task in look["tasks"]}
        new = [task for task in tasks if task not in seen]
        if new:
            self._add("look", look={"tasks": new, "of": of})

    def add_load(self, load: dict[str, Any]) -> None:
        """Save what was read and dropped, JSON-ready, unless the last such line says the same."""
        if as_read(load) != self.load:
            self._add("load", load=load)

    def add_served(self, served: Mapping[str, int]) -> None:
        """Save how many requests each server answered in this sitting, by its address."""
        if any(served.values()):
            self._add("served", served=served)

    # Below: the file.

    def _take_lock(self) -> None:
        # This lock belongs to the process and is not inherited, so that a child that outlives a
        # killed run (flock would leave it the lock) does not keep the next run out.
        self._lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise JournalError(
                f"another run is writing {self.path}: wait for it, or use --out for another folder"
            ) from None

    def _move_aside(self) -> None:
        if not self.path.exists():
            return
        names = (self.path.with_name(f"{self.path.stem}-{n}.jsonl") for n in count(1))
        self.moved = self.path.rename(next(name for name in names if not name.exists()))

    def _open_file(self, flags: int) -> None:
        self._fd = os.open(self.path, flags | os.O_CLOEXEC, 0o644)

    def _refuse_empty(self) -> NoReturn:
        raise JournalError(
            f"nothing is saved at {self.path}: start a run first, or give the --out of one"
        )

    def _replay(self) -> None:
        """Take in every whole line, and leave `_end` behind the last."""
        with open(self._fd, "rb", buffering=1 << 16, closefd=False) as file:
            for number, line in enumerate(file, 1):
                try:
                    self._replay_line(line, number)
                except DAMAGE as error:
                    if not line.endswith(b"\n"):
                        break  # killed while it was written
                    raise self._damaged(number, error) from error
                self._end += len(line)
        for offset in self._waiting_at.values():
            try:
                line = self._raw_line(offset)
                self._outdated -= len(line)
                fields = json.loads(line)
                rollout_of(fields)
                self._check_seed(fields, offset)
            except DAMAGE as error:
                raise self._damaged(self._number_of(offset), error) from error

    def _replay_line(self, line: bytes, number: int) -> None:
        if number > 1 and line.startswith(REPLY) and line.endswith(b"\n"):
            # Nearly all of these are judged further on: reading their texts would take much of
            # the time for nothing. A quote within a string is escaped, so this finds the field.
            identity, _, _ = line.partition(b', "seed": ')
            self._waiting_at[key_of(json.loads(identity + b"}"))] = self._end
            self._outdated += len(line)
            return
        fields = json.loads(line.decode())
        if (fields["kind"] == "header") != (number == 1):
            raise ValueError("the header is the first line and only that")
        if "particle" in fields:
            self._check_seed(fields, self._end)
        self._take_in(fields, self._end)

    def _check_seed(self, fields: dict[str, Any], offset: int) -> None:
        """Refuse a rollout of another run, whose lines were put into this file.

        Its seed tells. Where the first rollout's does not either, all were derived in another
        way, by another version.
        """
        run_seed = self.settings.get("seed")
        if run_seed is None or self._seeds_tell is False:
            return
        fits = fields["seed"] == derive_seed(run_seed, key_of(fields))
        if self._seeds_tell is None:
            self._seeds_tell = fits
        elif not fits:
            line = self._number_of(offset)
            raise JournalError(
                f"{self.path}, line {line} is a rollout of another run: its seed does not come "
                f"from this run's --seed {run_seed}; take the lines of the other run out again"
            )

    def _damaged(self, number: int, error: Exception) -> JournalError:
        if number == 1:
            return JournalError(
                f"{self.path} does not begin with the settings of a run ({clip(error)}): it is "
                "another file, or its first line was lost and has to come from a copy; nothing of "
                "it is changed; --out takes another folder, and a run with --overwrite sets the "
                "file aside"
            )
        drop = f"sed -i.bak {number}d {shlex.quote(str(self.path))}"
        return JournalError(
            f"{self.path}, line {number} is damaged ({type(error).__name__}: {clip(error)}), and "
            f"not by a run that was cut off: mend that line, or leave it out ({drop}) and what it "
            "held is made again"
        )

    def _mend(self) -> None:
        """Cut off a torn end; give a whole last line the line end that it was killed before."""
        if os.fstat(self._fd).st_size > self._end:
            os.ftruncate(self._fd, self._end)
        elif self._end and os.pread(self._fd, 1, self._end - 1) != b"\n":
            os.write(self._fd, b"\n")
            self._end += 1

    def _compact(self) -> None:
        """Leave out the replies that were judged further on, where they are much of the file.

        The new file is written beside the old one and takes its place when it is whole. A disk
        that has no room for it keeps the old one.
        """
        if self._outdated < max(COMPACT_BYTES, self._end * COMPACT_SHARE):
            return
        new = self.new_path
        kept = {*self._waiting_at.values(), *self._rollout_at.values()}
        moved: dict[int, int] = {}
        try:
            with new.open("wb") as out:
                for offset, line in self.lines():
                    if line.startswith((REPLY, ROLLOUT)) and offset not in kept:
                        continue
                    moved[offset] = out.tell()
                    out.write(line)
                end = out.tell()
                out.flush()
                os.fsync(out.fileno())
            new.replace(self.path)
        except BaseException as error:
            with suppress(OSError):
                new.unlink()
            if not isinstance(error, OSError):
                raise
            return
        sync_folder(self.path.parent)
        os.close(self._fd)
        self._fd = -1
        self._open_file(os.O_RDWR | os.O_APPEND)
        for places in (self._rollout_at, self._waiting_at):
            places.update((key, moved[offset]) for key, offset in places.items())
        self._task_at = {task: moved[offset] for task, offset in self._task_at.items()}
        self._end, self._outdated = end, 0

    def _begin(self, settings: dict[str, Any]) -> None:
        if self._end:
            refusal = other_settings(self.path, self.settings, as_read(settings))
            if refusal:
                raise JournalError(refusal)
        else:
            self._add("header", format=FORMAT, settings=settings)
            with told(self.path):
                sync_folder(self.path.parent)
        self._add("sitting")

    def _add(self, kind: str, **fields: Any) -> None:
        line = encode({"kind": kind, **fields, "at": round(time.time(), 3)})
        with told(self.path):
            self._untear()
            self._torn = True
            write_all(self._fd, line)
            self._torn = False
            self._take_in(json.loads(line), self._end)
            self._end += len(line)
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._fd)
                self._synced = time.monotonic()

    def _untear(self) -> None:
        if self._torn:
            os.ftruncate(self._fd, self._end)
            self._torn = False

    def replace_by(self, new: Path) -> None:
        """Put a whole new file in the place of this one, and read it back."""
        with told(self.path):
            new.replace(self.path)
            sync_folder(self.path.parent)
            os.close(self._fd)
            self._fd = -1
            self._forget()
            self._open_file(os.O_RDWR | os.O_APPEND)
            self._replay()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line with its offset."""
        offset = 0
        with self.path.open("rb") as file:
            for line in file:
                yield offset, line
                offset += len(line)

    @property
    def sampled_tasks(self) -> set[str]:
        """Ids of the tasks that have a rollout, judged or not."""
        return {key.task for key in (*self._rollout_at, *self._waiting_at)}

    def offset_of(self, key: Key) -> int | None:
        """Where the line is that counts for a rollout."""
        return self._rollout_at.get(key, self._waiting_at.get(key))

    def _line(self, offset: int) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self._raw_line(offset))
        return fields

    def _raw_line(self, offset: int) -> bytes:
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(offset)
            return file.readline()

    def _number_of(self, offset: int) -> int:
        return next(number for number, (at, _) in enumerate(self.lines(), 1) if at == offset)

    # Below: what is held in memory.

    def _take_in(self, fields: dict[str, Any], offset: int) -> None:
        kind = fields["kind"]
        if kind == "header":
            self._take_in_header(fields)
            return
        self._take_in_time(fields["at"], kind == "sitting")
        if kind == "rollout":
            self._take_in_record(record_of(fields), offset)
        elif kind == "reply":
            self._waiting_at[key_of(fields)] = offset
        elif kind == "task":
            facts = TaskFacts(**fields["facts"])
            self.facts[facts.id] = facts
            self._task_at[facts.id] = offset
        elif kind == "check":
            check, task, program_hash = fields["program"]
            passed, total = fields["cases"]
            self.checks[check, task, program_hash] = passed, total
        elif kind == "audit":
            self.audits[fields["task"]] = audit_of(fields["audit"])
        elif kind == "left_out":
            self.left_out[fields["task"]] = fields["reason"]
        elif kind == "load":
            self.load = fields["load"]
        elif kind == "look":
            self.looks.append(fields["look"])
        elif kind == "served":
            self.served.update(fields["served"])
        elif kind != "sitting":
            raise ValueError(f"no such kind: {kind}")

    def _take_in_header(self, fields: dict[str, Any]) -> None:
        if fields["format"] != FORMAT:
            raise JournalError(
                f"{self.path} has format {fields['format']} and this version reads {FORMAT}: use "
                "the version that wrote it, or --out for another folder"
            )
        self.settings = fields["settings"]

    def _take_in_time(self, at: float, sitting: bool) -> None:
        if sitting:
            self._past_seconds += self._last - self._started
            self._started = self._last = at
        self._last = max(self._last, at)  # a clock that was set back costs no time

    def _take_in_record(self, record: Record, offset: int) -> None:
        self._rollout_at[record.key] = offset
        self._waiting_at.pop(record.key, None)
        arm, task, round_, particle = record.key
        self.records.setdefault((arm, task), {})[round_, particle] = record
