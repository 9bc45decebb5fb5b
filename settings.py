"""Command line -> settings: the flags, what is wrong with them, what a saved run must share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from agree import as_saved
from data import SPLITS, Loaded, Task, load_tasks
from export import KINDS
from flags import (
    AUDIT,
    CALIBRATE,
    DRY,
    EVERYWHERE,
    JUDGE_MODES,
    LOCAL,
    MODEL,
    ON_TASKS,
    REGRADE,
    REUSE,
    RUN,
    SAMPLING,
    add_flag,
    flag,
    json_object,
    option_of,
    out_of_range,
    without_effect,
)
from folder import JournalError
from journal import Journal
from judge import Limits, Sandbox, add_limit_flags, limits_from, sandbox_from
from policy.key import DEFAULT_BASE_URL, DEFAULT_MODEL, without_password
from swarm import BANDS, TOPOLOGIES, Prompts, SearchError, Shape, topology_of

PYTHON = "{}.{}".format(*sys.version_info)  # programs are judged by it: recursion limits differ
RECIPE_VERSION = 2  # raised when the same settings would give other rollouts or verdicts
NOT_GIVEN = object()
REREAD = {"tasks", "band", "arms", "noise_runs", "margin"}  # may be another for a saved run
OURS = {  # fields of a request that --extra-body does not set
    "model", "messages", "seed", "n", "stream", "stream_options", "temperature", "max_tokens",
    "max_completion_tokens",
}  # fmt: skip
AUDITED = 3  # known right programs, and wrong ones, of a task that --audit judges
FIRST_PROGRAMS = Path(__file__).parent / "examples" / "first_programs.jsonl"
FIRST_LIMIT = 36  # of those, what --local takes
# Other defaults of --local: a small model writes noise at temperature 1, and what it says behind
# its program is not needed.
LAPTOP = {"max_tokens": 128, "temperature": 0.8, "concurrency": 16}
CALIBRATION_SIZE = 400  # base rollouts that --calibrate judges on every hidden case


@dataclass(frozen=True)
class Config:
    """Every setting of a run; each field but the last four is the flag of the same name.

    The help of a flag says what its field means; `limits`, `sandbox` and `judge_workers` come
    from the judge's own flags, and `given` names the flags of the command line. All but the last
    is written to results.json.
    """

    tasks: str | None = flag(
        None,
        "a file or a folder of files (parquet, JSON, JSON lines; see the README for the formats), "
        "hf:OWNER/NAME[@REVISION], or 'toy' (default: deepmind/code_contests from the hub)",
        modes=(*SAMPLING, CALIBRATE, REGRADE, AUDIT),
    )
    splits: tuple[str, ...] = flag(
        ("test", "valid"), "splits of a data set on the hub", modes=ON_TASKS
    )
    config: str | None = flag(
        None,
        "configuration of a data set on the hub that has several (default: none)",
        modes=ON_TASKS,
    )
    visible: int = flag(
        8,
        "visible cases, at most half of them, of tasks that do not say which",
        least=1,
        most=1000,
        modes=(*SAMPLING, AUDIT),
    )
    limit: int | None = flag(
        None, "only the first N tasks of a seeded shuffle", least=1, modes=(*SAMPLING, AUDIT)
    )
    band: tuple[str, ...] = flag(
        ("all-fail",),
        f"which all-fail tasks the arms search, those in each that is named: {', '.join(BANDS)}",
        modes=EVERYWHERE,
    )
    audit: int | None = flag(
        None,
        f"judge up to N right and N wrong programs of a task that its data set knows; alone, "
        f"without a policy, unless an endpoint is given (N: {AUDITED}; default: off)",
        least=1,
        most=1000,
        modes=EVERYWHERE,
        bare=AUDITED,
    )
    arms: tuple[str, ...] = flag(
        ("resample", "solo", "ring", "star"),
        f"arms to run, of {', '.join(TOPOLOGIES)}",
        modes=EVERYWHERE,
    )
    group: int = flag(8, "rollouts of the base group, and particles of an arm", least=2, most=1024)
    rounds: int = flag(3, "rounds of an arm, the fresh one included", least=1, most=1024)
    common_start: bool = flag(
        False, "all arms of a task, repeats too, go on from one and the same round 0"
    )
    noise_runs: int = flag(
        0, "repeats of the resample arm with other seeds", least=0, most=1000, modes=EVERYWHERE
    )
    looks: int = flag(
        1,
        "looks at the results while the run grows, each after as many tasks of a seeded shuffle; "
        "p-values and intervals allow for them",
        least=1,
        most=20,
    )
    stop_when_decided: bool = flag(
        False, "sample no more tasks after a look at which every arm is shown or futile"
    )
    margin: float | None = flag(
        None,
        "points by which an arm may differ from resample and still be called equivalent "
        "(default: none, so that no arm is)",
        least=0.1,
        most=100,
        modes=EVERYWHERE,
    )
    seed: int = flag(
        0,
        "the run's seed; every rollout's seed is derived from it",
        least=0,
        most=2**63 - 1,
        modes=(*SAMPLING, AUDIT),
    )
    base_url: tuple[str, ...] = flag(
        (DEFAULT_BASE_URL,),
        "an OpenAI-compatible endpoint; several, of one model, share the requests",
        modes=(RUN,),
    )
    model: str | None = flag(
        None,
        f"the model (default: {DEFAULT_MODEL} there, elsewhere the only model served)",
        modes=(RUN,),
    )
    temperature: float = flag(1.0, "sampling temperature", least=0, most=100, modes=MODEL)
    max_tokens: int = flag(2048, "longest reply, in tokens", least=1, most=10**9, modes=MODEL)
    thinking: bool = flag(False, "let the model think before it answers", modes=MODEL)
    no_comments: bool = flag(False, "ask for programs without comments")
    extra_body: Mapping[str, Any] | None = flag(
        None,
        'JSON whose fields go with every request, such as {"top_p": 0.95} (default: none)',
        modes=(RUN,),
        kind=json_object,
    )
    stream: str = flag(
        "auto",
        "on, off, or auto: whole replies, streams where something hangs up on silence",
        modes=(RUN,),
    )
    concurrency: int = flag(
        64, "requests in flight at each endpoint", least=1, most=100_000, modes=MODEL
    )
    read_timeout: float = flag(
        600.0, "longest silence in a reply, in seconds", least=1, most=10**6, modes=(RUN,)
    )
    sample_timeout: float = flag(
        1800.0,
        "seconds that a sample may take, retries included",
        least=1,
        most=10**6,
        modes=(RUN,),
    )
    give_up_after: float = flag(
        30.0,
        "minutes to wait for an endpoint that does not answer",
        least=0,
        most=100_000,
        modes=(RUN,),
    )
    max_total_tokens: int | None = flag(
        None,
        "stop at this many tokens, prompts and what is saved included",
        least=1,
        modes=(RUN,),
    )
    out: str | None = flag(
        None, "folder to write to (default: out, out/local or out/dry-run)", modes=EVERYWHERE
    )
    dry_run: bool = flag(
        False, "toy tasks and a scripted policy: no key and no network", modes=EVERYWHERE
    )
    local: bool = flag(
        False,
        f"a small model in this process, on {FIRST_LIMIT} small tasks: no key, server or network; "
        f"with {', '.join(f'{name} {value}' for name, value in LAPTOP.items())}, unless others are "
        "given",
        modes=EVERYWHERE,
    )
    gguf: str | None = flag(
        None, "the model of a local run (default: SmolLM2-135M-Instruct)", modes=MODEL
    )
    reuse: bool = flag(
        False, "make no request; print the report from the folder again", modes=EVERYWHERE
    )
    regrade: bool = flag(
        False, "make no request; judge every saved program again", modes=EVERYWHERE
    )
    calibrate: bool = flag(
        False,
        f"judge {CALIBRATION_SIZE} base rollouts on every hidden case: hill or cliff?",
        modes=EVERYWHERE,
    )
    details: bool = flag(False, "print what is secondary too", modes=EVERYWHERE)
    export: tuple[str, ...] = flag(
        (),
        f"rows for trainers, into export/ of the folder: {', '.join(KINDS)}",
        modes=EVERYWHERE,
    )
    max_rows_per_task: int | None = flag(None, "exported rows a task", least=1, modes=EVERYWHERE)
    require_extra: bool = flag(
        False, "export only programs that pass a task's further cases too", modes=EVERYWHERE
    )
    page_mb: float = flag(
        25.0, "most megabytes of report.html", least=1, most=10_000, modes=EVERYWHERE
    )
    overwrite: bool = flag(
        False,
        "start again though the folder holds a run (it is set aside)",
        modes=(*SAMPLING, AUDIT),
    )
    judge: str = flag(
        "local",
        "where programs are judged: local, or ray (the nodes of a Ray)",
        modes=JUDGE_MODES["judge_workers"],
    )
    ray_address: str | None = flag(
        None,
        "of the Ray that judges (default: RAY_ADDRESS, else a Ray of this machine alone)",
        modes=JUDGE_MODES["judge_workers"],
    )
    limits: Limits = field(default_factory=Limits)
    sandbox: Sandbox = True
    judge_workers: int | None = None
    given: frozenset[str] = frozenset()

    @property
    def folder(self) -> Path:
        default = "out/dry-run" if self.dry_run else "out/local" if self.local else "out"
        path = Path(self.out or default)
        return path.expanduser()  # a shell leaves the ~ of --out=~/x to us

    @property
    def mode(self) -> str:
        if self.regrade:
            return REGRADE
        if self.reuse:
            return CALIBRATE if self.calibrate or self.audit else REUSE
        if self.dry_run:
            return DRY
        if self.local:
            return LOCAL
        return AUDIT if self.audit and not self.given & {"base_url", "model"} else RUN

    @property
    def policy(self) -> str:
        """What replied in this run."""
        return "scripted" if self.dry_run else "local" if self.local else "endpoint"

    @property
    def saved(self) -> dict[str, Any]:
        """What of it is written, JSON-ready."""
        values = asdict(self)
        del values["given"]
        values["base_url"] = [without_password(url) for url in self.base_url]
        return values

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
        if "help" in item.metadata:
            names.append(item.name)
            add_flag(parser, item)
    add_limit_flags(parser)
    # argparse leaves what is there already, so that what is still NOT_GIVEN was not given.
    everything = vars(parser.parse_args([]))
    args = parser.parse_args(argv, argparse.Namespace(**dict.fromkeys(everything, NOT_GIVEN)))
    given = frozenset(name for name, value in vars(args).items() if value is not NOT_GIVEN)
    values = {
        name: getattr(args, name) if name in given else everything[name] for name in vars(args)
    }
    config = Config(
        **{name: values[name] for name in names},
        limits=limits_from(argparse.Namespace(**values)),
        sandbox=sandbox_from(argparse.Namespace(**values)),
        judge_workers=values["judge_workers"],
        given=given,
    )
    problem = mistake(config)
    if problem:
        parser.error(problem)
    return _by_mode(config)


def _by_mode(config: Config) -> Config:
    """Defaults that depend on what is asked."""
    if config.mode == LOCAL:
        laptop: dict[str, Any] = dict(LAPTOP)
        if config.tasks is None:
            laptop |= {"tasks": str(FIRST_PROGRAMS), "limit": FIRST_LIMIT}
        given = config.given
        return replace(config, **{k: laptop[k] for k in laptop.keys() - given})
    if config.mode == DRY:  # it repeats resample, and its programs need no long limit
        if "cpu_seconds" not in config.given:
            config = replace(config, limits=replace(config.limits, cpu_seconds=1.0))
        if "noise_runs" not in config.given and "resample" in config.arms:
            config = replace(config, noise_runs=2)
        return replace(config, tasks="toy")
    return config


def mistake(config: Config) -> str | None:
    """What is wrong with the flags, if anything: everything that can be said without a look at
    the machine, so that nothing is spent before it is said."""
    return out_of_range(config) or without_effect(config) or _at_odds(config)


def _at_odds(config: Config) -> str | None:
    """Values that do not fit each other, or that no setting has."""
    for name in sorted(config.given):
        if getattr(config, name, None) in ("", ("",)):  # a shell's variable without a value
            return f"{option_of(name)} needs a value"
    try:
        _ = config.folder
    except RuntimeError as error:  # a user without a home
        return f"--out {config.out}: {error}"
    if config.dry_run and config.local:
        return "--dry-run has written replies and --local a model: choose one of them"
    if config.gguf and not config.local:
        return "--gguf has no effect without --local"
    if config.mode == DRY and config.tasks not in (None, "toy"):
        return "--dry-run has written replies to the toy tasks only: leave out --tasks"
    on_hub = not config.local if config.tasks is None else config.tasks.startswith("hf:")
    if not on_hub and config.given & {"splits", "config"}:
        return "--splits and --config have no effect with --tasks, but for hf:OWNER/NAME"
    if config.tasks is None and config.config:
        return "--config has no effect without --tasks hf:OWNER/NAME"
    if config.tasks is None and not set(config.splits) <= set(SPLITS):
        return f"--splits takes some of {', '.join(SPLITS)}"
    if config.judge not in ("local", "ray"):
        return "--judge is local or ray"
    if config.ray_address and config.judge != "ray":
        return "--ray-address has no effect without --judge ray"
    if config.stream not in ("on", "off", "auto"):
        return "--stream is on, off or auto"
    ours = sorted(OURS.intersection(config.extra_body or {}))
    if ours:
        return f"--extra-body sets {ours[0]}, which is for this program or its own flag to set"
    unknown = [arm for arm in config.arms if arm not in TOPOLOGIES]
    if unknown or not config.arms or len(set(config.arms)) < len(config.arms):
        return f"--arms takes each of these at most once: {', '.join(TOPOLOGIES)}"
    if config.noise_runs and "resample" not in config.arms:
        return "--noise-runs repeats the resample arm: add it to --arms"
    if config.stop_when_decided and config.looks < 2:
        return "--stop-when-decided stops at a look: add --looks"
    if not config.band or not set(config.band) <= set(BANDS):
        return f"--band takes some of {', '.join(BANDS)}"
    if "sound" in config.band and config.mode in SAMPLING and not config.audit:
        return "--band sound needs to know which tasks are: add --audit"
    try:
        for arm in config.arms:
            topology_of(arm, config.group)
    except SearchError as error:
        return f"--group {config.group}: {error}"
    unknown = [kind for kind in config.export if kind not in KINDS]
    if unknown or len(set(config.export)) < len(config.export):
        return f"--export takes each of these at most once: {', '.join(KINDS)}"
    if (config.max_rows_per_task or config.require_extra) and not config.export:
        return "--max-rows-per-task and --require-extra choose among exported rows: add --export"
    return None


def shaping_settings(
    config: Config, loaded: Loaded, prompts: Prompts, sampling: dict[str, Any]
) -> dict[str, Any]:
    """What shapes a rollout or its verdict: a saved run goes on only when all of it is equal."""
    return {
        "recipe": RECIPE_VERSION,
        "tasks": kind_of_source(loaded.source),
        "cases": "visible: public + 8 generated; hidden: private + 32 generated",
        "visible": config.visible,
        "sampling": sampling,
        "prompts": prompts.hashes,
        "no_comments": config.no_comments,
        **asdict(config.shape),
        "seed": config.seed,
        "limits": asdict(config.limits),
        "sandbox": config.sandbox,
        "python": PYTHON,
    }


def kind_of_source(source: str) -> str:
    """What of a source of tasks is a setting. Where files lie is none: the cases are compared."""
    return "files" if Path(source).is_absolute() else source


def place_of(config: Config, loaded: Loaded) -> str | None:
    """--tasks for a later --regrade, from whatever folder that is started."""
    named = kind_of_source(loaded.source) == "files" or loaded.source.startswith("hf:")
    return loaded.source if named else config.tasks


def saved_config(journal: Journal, asked: Config) -> Config:
    """The configuration that the journal's run was started with, with what is asked of it now."""
    if journal.load is None:
        raise JournalError(f"{journal.path} holds no run yet; start one without --reuse")
    known = {item.name: item for item in fields(Config)}
    saved = {name: value for name, value in journal.load["config"].items() if name in known}
    saved["limits"] = Limits(**saved["limits"])
    for name, value in saved.items():
        if isinstance(known[name].default, tuple):
            saved[name] = (value,) if isinstance(value, str) else tuple(value)
    again = {"out", "reuse", "regrade", "calibrate", "audit", *REREAD.intersection(asked.given)}
    return replace(Config(**saved), **{name: getattr(asked, name) for name in again})


def read_tasks(
    config: Config, *, ids: Collection[str] | None = None, extra: bool = False, known: int = 0
) -> Loaded:
    """The run's tasks, or those with these ids."""
    limit = config.limit if ids is None else None
    if config.looks > 1 and ids is None:
        limit = limit or sys.maxsize  # all of them, in the order of the shuffle
    return load_tasks(
        config.tasks,
        config.splits,
        config=config.config,
        limit=limit,
        seed=config.seed,
        ids=ids,
        extra=extra,
        visible=config.visible,
        known=known,
    )


def saved_tasks(
    config: Config,
    journal: Journal,
    ids: Collection[str],
    *,
    extra: bool = False,
    known: int = 0,
) -> dict[str, Task]:
    """Tasks of a journal by their ids there, also from a file that was renamed since."""
    loaded = read_tasks(config, ids=frozenset(ids), extra=extra, known=known)
    found = {task.id: task for task in loaded.tasks}
    if len(found) < len(ids) and config.tasks not in (None, "toy"):
        everything = replace(config, limit=None)
        facts = {name: journal.facts[name] for name in ids if name not in found}
        renamed = as_saved(read_tasks(everything, extra=extra, known=known).tasks, facts)
        found.update({task.id: task for task in renamed if task.id in facts})
    return found
