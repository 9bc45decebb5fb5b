"""A policy's reply -> its program."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

# The source limit of Codeforces. A longer text is no program, and parsing can take n^2 time.
_PARSE_CHARS = 65_536
_PARSE_TRIES = 10

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
    opening's indentation taken off. With `in_string`, closing lines in a string are passed over."""
    indent = len(opening[1])
    body: list[str] = []
    found: tuple[int, str] | None = None
    tries = 0
    for end in range(at + 1, len(lines)):
        line = lines[end]
        if _closes(line, opening, offset):
            found = found or (end, "".join(body))
            tries += 1
            if not in_string or tries > _PARSE_TRIES:
                break
            if _parsed("".join(body)) is not None:
                return end, "".join(body)
        body.append(line[min(indent, len(line) - len(line.lstrip(" "))) :])
    return found or (len(lines), "".join(body))


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


def _parsed(text: str) -> ast.Module | None:
    """The text's syntax tree when it is Python, else None.

    Only the parser sees the text: it runs in our own process, and CPython's compiler can be crashed
    (fifty nested comprehensions end 3.12 and 3.13 with a segmentation fault). The parser bounds its
    recursion and folds nothing; it answers a bomb with one of these exceptions.
    """
    if len(text) > _PARSE_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _does_something(text: str) -> bool:
    """Whether the text is a Python program, and more than `YES`, `-1, 2` or `Answer: 3`."""
    tree = _parsed(text)
    if tree is None or any(isinstance(node, ast.Return) for node in _outside_functions(tree)):
        return False
    inert = all(
        isinstance(s, ast.Expr) or (isinstance(s, ast.AnnAssign) and s.value is None)
        for s in tree.body
    )
    return not inert or any(isinstance(node, ast.Call) for node in ast.walk(tree))


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of no function's body: a return among them is an excerpt, not a program."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo.extend(ast.iter_child_nodes(node))
