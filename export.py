"""A run -> rows that trainers load: --export KIND[,KIND] writes them into out/export/.

    messages            supervised fine-tuning: TRL, Axolotl, LLaMA-Factory, OpenRLHF (JSON lines),
                        verl (parquet)
    prompt-completion   supervised fine-tuning on the answer alone: TRL
    pairs               preferences: TRL's DPO, OpenRLHF
    verl-rl             reinforcement learning: prompts with their cases and pass rates
    difficulty          one row a task: for curricula and samplers

All but the last two hold rescued programs: the bare problem in, the passing program out. Of
programs with the same syntax tree (they differ in comments and layout) the first one counts.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from report.files import whole, write_lines
from rows import rescued_rows, rescues
from swarm import BASE, START, Record, Shape, fenced, first_rescue, in_band, of_search

if TYPE_CHECKING:
    from data import Task
    from journal import Journal
    from policy import Message

TREE_CHARS = 65_536  # a longer program is compared as text
ROWS_AT_A_TIME = 64  # of a parquet file: the cases of a task can be megabytes


@dataclass(frozen=True)
class Export:
    """What is exported, and how much.

    Attributes:
        journal: a run, read.
        tasks: the run's tasks, called only by the kinds that need cases.
        most: rows a task, at most; None for no limit.
        require_extra: leave out programs that were not judged on the task's further cases, or
            fail one of them.
        sound: task id -> whether a known solution passes; tasks that were not audited are absent.
    """

    journal: Journal
    tasks: Callable[[], Sequence[Task]]
    most: int | None = None
    require_extra: bool = False
    sound: Mapping[str, bool] | None = None

    @property
    def shape(self) -> Shape:
        return Shape.of(self.journal.settings)

    @cached_property
    def arms(self) -> list[str]:
        """The arms of the run's keys, base group and common start among them."""
        return sorted({arm for arm, _ in self.journal.records})

    def program(self, record: Record) -> str | None:
        """A saved program; None for a reply without one."""
        rollout = self.journal.get(record.key)
        return None if rollout is None else rollout.program

    def rescued(self) -> Iterator[tuple[Record, dict[str, Any], str]]:
        """Rescues that count, each with its row of rescued.jsonl and its program."""
        seen: set[tuple[str, str]] = set()
        count = Counter[str]()
        records, rows = rescues(self.journal), rescued_rows(self.journal)
        for record, row in zip(records, rows, strict=True):
            task, program = record.key.task, self.program(record) or ""
            passed, total = row["extra_passed"], row["extra_total"]
            if self.require_extra and (total is None or passed < total):
                continue
            place = (task, tree_of(program))
            if place in seen or (self.most is not None and count[task] >= self.most):
                continue
            seen.add(place)
            count[task] += 1
            yield record, row, program

    def base_groups(self) -> Iterator[tuple[str, list[Record]]]:
        """Tasks with a complete base group, by id."""
        for task in sorted(self.journal.facts):
            group = list(self.journal.records.get((BASE, task), {}).values())
            if len(group) == self.shape.group and task not in self.journal.left_out:
                yield task, group


def tree_of(program: str) -> str:
    """The program without comments and layout: its syntax tree as text, else itself."""
    if len(program) > TREE_CHARS:
        return program
    try:
        return ast.dump(ast.parse(program))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return program


def _messages(export: Export, folder: Path) -> int:
    """{"messages": [system, user, assistant], "task_id", ...}, as rescued.jsonl has them."""
    rows = [row for _, row, _ in export.rescued()]
    write_lines(rows, folder / "messages.jsonl")
    schema = pa.schema(
        [
            ("messages", MESSAGES),
            *((name, pa.string()) for name in ("task_id", "arm")),
            *((name, pa.int64()) for name in ("round", "particle", "seed")),
            *((name, pa.int64()) for name in ("extra_passed", "extra_total")),
        ]
    )
    _write_parquet(rows, schema, folder / "messages.parquet")
    return len(rows)


def _prompt_completion(export: Export, folder: Path) -> int:
    """{"prompt": [system, user], "completion": [assistant], "task_id"}: the loss on the answer."""
    rows = [
        {"prompt": row["messages"][:-1], "completion": row["messages"][-1:], **_place(row)}
        for _, row, _ in export.rescued()
    ]
    write_lines(rows, folder / "prompt-completion.jsonl")
    return len(rows)


def _pairs(export: Export, folder: Path) -> int:
    """{"prompt", "chosen", "rejected", ...}: a rescued program against a failed attempt on it.

    The failed ones answered the same bare problem, near-misses first, each once a task. Both
    sides are one fence with a program, so that nothing but the program tells them apart.
    """
    failed: dict[str, list[tuple[Record, str]]] = {}
    count = Counter[str]()
    rows = []
    for record, row, program in export.rescued():
        task = record.key.task
        if task not in failed:
            failed[task] = list(_failed_on_fresh_prompt(export, task))
        for worse, rejected in failed[task]:
            if export.most is not None and count[task] >= export.most:
                break
            count[task] += 1
            rows.append(
                {
                    "prompt": row["messages"][:-1],
                    "chosen": [_answer(program)],
                    "rejected": [_answer(rejected)],
                    **_place(row),
                    "rejected_verdict": worse.verdict,
                    "rejected_fitness": worse.visible_passed / worse.visible_total,
                }
            )
    write_lines(rows, folder / "pairs.jsonl")
    return len(rows)


def _failed_on_fresh_prompt(export: Export, task: str) -> Iterator[tuple[Record, str]]:
    """Failed attempts with a program that saw the bare problem alone, best first."""
    fresh = export.journal.facts[task].messages_hash
    attempts = [
        record
        for arm in export.arms
        for record in export.journal.records.get((arm, task), {}).values()
        if record.program_hash and not record.accepted
    ]
    attempts.sort(key=lambda record: (-record.visible_passed, record.key))
    seen: set[str] = set()
    for record in attempts:
        rollout = export.journal.get(record.key)
        if rollout is None or rollout.program is None or rollout.messages_hash != fresh:
            continue
        if (tree := tree_of(rollout.program)) not in seen:
            seen.add(tree)
            yield record, rollout.program


def _verl_rl(export: Export, folder: Path) -> int:
    """Rows of verl's RL data: every task with a complete base group.

    ground_truth holds the visible and hidden cases, as verl's code rows have it.
    """
    groups = dict(export.base_groups())
    tasks = [task for task in export.tasks() if task.id in groups]
    schema = pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", MESSAGES),
            ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
            (
                "extra_info",
                pa.struct(
                    [
                        ("task_id", pa.string()),
                        ("index", pa.int64()),
                        ("split", pa.string()),
                        ("passes", pa.int64()),
                        ("of", pa.int64()),
                        ("pass_rate", pa.float64()),
                        ("visible", pa.int64()),
                    ]
                ),
            ),
        ]
    )
    rows: Iterable[dict[str, Any]] = (
        {
            "data_source": "swarm-rescue",
            "prompt": export.journal.fresh_messages(task.id),
            "ability": "code",
            "reward_model": {"style": "rule", "ground_truth": _ground_truth(task)},
            "extra_info": {
                "task_id": task.id,
                "index": index,
                "split": "train",
                "visible": len(task.visible),
                **_passes(groups[task.id]),
            },
        }
        for index, task in enumerate(tasks)
    )
    _write_parquet(rows, schema, folder / "verl-rl.parquet")
    return len(tasks)


def _difficulty(export: Export, folder: Path) -> int:
    """One row a task with a complete base group: how hard it was, and who rescued it."""
    records, shape = export.journal.records, export.shape
    arms = [arm for arm in export.arms if arm not in (BASE, START)]
    rows = []
    for task, group in export.base_groups():
        facts = export.journal.facts[task]
        rescued = {}
        for arm in arms if in_band(group, 0, "all-fail") else ():
            found = first_rescue(of_search(records, arm, task, common_start=shape.common_start))
            if found is not None:
                rescued[arm] = found
        rows.append(
            {
                "task_id": task,
                "contest": facts.contest,
                "rating": facts.rating or None,
                **_passes(group),
                "best_fitness": max(r.visible_passed / r.visible_total for r in group),
                "floor": facts.floor / facts.visible,
                "rescued": rescued,
                "sound": (export.sound or {}).get(task),
            }
        )
    write_lines(rows, folder / "difficulty.jsonl")
    return len(rows)


MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))

# What --export takes: each writes its files into the folder and returns its number of rows.
KINDS: dict[str, Callable[[Export, Path], int]] = {
    "messages": _messages,
    "prompt-completion": _prompt_completion,
    "pairs": _pairs,
    "verl-rl": _verl_rl,
    "difficulty": _difficulty,
}


def write_exports(export: Export, kinds: Iterable[str]) -> dict[str, int]:
    """Write these KINDS into export/ beside the journal; kind -> rows. Raises ReportError."""
    folder = export.journal.path.parent / "export"
    return {kind: KINDS[kind](export, folder) for kind in kinds}


def _answer(program: str) -> Message:
    return {"role": "assistant", "content": fenced(program)}


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "messages"}


def _passes(group: Sequence[Record]) -> dict[str, Any]:
    passes = sum(record.accepted for record in group)
    return {"passes": passes, "of": len(group), "pass_rate": passes / len(group)}


def _ground_truth(task: Task) -> str:
    """JSON {"inputs", "outputs", "fn_name"?}, and what else decides whether an output is right.

    Of a call the input is the list of its arguments, and the output stands in a list of one.
    """
    cases = (*task.visible, *task.hidden)
    truth: dict[str, Any] = {
        "inputs": [case.input for case in cases],
        "outputs": [case.output for case in cases],
    }
    if task.function is not None:
        truth = {
            "inputs": [list(map(json.loads, case.input.splitlines())) for case in cases],
            "outputs": [[json.loads(case.output)] for case in cases],
            "fn_name": task.function,
        }
    more = {
        "checker": task.checker,
        "any_case": task.any_case or None,
        "time_limit": task.time_limit,
    }
    return json.dumps({**truth, **{k: v for k, v in more.items() if v is not None}})


def _write_parquet(rows: Iterable[Mapping[str, Any]], schema: pa.Schema, path: Path) -> None:
    """Write rows some at a time, the file whole or not at all."""
    with whole(path) as part, pq.ParquetWriter(part, schema) as writer:
        batch: list[Mapping[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == ROWS_AT_A_TIME:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema))
