"""Each format on files as its data set has them, with the odd rows that they hold."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import Case, DataError, Loaded, Task, load_tasks
from formats.pickled import text_in_pickle
from formats.problem import Dropped

Row = dict[str, Any]


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def load(tmp_path: Path, *rows: Row, **asked: Any) -> Loaded:
    return load_tasks(write(tmp_path / "some.jsonl", *rows), **asked)


def one(tmp_path: Path, row: Row, **asked: Any) -> Task:
    [task] = load(tmp_path, row, **asked).tasks
    return task


def pairs(count: int, **more: Any) -> Row:
    return {
        "inputs": [f"{i}\n" for i in range(count)],
        "outputs": [f"{i}\n" for i in range(count)],
        **more,
    }


def objects(count: int, start: int = 0, **more: Any) -> list[Row]:
    return [{"input": f"{i}\n", "output": f"{i}\n", **more} for i in range(start, start + count)]


def numbers(cases: Any) -> list[int]:
    return [int(case.input) for case in cases]


# --- rows of each format ----------------------------------------------------------------------


def own(**fields: Any) -> Row:
    return {
        "id": "sum",
        "statement": "Add two numbers.",
        "visible": objects(2),
        "hidden": objects(3, 2),
        **fields,
    }


def taco(**fields: Any) -> Row:
    return {
        "question": "Print the number.",
        "input_output": json.dumps(pairs(60)),
        "solutions": json.dumps(["print(input())", "print(int(input()))"]),
        "starter_code": "",
        "difficulty": "EASY",
        **fields,
    }


def verl(tests: Any = None, **fields: Any) -> Row:
    return {
        "data_source": "code",
        "prompt": [
            {"role": "system", "content": "You are a coder."},
            {"role": "user", "content": "Print the number."},
        ],
        "ability": "code",
        "reward_model": {
            "style": "rule",
            "ground_truth": json.dumps(pairs(60) if tests is None else tests),
        },
        "extra_info": {"index": 0},
        **fields,
    }


def nemo(tests: Any = None, **fields: Any) -> Row:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "Print the number."}]},
        "verifier_metadata": {"unit_tests": pairs(60) if tests is None else tests},
        **fields,
    }


def packed(cases: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def livecodebench(**fields: Any) -> Row:
    return {
        "question_title": "Echo",
        "question_content": "Print the number.",
        "platform": "atcoder",
        "question_id": "abc301_a",
        "contest_id": "abc301",
        "difficulty": "easy",
        "starter_code": "",
        "public_test_cases": json.dumps(objects(2, testtype="stdin")),
        "private_test_cases": packed(objects(45, 2, testtype="stdin")),
        "metadata": "{}",
        **fields,
    }


def deepcoder(**fields: Any) -> Row:
    return {
        "problem": "Print the number.",
        "tests": json.dumps(objects(60, type="stdin_stdout", fn_name=None)),
        "solutions": ["```python\nprint(input())\n```"],
        **fields,
    }


def verifiable(**fields: Any) -> Row:
    return {
        "problem_id": "vcp_7",
        "problem_statement": "Print the number.",
        "gold_standard_solution": "```python\nprint(input())\n```",
        "verification_info": {
            "language": "python",
            "test_cases": objects(60, type="stdin_stdout", fn_name=None),
        },
        **fields,
    }


def codeforces(**fields: Any) -> Row:
    return {
        "id": "852/A",
        "contest_id": "852",
        "title": "Digits",
        "description": "Print the number.",
        "input_format": "A number.",
        "output_format": "The number.",
        "note": None,
        "interaction_format": None,
        "rating": 2500.0,
        "examples": objects(2),
        "official_tests": objects(50),
        "official_tests_complete": True,
        "input_mode": "stdio",
        "time_limit": 2.0,
        "memory_limit": 256.0,
        "generated_checker": "print(1)",
        "executable": True,
        **fields,
    }


MAKERS: dict[str, Callable[..., Row]] = {
    "own": own,
    "taco": taco,
    "verl": verl,
    "nemo": nemo,
    "livecodebench": livecodebench,
    "deepcoder": deepcoder,
    "verifiable": verifiable,
    "codeforces": codeforces,
}


# --- each format ------------------------------------------------------------------------------


def test_own_tasks(tmp_path: Path) -> None:
    task = one(
        tmp_path,
        own(
            extra=objects(2, 5),
            rating=1499.6,
            contest=12,
            time_limit=2,
            memory_limit="256",
            starter_code="def f():",
            checker="print(1)",
            solutions=["a", "a", "b", "c"],
            wrong_solutions=["w"],
        ),
        extra=True,
        known=2,
    )
    assert (task.id, task.name) == ("some/sum", "Add two numbers.")
    parts = (task.visible, task.hidden, task.extra)
    assert list(map(numbers, parts)) == [[0, 1], [2, 3, 4], [5, 6]]
    assert (task.rating, task.contest) == (1500, "12")
    assert (task.time_limit, task.memory_limit) == (2.0, 256.0)
    assert (task.starter_code, task.checker, task.function) == ("def f():", "print(1)", None)
    assert (task.solutions, task.wrong_solutions) == (("a", "b"), ("w",))


def test_own_tasks_say_what_they_do_not_have(tmp_path: Path) -> None:
    task = one(tmp_path, own(id=7, rating=None, checker=None, solutions=["a"]))
    assert (task.id, task.contest, task.rating) == ("some/7", "some/7", 0)
    assert (task.checker, task.function, task.time_limit) == (None, None, None)
    assert (task.extra, task.solutions) == ((), ())


def test_own_functions(tmp_path: Path) -> None:
    row = own(function="f", visible=[{"input": '1\n"a"\n', "output": "[1]\n"}])
    row["hidden"] = [{"input": "2\n[]", "output": 3}]
    task = one(tmp_path, row)
    assert task.function == "f"
    assert task.visible == (Case('1\n"a"', "[1]"),)
    assert task.hidden == (Case("2\n[]", "3"),)


@pytest.mark.parametrize("maker", [taco, verl, nemo, deepcoder, verifiable])
def test_what_is_visible_where_the_format_does_not_say(
    tmp_path: Path, maker: Callable[..., Row]
) -> None:
    task = one(tmp_path, maker(), extra=True)
    assert task.statement == "Print the number."
    parts = [task.visible, task.hidden, task.extra]
    assert list(map(numbers, parts)) == [[*range(8)], [*range(8, 48)], [*range(48, 60)]]
    assert (task.function, task.contest) == (None, task.id)
    less = one(tmp_path, maker(), visible=3)
    assert (numbers(less.visible), len(less.hidden), less.extra) == ([0, 1, 2], 40, ())
    most = one(tmp_path, maker(), visible=100)
    assert (len(most.visible), len(most.hidden)) == (30, 30)


def test_taco_and_apps(tmp_path: Path) -> None:
    url = "https://codeforces.com/problemset/problem/1017/E"
    row = taco(url=url, time_limit="2.0 seconds", memory_limit="512.0 kilobytes")
    task = one(tmp_path, row, known=5)
    assert (task.contest, task.rating) == ("1017", 0)
    assert (task.time_limit, task.memory_limit) == (2.0, 0.5)
    assert task.solutions == ("print(input())", "print(int(input()))")
    apps = one(tmp_path, taco(problem_id=17, solutions=""), known=5)
    assert (apps.id, apps.solutions) == ("some/17", ())


def test_taco_functions_with_values_in_lists_of_one(tmp_path: Path) -> None:
    tests = {"fn_name": "f", "inputs": [["a", 3], [[1], None]], "outputs": [["x"], [[2.5]]]}
    task = one(tmp_path, taco(input_output=json.dumps(tests), starter_code="class Solution:"))
    assert (task.function, task.starter_code) == ("f", "class Solution:")
    assert [*task.visible, *task.hidden] == [Case('"a"\n3', '"x"'), Case("[1]\nnull", "[2.5]")]
    tests = {"fn_name": "Solution().f", "inputs": [[1], [2]], "outputs": ["5", [1, 2]]}
    task = one(tmp_path, taco(input_output=tests))
    assert task.function == "f"
    assert [c.output for c in (*task.visible, *task.hidden)] == ['"5"', "[1, 2]"]


def test_numbers_and_lists_of_lines_as_cases(tmp_path: Path) -> None:
    tests = {"inputs": [1, ["2", "3"], 0.5], "outputs": [2, ["a", 4], "c"], "fn_name": ""}
    task = one(tmp_path, taco(input_output=tests))
    assert [*task.visible, *task.hidden] == [
        Case("1", "2"), Case("2\n3", "a\n4"), Case("0.5", "c")]  # fmt: skip


def test_json_in_json(tmp_path: Path) -> None:
    assert numbers(one(tmp_path, taco(input_output=json.dumps(json.dumps(pairs(4))))).hidden)
    row = verl(prompt=json.dumps(verl()["prompt"]), reward_model=json.dumps(verl()["reward_model"]))
    assert one(tmp_path, row).statement == "Print the number."
    row = verifiable(verification_info=json.dumps(verifiable()["verification_info"]))
    assert len(one(tmp_path, row).hidden) == 40
    row = own(visible=json.dumps(objects(2)), hidden=json.dumps(objects(1, 2)))
    assert numbers(one(tmp_path, row).hidden) == [2]


def test_verl_and_nemo_functions(tmp_path: Path) -> None:
    tests = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[True], [False]]}
    for row in (verl(tests), nemo(tests), nemo(json.dumps(tests))):
        task = one(tmp_path, row)
        assert (task.function, [*task.visible]) == ("f", [Case("1", "true")])


def test_livecodebench(tmp_path: Path) -> None:
    task = one(tmp_path, livecodebench(), extra=True)
    assert (task.id, task.name, task.contest) == ("some/abc301_a", "Echo", "atcoder-abc301")
    parts = (task.visible, task.hidden, task.extra)
    assert list(map(numbers, parts)) == [[0, 1], [*range(2, 42)], [*range(42, 47)]]
    plain = livecodebench(private_test_cases=json.dumps(objects(3, 1, testtype="stdin")))
    assert numbers(one(tmp_path, plain).hidden) == [2, 3]  # 1 is public


def test_livecodebench_functions(tmp_path: Path) -> None:
    cases = [{"input": '[1, 2]\n"a"', "output": "3", "testtype": "functional"}]
    more = [{"input": '[]\n"b"', "output": "[0]", "testtype": "functional"}]
    row = livecodebench(
        public_test_cases=json.dumps(cases),
        private_test_cases=packed(more),
        metadata=json.dumps({"func_name": "solve"}),
        starter_code="class Solution:\n    def solve(self, a, b):\n        ",
    )
    task = one(tmp_path, row)
    assert task.function == "solve"
    assert task.starter_code == row["starter_code"]
    assert (task.visible, task.hidden) == (
        (Case('[1, 2]\n"a"', "3"),), (Case('[]\n"b"', "[0]"),))  # fmt: skip
    loaded = load_tasks(write(tmp_path / "x.jsonl", {**row, "metadata": "{}"}, livecodebench()))
    assert loaded.dropped == {"calls of no function, or of several": 1}


def test_deepcoder(tmp_path: Path) -> None:
    task = one(tmp_path, deepcoder(), known=1)
    assert task.solutions == ("print(input())",)
    row = deepcoder(tests=pairs(4), metadata={"func_name": None}, starter_code=None)
    assert numbers(one(tmp_path, row).visible) == [0, 1]
    calls = [{"input": f"{i}", "output": f"{i}", "testtype": "functional"} for i in range(4)]
    row = deepcoder(tests=json.dumps(calls), metadata={"func_name": "f"}, starter_code="class S:")
    task = one(tmp_path, row)
    assert (task.function, task.starter_code, task.visible[1]) == ("f", "class S:", Case("1", "1"))


def test_verifiable_coding_problems(tmp_path: Path) -> None:
    assert one(tmp_path, verifiable(), known=3).solutions == ("print(input())",)
    original = verifiable(prompt="Solve: print it.", problem_statement=None)
    assert one(tmp_path, original).statement == "Solve: print it."
    calls = [
        {"type": "function_call", "fn_name": "f", "input": [["a"], 1], "output": [2]},
        {"type": "function_call", "fn_name": "f", "input": '["b", 2]', "output": '["x"]'},
    ]
    info = {"language": "python", "test_cases": calls}
    task = one(tmp_path, verifiable(verification_info=info))
    assert (task.function, task.visible[0]) == ("f", Case('["a"]\n1', "2"))
    assert task.hidden[0] == Case('"b"\n2', '"x"')


def test_codeforces(tmp_path: Path) -> None:
    task = one(tmp_path, codeforces(), extra=True)
    assert (task.id, task.name, task.contest) == ("some/852_A", "Digits", "852")
    parts = (task.visible, task.hidden, task.extra)
    assert list(map(numbers, parts)) == [[0, 1], [*range(2, 42)], [*range(42, 50)]]
    assert (task.rating, task.time_limit, task.memory_limit) == (2500, 2.0, 256.0)
    assert task.checker == "print(1)"
    assert task.statement.startswith("Digits\n\nPrint the number.\n\nInput\n\nA number.")
    assert "Examples\n\nInput\n\n0\n\nOutput\n\n0" in task.statement
    bare = codeforces(rating=None, generated_checker=None, time_limit=None, examples=None)
    task = one(tmp_path, bare)
    assert (task.rating, task.checker, task.time_limit) == (0, None, None)
    assert len(task.visible) == 8


# --- rows that can't be used ------------------------------------------------------------------

CALLS = {"inputs": [1, 2], "outputs": [1, 2], "fn_name": "f"}
NAN = float("nan")


@pytest.mark.parametrize(
    ("maker", "fields", "reason"),
    [
        (own, {"id": None}, "no id"),
        (own, {"statement": " "}, "no statement"),
        (own, {"visible": []}, "no visible case"),
        (own, {"hidden": None}, "no hidden case"),
        (own, {"visible": None, "hidden": None}, "no cases"),
        (own, {"hidden": [{"input": {}, "output": "1"}]}, "a case that is not text"),
        (own, {"hidden": [{"input": None, "output": "1"}]}, "a case that is not text"),
        (own, {"hidden": ["1"]}, "cases that are no list of objects"),
        (own, {"hidden": "[1"}, "not JSON"),
        (own, {"function": "no name"}, "a function name that is none"),
        (own, {"function": "f"} | {"hidden": [{"input": "a", "output": "1"}]},
         "a case that is not JSON"),
        (taco, {"question": None}, "no statement"),
        (taco, {"input_output": ""}, "no cases"),
        (taco, {"input_output": "{"}, "not JSON"),
        (taco, {"input_output": "[" * 100_000}, "not JSON"),
        (taco, {"input_output": pairs(0)}, "no cases"),
        (taco, {"input_output": pairs(1)}, "no visible case"),
        (taco, {"input_output": {"inputs": ["1"], "outputs": []}},
         "inputs and outputs differ in number"),
        (taco, {"input_output": {"inputs": [None, "1"], "outputs": ["1", "2"]}},
         "a case that is not text"),
        (taco, {"input_output": CALLS}, "a call without a list of arguments"),
        (taco, {"question": "This is an interactive problem."}, "interactive"),
        (verl, {"reward_model": {"ground_truth": "42"}}, "no cases"),
        (verl, {"reward_model": None}, "no cases"),
        (verl, {"prompt": []}, "no statement"),
        (nemo, {"verifier_metadata": None}, "no cases"),
        (nemo, {"responses_create_params": {}}, "no statement"),
        (livecodebench, {"private_test_cases": "!"}, "private cases that can't be unpacked"),
        (livecodebench, {"private_test_cases": None}, "no hidden case"),
        (deepcoder, {"tests": None}, "no cases"),
        (deepcoder, {"tests": [objects(1, type="stdin_stdout")[0],
                               {"type": "function_call", "fn_name": "f"}]},
         "calls and programs mixed"),
        (verifiable, {"verification_info": {"language": "cpp", "test_cases": objects(4)}},
         "other language"),
        (verifiable, {"verification_info": None}, "no cases"),
        (codeforces, {"id": None}, "no id"),
        (codeforces, {"description": None}, "no statement"),
        (codeforces, {"input_mode": "file"}, "named files"),
        (codeforces, {"interaction_format": "Ask."}, "interactive"),
        (codeforces, {"executable": False}, "not executable"),
        (codeforces, {"official_tests": None}, "no hidden case"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_counted(
    tmp_path: Path, maker: Callable[..., Row], fields: Row, reason: str
) -> None:
    good = maker()
    for name in ("statement", "question", "question_content", "problem", "problem_statement"):
        if name in good:
            good[name] = "Another one."
    for name in ("id", "question_id", "problem_id"):
        if name in good:
            good[name] = "other"
    loaded = load(tmp_path, good, maker(**fields))
    assert (loaded.read, len(loaded.tasks), loaded.dropped) == (2, 1, {reason: 1})


def test_large_cases_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("formats.problem.LARGEST", 1000)
    monkeypatch.setattr("formats.pickled.LARGEST", 1000)
    monkeypatch.setattr("sources.files.LARGEST_LINE", 5000)
    many = packed(objects(200, testtype="stdin"))  # more than 1000 bytes when it is unpacked
    rows = [livecodebench(question_id="ok", private_test_cases=packed(objects(3, 5))),
            livecodebench(private_test_cases=many),
            livecodebench(private_test_cases=json.dumps([{"input": "1" * 2000, "output": "1"}])),
            livecodebench(private_test_cases="1" * 9000)]  # fmt: skip
    loaded = load(tmp_path, *rows)
    assert ([t.id for t in loaded.tasks], loaded.dropped) == (["some/ok"], {"over 64 MiB": 3})


def test_ratings_that_are_no_numbers_are_none(tmp_path: Path) -> None:
    for rating in (None, NAN, "hard", -1, True):
        assert one(tmp_path, own(rating=rating)).rating == 0
    assert one(tmp_path, own(rating="1500")).rating == 1500


def test_a_problem_that_comes_again_is_taken_once(tmp_path: Path) -> None:
    for name, maker in MAKERS.items():
        loaded = load_tasks(write(tmp_path / f"{name}.jsonl", maker(), maker()))
        assert (len(loaded.tasks), loaded.dropped) == (1, {"the same as another": 1}), name
    with pytest.raises(
        DataError,
        match=r"two tasks have the id some/sum: 'Add two numbers\.' .row 1 of some\.jsonl",
    ):
        load(tmp_path, own(), own(statement="Another."))


def test_a_case_that_comes_again_is_taken_once(tmp_path: Path) -> None:
    tests = {"inputs": ["1", "1", "2", "1"], "outputs": ["1", "1", "2", "3"]}
    task = one(tmp_path, taco(input_output=tests))
    assert [*task.visible, *task.hidden] == [Case("1", "1"), Case("2", "2"), Case("1", "3")]


# --- pickles ----------------------------------------------------------------------------------


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("unpickled",))


@pytest.mark.parametrize("protocol", range(6))
def test_the_text_of_a_pickle(protocol: int) -> None:
    if protocol:  # protocol 0 has no opcode for a text of known length
        assert text_in_pickle(pickle.dumps('["é"]', protocol)) == '["é"]'


@pytest.mark.parametrize(
    "value", [Evil(), ["a"], {"a": "b"}, 1, None, ("a",), [Evil()], bytearray(b"a")]
)
def test_a_pickle_of_anything_else_is_not_made(value: Any, capsys: Any) -> None:
    for protocol in range(6):
        with pytest.raises(Dropped):
            text_in_pickle(pickle.dumps(value, protocol))
    whole = pickle.dumps("a" * 300)
    for cut in (b"", whole[:-1], whole[:40], b"garbage", b"\x80\x04\x95"):
        with pytest.raises(Dropped):
            text_in_pickle(cut)
    assert capsys.readouterr().out == ""


def test_a_row_with_a_hostile_pickle_is_dropped(tmp_path: Path, capsys: Any) -> None:
    hostile = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    rows = livecodebench(question_id="x", private_test_cases=hostile), livecodebench()
    loaded = load(tmp_path, *rows)
    assert loaded.dropped == {"private cases that are no pickled text": 1}
    assert capsys.readouterr().out == ""


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
def test_parquet_and_json_give_the_same_tasks(tmp_path: Path, name: str) -> None:
    row = MAKERS[name]()
    written = load_tasks(write(tmp_path / "some.jsonl", row), extra=True, known=2)
    table = pa.Table.from_pylist([row])
    pq.write_table(table, tmp_path / "some.parquet")
    assert load_tasks(str(tmp_path / "some.parquet"), extra=True, known=2).tasks == (written.tasks)


def test_dictionary_encoded_strings(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([taco(), taco(question="Another.")])
    columns = {
        name: table[name].combine_chunks().dictionary_encode() for name in table.schema.names
    }
    pq.write_table(pa.table(columns), tmp_path / "some.parquet")
    schema = pq.read_schema(tmp_path / "some.parquet")
    assert pa.types.is_dictionary(schema.field("question").type)
    [first, second] = load_tasks(str(tmp_path / "some.parquet")).tasks
    assert (first.statement, second.statement) == ("Print the number.", "Another.")


def compressed(path: Path, data: bytes) -> str:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    elif path.suffix == ".zst":
        path.write_bytes(pa.Codec("zstd").compress(data, asbytes=True))
    else:
        path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_files_of_every_kind(tmp_path: Path, packing: str) -> None:
    rows = [own(id=f"t{i}") for i in range(30)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "plain.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    contents = {
        "lines.jsonl": lines,
        "bom.jsonl": b"\xef\xbb\xbf" + lines.rstrip(b"\n"),
        "crlf.ndjson": lines.replace(b"\n", b"\r\n\r\n"),
        "array.json": json.dumps(rows, indent=1).encode(),
        "lines.json": lines,
        "data.json": json.dumps({"data": rows}).encode(),
        "objects.json": "\n".join(json.dumps(row, indent=2) for row in rows).encode(),
        "table.parquet": (tmp_path / "plain.parquet").read_bytes(),
    }
    for name, data in contents.items():
        loaded = load_tasks(compressed(tmp_path / (name + packing), data))
        assert [task.id for task in loaded.tasks] == [
            f"{name.partition('.')[0]}/t{i}" for i in range(30)
        ], name
        assert loaded.dropped == {}, name


def test_ids_begin_with_the_name_of_the_file(tmp_path: Path) -> None:
    data = (json.dumps(livecodebench()) + "\n").encode()
    names = ("a.jsonl", "b.json", "c.v1.jsonl.gz", "d.jsonl.zst")
    for name in names:
        compressed(tmp_path / name, data)
    (tmp_path / "README.md").write_text("not tasks")
    found = [task.id for task in load_tasks(str(tmp_path)).tasks]
    assert found == ["a/abc301_a", "b/abc301_a", "c.v1/abc301_a", "d/abc301_a"]


def test_lines_that_are_no_rows_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    good = json.dumps(own()).encode()
    path.write_bytes(b"\n".join([b"[1]", good, b"{", b'{"id": "\xff"}', good[:50]]))
    loaded = load_tasks(str(path))
    assert loaded.dropped == {"not UTF-8": 1, "not a JSON object": 3}
    assert [task.id for task in loaded.tasks] == ["some/sum"]


def test_rows_may_leave_out_what_they_do_not_have(tmp_path: Path) -> None:
    bad = own(id="bad")
    del bad["hidden"]
    loaded = load(tmp_path, bad, own())
    assert ([task.id for task in loaded.tasks], loaded.dropped) == (
        ["some/sum"],
        {"no hidden case": 1},
    )


def line_of(error: pytest.ExceptionInfo[DataError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_format_names_what_was_found_and_what_is_known(tmp_path: Path) -> None:
    path = write(tmp_path / "some.jsonl", {"text": "a", "label": 1})
    with pytest.raises(DataError) as error:
        load_tasks(path)
    line = line_of(error)
    assert f"{path} is of no known format: its columns are text, label" in line
    assert "TACO and APPS (question, input_output)" in line
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "some.parquet")
    with pytest.raises(DataError, match="its columns are text; known are"):
        load_tasks(str(tmp_path / "some.parquet"))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("some.jsonl", b"no json\n"),
        ("some.json", b'[{"id": 1}, {"id": '),
        ("some.json", b"no json"),
        ("some.jsonl.gz", b"not gzip"),
        ("some.jsonl.zst", b"not zstd"),
        ("some.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 9999, mtime=0)[:-50]),
        ("some.parquet.gz", gzip.compress(b"PAR1", mtime=0)),
    ],
)
def test_files_that_cannot_be_read_are_one_line(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError) as error:
        load_tasks(str(tmp_path / name))
    assert str(tmp_path / name) in line_of(error)


def test_cases_beyond_the_room_are_read_back(tmp_path: Path, monkeypatch: Any) -> None:
    path = write(tmp_path / "some.jsonl", *(taco(question=f"{i}\ud800") for i in range(5)))
    there = load_tasks(path, extra=True).tasks
    monkeypatch.setattr("data.Spool", lambda: __import__("spool").Spool(20_000))
    stored = load_tasks(path, extra=True).tasks
    assert [type(task.hidden) is tuple for task in stored].count(False) >= 2
    for one_, other in zip(there, stored, strict=True):
        for part in ("visible", "hidden", "extra"):
            assert tuple(getattr(other, part)) == getattr(one_, part)
            assert len(getattr(other, part)) == len(getattr(one_, part))
        assert other.cases_hash == one_.cases_hash
        assert other.visible[0] == one_.visible[0]
