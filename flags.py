"""A flag: a field of a dataclass with a help text, bounds, and the modes in which it counts."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import Field, field, fields
from typing import Any

# What a command line asks for: a run with an endpoint, with a model in this process or with
# written replies, or something about a saved run: its report, its report with --calibrate, its
# programs judged again.
RUN, LOCAL, DRY = "run", "local", "dry-run"
REUSE, CALIBRATE, REGRADE = "reuse", "calibrate", "regrade"
AUDIT = "audit"  # of the tasks alone, without a policy
MODEL = (RUN, LOCAL)
SAMPLING = (*MODEL, DRY)
SAVED = (REUSE, CALIBRATE, REGRADE)
EVERYWHERE = (*SAMPLING, *SAVED, AUDIT)
ON_TASKS = (*MODEL, AUDIT)  # and not the dry run, whose tasks are given


def flag(
    default: Any,
    text: str,
    *,
    least: float | None = None,
    most: float | None = None,
    modes: tuple[str, ...] = SAMPLING,
    kind: Callable[[str], Any] | None = None,
    bare: Any = None,
) -> Any:
    """A field of a dataclass that is a flag.

    Args:
        default: its type is the flag's; None: the type in the field's annotation.
        text: its help; the default is added to it.
        least, most: bounds of a number, both included.
        modes: where it has an effect; elsewhere it is refused, never ignored.
        kind: what makes the value of the text; None: the type does.
        bare: its value where it is given without one; None: it needs one.
    """
    bounds = {"least": least, "most": most, "modes": modes, "kind": kind, "bare": bare}
    return field(default=default, metadata={"help": text, **bounds})


def json_object(text: str) -> dict[str, Any]:
    """The value of --extra-body; argparse shows what is wrong with it."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        value = json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is no JSON ({error})") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('is no JSON object such as {"top_p": 0.95}')
    return value


class Repeated(argparse.Action):
    """A flag of several values, that may be given several times."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option: object = None
    ) -> None:
        before = getattr(namespace, self.dest)
        given = before if isinstance(before, tuple) and before is not self.default else ()
        setattr(namespace, self.dest, (*given, *values))


def add_flag(parser: argparse.ArgumentParser, item: Field[Any]) -> None:
    """Add the flag of a field that flag() made."""
    option, text = option_of(item.name), item.metadata["help"]
    if item.default is False:
        parser.add_argument(option, action="store_true", help=f"{text} (default: off)")
        return
    if isinstance(item.default, tuple):
        kind: Any = lambda text: tuple(part.strip() for part in text.split(","))  # noqa: E731
        text += f", separated by commas (default: {','.join(item.default) or 'none'})"
        parser.add_argument(option, type=kind, default=item.default, help=text, action=Repeated)
        return
    if item.metadata["kind"]:
        kind = item.metadata["kind"]
    else:
        kind = type(item.default)
        if item.default is None:
            kind = next(k for k in (int, float, str) if k.__name__ in str(item.type))
        if "(default" not in text:
            text += f" (default: {'no limit' if item.default is None else item.default})"
    bare = {} if item.metadata["bare"] is None else {"nargs": "?", "const": item.metadata["bare"]}
    parser.add_argument(option, type=kind, default=item.default, help=text, **bare)


def option_of(name: str) -> str:
    """The name of a field as it is typed."""
    return "--" + name.replace("_", "-")


def out_of_range(config: Any) -> str | None:
    """The first number that is not within the bounds of its flag."""
    for item in fields(config):
        value, least, most = getattr(config, item.name), *map(item.metadata.get, ("least", "most"))
        if value is None or (least is None and most is None):
            continue
        if least is not None and not value >= least:  # NaN, too
            return f"{option_of(item.name)} must be {least} or more"
        if value == math.inf or (most is not None and value > most):
            return f"{option_of(item.name)} must be {most or 'a number'} or less"
    return None


# The judge's own flags, as `modes` of the others.
JUDGE_MODES = {
    **dict.fromkeys(
        ("cpu_seconds", "wall_seconds", "memory_mb", "output_mb", "time_factor"),
        (*SAMPLING, REGRADE, AUDIT),
    ),
    "sandbox": (*SAMPLING, REGRADE, AUDIT),
    "judge_workers": (*SAMPLING, CALIBRATE, REGRADE, AUDIT),
}


def without_effect(config: Any) -> str | None:
    """The first flag that would be ignored; `config` says by `mode` and `given` what is asked."""
    modes = {**{item.name: item.metadata.get("modes") for item in fields(config)}, **JUDGE_MODES}
    for name in sorted(config.given):
        allowed = modes.get(name)
        if allowed is None or config.mode in allowed:
            continue
        if config.mode == DRY:
            why = "a dry run makes no request"
        elif config.mode == LOCAL:
            why = "the model is in this process"
        elif config.mode == AUDIT:
            why = "an audit alone samples nothing; give --base-url, --model or --local for a run"
        else:
            why = "what is saved was made with the settings of its run"
        verdicts = name in JUDGE_MODES and name != "judge_workers"
        way = " (--regrade judges by other ones)" if verdicts else ""
        asked = config.mode
        if config.mode == CALIBRATE:
            asked = "reuse --calibrate" if config.calibrate else "reuse --audit"
        return f"{option_of(name)} has no effect with --{asked}: {why}{way}"
    return None
