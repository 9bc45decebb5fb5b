"""A policy's reply -> its thinking, and its program.

A reply is prose with fenced blocks. Fences are CommonMark's
(https://spec.commonmark.org/0.31.2/#fenced-code-blocks), also in list items and quotes, with
allowances for what models write: see `extract_program`. What decides in doubt is Python's parser:
the text of a program parses, and the text with half of the prose behind it does not.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# The source limit of Codeforces. A longer text is no program, and parsing can take n^2 time.
_PARSE_CHARS = 65_536
_PARSE_TRIES = 10  # ends of one block that are tried
_PARSE_BUDGET = 2_000_000  # characters parsed to find the ends of one reply's blocks
_TAGS = 1000  # of thinking that are looked at
_RESCANS = 50  # blocks that are looked for within blocks that are no program

_LINE = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_TAG = re.compile(
    r"<(/?)(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|reflection)\s*>|(?-i:\[(/?)THINK\])",
    re.IGNORECASE,
)
_CODE_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`).*?(?<!`)\1(?!`)")
# What a server should have taken off: <|im_end|>, </s>, <end_of_turn>.
_END_OF_TURN = re.compile(
    r"\s*(?:<[|\uff5c][^<>\n]{1,40}[|\uff5c]>|</?s>|<(?:end_of_turn|eos|eot_id)>)\s*\Z"
)
_LIST_ITEM = re.compile(r" *(?:[-+*]|\d{1,9}[.)]) +")
_BEFORE = re.compile(r" *(?:(?:[-+*]|\d{1,9}[.)]) +|> ?)*")  # lists and quotes
_QUOTE = re.compile(r" {0,3}> ?")
_FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL)
# "Here it is: ```python", "<answer>```"; inline code may stand before it.
_BEHIND_WORDS = re.compile(r"((?:[^`]|(?<!`)`{1,2}(?!`))*\S *)(`{3,})([^`]*)", re.DOTALL)
_IN_TAGS = re.compile(r"<(answer|code|python|solution)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_ANY_FENCE = re.compile(r"`{3,}|~{3,}")
# No line of Python begins with </ or <|, and outside of strings and comments it has no backtick.
_MAY_END = re.compile(r"`+|^\s*(?=</|<[|\uff5c])")
_PYTHON_TAG = re.compile(
    r"\{?\s*\.?(?:python|pypy|py)(?:[ _-]?3[\d.]*)?(?![\w.+#-])", re.IGNORECASE
)
_ATTRIBUTE = re.compile(r"""[\w-]+=(?:"[^"]*"|'[^']*'|[\w.-]+)""")
_UNSEEN = "\u200b\u200c\u200d\u2060\ufeff"

# Kinds of blocks, from the least likely to hold the program.
_CUT_OFF, _OTHER, _UNTAGGED, _TAGGED = range(4)


class _Opening(NamedTuple):
    """A line that opens a block: what stands before the fence, the fence, and its info string.

    Attributes:
        quoted: the block is in a quote.
        words: what stands before is more than the markers of lists and quotes.
    """

    before: str
    fence: str
    info: str
    quoted: bool
    words: bool

    @property
    def kind(self) -> int:
        info = self.info.strip()
        return _TAGGED if _PYTHON_TAG.match(info) else _OTHER if info else _UNTAGGED


class _Block(NamedTuple):
    """A fenced block.

    Attributes:
        text: what it holds, without the indentation that all of it has.
        end: index of the line to go on with.
        rest: what of that line is left to read; None for all of it.
        closed: not cut off.
        parsed: the text is Python.
    """

    opening: _Opening
    text: str
    end: int
    rest: str | None
    closed: bool
    parsed: bool

    @property
    def kind(self) -> int:
        return self.opening.kind if self.closed else _CUT_OFF


def extract_program(reply: str, function: str | None = None) -> str | None:
    """The Python program in a reply, without its trailing whitespace; None when there is none.

    Thinking never counts. Of the blocks that parse and read their input the best is taken: one
    that also prints; then one tagged as Python (python, py3, pypy; any case), then an untagged
    one, then one with another tag; then the last. Else it is the last block tagged as Python that
    parses and prints, the last that parses, the last; else the last closed untagged block that
    does something; else what follows the opening of a fence that the reply's end cut off; else
    the whole reply, what stands before its first fence, or what stands in <answer> tags, when it
    is Python. A sample output such as `3` or `YES` is Python too, so what is only tried as Python
    must do something.

    A block ends at a closing fence up to which its text parses; or at what looks like an end
    although more stands on its line, when the text parses up to there and not further; else at
    its first closing fence. A fence can open behind words, and its line can hold code.

    Args:
        function: the function that the program is to define: a block that defines it, also in a
            class Solution, is taken before one that reads input.
    """
    return _Reader(split_thinking(_without_end(reply))[0]).program(function)


def split_thinking(content: str) -> tuple[str, str]:
    """Content -> (text, thinking), for policies that think aloud between tags.

    The tags are <think> and its like (<thinking>, <reasoning>, [THINK]). Within a fenced block,
    or in inline code, a tag is the text's own. A part that is never closed reaches to the end. A
    </think> without its opening tag ends a part that began with the content, since some templates
    put the opening tag into the prompt; unless a block with a whole program stands before it
    and none behind: then it is a stray one.
    """
    if not _TAG.search(content) or _does_something(content):
        return content, ""
    kept, thoughts, ends = _Reader(content).apart()
    for end in reversed(ends[-_PARSE_TRIES:]):
        before, behind = "".join(kept[:end]), "".join(kept[end:])
        if _Reader(behind).program(None) is not None or not _Reader(before).has_program():
            return behind, (before + thoughts).strip("\n")
    return "".join(kept), thoughts.strip("\n")


class _Reader:
    """Reads a text line by line.

    Attributes:
        lines: its lines; one that was read in part holds what is left of it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = _LINE.split(text)
        self.budget = _PARSE_BUDGET
        self.rescans = _RESCANS

    def program(self, function: str | None) -> str | None:
        """See extract_program."""
        blocks = [(_worth(block.text, function), block) for block in self.blocks()]
        reading = [
            (worth, block.kind, block)
            for worth, block in blocks
            if worth >= _READS and (block.closed or block.opening.kind != _OTHER)
        ]
        if reading:
            return _last_best(reading)
        tagged = [
            (worth, 0, block)
            for worth, block in blocks
            if block.kind == _TAGGED and block.text.strip()
        ]
        untagged = [
            (0, 0, block)
            for _, block in blocks
            if block.kind == _UNTAGGED and _does_something(block.text)
        ]
        if tagged or untagged:
            return _last_best(tagged or untagged)
        cut_off = next((block for _, block in reversed(blocks) if not block.closed), None)
        if cut_off and cut_off.opening.kind == _TAGGED:
            return cut_off.text.rstrip() or None
        tagged_texts = [part[2] for part in _IN_TAGS.finditer(self.text)][-_PARSE_TRIES:]
        before = _ANY_FENCE.split(self.text, maxsplit=1)[0]
        for text in (self.text, before, *reversed(tagged_texts)):
            if _does_something(text):
                return text.rstrip()
        if cut_off and cut_off.opening.kind == _UNTAGGED:
            return cut_off.text.rstrip() or None
        return None

    def has_program(self) -> bool:
        """Whether a block holds a whole program."""
        return any(
            block.opening.kind != _OTHER and _does_something(block.text) for block in self.blocks()
        )

    def apart(self) -> tuple[list[str], str, list[int]]:
        """The pieces outside of thinking, the thinking, and after how many pieces a tag stood
        that closed what nothing had opened."""
        kept: list[str] = []
        thoughts: list[str] = []
        ends: list[int] = []
        last = max(
            (at for at, line in enumerate(self.lines) if _tag(line, closing=True)), default=-1
        )
        thinking, tags = False, 0
        at = offset = 0
        while at < len(self.lines):
            line = self.lines[at]
            tag = _tag(line, closing=thinking) if tags < _TAGS else None
            offset = _list_offset(line, offset)
            opening = None if thinking else _opening(line, offset)
            if tag and not (opening and len(opening.before) < tag.start()):
                closes = _is_closing(tag)
                if closes or at <= last or not line[: tag.start()].strip():
                    (thoughts if thinking else kept).append(line[: tag.start()])
                    if closes and not thinking:
                        ends.append(len(kept))
                    thinking = not closes
                    self.lines[at] = line[tag.end() :]
                    tags += 1
                    continue
            block = self.block(at, opening, offset) if opening else None
            if block is None:
                (thoughts if thinking else kept).append(line)
                at += 1
                continue
            kept += self.lines[at : block.end]
            if block.rest is not None:
                whole = self.lines[block.end]
                kept.append(whole[: len(whole) - len(block.rest)])
            at = self.go_on(block)
        return kept, "".join(thoughts), ends

    def blocks(self) -> Iterator[_Block]:
        """The fenced blocks, in order."""
        at = offset = 0
        while at < len(self.lines):
            offset = _list_offset(self.lines[at], offset)
            opening = _opening(self.lines[at], offset)
            block = self.block(at, opening, offset) if opening else None
            if block:
                yield block
            at = self.go_on(block) if block else at + 1

    def go_on(self, block: _Block) -> int:
        """The line to read on with behind a block."""
        if block.rest is not None:
            self.lines[block.end] = block.rest
        return block.end

    def block(self, at: int, opening: _Opening, offset: int) -> _Block | None:
        """The block that a line opens; None when it opens none after all."""
        block = self.ended(at, opening, offset)
        announced = opening.before.rstrip().endswith((":", ">"))
        if opening.words and not block.parsed and (block.closed or not announced):
            return None
        whole = block.parsed and (opening.kind != _OTHER or _worth(block.text, None) >= _READS)
        if opening.kind == _UNTAGGED and block.parsed:
            whole = block.closed and _does_something(block.text)
        if whole or not self.rescans:
            return block
        for inner in range(at + 1, block.end):
            if (other := _opening(self.lines[inner], offset)) and other.kind == _TAGGED:
                self.rescans -= 1
                text, _ = self.text_of(opening, self.lines[at + 1 : inner])
                return _Block(opening, text, inner, None, True, False)
        return block

    def ended(self, at: int, opening: _Opening, offset: int) -> _Block:
        """The block that a line opens, up to the end that extract_program describes."""
        body: list[str] = []
        first: _Block | None = None
        doubtful: list[tuple[int, re.Match[str]]] = []
        tries = 0
        for end in range(at + 1, len(self.lines)):
            line = self.lines[end]
            if opening.quoted:
                line = _QUOTE.sub("", line, count=1)
            if _closes(line, opening):
                text, parsed = self.text_of(opening, body, tries < _PARSE_TRIES)
                block = _Block(opening, text, end + 1, None, True, parsed)
                first = first or block
                tries += 1
                if parsed or opening.kind == _OTHER:
                    return block
                if tries > _PARSE_TRIES:
                    break
            elif first is None and (mark := _ANY_FENCE.search(line) or _MAY_END.search(line)):
                doubtful.append((len(body), mark))
            body.append(line)
        if opening.kind != _OTHER:
            for number, mark in doubtful[:_PARSE_TRIES]:
                text, parsed = self.text_of(opening, [*body[:number], mark.string[: mark.start()]])
                if parsed and _first_code(text.splitlines()):
                    rest = _behind(mark)
                    return _Block(opening, text, at + 1 + number, rest, True, True)
        for number, mark in doubtful:
            if _TAG.fullmatch(mark.string.strip()):  # the block is a draft that was left open
                text, _ = self.text_of(opening, body[:number], parse=False)
                return _Block(opening, text, at + 1 + number, None, False, False)
        if first:
            return first
        text, parsed = self.text_of(opening, body)
        return _Block(opening, text, len(self.lines), None, False, parsed)

    def text_of(self, opening: _Opening, body: list[str], parse: bool = True) -> tuple[str, bool]:
        """The text of a block, with code that its first line may hold, and whether it parses."""
        if parse and (code := _code_of_first_line(opening)):
            text = f"{code}\n{''.join(body)}"
            tree = self.parsed(text)
            if tree and tree.body and not _is_inert(tree.body[0]):
                return text, True
        text = _dedented(body)
        return text, parse and self.parsed(text) is not None

    def parsed(self, text: str) -> ast.Module | None:
        self.budget -= len(text)
        return _parsed(text) if self.budget > 0 else None


def _last_best(found: list[tuple[int, int, _Block]]) -> str:
    """The text of the best one; of equals, the last."""
    best = max(reversed(found), key=lambda each: each[:2])
    return best[2].text.rstrip()


def _opening(line: str, offset: int) -> _Opening | None:
    """The line as an opening fence; `offset` is the indentation of the list item it may be in."""
    if "```" not in line and "~~~" not in line:
        return None
    before = _BEFORE.match(line)
    fence = before and _FENCE.match(line, before.end())
    if before and fence:
        indent = len(line) - len(line.lstrip(" "))
        if indent > 3 and not offset <= indent <= offset + 3:
            return None
        return _Opening(before[0], fence[1], fence[2], ">" in before[0], False)
    behind = _BEHIND_WORDS.match(line)
    if behind is None:
        return None
    tag = behind[3].strip()
    if _PYTHON_TAG.fullmatch(tag) or (not tag and behind[1].rstrip().endswith((":", ">"))):
        return _Opening(behind[1], behind[2], behind[3], False, True)
    return None


def _closes(line: str, opening: _Opening) -> bool:
    bare = line.strip().strip(_UNSEEN)
    if len(bare) < len(opening.fence) or bare.strip(opening.fence[0]):
        return False
    column = 0 if opening.words or len(opening.before) <= 3 else len(opening.before)
    return len(line) - len(line.lstrip(" ")) <= column + 3


def _behind(mark: re.Match[str]) -> str | None:
    """What is left to read of a line behind the end of a block; None for all of it."""
    line, fence = mark.string, mark[0]
    if not fence:
        return line[mark.start() :]
    if len(fence) >= 6:  # the end of one block and the start of the next
        return line[mark.start() + 3 :]
    opening = _opening(line, 0)
    if opening and opening.kind == _TAGGED and not opening.words:
        return None
    return line[mark.end() :]


def _code_of_first_line(opening: _Opening) -> str:
    """What stands behind the tag of a fence, when it may be code."""
    info = opening.info.strip()
    tag = _PYTHON_TAG.match(info)
    code = info[tag.end() :].strip() if tag else info
    attributes = all(_ATTRIBUTE.fullmatch(word) for word in code.split())
    return "" if opening.words or attributes or code[0] == "#" else code


def _first_code(lines: Iterable[str]) -> str | None:
    """The first line that is neither blank nor a comment."""
    return next((line for line in lines if line.strip() and line.lstrip()[0] != "#"), None)


def _dedented(body: list[str]) -> str:
    """The lines without the indentation of the first line of code, which Python has at column 0."""
    first = _first_code(body) or ""
    indent = len(first) - len(first.lstrip(" \t"))
    if not indent:
        return "".join(body)
    return "".join(line[min(indent, len(line) - len(line.lstrip(" \t"))) :] for line in body)


def _list_offset(line: str, offset: int) -> int:
    """Indentation of the contents of the list item that the text after this line belongs to."""
    item = _LIST_ITEM.match(line)
    if item:
        return item.end()
    indented = len(line) - len(line.lstrip(" "))
    return offset if not line.strip() or indented >= offset else 0


def _tag(line: str, closing: bool = False) -> re.Match[str] | None:
    """The first tag of thinking in a line, outside of inline code; with `closing`, of those that
    close."""
    if "<" not in line and "[" not in line:
        return None
    bare = _CODE_SPAN.sub(lambda span: " " * len(span[0]), line) if "`" in line else line
    return next((tag for tag in _TAG.finditer(bare) if not closing or _is_closing(tag)), None)


def _is_closing(tag: re.Match[str]) -> bool:
    return bool(tag[1] or tag[2])


def _without_end(reply: str) -> str:
    """The reply without the tokens that end a turn, which a server should have taken off."""
    while end := _END_OF_TURN.search(reply, max(0, len(reply) - 60)):
        reply = reply[: end.start()]
    return reply


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
    if tree is None or _is_excerpt(tree):
        return False
    if not all(map(_is_inert, tree.body)):
        return True
    return any(isinstance(node, ast.Call) for node in ast.walk(tree))


def _is_inert(statement: ast.stmt) -> bool:
    """Whether a statement does nothing, or could be something else than Python."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    return isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Call)


def _is_excerpt(tree: ast.Module) -> bool:
    """Whether there is a return outside of any function."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo.extend(ast.iter_child_nodes(node))
    return False


# What a text is worth as a program.
_NOTHING, _PARSES, _PRINTS, _READS, _READS_AND_PRINTS, _DEFINES = range(6)


def _worth(text: str, function: str | None) -> int:
    tree = _parsed(text)
    if tree is None or _is_excerpt(tree):
        return _NOTHING
    if function and _defines(tree, function):
        return _DEFINES
    names, bound, calls = set[str](), set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (names if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            names.add(node.attr)  # to put something else in place of sys.stdin is not to read
        elif isinstance(node, ast.Constant) and node.value == "/dev/stdin":
            names.add("stdin")
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            calls.add(f"{ast.unparse(node.func)} {node.args[0].value!r:.20}")
    reads = names & {"stdin", "__stdin__", "fileinput"} or "input" in names - bound
    reads = reads or calls & {"open 0", "os.read 0", "read 0"}
    prints = names & {"print", "stdout", "__stdout__", "write", "writelines", "exec"}
    if reads:
        return _READS_AND_PRINTS if prints else _READS
    return _PRINTS if prints else _PARSES


def _defines(tree: ast.Module, function: str) -> bool:
    """Whether a program defines a function, or a class Solution with it."""
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) and node.name == "Solution" else [node]
        for each in inner:
            if isinstance(each, ast.FunctionDef) and each.name == function:
                return True
            names = each.targets if isinstance(each, ast.Assign) else []
            if any(isinstance(name, ast.Name) and name.id == function for name in names):
                return True
    return False
