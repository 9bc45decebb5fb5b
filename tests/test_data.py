"""The loader on real parquet files, on a local server that acts as the hub, and the toy tasks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import toy
from data import (
    DATASET,
    REVISION,
    Case,
    DataError,
    Task,
    load_tasks,
    rating_band,
)
from judge import Judge, Judgement, Limits, extract_program
from sources.hub import choose

ROOT = Path(__file__).resolve().parent.parent

TESTS = pa.struct([("input", pa.list_(pa.string())), ("output", pa.list_(pa.string()))])
PROGRAMS = pa.struct([("language", pa.list_(pa.int64())), ("solution", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("description", pa.string()),
        ("public_tests", TESTS),
        ("private_tests", TESTS),
        ("generated_tests", TESTS),
        ("source", pa.int64()),
        ("difficulty", pa.int64()),
        ("solutions", PROGRAMS),
        ("incorrect_solutions", PROGRAMS),
        ("cf_contest_id", pa.int64()),
        ("cf_index", pa.string()),
        ("cf_points", pa.float32()),
        ("cf_rating", pa.int32()),
        ("cf_tags", pa.list_(pa.string())),
        ("is_description_translated", pa.bool_()),
        ("untranslated_description", pa.string()),
        ("time_limit", pa.struct([("seconds", pa.int64()), ("nanos", pa.int64())])),
        ("memory_limit_bytes", pa.int64()),
        ("input_file", pa.string()),
        ("output_file", pa.string()),
    ]
)


def cases(count: int, mark: str) -> dict[str, list[str]]:
    return {
        "input": [f"{mark} {i}\n" for i in range(count)],
        "output": [f"{i}\n" for i in range(count)],
    }


def row(**fields: Any) -> dict[str, Any]:
    """A row of the hub's schema that is kept, with some fields changed."""
    return {
        "name": "1575_A. Another Sorting Problem",
        "description": "Sort the books.",
        "public_tests": cases(2, "public"),
        "private_tests": cases(3, "private"),
        "generated_tests": cases(50, "generated"),
        "source": 2,
        "difficulty": 7,
        "solutions": {"language": [3], "solution": ["print(1)"]},
        "incorrect_solutions": {"language": [3], "solution": ["print(2)"]},
        "cf_contest_id": 1575,
        "cf_index": "A",
        "cf_points": 500.0,
        "cf_rating": 1100,
        "cf_tags": ["sortings"],
        "is_description_translated": False,
        "untranslated_description": "",
        "time_limit": {"seconds": 2, "nanos": 0},
        "memory_limit_bytes": 256_000_000,
        "input_file": "",
        "output_file": "",
        **fields,
    }


def write(path: Path, *rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> str:
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)
    return str(path)


def load_one(tmp_path: Path, **fields: Any) -> Task:
    [task] = load_tasks(write(tmp_path / "some.parquet", row(**fields))).tasks
    return task


# ---------------------------------------------------------------------------------------------
# Rows


def test_a_row_becomes_a_task(tmp_path: Path) -> None:
    path = write(tmp_path / "some.parquet", row())
    loaded = load_tasks(path, extra=True)
    [task] = loaded.tasks
    assert (task.id, task.contest, task.rating) == ("some/1575_A", "1575", 1100)
    assert task.name == "1575_A. Another Sorting Problem"
    assert task.statement == "Sort the books."
    marks = [[case.input.strip() for case in part] for part in (task.visible, task.hidden)]
    assert marks[0] == ["public 0", "public 1", *(f"generated {i}" for i in range(8))]
    assert marks[1] == [
        *(f"private {i}" for i in range(3)),
        *(f"generated {i}" for i in range(8, 40)),
    ]
    assert task.extra == tuple(Case(f"generated {i}\n", f"{i}\n") for i in range(40, 50))
    assert (loaded.source, loaded.read, loaded.dropped) == (path, 1, {})
    assert loaded.line == f"{path}: 1 rows read, 1 kept, 0 dropped"


def test_extra_cases_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "some.parquet", row())
    [without], [whole] = load_tasks(path).tasks, load_tasks(path, extra=True).tasks
    assert without.extra == ()
    assert (without.visible, without.hidden) == (whole.visible, whole.hidden)


def test_columns_that_are_not_needed_may_be_missing(tmp_path: Path) -> None:
    needed = [field for field in SCHEMA if "solution" not in field.name and field.name != "cf_tags"]
    path = write(tmp_path / "thin.parquet", row(), schema=pa.schema(needed))
    assert [task.id for task in load_tasks(path).tasks] == ["thin/1575_A"]


def test_large_strings_and_lists_are_read(tmp_path: Path) -> None:
    texts = pa.large_list(pa.large_string())
    large = pa.struct([("input", texts), ("output", texts)])
    schema = pa.schema(
        [field.with_type(large) if field.type == TESTS else field for field in SCHEMA]
    )
    path = write(tmp_path / "large.parquet", row(), schema=schema)
    assert len(load_tasks(path).tasks[0].hidden) == 35


NULL_OUTPUT = {"input": ["1\n"], "output": [None]}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": None}, "no name"),
        ({"name": " "}, "no name"),
        ({"description": None}, "no statement"),
        ({"description": " \n"}, "no statement"),
        ({"description": "This is an INTERACTIVE problem."}, "interactive"),
        ({"description": "Talk to the interactor."}, "interactive"),
        ({"description": "Remember to Flush the output."}, "interactive"),
        ({"description": "Call fflush(stdout)."}, "interactive"),
        ({"input_file": "input.txt"}, "named files"),
        ({"output_file": "output.txt"}, "named files"),
        (
            {"public_tests": {"input": ["1", "2"], "output": ["1"]}},
            "inputs and outputs differ in number",
        ),
        (
            {"generated_tests": {"input": ["1"], "output": None}},
            "inputs and outputs differ in number",
        ),
        ({"private_tests": NULL_OUTPUT}, "null in a case"),
        ({"public_tests": cases(0, ""), "generated_tests": cases(0, "")}, "no visible case"),
        ({"public_tests": None, "generated_tests": None}, "no visible case"),
        ({"private_tests": cases(0, ""), "generated_tests": cases(8, "g")}, "no hidden case"),
    ],
)
def test_rows_that_cannot_be_used_are_dropped(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    good = row(name="1_A. Good")
    path = write(tmp_path / "some.parquet", row(**fields), good, row(**fields))
    loaded = load_tasks(path)
    assert [task.id for task in loaded.tasks] == ["some/1_A"]
    assert (loaded.read, loaded.dropped) == (3, {reason: 2})
    assert loaded.line == f"{path}: 3 rows read, 1 kept, 2 dropped ({reason} 2)"


def test_text_that_is_not_utf8_is_dropped(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([row(), row(name="1_A. Good")], schema=SCHEMA)
    texts = pa.array([b"\xff", b"fine"], pa.binary()).view(pa.string())
    table = table.set_column(1, "description", texts)
    pq.write_table(table, tmp_path / "some.parquet")
    loaded = load_tasks(str(tmp_path))
    assert [task.id for task in loaded.tasks] == ["some/1_A"]
    assert loaded.dropped == {"not UTF-8": 1}


def test_a_problem_of_few_cases_is_kept(tmp_path: Path) -> None:
    task = load_one(tmp_path, public_tests=None, generated_tests=cases(1, "g"))
    assert (len(task.visible), len(task.hidden)) == (1, 3)


@pytest.mark.parametrize(
    ("name", "contest_id", "task_id", "contest"),
    [
        ("1575_A. Another Sorting Problem", 1575, "1575_A", "1575"),
        ("1157_C2. Increasing Subsequence (hard version)", 0, "1157_C2", "1157"),
        ("1157_C2. Increasing Subsequence (hard version)", None, "1157_C2", "1157"),
        ("p02608 AtCoder Beginner Contest 172 - X", 0, "p02608", "some/p02608"),
        ("p00001 List of Top 3 Hills", 0, "p00001", "some/p00001"),
        ("chefbm", 0, "chefbm", "some/chefbm"),
        ("brackets-and-pairs-2", 0, "brackets-and-pairs-2", "some/brackets-and-pairs-2"),
        ("Roy and Profile / Picture ", 0, "Roy-and-Profile-Picture", None),
        ("Ünïcode π", 0, "Ünïcode-π", None),
    ],
)
def test_ids_and_contests(
    tmp_path: Path, name: str, contest_id: int | None, task_id: str, contest: str | None
) -> None:
    task = load_one(tmp_path, name=name, cf_contest_id=contest_id)
    assert task.id == f"some/{task_id}"
    assert task.contest == (contest or task.id)


@pytest.mark.parametrize(
    ("rating", "band"),
    [
        (None, "unrated"),
        (0, "unrated"),
        (800, "under 1500"),
        (1499, "under 1500"),
        (1500, "1500 to 2199"),
        (2199, "1500 to 2199"),
        (2200, "2200 and up"),
        (3500, "2200 and up"),
    ],
)
def test_rating_bands(tmp_path: Path, rating: int | None, band: str) -> None:
    assert rating_band(load_one(tmp_path, cf_rating=rating).rating) == band


def make_task(visible: list[tuple[str, str]], hidden: list[tuple[str, str]]) -> Task:
    shown, rest = (tuple(Case(*pair) for pair in part) for part in (visible, hidden))
    return Task("t", "t", "t", "", 0, shown, rest)


def test_floor_is_what_the_best_constant_answer_passes() -> None:
    pairs = [("1", "NO\n"), ("2", " NO"), ("3", "YES"), ("4", "N O")]
    assert make_task(pairs, [("5", "YES")] * 9).floor == 2


def test_cases_hash_tells_cases_apart() -> None:
    tasks = [
        make_task([("1", "2")], [("3", "4")]),
        make_task([("1", "2"), ("3", "4")], []),
        make_task([], [("1", "2"), ("3", "4")]),
        make_task([("12", "")], [("3", "4")]),
        make_task([('1", "2', "")], [("3", "4")]),
    ]
    assert len({task.cases_hash for task in tasks}) == len(tasks)
    assert tasks[0].cases_hash == make_task([("1", "2")], [("3", "4")]).cases_hash
    assert tasks[0].cases_hash == "de03888a8f99f9f7"


def test_cases_hash_tells_ways_of_judging_apart() -> None:
    plain = make_task([("1", "2")], [("3", "4")])
    ways = [
        plain,
        replace(plain, function="f"),
        replace(plain, checker="f"),
        replace(plain, function="f", checker="g"),
    ]
    assert len({task.cases_hash for task in ways}) == len(ways)
    assert replace(plain, starter_code="def f():").cases_hash == plain.cases_hash


# ---------------------------------------------------------------------------------------------
# Files, folders, what goes wrong


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    for stem in ("b", "a"):
        write(tmp_path / f"{stem}.parquet", row(), row(name="chefbm"))
    (tmp_path / "notes.txt").write_text("not tasks")
    loaded = load_tasks(str(tmp_path))
    assert [task.id for task in loaded.tasks] == ["a/1575_A", "a/chefbm", "b/1575_A", "b/chefbm"]
    assert (loaded.source, loaded.read) == (str(tmp_path), 4)


def test_two_tasks_of_one_id_are_both_named(tmp_path: Path) -> None:
    rows = row(), row(name="1575_A. A Copy")
    with pytest.raises(DataError) as error:
        load_tasks(write(tmp_path / "some.parquet", *rows))
    assert str(error.value) == (
        "two tasks have the id some/1575_A: '1575_A. Another Sorting Problem' "
        "(row 1 of some.parquet) and '1575_A. A Copy' (row 2 of some.parquet)"
    )


def line_of(error: pytest.ExceptionInfo[DataError]) -> str:
    line = str(error.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("column", ["name", "generated_tests", "cf_rating", "output_file"])
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    schema = pa.schema([field for field in SCHEMA if field.name != column])
    path = write(tmp_path / "some.parquet", row(), schema=schema)
    with pytest.raises(DataError) as error:
        load_tasks(path)
    assert f"{path}: the column {column!r} is missing" in line_of(error)


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("description", pa.binary(), b"text"),
        ("cf_rating", pa.string(), "800"),
        ("public_tests", pa.list_(pa.string()), ["1"]),
        ("public_tests", pa.struct([("input", pa.list_(pa.string()))]), {"input": ["1"]}),
        (
            "private_tests",
            pa.struct([("input", pa.list_(pa.int64())), ("output", pa.list_(pa.int64()))]),
            {"input": [1], "output": [1]},
        ),
    ],
)
def test_a_column_of_another_type_is_named(
    tmp_path: Path, column: str, kind: Any, value: Any
) -> None:
    fields = [field.with_type(kind) if field.name == column else field for field in SCHEMA]
    path = write(tmp_path / "some.parquet", row(**{column: value}), schema=pa.schema(fields))
    with pytest.raises(DataError) as error:
        load_tasks(path)
    assert f"{path}: the column {column!r} has the unexpected type " in line_of(error)


def test_files_that_are_not_parquet(tmp_path: Path) -> None:
    whole = Path(write(tmp_path / "whole.parquet", row())).read_bytes()
    body = bytearray(whole)
    body[4 : len(whole) // 2] = bytes(len(whole) // 2 - 4)
    for number, content in enumerate((b"", b"name,description\n", whole[:-20], bytes(body))):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(content)
        with pytest.raises(DataError) as error:
            load_tasks(str(path))
        assert f"{path} can't be read as parquet: " in line_of(error)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        load_tasks(str(tmp_path / "absent"))
    with pytest.raises(DataError, match=r"no \.parquet, \.jsonl, .* in this folder"):
        load_tasks(str(tmp_path))


def test_no_task_left(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load_tasks(write(tmp_path / "some.parquet", row(description="")))
    assert "no task left: " in line_of(error)
    assert "1 rows read, 0 kept, 1 dropped (no statement 1)" in line_of(error)
    with pytest.raises(DataError, match="no task left"):
        load_tasks(write(tmp_path / "empty.parquet"))


def test_limit_and_splits_are_checked() -> None:
    with pytest.raises(DataError, match="--limit must be at least 1, got 0"):
        load_tasks("toy", limit=0)
    with pytest.raises(DataError, match="unknown split 'tests': choose from train, valid, test"):
        load_tasks(None, ["tests"])


def test_a_larger_limit_adds_tasks_and_changes_none(tmp_path: Path) -> None:
    rows = [row(name=f"{i}_A. Problem") for i in range(60)]
    forward = write(tmp_path / "some.parquet", *rows)
    (tmp_path / "other").mkdir()
    backward = write(tmp_path / "other" / "some.parquet", *reversed(rows))

    def ids(path: str, limit: int, seed: int = 0) -> list[str]:
        return [task.id for task in load_tasks(path, limit=limit, seed=seed).tasks]

    most = ids(forward, 40)
    assert all(ids(forward, limit) == most[:limit] for limit in (1, 5, 20, 39))
    assert ids(backward, 40) == most
    assert most != sorted(most)
    assert ids(forward, 40, seed=1) != most
    assert len(ids(forward, 1000)) == 60
    loaded = load_tasks(forward, limit=5)
    assert (loaded.read, len(loaded.tasks)) == (60, 5)
    assert loaded.line.endswith("60 rows read, 60 kept, 0 dropped; 5 of the kept taken")


def test_only_the_ids_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "some.parquet", *(row(name=f"{i}_A. P") for i in range(9)))
    loaded = load_tasks(path, extra=True, ids={"some/3_A", "some/7_A", "gone/1_A"})
    assert [task.id for task in loaded.tasks] == ["some/3_A", "some/7_A"]
    assert all(len(task.extra) == 10 for task in loaded.tasks)
    assert load_tasks("toy", ids=["gone/1_A"]).tasks == []


# ---------------------------------------------------------------------------------------------
# The hub


class Hub(ThreadingHTTPServer):
    """Acts as the hub for one dataset.

    Attributes:
        files: path in the dataset -> content.
        token: the only one let in, or None when all are.
        data_set: its name.
        requests: method and path of each request.
    """

    def __init__(self, files: dict[str, bytes], token: str | None, data_set: str) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.files = files
        self.token = token
        self.data_set = data_set
        self.requests: list[str] = []


class HubHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        hub = self.server
        assert isinstance(hub, Hub)
        path = urlsplit(self.path).path
        hub.requests.append(f"{self.command} {path}")
        api = f"/api/datasets/{hub.data_set}/tree/{REVISION}"
        prefix = f"/datasets/{hub.data_set}/resolve/{REVISION}/"
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self.answer(401, b"Invalid username or password.")
        elif path == f"/api/datasets/{hub.data_set}/revision/main":
            self.answer(200, json.dumps({"id": hub.data_set, "sha": REVISION}).encode())
        elif path == api:
            listed = [
                {"type": "file", "oid": hashlib.sha1(body).hexdigest(), "size": len(body)}
                | {"path": name}
                for name, body in hub.files.items()
            ]
            self.answer(200, json.dumps(listed).encode())
        elif path.startswith(prefix) and path.removeprefix(prefix) in hub.files:
            self.answer(200, hub.files[path.removeprefix(prefix)])
        else:
            self.answer(404, b"not found")

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(
    files: dict[str, bytes], token: str | None = None, data_set: str = DATASET
) -> Iterator[tuple[Hub, str]]:
    with Hub(files, token, data_set) as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hub, f"http://127.0.0.1:{hub.server_port}"
        finally:
            hub.shutdown()
            thread.join()


def load_from_hub(
    cache: Path,
    endpoint: str,
    splits: str,
    *,
    tasks: str | None = None,
    asked: dict[str, Any] | None = None,
    **env: str,
) -> str:
    """Load in a process of its own, as the client reads its environment when it is imported.

    Returns the loader's line and the ids, or "error: ..."; its waits between retries are cut.
    """
    code = """
import json, sys, time
time.sleep = lambda seconds: None
from data import DataError, load_tasks
try:
    tasks, splits, asked = json.loads(sys.argv[1])
    loaded = load_tasks(tasks, splits.split(","), **asked)
    print(loaded.line, *(task.id for task in loaded.tasks), sep="\\n")
except DataError as error:
    print(f"error: {error}")
"""
    result = subprocess.run(
        [sys.executable, "-c", code, json.dumps([tasks, splits, asked or {}])],
        env={"PATH": os.environ["PATH"], "HF_HOME": str(cache), "HF_ENDPOINT": endpoint, **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.fixture(scope="module")
def hub_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("hub")
    files = {}
    for name, numbers in {
        "test-00000-of-00001-9c49": [1, 2],
        "valid-00000-of-00001-5e67": [1],
        "train-00000-of-00002-aa": [3, 4],
        "train-00001-of-00002-bb": [5],
    }.items():
        path = Path(
            write(folder / f"{name}.parquet", *(row(name=f"{i}_A. Problem") for i in numbers))
        )
        files[f"data/{path.name}"] = path.read_bytes()
    return files


def test_splits_come_from_the_hub_and_then_from_its_cache(
    tmp_path: Path, hub_files: dict[str, bytes]
) -> None:
    source = "deepmind/code_contests@802411c3"
    expected = f"{source}: 3 rows read, 3 kept, 0 dropped\ntest/1_A\ntest/2_A\nvalid/1_A"
    with serving(hub_files) as (hub, endpoint):
        assert load_from_hub(tmp_path, endpoint, "test,valid") == expected
        assert not any("train" in request for request in hub.requests)
        asked = len(hub.requests)
        assert load_from_hub(tmp_path, endpoint, "test,valid,test") == expected
        assert len(hub.requests) == asked
        shards = load_from_hub(tmp_path, endpoint, "train").splitlines()
        assert shards[1:] == ["train/3_A", "train/4_A", "train/5_A"]
    assert load_from_hub(tmp_path, endpoint, "test,valid", HF_HUB_OFFLINE="1") == expected


def test_a_split_that_is_not_whole_is_not_taken(
    tmp_path: Path, hub_files: dict[str, bytes]
) -> None:
    files = {name: body for name, body in hub_files.items() if "train-00001" not in name}
    with serving(files) as (_, endpoint):
        line = load_from_hub(tmp_path, endpoint, "train")
    assert line.startswith("error: can't get the train split")
    assert "some files are missing" in line


def test_an_unreachable_hub_is_one_line(tmp_path: Path) -> None:
    with serving({}) as (_, endpoint):
        pass
    line = load_from_hub(tmp_path, endpoint, "test")
    assert line.startswith(f"error: can't get the test split of {DATASET} from the hub: ")
    assert "check the network and HF_ENDPOINT" in line
    assert "--tasks PATH" in line
    assert "\n" not in line
    line = load_from_hub(tmp_path, endpoint, "test", HF_HUB_OFFLINE="1")
    assert "it is not whole in the cache and HF_HUB_OFFLINE is set" in line


def test_a_hub_that_refuses_the_token(tmp_path: Path, hub_files: dict[str, bytes]) -> None:
    with serving(hub_files, token="hf_right") as (_, endpoint):
        refused = load_from_hub(tmp_path, endpoint, "test", HF_TOKEN="hf_wrong")
        assert "401" in refused
        assert "HF_TOKEN" in refused
        assert "\n" not in refused
        assert "test/1_A" in load_from_hub(tmp_path, endpoint, "test", HF_TOKEN="hf_right")


CARD = b"""---
configs:
- config_name: small
  data_files:
  - {split: train, path: "small/train-*"}
- config_name: other
  data_files: other/*.jsonl
---
# A data set
"""


def lines(*names: str) -> bytes:
    case = [{"input": "1", "output": "1"}]
    rows = [{"id": name, "statement": "s", "visible": case, "hidden": case} for name in names]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_any_data_set_of_the_hub_and_then_from_its_cache(tmp_path: Path) -> None:
    files = {
        "README.md": CARD,
        "small/train-00000-of-00002.jsonl": lines("a"),
        "small/train-00001-of-00002.jsonl": lines("b"),
        "other/all.jsonl": lines("c"),
    }

    def load(endpoint: str, **asked: Any) -> str:
        return load_from_hub(tmp_path, endpoint, "test,valid", tasks="hf:me/set", asked=asked)

    with serving(files, data_set="me/set") as (hub, endpoint):
        assert "needs --config; one of: small, other" in load(endpoint)
        found = load(endpoint, config="small").splitlines()
        assert found[1:] == ["train/a", "train/b"]
        assert found[0] == f"hf:me/set@{REVISION}: 2 rows read, 2 kept, 0 dropped"
        assert not any("other/all" in request for request in hub.requests)
        asked = len(hub.requests)
        assert load(endpoint, config="small").splitlines() == found
        assert len(hub.requests) == asked
        assert "has no rows of the split 'test'; its splits: train" in load_from_hub(
            tmp_path, endpoint, "test", tasks="hf:me/set", asked={"config": "small"}
        )
        assert "has no config 'x'; one of: small, other" in load(endpoint, config="x")
    again = load(endpoint, config="small").splitlines()  # there is no server any more
    assert again == found
    assert load(endpoint, config="other").startswith("error: can't get me/set (revision main)")


def test_which_files_of_a_data_set_are_read() -> None:
    paths = ["README.md", "data/train-0.parquet", "data/test-0.parquet", "x/validation.jsonl.gz"]
    assert choose(paths, {}, ["train"], None, "t") == [("train", "data/train-0.parquet")]
    both = [("test", "data/test-0.parquet"), ("validation", "x/validation.jsonl.gz")]
    assert choose(paths, {}, ["test", "valid"], None, "t") == both
    assert choose(paths, {}, ["validation"], "x", "t") == both[1:]
    assert choose(["a.jsonl", "b.jsonl"], {}, ["test", "valid"], None, "t") == [
        ("train", "a.jsonl"), ("train", "b.jsonl")]  # fmt: skip
    assert choose(["test.jsonl", "test2.jsonl"], {}, ["test"], None, "t") == [
        ("test", "test.jsonl"), ("test", "test2.jsonl")]  # fmt: skip
    with pytest.raises(DataError, match="t has no rows of the split 'dev'; its splits: train, te"):
        choose(paths, {}, ["dev"], None, "t")
    with pytest.raises(DataError, match="t has no config 'y'"):
        choose(paths, {}, ["train"], "y", "t")
    with pytest.raises(DataError, match="write hf:OWNER/NAME or hf:OWNER/NAME@REVISION"):
        load_tasks("hf:name")


# ---------------------------------------------------------------------------------------------
# Toy tasks


def test_twelve_toy_tasks() -> None:
    loaded = load_tasks("toy", extra=True)
    tasks = loaded.tasks
    assert loaded.line == "toy: 12 rows read, 12 kept, 0 dropped"
    assert len({task.id for task in tasks}) == 12
    assert {rating_band(task.rating) for task in tasks} == {
        "unrated",
        "under 1500",
        "1500 to 2199",
        "2200 and up",
    }
    assert len({task.contest for task in tasks}) == 10
    for task in tasks:
        assert 3 <= len(task.visible) <= 6
        assert len(task.hidden) >= 10
        assert len(task.extra) == toy.EXTRA
        assert task.statement.startswith(f"{task.name}\n\n")
        first = task.visible[0]
        assert task.statement.endswith(f"Input\n\n{first.input}\nOutput\n\n{first.output}")
    assert [task.extra for task in load_tasks("toy").tasks] == [()] * 12


def test_toy_cases_are_the_same_everywhere() -> None:
    text = json.dumps([(task.id, task.cases_hash) for task in load_tasks("toy").tasks])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "d27877f2011c4a0a"


def grade_all(programs: list[tuple[str, Task]], limits: Limits) -> list[Judgement]:
    async def grade() -> list[Judgement]:
        async with Judge(2, limits) as judge:
            jobs = [judge.grade(program, task, every_case=True) for program, task in programs]
            return await asyncio.gather(*jobs)

    return asyncio.run(grade())


def test_toy_references_pass_and_wrong_ideas_fail_a_hidden_case() -> None:
    tasks = {task.name: task for task in load_tasks("toy").tasks}
    named = [(item, item.solve) for item in toy.TOY]
    named += [(item, wrong) for item in toy.TOY for wrong in item.wrong]
    programs = [(toy.program(solve), tasks[item.title]) for item, solve in named]
    graded = grade_all(programs, Limits(cpu_seconds=1.0, wall_seconds=30.0))
    for (item, solve), judgement in zip(named, graded, strict=True):
        if solve is item.solve:
            assert judgement.accepted, solve.__name__
        else:
            assert judgement.hidden_passed < judgement.hidden_total, solve.__name__
    assert all(item.wrong for item in toy.TOY)


def test_toy_extra_cases_are_answered_by_the_reference() -> None:
    for item in toy.TOY:
        assert all(
            item.solve(given).split() == expected.split() for given, expected in item.cases[2]
        )


def test_scripted_replies_are_of_all_kinds() -> None:
    statements = [item.statement for item in toy.TOY]
    replies = toy.replies()
    assert len(replies) == 12
    for title, lines in replies.items():
        assert sum(title in statement for statement in statements) == 1
        for weights in zip(*((fresh, informed) for _, _, fresh, informed in lines), strict=True):
            assert sum(weights) == 100
            assert min(weights) >= 0
    written = [line for lines in replies.values() for line in lines]
    assert {finish for _, finish, _, _ in written} == {"stop", "length"}
    for text, finish, _, _ in written:
        program = extract_program(text)
        assert (program is None) == (text.startswith("I would think"))
        assert finish == "stop" or text.startswith("Let me write")
        if finish == "length":
            assert program is not None
            assert "print(" not in program  # cut before its last line
    assert sum(text.count("```") > 2 for text, *_ in written) >= 8
    assert sum("```" not in text for text, *_ in written) >= 4
