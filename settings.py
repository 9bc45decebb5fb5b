"""Command line -> settings: the flags, what is wrong with them, what a saved run must share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from data import Loaded, load_tasks
from journal import Journal, JournalError
from judge import Limits, add_limit_flags, limits_from
from policy.key import DEFAULT_BASE_URL, DEFAULT_MODEL
from swarm import BANDS, TOPOLOGIES, Prompts, SearchError, Shape, topology_of

PYTHON = "{}.{}".format(*sys.version_info)  # programs are judged by it: recursion limits differ
RECIPE_VERSION = 1  # raised when the same settings would give other rollouts or verdicts
CALIBRATION_SIZE = 400  # base rollouts that --calibrate judges on every hidden case


def flag(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Config:
    """Every setting of a run; each field but the last two is the flag of the same name.

    The help of a flag says what its field means; `limits` and `sandbox` come from the judge's
    own flags. The whole of it is written to results.json.
    """

    tasks: str | None = flag(
        None,
        "a parquet file, a folder of them, or 'toy' (default: deepmind/code_contests from the hub)",
    )
    splits: tuple[str, ...] = flag(("test", "valid"), "splits of the hub's dataset")
    limit: int | None = flag(None, "only the first N tasks of a seeded shuffle")
    band: str = flag("all-fail", f"which all-fail tasks the arms search: {', '.join(BANDS)}")
    arms: tuple[str, ...] = flag(
        ("resample", "solo", "ring", "star"), f"arms to run, of {', '.join(TOPOLOGIES)}"
    )
    group: int = flag(8, "rollouts of the base group, and particles of an arm")
    rounds: int = flag(3, "rounds of an arm, the fresh one included")
    common_start: bool = flag(
        False, "all arms of a task, repeats too, go on from one and the same round 0"
    )
    noise_runs: int = flag(0, "repeats of the resample arm with other seeds")
    seed: int = flag(0, "the run's seed; every rollout's seed is derived from it")
    base_url: str = flag(DEFAULT_BASE_URL, "an OpenAI-compatible endpoint")
    model: str | None = flag(
        None, f"the model (default: {DEFAULT_MODEL} there, elsewhere the only model served)"
    )
    temperature: float = flag(1.0, "sampling temperature")
    max_tokens: int = flag(2048, "longest reply, in tokens")
    thinking: bool = flag(False, "let the model think before it answers")
    no_comments: bool = flag(False, "ask for programs without comments")
    concurrency: int = flag(64, "requests in flight")
    give_up_after: float = flag(30.0, "minutes to wait for an endpoint that does not answer")
    max_total_tokens: int | None = flag(
        None, "stop at this many tokens, prompts and what is saved included"
    )
    out: str | None = flag(None, "folder to write to (default: out, or out/dry-run)")
    dry_run: bool = flag(False, "toy tasks and a scripted policy: no key and no network")
    reuse: bool = flag(False, "make no request; print the report from the folder again")
    regrade: bool = flag(False, "make no request; judge every saved program again")
    calibrate: bool = flag(
        False, f"judge {CALIBRATION_SIZE} base rollouts on every hidden case: hill or cliff?"
    )
    overwrite: bool = flag(False, "start again though the folder holds a run (it is set aside)")
    limits: Limits = field(default_factory=Limits)
    sandbox: bool = True
    judge_workers: int | None = None

    @property
    def folder(self) -> Path:
        return Path(self.out or ("out/dry-run" if self.dry_run else "out"))

    @property
    def shape(self) -> Shape:
        return Shape(self.group, self.rounds, self.common_start)

    @property
    def all_arms(self) -> list[str]:
        return [*self.arms, *(f"noise-{i + 1}" for i in range(self.noise_runs))]


def parse(argv: Sequence[str] | None) -> Config:
    """Command line -> Config; argparse ends the program on a flag it does not know."""
    parser = argparse.ArgumentParser(
        description="Does a swarm of rollouts rescue the tasks on which a GRPO group fails?",
        allow_abbrev=False,
    )
    names = []
    for item in fields(Config):
        if "help" not in item.metadata:
            continue
        names.append(item.name)
        option, text = "--" + item.name.replace("_", "-"), item.metadata["help"]
        if item.default is False:
            parser.add_argument(option, action="store_true", help=f"{text} (default: off)")
            continue
        if isinstance(item.default, tuple):
            kind: Any = lambda text: tuple(part.strip() for part in text.split(","))  # noqa: E731
            text += f", separated by commas (default: {','.join(item.default)})"
        else:
            kind = {"limit": int, "max_total_tokens": int}.get(item.name, type(item.default))
            kind = str if item.default is None and kind is type(None) else kind
            if "(default" not in text:
                text += f" (default: {'no limit' if item.default is None else item.default})"
        parser.add_argument(option, type=kind, default=item.default, help=text)
    add_limit_flags(parser)
    args = parser.parse_args(argv)
    config = Config(
        **{name: getattr(args, name) for name in names},
        limits=limits_from(args),
        sandbox=args.sandbox == "on",
        judge_workers=args.judge_workers,
    )
    problem = mistake(config)
    if problem:
        parser.error(problem)
    if config.dry_run:
        limits = replace(config.limits, cpu_seconds=min(1.0, config.limits.cpu_seconds))
        config = replace(config, tasks="toy", limits=limits, noise_runs=config.noise_runs or 2)
    return config


def mistake(config: Config) -> str | None:
    """What is wrong with the flags, if anything."""
    for name, least in (("limit", 1), ("group", 2), ("rounds", 1), ("noise_runs", 0),
                        ("max_tokens", 1), ("concurrency", 1), ("temperature", 0),
                        ("give_up_after", 0), ("max_total_tokens", 1),
                        ("judge_workers", 1)):  # fmt: skip
        value = getattr(config, name)
        if value is not None and not value >= least:
            return f"--{name.replace('_', '-')} must be {least} or more"
    unknown = [arm for arm in config.arms if arm not in TOPOLOGIES]
    if unknown or len(set(config.arms)) < len(config.arms):
        return f"--arms takes each of these at most once: {', '.join(TOPOLOGIES)}"
    if config.noise_runs and "resample" not in config.arms:
        return "--noise-runs repeats the resample arm: add it to --arms"
    try:
        for arm in config.arms:
            topology_of(arm, config.group)
    except SearchError as error:
        return f"--group {config.group}: {error}"
    if config.band not in BANDS:
        return f"--band is one of {', '.join(BANDS)}"
    return None


def shaping_settings(
    config: Config, loaded: Loaded, prompts: Prompts, sampling: dict[str, Any]
) -> dict[str, Any]:
    """What shapes a rollout or its verdict: a saved run goes on only when all of it is equal."""
    return {
        "recipe": RECIPE_VERSION,
        "tasks": loaded.source,
        "cases": "visible: public + 8 generated; hidden: private + 32 generated",
        "sampling": sampling,
        "prompts": prompts.hashes,
        "no_comments": config.no_comments,
        **asdict(config.shape),
        "seed": config.seed,
        "limits": asdict(config.limits),
        "sandbox": config.sandbox,
        "python": PYTHON,
    }


def saved_config(journal: Journal, asked: Config) -> Config:
    """The configuration that the journal's run was started with, with today's phase flags."""
    if journal.load is None:
        raise JournalError(f"{journal.path} holds no run yet; start one without --reuse")
    saved = dict(journal.load["config"])
    saved["limits"] = Limits(**saved["limits"])
    for name in ("arms", "splits"):
        saved[name] = tuple(saved[name])
    today = {name: getattr(asked, name) for name in ("out", "reuse", "regrade", "calibrate")}
    return replace(Config(**saved), **today)


def read_tasks(
    config: Config, *, ids: Collection[str] | None = None, extra: bool = False
) -> Loaded:
    """The run's tasks, or those with these ids."""
    limit = config.limit if ids is None else None
    return load_tasks(
        config.tasks, config.splits, limit=limit, seed=config.seed, ids=ids, extra=extra
    )
