"""Which part of a reply is the program: one reply shape a test case."""

from __future__ import annotations

import threading

import pytest

from replies import extract_program, split_thinking

P = "print(int(input()) + 1)"
DOCSTRING = """\
def f(x):
    '''Doubles.

    ```
    f(1)
    ```
    '''
    return 2 * x


print(f(1))"""
COLUMN_ZERO = '"""Reads n.\n\n```\n3\n```\n"""\nprint(input())'

SHAPES: dict[str, tuple[str, str | None]] = {
    # one fence
    "a tagged fence": (f"```python\n{P}\n```", P),
    "prose around it": (f"Here it is:\n\n```python\n{P}\n```\n\nIt adds one.", P),
    "tag py": (f"```py\n{P}\n```", P),
    "tag python3": (f"```python3\n{P}\n```", P),
    "tag in capitals": (f"```PYTHON\n{P}\n```", P),
    "tag Python 3": (f"```Python 3\n{P}\n```", P),
    "tag python3.11": (f"```python3.11\n{P}\n```", P),
    "tag py3": (f"```py3\n{P}\n```", P),
    "space before the tag": (f"```  python\n{P}\n```", P),
    "attributes after the tag": (f'```python title="a.py" {{1,3}}\n{P}\n```', P),
    "a file name after the tag": (f"```python:main.py\n{P}\n```", P),
    "a pandoc tag": (f"```{{.python}}\n{P}\n```", P),
    "untagged": (f"```\n{P}\n```", P),
    "tildes": (f"~~~python\n{P}\n~~~", P),
    "backticks in the info of tildes": (f"~~~python `x`\n{P}\n~~~", P),
    "four backticks": (f"````python\nx = '''\n```\n'''\n{P}\n````", f"x = '''\n```\n'''\n{P}"),
    "closed by more": (f"```python\n{P}\n`````\nDone.", P),
    "closing fence with trailing spaces": (f"```python\n{P}\n```  \t\nDone.", P),
    "closing fence indented by three": (f"```python\n{P}\n   ```\nDone.", P),
    "indented by three": (f"   ```python\n   if 1:\n       {P}\n   ```", f"if 1:\n    {P}"),
    "content less indented than the fence": (f"  ```python\n{P}\n  ```", P),
    "under a list item": (
        f"1. Read.\n\n    ```python\n    if 1:\n        {P}\n    ```\n2. Done.",
        f"if 1:\n    {P}",
    ),
    "CRLF": (f"Text\r\n```python\r\nx = 1\r\n{P}\r\n```\r\nDone.\r\n", f"x = 1\r\n{P}"),
    "CR": (f"Text\r```python\rx = 1\r{P}\r```\rDone.", f"x = 1\r{P}"),
    "blank first lines stay, for the line numbers": (f"```python\n\n\n{P}\n```", f"\n\n{P}"),
    "form feed and line separator in the program": (
        f"```python\nx = '\u2028'\n\x0c\n{P}\n```",
        f"x = '\u2028'\n\x0c\n{P}",
    ),
    "a program that does not compile": ("```python\nprint(1\n```", "print(1"),
    # several fences
    "the last of several": (f"```python\nprint(0)\n```\nBetter:\n```python\n{P}\n```", P),
    "sample output after it": (f"```python\n{P}\n```\nOutput:\n```\n3\n```", P),
    "sample output that compiles, program untagged": (f"```\n{P}\n```\nprints\n```\nYES\n```", P),
    "sample list that compiles, program untagged": (f"```\n{P}\n```\n```\n[1, -2]\n```", P),
    "tagged output after it": (f"```python\n{P}\n```\n```text\nprint(0)\n```", P),
    "shell after it": (f"```python\n{P}\n```\nRun:\n```bash\npython3 a.py\n```", P),
    "C++ after it": (f"```python\n{P}\n```\n```cpp\nint main() {{}}\n```", P),
    "tagged before an untagged one that compiles": (f"```python\n{P}\n```\n```\nprint(0)\n```", P),
    "untagged prose before the program": (f"```\nn lines follow\n```\n```\n{P}\n```", P),
    "an empty tagged fence after it": (f"```python\n{P}\n```\n```python\n\n```", P),
    "python console is not a program": (f"```python\n{P}\n```\n```pycon\n>>> 1\n```", P),
    "a snippet that only fits a function": (f"```\n{P}\n```\nwith\n```\nreturn x\n```", P),
    # fences in fences
    "a fence in a docstring": (f"```python\n{DOCSTRING}\n```\nDone.", DOCSTRING),
    "a fence in a docstring at column 0": (f"```python\n{COLUMN_ZERO}\n```\nDone.", COLUMN_ZERO),
    "the same, untagged": (f"```\n{COLUMN_ZERO}\n```\nDone.", COLUMN_ZERO),
    "a Python fence in a docstring": (
        f"```python\n'''\n```python\nprint(0)\n```\n'''\n{P}\n```",
        f"'''\n```python\nprint(0)\n```\n'''\n{P}",
    ),
    "fewer backticks inside": (f"````python\n{COLUMN_ZERO}\n````", COLUMN_ZERO),
    "the other fence inside": (
        f"```python\ns = '''\n~~~\n'''\n{P}\n```",
        f"s = '''\n~~~\n'''\n{P}",
    ),
    "backticks inside tildes": (f"~~~python\n# ```\n```\n{P}\n~~~", f"# ```\n```\n{P}"),
    "a markdown wrapper": (f"````markdown\nText\n```python\n{P}\n```\n````", P),
    "a markdown wrapper of the same length": (f"```markdown\nHi\n```python\n{P}\n```\n```", P),
    "a comment that looks like a fence": (
        f"```python\n# ``` not one\n{P}\n```",
        f"# ``` not one\n{P}",
    ),
    # stray fences
    "a stray closing fence at the end": (f"```python\n{P}\n```\n```", P),
    "a stray closing fence, then prose": (f"```python\n{P}\n```\n```\nIt adds one.", P),
    "a stray fence between two programs": (
        f"```python\nprint(0)\n```\n```\nText\n```python\n{P}\n```",
        P,
    ),
    "only the closing fence": (f"{P}\n```", P),
    "only the closing fence, then prose": (f"{P}\n```\nIt adds one.", P),
    # cut off
    "cut off": (f"Text\n```python\n{P}\nif x", f"{P}\nif x"),
    "cut off untagged": (f"Text\n```\n{P}\nif x", f"{P}\nif x"),
    "cut off second draft": (f"```python\n{P}\n```\nBetter:\n```python\nfor i in ra", P),
    "cut off after a sample": (f"```\n3 4\n```\n```\n7\n```\n```python\n{P}", P),
    "cut off in the tag's line": ("Text\n```python", None),
    "cut off in another language": ("Text\n```cpp\nint main() {", None),
    # no fence
    "the whole reply": (f"import sys\n{P}\n", f"import sys\n{P}"),
    "the whole reply with a fence in its docstring": (COLUMN_ZERO, COLUMN_ZERO),
    "a bare word": ("Sorry", None),
    "a number": ("42", None),
    "a label that parses as an annotation": ("Answer: 42", None),
    "prose": ("I cannot solve this problem.", None),
    "empty": ("", None),
    "blank": (" \n\t\n", None),
    "inline code": (f"Use `{P}`.", None),
    "a fence on one line is inline code": (f"```python {P}```", None),
    "two backticks": ("``python\nprint(1)\n``", None),
    "indented by four is no fence": ("    ```python\n    1 +\n    ```", None),
    "only a sample": ("The answer is\n```\nYES\n```", None),
    "another language": ("```cpp\nint main() {}\n```", None),
    "ipython is another language": ("```ipython\n%time x\n```", None),
    "python2 is another language": ("```python2\nprint 1\n```", None),
    # thinking
    "thinking, then the program": (f"<think>\nhm\n</think>\n\n```python\n{P}\n```", P),
    "a draft in the thinking": (
        f"<think>\n```python\nprint(0)\n```\n</think>\n```python\n{P}\n```",
        P,
    ),
    "only a draft in the thinking": ("<think>\n```python\nprint(0)\n```\n</think>\nDone.", None),
    "a fence left open in the thinking": (
        f"<think>\n```python\nprint(0)\n</think>\n```python\n{P}\n```",
        P,
    ),
    "unclosed thinking": (f"<think>\nSo:\n```python\n{P}\n```", None),
    "unclosed thinking after the program": (f"```python\n{P}\n```\n<think>\n```python\n0", P),
    "thinking opened by the template": (
        f"hm\n```python\nprint(0)\n```\n</think>\n```python\n{P}\n```",
        P,
    ),
    "the same, its fence left open": (
        f"hm\n```python\nprint(0)\n</think>\n```python\n{P}\n```",
        P,
    ),
    "thinking after the program": (f"```python\n{P}\n```\n<think>ok?</think>", P),
    "twice": (f"<think>a</think>\n<think>```python\n0</think>\n```python\n{P}\n```", P),
    "thinking about the tag": (f"<think>a <think> tag</think>\n```python\n{P}\n```", P),
    "capitals": (f"<THINK>\n```python\n0\n```\n</THINK>\n```python\n{P}\n```", P),
    "thinking, then a bare program": (f"<think>hm</think>\n{P}", f"\n{P}"),
    "the program's own <think>": (
        f"```python\nprint('<think>')\n{P}\n```",
        f"print('<think>')\n{P}",
    ),
    "the program's own </think>": (
        f"```python\nprint('</think>')\n{P}\n```",
        f"print('</think>')\n{P}",
    ),
}  # fmt: skip

B = "```"
DOUBLE = "n = int(input())\nprint(n * 2)"
LOOP = "for i in range(int(input())):\n    print(i)"
GIVEN = f"{B}python\n{DOUBLE}\n{B}"
DRAFT = f"{B}python\nprint(int(input()))\n{B}"


def indented(text: str, by: str) -> str:
    return by + text.replace("\n", f"\n{by}")


# What is no thinking although tags stand there, and thinking under other names.
SHAPES |= {
    "a stray closing tag behind the program": (f"{GIVEN}\n</think>", DOUBLE),
    "a stray closing tag, then prose": (f"{GIVEN}\n</think>\nDone.", DOUBLE),
    "a stray closing tag, then a sample": (f"{GIVEN}\n</think>\nIt prints\n{B}\n4\n{B}", DOUBLE),
    "a stray closing tag of another name": (f"{GIVEN}\n</thinking>", DOUBLE),
    "a stray closing tag at the fence": (f"{GIVEN}</think>", DOUBLE),
    "a stray closing tag for a fence": (f"{B}python\n{DOUBLE}\n</think>", DOUBLE),
    "two stray closing tags": (f"{GIVEN}\n</think>\n</think>", DOUBLE),
    "thinking that ended, then a stray tag": (f"hm {DRAFT}\n</think>\n{GIVEN}\n</think>", DOUBLE),
    "an empty pair behind the program": (f"{GIVEN}\n<think></think>", DOUBLE),
    "an empty pair over lines": (f"{GIVEN}\n<think>\n\n</think>\n\n", DOUBLE),
    "thinking between two programs": (f"{DRAFT}\n<think>no</think>\n{GIVEN}", DOUBLE),
    "tags in inline code": (f"No `<think>` and no `</think>`.\n{GIVEN}", DOUBLE),
    "a closing tag in inline code": (f"``</think>`` is not used.\n{GIVEN}", DOUBLE),
    "a tag in inline code behind it": (f"{GIVEN}\nI left out `<think>`.", DOUBLE),
    "a tag in prose that nothing closes": (f"I skip the <think> part.\n{GIVEN}", DOUBLE),
    "<thinking>": (f"<thinking>\n{DRAFT}\n</thinking>\n{GIVEN}", DOUBLE),
    "<reasoning> on the fence's line": (f"<reasoning>{DRAFT}</reasoning>{GIVEN}", DOUBLE),
    "<thought>, never closed": (f"<thought>\n{DRAFT}", None),
    "[THINK]": (f"[THINK]{DRAFT}[/THINK]{GIVEN}", DOUBLE),
    "a draft that was left open and does not parse": (
        f"hm\n{B}python\nfor i in\n</think>\n{GIVEN}",
        DOUBLE,
    ),
}

# What stands in a last block that is not the program.
SHAPES |= {
    f"behind it, {text!r}": (f"{GIVEN}\nCheck:\n{B}python\n{text}\n{B}", DOUBLE)
    for text in (
        "assert solve(4) == 8", "8", "YES", "[1, 2]", "pip install numpy", "$ python a.py < in",
        "while lo < hi:", "print(solve(4))", "x = solve(4)", "import math", "# no",
        "def f(x):\n    return x", "return x", "n = int(input())",
    )
}  # fmt: skip
SHAPES |= {
    "a better one behind it": (f"{DRAFT}\nBetter:\n{GIVEN}", DOUBLE),
    "one that reads and writes otherwise": (
        f"{GIVEN}\n{B}python\nimport sys\nsys.stdout.write(sys.stdin.read())\n{B}",
        "import sys\nsys.stdout.write(sys.stdin.read())",
    ),
    "one that reads by open": (
        f"{GIVEN}\n{B}py\nprint(open(0).read())\n{B}",
        "print(open(0).read())",
    ),
    "one that reads from a path": (
        f"{GIVEN}\n{B}python\nfrom pathlib import Path\nprint(Path('/dev/stdin').read_text())\n{B}",
        "from pathlib import Path\nprint(Path('/dev/stdin').read_text())",
    ),
    "one that puts a test in place of its input": (
        f"{GIVEN}\n{B}python\nimport io, sys\nsys.stdin = io.StringIO('4')\nprint(main())\n{B}",
        DOUBLE,
    ),
    "one with an argument named input": (
        f"{GIVEN}\n{B}python\ndef solve(input):\n    print(input)\n{B}",
        DOUBLE,
    ),
    "none reads: the last that prints": (
        f"{B}python\nprint(42)\n{B}\n{B}python\nx = 42\n{B}",
        "print(42)",
    ),
    "none prints: the last that parses": (
        f"{B}python\nx = 1\n{B}\n{B}python\npip install x\n{B}",
        "x = 1",
    ),
    "none parses: the last": (
        f"{B}python\nx = (\n{B}\n{B}python\npip install x\n{B}",
        "pip install x",
    ),
    "untagged, and a tagged sample": (f"{B}\n{DOUBLE}\n{B}\n{B}python\n8\n{B}", DOUBLE),
    "untagged, and an untagged call": (f"{B}\n{DOUBLE}\n{B}\n{B}\nsolve(4)\n{B}", DOUBLE),
}

# What stands at a closing fence.
SHAPES |= {
    f"closed by a fence and {end!r}": (f"Text\n{GIVEN}{end}", DOUBLE)
    for end in (
        "<|im_end|>", "<|im_end|>\n", "\n<|im_end|>", "</s>", "<\uff5cend\u2581of\u2581text\uff5c>",
        "</answer>", ".", ";", "**", " That is all.", " Then `x`.\n\nProse with `code`.", "\u200b",
        " \ufeff", "  # end", "`",
    )
}  # fmt: skip
SHAPES |= {
    "closed on the last line": (f"{B}python\n{DOUBLE}{B}", DOUBLE),
    "closed on the last line, then prose": (f"{B}python\n{DOUBLE}{B} Done.\nProse", DOUBLE),
    "untagged, closed by a fence and a point": (f"{B}\n{DOUBLE}\n{B}.", DOUBLE),
    "tildes, closed by a fence and a point": (f"~~~python\n{DOUBLE}\n~~~.", DOUBLE),
    "closed by the other fence": (f"{B}python\n{DOUBLE}\n~~~\nDone.", DOUBLE),
    "closed by two backticks": (f"{B}python\n{DOUBLE}\n``\nDone.", DOUBLE),
    "closed by a shorter fence": (f"````python\n{DOUBLE}\n{B}\nDone.", DOUBLE),
    "closed by a tag alone": (f"{B}python\n{DOUBLE}\n</answer>\nDone.", DOUBLE),
    "closed by nothing but the end of a turn": (f"{B}python\n{DOUBLE}\n<|im_end|>", DOUBLE),
    "two back to back": (f"{B}python\nprint(0)\n{B}{B}python\n{DOUBLE}\n{B}", DOUBLE),
    "a sample back to back": (f"{B}python\n{DOUBLE}\n{B}{B}\n8\n{B}", DOUBLE),
    "the second opens where the first should close": (
        f"{B}python\nprint(0)\n{B}python\n{DOUBLE}\n{B}",
        DOUBLE,
    ),
    "prose at the first's end, and a second": (f"{DRAFT} First.\nThen:\n{GIVEN}", DOUBLE),
    "a broken first with prose at its end": (
        f"{B}python\nprint(0\n{B} First.\nThen:\n{GIVEN}",
        DOUBLE,
    ),
    "a bare program and a closing fence on its last line": (f"{DOUBLE}{B}", DOUBLE),
    "a bare program and the end of a turn": (f"{DOUBLE}<|im_end|>", DOUBLE),
}

# Where a fence opens, and what else stands on its line.
SHAPES |= {
    "opens a list item": (f"- {indented(GIVEN, '  ').strip()}", DOUBLE),
    "opens a numbered item": (f"1. {indented(GIVEN, '   ').strip()}\n2. Done.", DOUBLE),
    "opens an item of an item": (
        f"1. - {B}python\n{indented(LOOP, '     ')}\n     {B}",
        LOOP,
    ),
    "opens an item, the program at column 0": (f"1. {B}python\n{LOOP}\n{B}", LOOP),
    "opens an item, closed at column 0": (f"* {B}python\n{indented(LOOP, '  ')}\n{B}", LOOP),
    "in a quote": (indented(f"{B}python\n{LOOP}\n{B}", "> "), LOOP),
    "behind words": (f"Here it is: {GIVEN}", DOUBLE),
    "behind words with inline code": (f"With `n` read: {GIVEN}", DOUBLE),
    "behind bold words": (f"**Solution:** {GIVEN}", DOUBLE),
    "behind words, untagged": (f"Here it is: {B}\n{DOUBLE}\n{B}", DOUBLE),
    "in answer tags": (f"<answer>{GIVEN}</answer>", DOUBLE),
    "in answer tags on lines of their own": (f"<answer>\n{GIVEN}\n</answer>", DOUBLE),
    "in answer tags, without a fence": (f"So:\n<answer>\n{LOOP}\n</answer>", f"\n{LOOP}"),
    "in code tags, after a sample": (f"<answer>7</answer>\n<code>{LOOP}</code>", LOOP),
    "an answer that is no program": ("<answer>42</answer>", None),
    "behind words, cut off": (f"Here it is: {B}python\n{DOUBLE}\nif x", f"{DOUBLE}\nif x"),
    "prose that names the fence": (f"I use a {B}python block:\n\n{GIVEN}", DOUBLE),
    "prose that ends in a fence": (f"In {B}python\n\nSo:\n{B}\n{DOUBLE}\n{B}", DOUBLE),
    "code on the opening line": (f"{B}python n = int(input())\nprint(n * 2)\n{B}", DOUBLE),
    "a loop on the opening line": (f"{B}python {LOOP}\n{B}", LOOP),
    "an import on the opening line": (
        f"{B}py import sys\nprint(sys.stdin.read())\n{B}",
        "import sys\nprint(sys.stdin.read())",
    ),
    "code on an untagged opening line": (f"{B}n = int(input())\nprint(n * 2)\n{B}", DOUBLE),
    "a comment on the opening line": (f"{B}python # solution\n{DOUBLE}\n{B}", DOUBLE),
    "a title on the opening line": (f'{B}python title="a.py"\n{DOUBLE}\n{B}', DOUBLE),
    "a file on the opening line": (f"{B}python main.py\n{DOUBLE}\n{B}", DOUBLE),
    "all of it indented": (f"{B}python\n{indented(LOOP, '    ')}\n{B}", LOOP),
    "indented, a comment first": (f"{B}python\n    # read\n{LOOP}\n{B}", f"    # read\n{LOOP}"),
    "text that is no program": (f"{B}text\nprint(0)\n{B}", None),
    "a console session": (f"{B}pycon\n>>> n = int(input())\n{B}", None),
    "pypy3, cut off": (f"{B}pypy3\n{DOUBLE}\nif", f"{DOUBLE}\nif"),
}
SHAPES |= {
    f"a sole fence tagged {tag}": (f"{B}{tag}\n{DOUBLE}\n{B}", DOUBLE)
    for tag in (
        "pypy3", "PyPy 3", "python_3", "python-3", "code", "text", "main.py", "plaintext", "none",
        "language-python", "sh",
    )
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shape(name: str) -> None:
    reply, program = SHAPES[name]
    assert extract_program(reply) == program


@pytest.mark.parametrize("name", SHAPES)
def test_a_reply_that_was_split_has_the_same_program(name: str) -> None:
    """A policy takes the thinking off, and then the program is taken from what is left."""
    reply, program = SHAPES[name]
    text, _ = split_thinking(reply)
    assert split_thinking(text)[0] == text
    assert extract_program(text) == program


@pytest.mark.parametrize(
    ("content", "text", "thinking"),
    [
        ("plain", "plain", ""),
        ("<think>\nhm\n</think>\n\nanswer", "\n\nanswer", "hm"),
        ("<think>\nhm, but", "", "hm, but"),
        ("hm\n</think>\n\nanswer", "\n\nanswer", "hm"),
        ("hm\n</think>", "", "hm"),
        ("say <think> aloud", "say <think> aloud", ""),
        ("<thinking>a</thinking>b<reasoning>c</reasoning>d", "bd", "ac"),
        (f"{GIVEN}\n<think>ok?</think>", f"{GIVEN}\n", "ok?"),
        ("print('<think></think>')", "print('<think></think>')", ""),
    ],
)
def test_thinking_is_split_off(content: str, text: str, thinking: str) -> None:
    assert split_thinking(content) == (text, thinking)


USAGE = "n = int(input())\nprint(twice(n))"


@pytest.mark.parametrize(
    "program",
    [
        "def twice(n):\n    return 2 * n",
        "class Solution:\n    def twice(self, n):\n        return 2 * n",
        "twice = lambda n: 2 * n",
    ],
)
def test_a_function_is_found_before_a_program_that_uses_it(program: str) -> None:
    for text in (USAGE, "print(twice(4))", "assert twice(4) == 8", "8"):
        reply = f"{B}python\n{program}\n{B}\nCheck:\n{B}python\n{text}\n{B}"
        assert extract_program(reply, "twice") == program
    assert extract_program(f"{B}python\n{USAGE}\n{B}", "twice") == USAGE


def test_every_cut_of_a_reply_gives_a_prefix_of_its_program_or_nothing() -> None:
    reply = f"First <b>think</b>.\n```python\n{DOCSTRING}\n```\nDone.\n"
    for end in range(len(reply) + 1):
        program = extract_program(reply[:end])
        assert program is None or DOCSTRING.startswith(program.rstrip("`").rstrip())
    assert extract_program(reply) == DOCSTRING


BOMBS = {
    "deep brackets": "(" * 60_000,
    "a long unary chain": "-" * 60_000 + "1",
    "a long sum": "1" + "+1" * 30_000,
    "long attribute access": "a" + ".a" * 30_000,
    "long calls": "f" + "()" * 30_000,
    "nested lambdas": "lambda:" * 9_000 + "1",
    "nested conditions": "1 if 1 else " * 5_000 + "1",
    "nested comprehensions": "[" * 50 + "x" + " for x in y]" * 50,
    "nested f-strings": "f'" + "{x}" * 5_000 + "'",
    "deep blocks": "".join(" " * i + "if 1:\n" for i in range(300)),
    "many elifs": "if 1:pass\n" + "elif 1:pass\n" * 5_000,
    "a huge constant": 'x = "a" * 10**9\ny = 2**99999999\nz = 1 << 10**12\nw = (1,) * 255**3\n',
    "a long integer": "x = " + "9" * 60_000,
    "a null byte": "print(1)\0",
    "a lone surrogate": "print('\ud800')",
    "too long": "print(1)\n" * 100_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_parser_bomb_neither_crashes_nor_warns(name: str) -> None:
    seen: list[str | None] = []

    def extract() -> None:
        seen.append(extract_program(f"```\n{BOMBS[name]}\n```"))
        seen.append(extract_program(BOMBS[name]))

    extract()
    thread = threading.Thread(target=extract)  # with a thread's smaller stack, too
    thread.start()
    thread.join()
    assert len(seen) == 4


def test_a_program_too_odd_to_parse_is_still_taken_from_its_tagged_fence() -> None:
    for bomb in BOMBS.values():
        assert extract_program(f"```python\n{bomb}\n```") == bomb.rstrip()


def test_looking_at_a_program_prints_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    program = 'print("\\d", 1 is 1)'
    assert extract_program(f"```\n{program}\n```") == program
    assert extract_program(program) == program
    assert not recwarn.list


def test_many_fences_take_linear_time() -> None:
    assert extract_program("```\n" * 8_001) is None
    assert extract_program("```python\n(\n" + "```\n" * 8_000) == "("
    assert extract_program("1. a\n" * 8_000 + "```py\nx\n```") == "x"
    for unit in (
        "```text\n```python\n",
        "```python\n(\n",
        "```x\n",
        "> ",
        "</think>\n",
        "</think>",
        "` `` ",
    ):
        extract_program(unit * 4_000)
        extract_program(unit * 4_000 + "```python")
