"""The judge as a reward function of the trainers.

    TRL        GRPOTrainer(reward_funcs=reward.trl, ...) or reward.trl_async
    verl       reward.custom_reward_function.path=reward.py (compute_score), or
               reward.custom_reward_function.name=compute_score_async
    OpenRLHF   --reward.remote_url reward.py --data.label_key ground_truth
    your own   scores = await reward.score(replies, tasks)

A task's cases are {"inputs", "outputs", "fn_name"?} as a dict or as JSON, as the rows of verl,
TACO and APPS have them, and as run.py --export verl-rl writes them; or a data.Task. Beside them may
stand "checker", a program that says whether an output is right, "any_case", whether letters may be
printed in any case, and "time_limit" in seconds. The score's `shape` is one of

    pass       1 when all cases pass, else 0 (the default; the first failure ends it)
    share      the share of all cases that pass
    visible    1 when all cases pass; else the visible ones that pass, as a share of all

The replies are judged in the sandbox of judge.py, by one pool of workers that lives as long as the
process. A reply without a program is worth 0. When the judge itself fails there is no score: None
for TRL, which leaves the reply out; a JudgeFault for verl and OpenRLHF, which know no such thing.

This file works by its path from any folder, and as swarm_rescue.reward after `pip install .`: its
own modules are imported under a name of their own, whatever modules named data or stats the caller
has. It costs nothing until a first reply is scored.
"""

from __future__ import annotations

import asyncio
import builtins
import functools
import importlib
import json
import sys
import types
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from data import Task
    from trial import Judgement

# --- our own modules ------------------------------------------------------------------------------

FOLDER = Path(__file__).resolve().parent
PACKAGE = f"_swarm_rescue_{zlib.crc32(str(FOLDER).encode()):08x}"  # one for each copy of us
OURS = {path.stem for path in FOLDER.glob("*.py")} | {p.parent.name for p in FOLDER.glob("*/*.py")}


class _Loader(SourceFileLoader):
    """Loads a module of ours, in which `import data` means our data."""

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


class _Finder:
    """Finds PACKAGE.data beside this file."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        if path is None or not name.startswith(f"{PACKAGE}."):
            return None
        return FileFinder(path[0], (_Loader, SOURCE_SUFFIXES)).find_spec(name)


def _import(name: str, *args: Any, **kwargs: Any) -> Any:
    """What an import statement does in our modules."""
    top = name.partition(".")[0]
    if top not in OURS:
        return builtins.__import__(name, *args, **kwargs)
    module = importlib.import_module(f"{PACKAGE}.{name}")
    wanted = args[2] if len(args) > 2 else kwargs.get("fromlist")
    if not wanted:
        return sys.modules[f"{PACKAGE}.{top}"]
    for each in wanted:
        if not hasattr(module, each) and hasattr(module, "__path__"):
            importlib.import_module(f"{PACKAGE}.{name}.{each}")
    return module


@functools.cache
def _ours(name: str) -> Any:
    """A module of ours."""
    if PACKAGE not in sys.modules:
        package = types.ModuleType(PACKAGE)
        package.__path__ = [str(FOLDER)]
        sys.meta_path.insert(0, _Finder)
        sys.modules.setdefault(PACKAGE, package)  # another thread may have been here
    return importlib.import_module(f"{PACKAGE}.{name}")


# --- the core -------------------------------------------------------------------------------------

Shape = Literal["pass", "share", "visible"]
SHAPES = ("pass", "share", "visible")
REMEMBERED = 256  # tasks kept that were given as JSON
ANY_CASE = "The output: you can print each letter in any case."  # what a statement says of it


class Score(NamedTuple):
    """What a reply is worth.

    Attributes:
        value: 0 to 1; None when the judge or the task's checker failed, so that nothing is known.
        why: one line.
        judgement: the judge's, None with such a failure.
    """

    value: float | None
    why: str
    judgement: Judgement | None

    @property
    def verdict(self) -> str:
        return self.judgement.verdict if self.judgement else "judge fault"

    @property
    def passed(self) -> float:
        """Share of the cases passed up to where the judge stopped; of the shape "share", of all."""
        if self.judgement is None:
            return 0.0
        found = self.judgement
        total = found.visible_total + found.hidden_total
        return (found.visible_passed + found.hidden_passed) / total


async def score(
    replies: Sequence[str],
    tasks: Sequence[Task | Mapping[str, Any] | str],
    shape: Shape = "pass",
    *,
    visible: Sequence[int | None] | None = None,
) -> list[Score]:
    """Score each reply on its task; in the order of the replies.

    Args:
        replies: what the policy said.
        tasks: of each reply: a data.Task, or the cases as a dict or JSON.
        shape: how cases make a number, see the top of this file.
        visible: of each reply, how many of the first cases are visible; needed by the shape of
            that name for cases that are no data.Task.

    Raises:
        ValueError: a task has no cases or some that can't be read, or the shape is unknown.
        SandboxError: this machine can't hold the sandbox; see set_up.
    """
    return await asyncio.wrap_future(_submit(replies, tasks, shape, visible))


def set_up(**settings: Any) -> str:
    """Start the judge of this process with other settings: workers, limits, sandbox of judge.Judge.

    Limits are a dict of fields of judge.Limits. judge="ray" judges on the nodes of a Ray, that at
    ray_address. Returns the line that says what the sandbox holds.

    Raises:
        RuntimeError: a reply was scored already.
        SandboxError: this machine can't hold the sandbox that was asked for.
    """
    if "limits" in settings:
        settings["limits"] = _ours("judge").Limits(**settings["limits"])
    line: str = _ours("resident").set_up(**settings)
    return line


def _score(
    replies: Sequence[str],
    tasks: Sequence[Any],
    shape: Shape,
    visible: Sequence[int | None] | None = None,
) -> list[Score]:
    """The same for callers that wait in a thread."""
    scores: list[Score] = _submit(replies, tasks, shape, visible).result()
    return scores


def _submit(
    replies: Sequence[str],
    tasks: Sequence[Any],
    shape: Shape,
    visible: Sequence[int | None] | None,
) -> Any:
    if shape not in SHAPES:
        raise ValueError(f"a score's shape is one of {', '.join(SHAPES)}, and not {shape!r}")
    if len(replies) != len(tasks):
        raise ValueError(f"{len(replies)} replies for {len(tasks)} tasks")
    counts = visible if visible is not None else [None] * len(tasks)
    shaped = [_shaped(task, shape, count) for task, count in zip(tasks, counts, strict=True)]
    home = _ours("resident").resident()
    return home.submit(_gather(home.judge, replies, shaped, shape))


async def _gather(
    judge: Any, replies: Sequence[str], tasks: Sequence[Task], shape: Shape
) -> list[Score]:
    """In the judge's event loop."""
    return await asyncio.gather(
        *(_one(judge, reply, task, shape) for reply, task in zip(replies, tasks, strict=True))
    )


async def _one(judge: Any, reply: str, task: Task, shape: Shape) -> Score:
    ours = _ours("judge")
    program = ours.extract_program(reply, task.function)
    try:
        found: Judgement = await judge.grade(program, task, every_case=shape == "share")
    except (ours.JudgeFault, ours.CheckerFault) as fault:
        return Score(None, str(fault), None)
    if program is None:
        return Score(0.0, "no program in the reply", found)
    if found.accepted:
        return Score(1.0, "accepted", found)
    failure = found.first_failure
    got = ours.clip(failure.got, 200).strip() if failure else ""
    why = f"{found.verdict}: {got}" if got else found.verdict
    if shape == "pass":
        return Score(0.0, why, found)
    hidden = found.hidden_passed if shape == "share" else 0
    total = found.visible_total + found.hidden_total
    return Score((found.visible_passed + hidden) / total, why, found)


# --- tasks ----------------------------------------------------------------------------------------


def _shaped(given: Any, shape: Shape, visible: int | None) -> Task:
    """A task whose cases are split so that the judge runs what the shape needs, and no more."""
    if isinstance(given, str):
        return _of_json(given, shape, visible)
    if isinstance(given, Mapping):
        return _split(_task(given), shape, visible)
    return given if shape == "visible" else _split(given, shape, None)


@functools.lru_cache(REMEMBERED)
def _of_json(given: str, shape: Shape, visible: int | None) -> Task:
    return _split(_task(given), shape, visible)


def _task(given: Any) -> Task:
    """Cases -> a task; ValueError when they can't be read."""
    data, pairs, problem = _ours("data"), _ours("formats.pairs"), _ours("formats.problem")
    try:
        function, cases = pairs.pairs(given)
    except problem.Dropped as why:
        raise ValueError(
            f"these cases can't be judged ({why}): they should be "
            '{"inputs": [...], "outputs": [...], "fn_name"?} as a dict or as JSON; '
            f"they begin with {str(given)[:200]!r}"
        ) from None
    if not cases:
        raise ValueError("a task has no cases: there is nothing to score a reply by")
    more = problem.parsed(given)
    statement = ANY_CASE if more.get("any_case") else ""
    task: Task = data.Task(
        "reward", "", "", statement, 0, tuple(cases), (), (), function, "", more.get("checker"),
        more.get("time_limit"),
    )  # fmt: skip
    return task


def _split(task: Task, shape: Shape, visible: int | None) -> Task:
    """Visible cases all run; hidden ones up to the first failure, when all visible ones passed."""
    cases = (*task.visible, *task.hidden)
    if shape == "visible":
        if visible is None or not 0 < visible <= len(cases):
            raise ValueError(
                "the shape 'visible' needs the number of visible cases: extra_info.visible of the "
                f"rows, from 1 to {len(cases)}, is {visible!r}"
            )
        first = visible
    else:
        first = 1 if shape == "pass" else len(cases)
    return replace(task, visible=cases[:first], hidden=cases[first:])


# --- the trainers ---------------------------------------------------------------------------------


def trl(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Any] | None = None,
    *,
    shape: Shape = "pass",
    log_extra: Callable[[str, list[Any]], None] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """A reward function of TRL's GRPOTrainer.

    The cases are in the data set's column `ground_truth`, or `reward_model` as verl's rows have
    it, or `input_output` as those of TACO and APPS. Another shape: functools.partial(trl,
    shape="share").
    """
    tasks, visible = _of_columns(columns, len(completions))
    scores = _score([_said(each) for each in completions], tasks, shape, visible)
    return _for_trl(scores, log_extra, log_metric)


async def trl_async(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Any] | None = None,
    *,
    shape: Shape = "pass",
    log_extra: Callable[[str, list[Any]], None] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """The same as `trl`, beside other asynchronous reward functions."""
    tasks, visible = _of_columns(columns, len(completions))
    scores = await score([_said(each) for each in completions], tasks, shape, visible=visible)
    return _for_trl(scores, log_extra, log_metric)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    shape: Shape = "pass",
    **_: Any,
) -> dict[str, Any]:
    """A reward function of verl; its shape: reward.custom_reward_function.reward_kwargs.shape.

    Raises JudgeFault when the judge failed: verl knows no missing score.
    """
    (found,) = _score([solution_str], [ground_truth], shape, [_visible(extra_info)])
    return _for_verl(found)


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    shape: Shape = "pass",
    **_: Any,
) -> dict[str, Any]:
    """The same as `compute_score`, without a thread for each reply that is judged."""
    visible = [_visible(extra_info)]
    (found,) = await score([solution_str], [ground_truth], shape, visible=visible)
    return _for_verl(found)


def reward_func(
    queries: Sequence[str],
    prompts: Sequence[str],
    labels: Sequence[Any],
    shape: Shape = "pass",
    **_: Any,
) -> dict[str, Any]:
    """A reward function of OpenRLHF: a query is a prompt and its answer, a label holds the cases.

    Raises JudgeFault when the judge failed: OpenRLHF knows no missing score.
    """
    scores = _score(list(map(_answer, queries, prompts)), labels, shape)
    import torch  # OpenRLHF has it

    values = torch.tensor([_value(each) for each in scores], dtype=torch.float32)
    logs = {
        "accepted": [float(each.verdict == "accepted") for each in scores],
        "passed": [each.passed for each in scores],
    }
    extra = {name: torch.tensor(column) for name, column in logs.items()}
    return {"rewards": values, "scores": values, "extra_logs": extra}


def _answer(query: str, prompt: str) -> str:
    """What stands behind the prompt in a query, which may begin with a token of its own."""
    before, found, answer = query.partition(prompt) if prompt else ("", prompt, query)
    if prompt and not found:
        raise ValueError(f"a query does not hold its prompt: it begins with {before[:100]!r}")
    return answer


def _said(completion: Any) -> str:
    """The text of a completion: itself, or the last thing that the assistant says in messages."""
    if isinstance(completion, str):
        return completion
    said = [each.get("content") for each in completion if each.get("role") == "assistant"]
    content = said[-1] if said else None
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content)
    return content or ""


def _of_columns(columns: Mapping[str, Any], count: int) -> tuple[list[Any], list[int | None]]:
    """The cases of each reply, and how many of them are visible."""
    infos = columns.get("extra_info") or [None] * count
    visible = [_visible(info) for info in infos]
    for name in ("ground_truth", "reward_model", "input_output"):
        if name in columns:
            cells = [json.loads(c) if name == "reward_model" and isinstance(c, str) else c
                     for c in columns[name]]  # fmt: skip
            return [c["ground_truth"] if name == "reward_model" else c for c in cells], visible
    raise ValueError(
        "the data set has no column with cases: ground_truth, reward_model or input_output; it has "
        f"{', '.join(columns)}"
    )


def _visible(extra_info: Any) -> int | None:
    number = extra_info.get("visible") if isinstance(extra_info, Mapping) else None
    return None if number is None else int(number)


def _for_trl(
    scores: Sequence[Score],
    log_extra: Callable[[str, list[Any]], None] | None,
    log_metric: Callable[[str, float], None] | None,
) -> list[float | None]:
    if log_extra:
        log_extra("verdict", [each.verdict for each in scores])
        log_extra("why", [each.why for each in scores])
    judged = [each for each in scores if each.judgement]
    if log_metric and judged:
        accepted = sum(each.verdict == "accepted" for each in judged)
        log_metric("accepted", accepted / len(judged))
        log_metric("judge_faults", float(len(scores) - len(judged)))
    return [each.value for each in scores]


def _for_verl(found: Score) -> dict[str, Any]:
    return {
        "score": _value(found),
        "acc": float(found.verdict == "accepted"),
        "passed": found.passed,
        "verdict": found.verdict,
    }


def _value(found: Score) -> float:
    """The score of a trainer that knows no missing one."""
    if found.value is None:
        fault: Exception = _ours("judge").JudgeFault(found.why)
        raise fault
    return found.value
