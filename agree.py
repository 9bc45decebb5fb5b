"""Do a saved run and this one agree? Settings and tasks that differ, by name, and what to do."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data import Task
    from swarm import TaskFacts

ABSENT = "(not there)"
OF_THE_JUDGE = {"recipe", "limits", "sandbox", "python"}  # settings that --regrade replaces


def other_settings(path: Path, saved: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Which settings of the journal at `path` differ from today's, and what to do; or None."""
    old, new = dict(_flat(saved)), dict(_flat(now))
    names = [name for name in {**old, **new} if old.get(name, ABSENT) != new.get(name, ABSENT)]
    if not names:
        return None
    changes = ", ".join(
        f"{name} {clip(old.get(name, ABSENT))} -> {clip(new.get(name, ABSENT))}" for name in names
    )
    way = (
        "run with the old ones, use --out for another folder, or --overwrite to begin anew"
        if not all(name.partition(".")[0] in OF_THE_JUDGE for name in names)
        else f"to judge what is saved by the new ones: {_regrade_flags(path, names, new)}"
    )
    return f"{path} was written with other settings: {changes}; {way}"


def _regrade_flags(path: Path, names: Sequence[str], new: dict[str, Any]) -> str:
    words = ["--regrade", "--out", str(path.parent)]
    for name in names:
        group, _, limit = name.partition(".")
        if group == "limits":
            words += ["--" + limit.replace("_", "-"), str(new[name])]
        elif group == "sandbox":
            words += ["--sandbox", {True: "on", False: "off"}.get(new[name], str(new[name]))]
    return shlex.join(words)


def other_task(path: Path, saved: TaskFacts, cases_hash: str, messages_hash: str) -> str | None:
    """What of a task changed since its rollouts were saved, and what to do; or None."""
    changed = [
        what
        for what, differs in (
            ("its cases", saved.cases_hash != cases_hash),
            ("its prompt", saved.messages_hash != messages_hash),
        )
        if differs
    ]
    if not changed:
        return None
    return (
        f"{path} has rollouts of {saved.id}, but {' and '.join(changed)} changed since: use "
        "the tasks and prompts of that run, --out for another folder, or --overwrite to "
        "begin anew"
    )


def as_saved(tasks: Iterable[Task], facts: Mapping[str, TaskFacts]) -> list[Task]:
    """Tasks under the ids that a journal has them by.

    An id begins with the name of the task's file: in one that was renamed a task is known by its
    cases, unless two tasks share them.
    """
    times = Counter(fact.cases_hash for fact in facts.values())
    ids = {fact.cases_hash: fact.id for fact in facts.values() if times[fact.cases_hash] == 1}
    return [
        task if task.id in facts else replace(task, id=ids.get(task.cases_hash, task.id))
        for task in tasks
    ]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and plain values of nested dicts."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{name}.{key}" if name else key)


def clip(value: object, width: int = 60) -> str:
    """A value in one line of at most `width` characters."""
    text = " ".join(str(value).split())
    return text if len(text) <= width else text[: width - 3] + "..."
