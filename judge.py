"""Untrusted program + cases -> Judgement, in a sandbox."""

from __future__ import annotations

import ast
import decimal
import itertools
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Verdict = Literal[
    "accepted",
    "wrong answer",
    "runtime error",
    "time limit",
    "memory limit",
    "output limit",
    "no program",
]


@dataclass(frozen=True)
class Limits:
    """What one case may use.

    Attributes:
        cpu_seconds: CPU time.
        wall_seconds: wall time; catches programs that sleep.
        memory_mb: address space, MiB.
        output_mb: stdout, MiB.
    """

    cpu_seconds: float = 6.0
    wall_seconds: float = 12.0
    memory_mb: int = 1024
    output_mb: int = 16


@dataclass(frozen=True)
class Failure:
    """The first case that a program failed.

    Attributes:
        case: index into the visible cases, or into the hidden ones when `hidden`.
        hidden: whether it is a hidden case; such a failure must never reach a prompt.
        verdict: what happened on this case.
        input, expected: the case, clipped.
        got: what the program printed, clipped, or the last traceback line, or why it was stopped.
    """

    case: int
    hidden: bool
    verdict: Verdict
    input: str
    expected: str
    got: str


@dataclass(frozen=True)
class Judgement:
    """What the judge found.

    Attributes:
        verdict: "accepted" when every visible and hidden case passed, else the verdict of the
            first failed case.
        visible_passed, visible_total: all visible cases run.
        hidden_passed, hidden_total: hidden cases run only when all visible ones passed, up to
            the first failure (all of them with `every_case`).
        first_failure: None when accepted or when there is no program.
        cpu_seconds: CPU time of the program over all its cases.
        cut_short: the program hit the time limit twice and its remaining cases did not run.
    """

    verdict: Verdict
    visible_passed: int
    visible_total: int
    hidden_passed: int
    hidden_total: int
    first_failure: Failure | None
    cpu_seconds: float
    cut_short: bool = False

    @property
    def accepted(self) -> bool:
        return self.verdict == "accepted"

    @property
    def fitness(self) -> float:
        """Share of the visible cases passed, 0 to 1."""
        return self.visible_passed / self.visible_total


class JudgeFault(Exception):
    """The judge failed, not the program: no verdict can be given."""


# --- reading programs and outputs ---

# The source limit of Codeforces. A longer text is no program, and some grow compile time as n^2.
_COMPILE_CHARS = 65_536
_COMPILE_TRIES = 10

_LINE = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_THINK = re.compile(r"<(/?)think>", re.IGNORECASE)
_OPENING = re.compile(r"( *)(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL)
_LIST_ITEM = re.compile(r" *(?:[-+*]|\d{1,9}[.)]) +")
_PYTHON_TAG = re.compile(r"\{?\s*\.?(?:python|py)(?:3[\d.]*)?(?![\w.+#-])", re.IGNORECASE)


def extract_program(reply: str) -> str | None:
    """The Python program in a reply, without its trailing whitespace; None when there is none.

    In this order: the last closed fence tagged as Python (python, py, python3, any case); the last
    closed untagged fence that compiles; what follows the opening of a fence that the reply's end
    cut off; the whole reply when it compiles. A sample output such as `3` or `YES` compiles too,
    so the text that is only tried as Python must do something. <think> parts never count.

    Fences are CommonMark's (https://spec.commonmark.org/0.31.2/#fenced-code-blocks), also inside
    list items, with two allowances for what models write: a closing fence at which the text does
    not compile, though it does at a later one, stands in a string; and a fence tagged as Python
    opens also within a fence that is no program (a wrapper, or the rest after a stray fence).
    """
    lines = _without_thinking(_LINE.split(reply))
    tagged, untagged, cut_off, before = _programs(lines)
    if tagged or untagged:
        return (tagged or untagged)[-1]
    if cut_off is not None and _PYTHON_TAG.match(cut_off[0]):
        return cut_off[1].rstrip() or None
    for text in ("".join(lines), before):
        if _does_something(text):
            return text.rstrip()
    return (cut_off[1].rstrip() or None) if cut_off and not cut_off[0] else None


def _programs(lines: list[str]) -> tuple[list[str], list[str], tuple[str, str] | None, str]:
    """Programs of closed tagged and untagged fences, (tag, text) of an open fence at the end, and
    the text before the first fence."""
    tagged: list[str] = []
    untagged: list[str] = []
    cut_off = None
    first = len(lines)
    at = offset = 0
    while at < len(lines):
        offset = _list_offset(lines[at], offset)
        opening = _opening(lines[at], offset)
        if opening is None:
            at += 1
            continue
        first = min(first, at)
        tag = opening[3].strip()
        python = bool(_PYTHON_TAG.match(tag))
        end, text = _content(lines, at, opening, offset, in_string=python or not tag)
        inner = None
        if python and end < len(lines):
            if text.strip():
                tagged.append(text.rstrip())
        elif not tag and end < len(lines) and _does_something(text):
            untagged.append(text.rstrip())
        elif not python:
            inner = next((i for i in range(at + 1, end) if _opens_python(lines[i], offset)), None)
        if end == len(lines) and inner is None:
            cut_off = (tag, text)
        at = end + 1 if inner is None else inner
    return tagged, untagged, cut_off, "".join(lines[:first])


def _opening(line: str, offset: int) -> re.Match[str] | None:
    """The line as an opening fence; `offset` is the indentation of the list item it may be in."""
    match = _OPENING.match(line)
    if match is None:
        return None
    indent = len(match[1])
    return match if indent <= 3 or offset <= indent <= offset + 3 else None


def _opens_python(line: str, offset: int) -> bool:
    match = _opening(line, offset)
    return match is not None and bool(_PYTHON_TAG.match(match[3].strip()))


def _closes(line: str, opening: re.Match[str], offset: int) -> bool:
    indent = len(line) - len(line.lstrip(" "))
    bare = line.strip()
    enough = len(bare) >= len(opening[2]) and not bare.strip(opening[2][0])
    return enough and indent <= (offset if len(opening[1]) > 3 else 0) + 3


def _content(
    lines: list[str], at: int, opening: re.Match[str], offset: int, in_string: bool
) -> tuple[int, str]:
    """Index of the closing line (len(lines) when there is none) and the text up to it, with the
    opening's indentation taken off."""
    indent = len(opening[1])
    body = [line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in lines[at + 1 :]]
    ends = [i for i in range(at + 1, len(lines)) if _closes(lines[i], opening, offset)]
    if not ends:
        return len(lines), "".join(body)
    chosen = ends[0]
    if in_string and len(ends) > 1:
        candidates = ends[:_COMPILE_TRIES]
        compiling = (end for end in candidates if _compiled("".join(body[: end - at - 1])))
        chosen = next(compiling, chosen)
    return chosen, "".join(body[: chosen - at - 1])


def _list_offset(line: str, offset: int) -> int:
    """Indentation of the contents of the list item that the text after this line belongs to."""
    item = _LIST_ITEM.match(line)
    if item:
        return item.end()
    indented = len(line) - len(line.lstrip(" "))
    return offset if not line.strip() or indented >= offset else 0


def _without_thinking(lines: list[str]) -> list[str]:
    """The lines that no <think> part holds.

    A template can give the opening <think> to the policy, so a lone </think> ends a part that
    began with the reply. Within a fence a tag is the program's text, unless </think> is alone on
    its line: then the fence is a draft that the thinking left open.
    """
    kept: list[str] = []
    fence: re.Match[str] | None = None
    thinking = False
    for line in lines:
        if fence is not None:
            if line.strip().lower() == "</think>":
                kept, fence = [], None
            else:
                kept.append(line)
                fence = None if _closes(line, fence, 3) else fence
            continue
        outside = ""
        start = 0
        for tag in _THINK.finditer(line):
            if tag[1] and not thinking:
                kept, outside = [], ""
            elif not tag[1] and not thinking:
                outside += line[start : tag.start()]
            thinking, start = not tag[1], tag.end()
        outside += "" if thinking else line[start:]
        fence = None if thinking else _opening(outside, 4)
        kept.append(outside)
    return kept


def _compiled(text: str) -> ast.Module | None:
    """The text's syntax tree when it compiles as Python, else None.

    It runs in our own process on text that nobody checked. The parser and the compiler bound
    their recursion and what they fold, and answer a bomb with one of these exceptions; nothing
    is executed and warnings are dropped.
    """
    if len(text) > _COMPILE_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            compile(tree, "<reply>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
        return None
    return tree


def _does_something(text: str) -> bool:
    """Whether the text compiles as Python and is more than `YES`, `-1, 2` or `Answer: 3`."""
    tree = _compiled(text)
    if tree is None:
        return False
    inert = all(
        isinstance(s, ast.Expr) or (isinstance(s, ast.AnnAssign) and s.value is None)
        for s in tree.body
    )
    return not inert or any(isinstance(node, ast.Call) for node in ast.walk(tree))


_NUMBER = re.compile(rb"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?")
_SPACE = re.compile(rb"\s")
_BLOCK = 1 << 16
_TOLERANCE = decimal.Decimal("1e-6")
# Fifty digits and any exponent: a token of any length costs time linear in its length.
_EXACT = decimal.Context(prec=50, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])


def same_output(expected: bytes, got: bytes) -> bool:
    """Whether a contest's checker would take `got` for `expected`.

    Both are split on whitespace (ASCII; the bytes need not be UTF-8). A pair of tokens is equal as
    text; or as integers, exactly, whatever their length; or, when both are plain decimal or
    scientific numbers and not both integers, within 1e-6 of each other, absolute or relative to
    the expected one. `nan`, `inf`, `1_000`, `0x1f` and non-ASCII digits are not numbers.
    """
    if expected == got:
        return True
    pairs = itertools.zip_longest(_tokens(expected), _tokens(got))
    return all(_same_number(want, have) for want, have in pairs if want != have)


def _tokens(text: bytes) -> Iterator[bytes]:
    """The tokens of `text`, a block at a time: 16 MiB of digits are not 8 million objects."""
    return itertools.chain.from_iterable(_blocks(text))


def _blocks(text: bytes) -> Iterator[list[bytes]]:
    start = 0
    while start < len(text):
        space = _SPACE.search(text, start + _BLOCK)
        end = space.end() if space else len(text)
        yield text[start:end].split()
        start = end


def _same_number(expected: bytes | None, got: bytes | None) -> bool:
    """Whether two tokens that differ as text are the same number; None is a missing token."""
    if not (expected and got and _NUMBER.fullmatch(expected) and _NUMBER.fullmatch(got)):
        return False
    if expected.lstrip(b"+-").isdigit() and got.lstrip(b"+-").isdigit():
        return _integer(expected) == _integer(got)
    want = _EXACT.create_decimal(expected.decode())
    have = _EXACT.create_decimal(got.decode())
    if not (want.is_finite() and have.is_finite()):
        return False  # exponents of 10^18 and more
    gap = _EXACT.subtract(want, have).copy_abs()
    return gap <= _EXACT.multiply(_TOLERANCE, max(want.copy_abs(), decimal.Decimal(1)))


def _integer(token: bytes) -> tuple[bool, bytes]:
    """Sign and digits without leading zeros: int() of a long text is slow, and refused."""
    digits = token.lstrip(b"+-0")
    return token.startswith(b"-") and bool(digits), digits
