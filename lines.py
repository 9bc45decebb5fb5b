"""A line of the journal: fields -> a rollout, or the record that the statistics keep of it."""

from __future__ import annotations

import json
import sys
from typing import Any

from judge import Failure, Judgement
from policy import Reply
from swarm import Key, Record, Rollout, text_hash

REPLY, ROLLOUT = b'{"kind": "reply", ', b'{"kind": "rollout", '  # as encode writes them
DAMAGE = (ValueError, KeyError, TypeError, AttributeError)  # what reading a damaged line raises


def key_of(fields: dict[str, Any]) -> Key:
    arm, task = sys.intern(fields["arm"]), sys.intern(fields["task"])
    return Key(arm, task, fields["round"], fields["particle"])


def record_of(fields: dict[str, Any]) -> Record:
    """Record.of(rollout_of(fields)), without the detour, which takes a third of a replay."""
    reply, program, judgement = fields["reply"], fields["program"], fields["judgement"]
    return Record(
        key=key_of(fields),
        verdict=sys.intern(judgement["verdict"]),
        visible_passed=judgement["visible_passed"],
        visible_total=judgement["visible_total"],
        finish_reason=sys.intern(reply["finish_reason"]),
        outcome=reply["outcome"] and sys.intern(reply["outcome"]),
        prompt_tokens=reply["prompt_tokens"],
        completion_tokens=reply["completion_tokens"],
        reasoning_tokens=reply["reasoning_tokens"],
        reply_hash=text_hash(reply["text"]),
        program_hash=0 if program is None else text_hash(program),
        sample_seconds=reply["seconds"],
        judge_seconds=judgement["cpu_seconds"],
    )


def rollout_of(fields: dict[str, Any]) -> Rollout:
    judgement = fields["judgement"]
    if judgement is not None:
        failure = judgement["first_failure"]
        failure = None if failure is None else Failure(**failure)
        judgement = Judgement(**{**judgement, "first_failure": failure})
    return Rollout(
        key=key_of(fields),
        seed=fields["seed"],
        messages_hash=fields["messages_hash"],
        reply=Reply(**fields["reply"]),
        program=fields["program"],
        judgement=judgement,
    )


def as_read(value: Any) -> Any:
    """A value as it comes back from a line: its tuples are lists."""
    return json.loads(json.dumps(value))


def encode(fields: dict[str, Any]) -> bytes:
    # In ASCII: a reply can hold half a surrogate pair, which has no UTF-8.
    return json.dumps(fields).encode("ascii") + b"\n"
