"""Which part of a reply is the program: one reply shape a test case."""

from __future__ import annotations

import threading

import pytest

from replies import extract_program

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


@pytest.mark.parametrize("name", SHAPES)
def test_shape(name: str) -> None:
    reply, program = SHAPES[name]
    assert extract_program(reply) == program


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
    assert extract_program("```\n" * 20_001) is None
    assert extract_program("```python\n(\n" + "```\n" * 20_000) == "("
    assert extract_program("1. a\n" * 20_000 + "```py\nx\n```") == "x"
