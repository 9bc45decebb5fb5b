"""The README says what results.json and the folder say."""

import asyncio
import json
import re
from pathlib import Path

import pytest

import report
from data import load_tasks
from judge import Judge
from settings import parse

ROOT = Path(__file__).parent.parent
WHOLE = ("prompts", "tests", "benchmarks", "examples", "out")  # folders with one phrase
README = (ROOT / "README.md").read_text("utf-8")


COMMITTED = ("results.json", "examples/results-seed-1.json")
each_run = pytest.mark.parametrize("name", COMMITTED)


def committed(name: str) -> dict:
    def refuse(word: str) -> None:
        raise ValueError(f"{name} holds {word}")

    return json.loads((ROOT / name).read_text("utf-8"), parse_constant=refuse)


def section(title: str) -> str:
    return README.split(f"## {title}\n")[1].split("\n## ")[0]


@each_run
def test_the_result_table_is_that_of_its_file(name):
    between = re.search(rf"<!-- {name} -->\n(.*)\n<!-- /{name} -->", README, re.DOTALL)
    assert between is not None
    assert between[1] == report.readme_table(committed(name))


@each_run
def test_the_sentence_above_a_result_has_its_numbers(name):
    results = committed(name)
    words = section("Result of the verified run")
    assert results["settings"]["sampling"]["model"] in words
    assert f"{results['all_fail']} of {results['tasks']} tasks" in words
    assert f"{results['cost']['calls']:,} rollouts" in words


@each_run
def test_a_committed_run_is_whole_and_was_no_dry_run(name):
    results = committed(name)
    assert not results["scripted"]
    assert results["incomplete"]["base"] == 0
    assert not any(results["incomplete"]["searches"].values())
    assert sum(results["histogram"]) == results["tasks"]


@each_run
def test_every_key_of_results_json_is_documented(name):
    named = set(re.findall(r"`(\w+)`", section("What a run writes")))
    assert set(committed(name)) <= named


def test_the_tree_is_that_of_the_folder():
    """Each module has one phrase, a package's under the package; nothing else is listed."""
    listed, inside = [], ""
    for line in section("Files").split("```")[1].strip().splitlines():
        name, phrase = line.split(maxsplit=1)
        assert phrase, line
        if line.startswith("  "):
            name = f"{inside}{name}"
        else:
            inside = name if name.endswith("/") else ""
        listed.append(name)
    modules = [
        path.relative_to(ROOT).as_posix()
        for pattern in ("*.py", "*/*.py")
        for path in ROOT.glob(pattern)
        if path.parts[len(ROOT.parts)] not in WHOLE and path.name != "__init__.py"
    ]
    packages = {f"{name.split('/')[0]}/" for name in modules if "/" in name}
    rest = [f"{name}/" for name in WHOLE if (ROOT / name).exists()]
    assert sorted(listed) == sorted([*modules, *packages, *rest, "results.json"])


def test_every_dependency_has_its_reason():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    listed = project.split("dependencies = [")[1].split("]")[0]
    for name in re.findall(r'"([\w-]+)', listed):
        assert name in section("Dependencies")


@pytest.mark.parametrize("line", re.findall(r"^python run\.py.*", README, re.MULTILINE))
def test_every_command_line_is_understood(line):
    parse(line.split("#")[0].split()[2:])


def test_the_example_of_our_own_format_runs(tmp_path):
    rows = re.search(r"<!-- own -->\n```json\n(.*?)```\n<!-- /own -->", README, re.DOTALL)
    assert rows is not None
    path = tmp_path / "own.jsonl"
    path.write_text(rows[1])
    tasks = load_tasks(str(path), known=1).tasks
    assert [task.id for task in tasks] == ["own/double", "own/largest"]
    programs = ["print(2 * int(input()))", tasks[1].solutions[0]]

    async def body():
        async with Judge(1) as judge:
            pairs = zip(programs, tasks, strict=True)
            return [await judge.grade(program, task) for program, task in pairs]

    assert [judgement.verdict for judgement in asyncio.run(body())] == ["accepted", "accepted"]
