"""Every format on files that are written here, with the odd rows that real files have."""
# ruff: noqa: E501

import base64
import gzip
import json
import pickle
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import Case, DataError, Task, load_tasks
from formats import FORMATS, format_of

CASES = [{"input": f"{i}\n", "output": f"{i + 1}\n"} for i in range(6)]
INPUTS, OUTPUTS = ([case[side] for case in CASES] for side in ("input", "output"))
CALLS = [{"input": f"[{i}, 2]\n{i}", "output": f"[{i}]"} for i in range(6)]
OWN = {"id": "sum", "statement": "Add one.", "visible": CASES[:2], "hidden": CASES[2:]}
TACO = {
    "question": "Add one.", "starter_code": "", "difficulty": "EASY",
    "input_output": json.dumps({"inputs": INPUTS, "outputs": OUTPUTS}),
    "solutions": json.dumps(["print(int(input()) + 1)", "n = int(input())\nprint(n + 1)"]),
}  # fmt: skip
VERL = {
    "data_source": "taco", "prompt": [{"role": "system", "content": "s"},
                                      {"role": "user", "content": "Add one."}],
    "ability": "code", "extra_info": {"index": 3, "split": "train"},
    "reward_model": {"style": "rule", "ground_truth": json.dumps({"inputs": INPUTS, "outputs": OUTPUTS})},
}  # fmt: skip
NEMO = {
    "responses_create_params": {"input": [{"role": "user", "content": "Add one."}]},
    "verifier_metadata": {"unit_tests": {"inputs": INPUTS, "outputs": OUTPUTS, "fn_name": None}},
}
LCB = {
    "question_title": "Increment", "question_content": "Add one.", "question_id": "abc_1",
    "contest_id": "abc", "starter_code": "", "metadata": "{}", "difficulty": "easy",
    "public_test_cases": json.dumps([{**case, "testtype": "stdin"} for case in CASES[:1]]),
    "private_test_cases": json.dumps([{**case, "testtype": "stdin"} for case in CASES[1:]]),
}  # fmt: skip
DEEPCODER = {"problem": "Add one.", "tests": json.dumps({"inputs": INPUTS, "outputs": OUTPUTS}),
             "starter_code": "", "metadata": {"func_name": None}}  # fmt: skip
VERIFIABLE = {
    "problem_statement": "Add one.", "problem_id": "v/1",
    "gold_standard_solution": "```python\nprint(int(input()) + 1)\n```",
    "verification_info": {"language": "python", "test_cases": [
        {**case, "type": "stdin_stdout", "fn_name": None} for case in CASES]},
}  # fmt: skip
CODEFORCES = {
    "id": "852/A", "contest_id": "852", "rating": 2200.0, "title": "Increment",
    "description": "Add one.", "input_format": "An integer.", "output_format": "An integer.",
    "note": None, "interaction_format": None, "examples": CASES[:2], "official_tests": CASES,
    "input_mode": "stdio", "time_limit": 2.0, "memory_limit": 256.0, "executable": True,
    "generated_checker": None,
}  # fmt: skip
EVERY = {"own": OWN, "taco": TACO, "verl": VERL, "nemo": NEMO, "lcb": LCB, "deepcoder": DEEPCODER,
         "verifiable": VERIFIABLE, "codeforces": CODEFORCES}  # fmt: skip


def jsonl(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def one(path: Path, row: object, **options) -> Task:
    (task,) = load_tasks(jsonl(path / "some.jsonl", row), **options).tasks
    return task


def dropped(path: Path, row: dict, **options) -> str:
    """Why a row is dropped, beside a good one of its format."""
    good = next(item for item in EVERY.values() if format_of(item) is format_of(row))
    good = {**good, "id": "good"} if "id" in good else good
    loaded = load_tasks(jsonl(path / "some.jsonl", good, row), **options)
    assert len(loaded.tasks) == 1
    (reason,) = loaded.dropped
    return reason


# --- each format --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", ["jsonl", "json", "jsonl.gz", "jsonl.zst", "parquet"])
def test_every_format_in_every_kind_of_file(tmp_path, name, kind):
    row, path = EVERY[name], tmp_path / f"some.{kind}"
    text = json.dumps([row, {**row, "id": "2"}] if kind == "json" else row) + "\n"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    elif kind.endswith("gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif kind.endswith("zst"):
        with pa.output_stream(str(path), compression="zstd") as out:
            out.write(text.encode())
    else:
        path.write_text(text)
    loaded = load_tasks(str(path), known=2)
    task = loaded.tasks[0]
    assert "Add one." in task.statement
    assert [*task.visible, *task.hidden] == [Case(**case) for case in CASES]
    assert len(task.visible) == {"own": 2, "lcb": 1, "codeforces": 2}.get(name, 3)
    assert task.id.startswith("some/")
    assert task.function is None
    assert loaded.read == (2 if kind == "json" else 1)


def test_our_own_format_has_everything(tmp_path):
    row = {
        **OWN, "extra": CASES[:1], "rating": 1200.4, "contest": "7", "time_limit": 1.5,
        "memory_limit": 64, "starter_code": "n = 1", "checker": "print(1)",
        "solutions": ["print(1)", "print(2)", "print(3)"], "wrong_solutions": "print(0)",
    }  # fmt: skip
    task = one(tmp_path, row, extra=True, known=2)
    assert task == Task(
        "some/sum", "Add one.", "7", "Add one.", 1200,
        tuple(Case(**c) for c in CASES[:2]), tuple(Case(**c) for c in CASES[2:]),
        (Case(**CASES[0]),), None, "n = 1", "print(1)", 1.5, 64,
        ("print(1)", "print(2)"), ("print(0)",),
    )  # fmt: skip
    bare = one(tmp_path, OWN)
    assert (bare.contest, bare.extra, bare.solutions) == ("some/sum", (), ())


def test_what_is_visible_where_a_format_does_not_say(tmp_path):
    many = {"inputs": [str(i) for i in range(60)], "outputs": [str(i) for i in range(60)]}
    row = {**TACO, "input_output": json.dumps(many)}
    task = one(tmp_path, row, extra=True)
    assert [len(part) for part in (task.visible, task.hidden, task.extra)] == [8, 40, 12]
    assert [len(one(tmp_path, row, visible=n).visible) for n in (1, 20, 100)] == [1, 20, 30]
    assert len(one(tmp_path, TACO, visible=100).visible) == 3


def test_codeforces_puts_the_statement_together(tmp_path):
    task = one(tmp_path, {**CODEFORCES, "note": "Mind."})
    for part in ("Increment", "Input\n\nAn integer.", "Note\n\nMind.", "Example\n\nInput\n0"):
        assert part in task.statement
    assert (task.id, task.contest, task.rating) == ("some/852_A", "852", 2200)
    assert (task.time_limit, task.memory_limit) == (2.0, 256)
    assert one(tmp_path, {**CODEFORCES, "generated_checker": "print(1)"}).checker == "print(1)"


# --- calls --------------------------------------------------------------------------------------

CALLED = [("[0, 2]\n0", "[0]"), ("[1, 2]\n1", "[1]")]


@pytest.mark.parametrize("name", ["solve", "Solution.solve", "Solution().solve"])
def test_calls_of_lists_of_arguments(tmp_path, name):
    """TACO and APPS: a list of arguments, and the value in a list of one."""
    tests = {"fn_name": name, "inputs": [[[0, 2], 0], [[1, 2], 1]], "outputs": [[[0]], [[1]]]}
    task = one(tmp_path, {**TACO, "input_output": json.dumps(tests)})
    assert task.function == "solve"
    assert [*task.visible, *task.hidden] == CALLED
    tests["outputs"] = [[0, 1], "text"]
    task = one(tmp_path, {**TACO, "input_output": json.dumps(tests)})
    assert [case.output for case in (*task.visible, *task.hidden)] == ["[0, 1]", '"text"']


def test_calls_of_lines_of_json(tmp_path):
    """LiveCodeBench and DeepCoder."""
    row = {
        **LCB, "metadata": json.dumps({"func_name": "solve"}), "starter_code": "class Solution:",
        "public_test_cases": json.dumps(CALLS[:1]), "private_test_cases": json.dumps(CALLS[1:]),
    }  # fmt: skip
    task = one(tmp_path, row)
    assert (task.function, task.starter_code) == ("solve", "class Solution:")
    assert [*task.visible, *task.hidden][:2] == CALLED
    row = {**DEEPCODER, "metadata": '{"func_name": "solve"}',
           "tests": json.dumps([{**call, "testtype": "functional"} for call in CALLS])}  # fmt: skip
    task = one(tmp_path, row)
    assert (task.function, [*task.visible, *task.hidden][:2]) == ("solve", CALLED)
    row["tests"] = json.dumps([{**case, "testtype": "stdin"} for case in CASES])
    assert one(tmp_path, row).function is None


def test_calls_of_test_cases(tmp_path):
    cases = [
        {"type": "function_call", "fn_name": "solve", "input": [[i, 2], i], "output": [[i]]}
        for i in range(2)
    ]
    for info in (cases, [json.dumps(case) for case in cases]):
        for wrap in (dict, json.dumps):
            row = {
                **VERIFIABLE,
                "verification_info": wrap({"language": "python", "test_cases": info}),
            }
            task = one(tmp_path, row)
            assert (task.function, [*task.visible, *task.hidden]) == ("solve", CALLED)


# --- odd rows -----------------------------------------------------------------------------------


def test_json_in_json_and_numbers_and_lines(tmp_path):
    tests = {"inputs": [1, ["2", "3"], 2.5, "4"], "outputs": [2, ["5", "6"], 3.5, "5"]}
    task = one(tmp_path, {**TACO, "input_output": json.dumps(json.dumps(tests))})
    assert [*task.visible, *task.hidden] == [
        ("1", "2"),
        ("2\n3", "5\n6"),
        ("2.5", "3.5"),
        ("4", "5"),
    ]


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@pytest.mark.parametrize("value", [json.dumps(CASES[1:]), json.dumps(CASES[1:]).encode()])
def test_private_cases_can_be_packed(tmp_path, value):
    task = one(tmp_path, {**LCB, "private_test_cases": packed(value)})
    assert task.hidden == tuple(Case(**case) for case in CASES[1:])


class Harm:
    def __reduce__(self):
        return Path.touch, (Path("harm-was-done"),)


@pytest.mark.parametrize(
    "value",
    [packed(Harm()), packed([Harm()]), packed(print), packed(7), packed(b"\x80"), "AAAA", "no base64!",
     base64.b64encode(b"x").decode(), base64.b64encode(zlib.compress(b"\x80\x05")).decode(),
     base64.b64encode(zlib.compress(b"cos\nsystem\n(S'touch harm-was-done'\ntR.")).decode(),
     base64.b64encode(zlib.compress(b"\0" * (80 << 20))).decode()],
    ids=range(11),
)  # fmt: skip
def test_nothing_but_text_comes_out_of_a_pickle(tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    reason = dropped(tmp_path, {**LCB, "question_id": "2", "private_test_cases": value})
    assert reason in ("private cases that can't be unpacked", "cases over the size",
                      "cases that are no lists")  # fmt: skip
    assert not Path("harm-was-done").exists()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({**OWN, "statement": " "}, "no statement"),
        ({**OWN, "statement": None}, "no statement"),
        ({**OWN, "visible": []}, "too few cases"),
        ({**OWN, "hidden": None}, "too few cases"),
        ({**OWN, "visible": [{"input": "1"}]}, "null in a case"),
        ({**OWN, "visible": [{"input": {"a": 1}, "output": "1"}]}, "a case that is not text"),
        ({**OWN, "id": ""}, "no id"),
        ({**OWN, "function": "no name"}, "a function name that is none"),
        ({**OWN, "function": "f", "visible": [{"input": "x", "output": "1"}]}, "a case that is not JSON"),
        ({**OWN, "statement": "This is an interactive problem."}, "interactive"),
        ({**TACO, "input_output": ""}, "no cases"),
        ({**TACO, "input_output": None}, "no cases"),
        ({**TACO, "input_output": "{}"}, "no cases"),
        ({**TACO, "input_output": '{"inputs": ["1"], "outputs": []}'}, "inputs and outputs differ in number"),
        ({**TACO, "input_output": '{"inputs": ["1"], "outputs": ["1"]}'}, "too few cases"),
        ({**TACO, "input_output": '{"inputs": [true, "1"], "outputs": ["1", "1"]}'}, "a case that is not text"),
        ({**VERIFIABLE, "verification_info": {"language": "rust", "test_cases": []}}, "other language"),
        ({**VERIFIABLE, "verification_info": None}, "no cases"),
        ({**CODEFORCES, "id": "2", "input_mode": "file"}, "named files"),
        ({**CODEFORCES, "id": "2", "interaction_format": "Ask."}, "interactive"),
        ({**CODEFORCES, "id": "2", "executable": False}, "not executable"),
        ({**CODEFORCES, "id": "2", "official_tests": None}, "too few cases"),
        ({**VERL, "reward_model": None}, "no cases"),
    ],
)  # fmt: skip
def test_why_a_row_is_dropped(tmp_path, row, reason):
    assert dropped(tmp_path, row) == reason


def test_a_row_over_the_size_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("formats.MOST_BYTES", 100)
    assert (
        dropped(tmp_path, {**OWN, "visible": [{"input": "1" * 99, "output": "12"}]})
        == "cases over the size"
    )


def test_the_same_row_twice_counts_once_and_another_of_its_id_is_an_error(tmp_path):
    loaded = load_tasks(jsonl(tmp_path / "some.jsonl", OWN, OWN))
    assert (len(loaded.tasks), loaded.dropped) == (1, {"the same as another": 1})
    with pytest.raises(DataError, match="two tasks have the id some/sum"):
        load_tasks(jsonl(tmp_path / "some.jsonl", OWN, {**OWN, "statement": "Other."}))


def test_dictionary_encoded_strings_and_float_ratings(tmp_path):
    rows = [
        {**OWN, "id": str(i), "rating": rating}
        for i, rating in enumerate([1500.0, None, float("nan")])
    ]
    table = pa.Table.from_pylist(rows)
    place = table.schema.get_field_index("statement")
    table = table.set_column(place, "statement", table["statement"].dictionary_encode())
    pq.write_table(table, tmp_path / "some.parquet")
    assert [task.rating for task in load_tasks(str(tmp_path / "some.parquet")).tasks] == [
        1500,
        0,
        0,
    ]


def test_an_unknown_format_is_one_line_with_its_columns(tmp_path):
    with pytest.raises(DataError) as error:
        load_tasks(jsonl(tmp_path / "some.jsonl", {"prompt": "x", "answer": "y"}))
    line = str(error.value)
    assert "\n" not in line
    assert "no known format has its columns: answer, prompt" in line
    for item in FORMATS:
        assert item.name in line


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "line 1: not JSON"), ('{"id": 1}\n[]\n', "a row is no object"), ("[1]", "a row is no object"),
     ("\x00\xff", "not JSON")],
)  # fmt: skip
def test_a_damaged_file_is_one_line(tmp_path, content, said):
    for kind in ("jsonl", "json"):
        path = tmp_path / f"some.{kind}"
        path.write_text(content)
        with pytest.raises(DataError) as error:
            load_tasks(str(path))
        assert "\n" not in str(error.value)
        assert (
            said in str(error.value)
            or "not JSON" in str(error.value)
            or "no known format" in str(error.value)
        )
    (tmp_path / "some.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"can't be read as JSON"):
        load_tasks(str(tmp_path / "some.jsonl.gz"))


def test_a_folder_of_files_of_several_kinds(tmp_path):
    jsonl(tmp_path / "a.jsonl", OWN)
    pq.write_table(pa.Table.from_pylist([{**TACO, "id": "7"}]), tmp_path / "b.parquet")
    (tmp_path / "notes.txt").write_text("not tasks")
    loaded = load_tasks(str(tmp_path))
    assert [task.id for task in loaded.tasks] == ["a/sum", "b/7"]
    with pytest.raises(DataError, match=r"is no \.parquet, \.jsonl, \.json file"):
        load_tasks(str(tmp_path / "notes.txt"))


def test_solutions_are_read_only_when_asked_for(tmp_path):
    assert one(tmp_path, TACO).solutions == ()
    assert len(one(tmp_path, TACO, known=3).solutions) == 2
    assert one(tmp_path, VERIFIABLE, known=1).solutions == ("print(int(input()) + 1)",)
