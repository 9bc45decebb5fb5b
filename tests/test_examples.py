"""The tasks of examples/ are what they are said to be: sound, and no usual wrong idea passes."""

import asyncio
from pathlib import Path

from data import load_tasks
from judge import Judge, Judgement

TASKS = Path(__file__).parent.parent / "examples" / "first_programs.jsonl"


def test_first_programs():
    loaded = load_tasks(str(TASKS), known=3)
    assert (len(loaded.tasks), loaded.dropped) == (80, {})
    for task in loaded.tasks:
        assert (len(task.visible), len(task.hidden)) == (5, 10), task.id
        assert (len(task.solutions), len(task.wrong_solutions)) == (3, 3), task.id
        assert 2 * task.floor < len(task.visible), task.id

    async def body() -> list[tuple[str, Judgement]]:
        async with Judge() as judge:
            return [
                (task.id, await judge.grade(program, task))
                for task in loaded.tasks
                for program in (task.solutions[0], *task.wrong_solutions)
            ]

    judged = asyncio.run(body())
    assert [task for task, judgement in judged[::4] if not judgement.accepted] == []
    wrong = [found for place, found in enumerate(judged) if place % 4]
    assert [task for task, judgement in wrong if judgement.accepted] == []
