"""The page in a real browser: what a reader sees and can do, and what hostile texts cannot.

Needs chromium and chromium-driver of Debian, and is skipped without them.

AXE=node_modules/axe-core/axe.min.js pytest tests/test_browser.py -k accessible
    checks accessibility too (npm install axe-core)
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import report
from data import Task, load_tasks
from journal import Journal
from judge import Failure, Judgement
from policy import Reply
from report import Saved
from swarm import (
    Key,
    Prompts,
    Record,
    Rollout,
    Shape,
    TaskFacts,
    derive_seed,
    hash_messages,
    what_is_seen,
)

ROOT = Path(__file__).parent.parent
PROMPTS = Prompts(ROOT / "prompts")
AXE = os.environ.get("AXE")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no browser: apt-get install chromium chromium-driver"
)
BIDI = "\u202egnitirw fo redro eht snrut siht\u202c"
HOSTILE = (
    "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    '<a href="javascript:window.pwned = 3">click</a> --> ]]> &lt;b&gt; ${policy} $data '
    f"{BIDI} \ud83d"  # half a surrogate pair, as JSON may hold it
)
SECRET = "hidden-case-text"


# --- runs to look at --------------------------------------------------------------------------


def hostile_task(number: int) -> Task:
    toy = load_tasks("toy").tasks[0]
    return replace(
        toy,
        id=f"h/{number} {HOSTILE}",
        name=f"{number} {HOSTILE}",
        contest=str(number),
        statement=f"Statement. {HOSTILE}",
    )


class Made:
    """A run written by hand: `rescued` of `count` tasks are rescued by ring's particle 0.

    Every text that a policy or a data set gives is hostile, and every text of a hidden case has
    SECRET in it.
    """

    def __init__(self, count: int, rescued: int = 1, text: str = HOSTILE) -> None:
        self.tasks = [hostile_task(number) for number in range(count)]
        self.rollouts: dict[Key, Rollout] = {}
        self.text = text
        for number, task in enumerate(self.tasks):
            self._group("base", task, 1, None)
            self._group("resample", task, 3, None)
            self._group("ring", task, 3, 1 if number < rescued else None)

    def _group(self, arm: str, task: Task, rounds: int, rescue: int | None) -> None:
        past: list[list[Rollout]] = []
        for number in range(rounds):
            seen = what_is_seen("solo" if arm == "base" else arm, task.id, past, 0, 8)
            now = []
            for particle in range(8):
                key = Key(arm, task.id, number, particle)
                accepted = number == rescue and particle == 0
                messages = PROMPTS.informed(task, *seen[particle])
                now.append(self._rollout(key, hash_messages(messages), accepted, task))
            past.append(now)
            if number == rescue:
                break

    def _rollout(self, key: Key, sent: str, accepted: bool, task: Task) -> Rollout:
        total, hidden = len(task.visible), len(task.hidden)
        passed = total if accepted else (key.round + key.particle) % (total + 1)
        failure = Failure(
            passed % total,
            passed == total,
            "wrong answer",
            *[SECRET if passed == total else self.text] * 3,
        )
        judgement = Judgement(
            "accepted" if accepted else "wrong answer",
            passed,
            total,
            hidden if accepted else 0,
            hidden,
            None if accepted else failure,
            0.1,
        )
        program = f"# {key.arm} {key.round} {key.particle}\nprint('''{self.text}''')\n"
        reply = Reply(f"```python\n{program}```", "", "stop", None, 100, 10, None, 1.0)
        rollout = Rollout(key, derive_seed(0, key), sent, reply, program, judgement)
        self.rollouts[key] = rollout
        return rollout

    def saved(self) -> Saved:
        facts = {task.id: TaskFacts.of(task, PROMPTS.fresh(task)) for task in self.tasks}
        records: dict[tuple[str, str], dict[tuple[int, int], Record]] = {}
        for key, rollout in self.rollouts.items():
            place = records.setdefault((key.arm, key.task), {})
            place[key.round, key.particle] = Record.of(rollout)
        tasks = {task.id: task for task in self.tasks}
        return Saved(
            facts=facts,
            records=records,
            rollout=self.rollouts.get,
            fresh=lambda task: PROMPTS.fresh(tasks[task]),
            tasks=tasks,
            prompts=PROMPTS,
            arms=("resample", "ring"),
            shape=Shape(),
            seed=0,
            sound={},
        )

    def write(self, folder: Path, *, megabytes: float = 25, finished: bool = True) -> Path:
        saved = self.saved()
        results = report.build(
            facts=saved.facts,
            records=saved.records,
            checks={},
            load={"source": HOSTILE, "read": 1, "kept": 1, "dropped": {HOSTILE: 2}},
            settings={"policy": "endpoint", "model": HOSTILE, "seed": 0},
            environment={"endpoint": HOSTILE},
            arms=saved.arms,
            noise_runs=0,
            band="all-fail",
            times={"wall_seconds": 1.0},
            seed=0,
        )
        return report.write_page(results, saved, folder, megabytes=megabytes, finished=finished)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Made(3).write(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the dry run."""
    folder = tmp_path_factory.mktemp("dry")
    command = [sys.executable, str(ROOT / "run.py"), "--dry-run", "--out", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return folder / "report.html"


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page.read_text("utf-8"), re.S)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def texts_of(page: Path) -> dict[str, Any]:
    """Task id -> the texts of its chunk."""
    chunks = dict(re.findall(r'id="chunk-(\d+)">([^<]*)</script>', page.read_text("utf-8")))
    return {
        task: json.loads(zlib.decompress(base64.b64decode(chunks[str(place)]), wbits=31))
        for task, place in data_of(page)["places"].items()
    }


# --- the browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install it")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (
        *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
        *("disable-background-networking", "disable-component-update", "disable-sync"),
        *("disable-dev-shm-usage", f"user-data-dir={tmp_path_factory.mktemp('profile')}"),
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_page_load_timeout(120)
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


class Reader:
    """A reader of a page in the browser."""

    def __init__(self, driver: Any, page: Path, width: int = 1200) -> None:
        self.driver, self.page = driver, page
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.open("#/")

    def open(self, fragment: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(self.page.as_uri() + fragment)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[str]:
        """Texts of the elements that are shown."""
        return self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter((e) => e.checkVisibility()).map((e) => e.textContent.toWellFormed())",
            selector,
        )

    def until(self, seen: Callable[[], object]) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 60).until(lambda _: seen())

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def choose(self, **values: str) -> None:
        for name, value in values.items():
            self.run(
                "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
                "e.dispatchEvent(new Event('input', {bubbles: true}))",
                name,
                value,
            )

    @property
    def fragment(self) -> str:
        return str(self.run("return location.hash"))

    def complaints(self) -> list[str]:
        return [line["message"] for line in self.driver.get_log("browser")]


def task_address(task: str, *attempt: object, versus: tuple[object, ...] = ()) -> str:
    known = task.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    words = ["#/task", quote(known, safe="")]
    words += [quote(str(word), safe="") for word in attempt]
    return "/".join([*words, *(["vs", *map(str, versus)] if versus else [])])


def test_hostile_texts_are_text_and_nothing_else(browser: Any, hostile: Path):
    reader = Reader(browser, hostile)
    for fragment, shown in (
        ("#/", "#overview"),
        ("#/tasks", "#matrix tbody tr"),
        ("#/tasks?search=window.pwned&sort=best", "#matrix tbody tr"),
        ("#/task/<img src=x onerror=window.pwned=4>", ".warning"),
    ):
        reader.open(fragment)
        reader.until(lambda shown=shown: reader.all(shown))
    reader.open("#/tasks")
    reader.until(lambda: reader.all("#matrix a"))
    assert "</script><script>" in reader.all("#matrix a")[0]
    task = reader.run("return document.querySelector('#matrix a').getAttribute('href')")
    reader.open(f"{task}/ring/1/3/vs/ring/0/3")
    reader.until(lambda: reader.all("#attempt .diff"))
    shown_text = reader.run("return document.body.textContent.toWellFormed()")
    assert "onerror='window.pwned = 2'" in shown_text
    assert "\u202e" not in reader.all("#task")[0]
    assert "U+202E" in reader.all("#attempt pre")[-1]
    assert reader.run("return window.pwned ?? null") is None
    assert reader.run("return document.querySelectorAll('img, iframe, object, base').length") == 0
    assert reader.run(
        "return [...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))"
        ".filter((href) => !href.startsWith('#')).length"
    ) == 0  # fmt: skip
    assert reader.run("return performance.getEntriesByType('resource').length") == 0
    assert reader.complaints() == []


def test_the_policy_of_the_page_stops_what_would_be_put_into_it(browser: Any, hostile: Path):
    reader = Reader(browser, hostile)
    reader.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"pwned = 1\">')")
    reader.run(
        "const s = document.createElement('script'); s.textContent = 'window.pwned = 2';"
        "document.body.append(s)"
    )
    assert reader.run("return window.pwned ?? null") is None
    assert any("Content Security Policy" in line for line in reader.complaints())


def test_each_win_and_loss_of_a_delta_is_one_click_away(browser: Any, dry: Path):
    results = json.loads((dry.parent / "results.json").read_text())
    reader = Reader(browser, dry)
    links = dict(
        reader.run(
            "return [...document.querySelectorAll('#overview a')]"
            ".map((a) => [a.getAttribute('href'), a.textContent])"
        )
    )
    assert links
    for arm, delta in results["deltas"].items():
        for won, lost, count in (
            (arm, "resample", delta["wins"]),
            ("resample", arm, delta["losses"]),
        ):
            fragment = f"#/tasks?won={won}&lost={lost}"
            assert links[fragment].startswith(str(count))
            reader.open(fragment)
            rows = reader.until(lambda: reader.all("#count"))
            assert rows[0].startswith(f"{count} of ")
            assert len(reader.all("#matrix tbody tr")) == count


def test_tasks_are_filtered_sorted_and_searched_and_the_address_keeps_it(browser: Any, dry: Path):
    rows = data_of(dry)["rows"]
    reader = Reader(browser, dry)
    reader.open("#/tasks")
    assert len(reader.all("#matrix tbody tr")) == sum(row["searched"] for row in rows)
    reader.choose(band="", sort="rating")
    assert len(reader.all("#matrix tbody tr")) == len(rows)
    ratings = reader.all("#matrix tbody td:nth-child(2)")
    assert ratings == sorted(ratings, key=lambda text: -int(text.replace("-", "0")))
    reader.choose(rating="2200 and up")
    assert len(reader.all("#matrix tbody tr")) == sum(row["rating"] >= 2200 for row in rows)
    reader.choose(rating="", verdict="time limit")
    assert len(reader.all("#matrix tbody tr")) == sum("time limit" in r["verdicts"] for r in rows)
    reader.choose(verdict="", search="staircase")
    assert reader.until(lambda: len(reader.all("#matrix tbody tr")) == 1)
    reader.choose(search="stairs_by_golden_ratio")  # in programs only
    reader.until(lambda: len(reader.all("#matrix tbody tr")) == 1)
    assert "search=stairs_by_golden_ratio" in reader.fragment
    kept = reader.fragment
    reader.open(kept)
    reader.until(lambda: len(reader.all("#matrix tbody tr")) == 1)


def searched_by(page: Path, arm: str) -> tuple[str, list[dict[str, Any]]]:
    """A task with two rounds of an arm, and that arm's attempts."""
    for task, texts in texts_of(page).items():
        found = [a for a in texts["attempts"] if a["arm"] == arm]
        if max((a["round"] for a in found), default=0) > 0:
            return task, found
    raise AssertionError(f"no task has two rounds of {arm}")


def test_lines_lead_from_what_was_shown_to_who_saw_it(browser: Any, dry: Path):
    task, attempts = searched_by(dry, "ring")
    chosen = next(a for a in attempts if len({*map(tuple, a["saw"])}) == 2)
    reader = Reader(browser, dry)
    reader.open(task_address(task, "ring", chosen["round"], chosen["particle"]))
    reader.until(lambda: reader.all("#attempt h3"))
    paths = "return document.querySelectorAll('[data-arm=ring] path' + arguments[0]).length"
    assert reader.run(paths, "") == sum(len(a["saw"]) for a in attempts)
    seen_by = sum([*a["saw"]].count(["ring", chosen["round"], chosen["particle"]])
                  for a in attempts)  # fmt: skip
    assert reader.run(paths, ".on") == 2 + seen_by
    words = " ".join(reader.all("#attempt li, #attempt p"))
    assert f"verdict {chosen['verdict']}" in words
    assert str(derive_seed(0, Key("ring", task, chosen["round"], chosen["particle"]))) in words
    assert chosen["program"].strip() in "".join(reader.all("#attempt pre"))


def test_the_messages_are_those_that_were_sent(browser: Any, dry: Path):
    task, attempts = searched_by(dry, "star")
    chosen = next(a for a in attempts if a["round"] == 1)
    with Journal.read(dry.parent) as journal:
        rollout = journal.get(Key("star", task, 1, chosen["particle"]))
    assert rollout
    reader = Reader(browser, dry)
    reader.open(task_address(task, "star", 1, chosen["particle"]))
    reader.until(lambda: reader.all("#attempt h3"))
    shown = reader.run(
        "return [...document.querySelectorAll('#attempt details pre')].map((e) => e.textContent)"
    )
    roles = ("system", "user")
    sent = [{"role": r, "content": text} for r, text in zip(roles, shown, strict=True)]
    assert hash_messages(sent) == rollout.messages_hash  # type: ignore[arg-type]


def test_a_difference_has_an_address_and_its_lines_make_both_programs(browser: Any, dry: Path):
    task, attempts = searched_by(dry, "star")
    program = {(a["round"], a["particle"]): a["program"] for a in attempts}
    new, old = next(
        (new, tuple(saw[1:]))
        for new in program
        if new[0] == 1
        for a in attempts
        if (a["round"], a["particle"]) == new
        for saw in a["saw"]
        if program[new] and program[new] != program[tuple(saw[1:])]
    )
    reader = Reader(browser, dry)
    reader.open(task_address(task, "star", *new, versus=("star", *old)))
    reader.until(lambda: reader.all(".diff"))
    lines = reader.run(
        "return [...document.querySelector('.diff').childNodes].flatMap((e) =>"
        "  e.nodeName === '#text'"
        "  ? e.textContent.replace(/\\n$/, '').split('\\n').map((line) => ['', line])"
        "  : [[e.nodeName, e.textContent]])"
    )
    before = [line[2:] for kind, line in lines if kind != "INS"]
    after = [line[2:] for kind, line in lines if kind != "DEL"]
    assert before == program[old].split("\n")
    assert after == program[new].split("\n")


def test_the_readmes_address_shows_what_its_picture_shows(browser: Any, dry: Path):
    address = re.search(r"report\.html(#/task/\S+/vs/[^`\s]+)`", (ROOT / "README.md").read_text())
    assert address
    reader = Reader(browser, dry)
    reader.open(address[1])
    reader.until(lambda: reader.all("#attempt .diff ins"))
    assert "verdict accepted" in reader.all("#attempt li")


def test_keys_move_between_attempts_and_tasks(browser: Any, dry: Path):
    from selenium.webdriver.common.keys import Keys

    task, _ = searched_by(dry, "ring")
    reader = Reader(browser, dry)
    reader.press("?")
    assert reader.run("return document.getElementById('keys').open")
    reader.press(Keys.ESCAPE)
    assert not reader.run("return document.getElementById('keys').open")
    reader.press("/")
    reader.until(lambda: reader.run("return document.activeElement.id") == "search")
    reader.open(task_address(task, "ring", 0, 0))
    reader.until(lambda: reader.all("#attempt h3"))
    for key, place in ((Keys.ARROW_DOWN, (0, 1)), (Keys.ARROW_RIGHT, (1, 1)),
                       (Keys.ARROW_UP, (1, 0)), (Keys.ARROW_LEFT, (0, 0))):  # fmt: skip
        reader.press(key)
        address = task_address(task, "ring", *place)
        reader.until(lambda address=address: reader.fragment == address)
    for key in ("]", "["):
        steps = reader.run("return [...document.querySelectorAll('#before, #after')].length")
        assert steps
        here = reader.fragment
        reader.press(key)
        reader.until(lambda: reader.all("#task h2"))
        assert reader.fragment != here or not reader.all("#before" if key == "[" else "#after")
    reader.press(Keys.ESCAPE)
    reader.until(lambda: reader.fragment.startswith("#/tasks"))


@pytest.mark.parametrize("name", ["dry", "hostile"])
def test_the_page_fits_a_screen_of_360_pixels(
    browser: Any, name: str, request: pytest.FixtureRequest
):
    page = request.getfixturevalue(name)
    task, attempts = searched_by(page, "ring")
    place = ("ring", attempts[0]["round"], attempts[0]["particle"])
    reader = Reader(browser, page, width=360)
    for fragment in ("#/", "#/tasks", task_address(task), task_address(task, *place)):
        reader.open(fragment)
        reader.until(lambda: reader.all("#overview, #matrix tbody, #task h2"))
        assert reader.run("return document.documentElement.scrollWidth") <= 360, fragment


def test_a_page_of_a_run_that_goes_on_says_so_and_loads_itself_again(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("report.page.RELOAD_SECONDS", 0.5)
    reader = Reader(browser, Made(1).write(tmp_path, finished=False))
    assert any("goes on" in words for words in reader.all("[role=status]"))
    kind = "return performance.getEntriesByType('navigation')[0].type"
    reader.until(lambda: reader.run(kind) == "reload")


def test_it_prints(browser: Any, dry: Path):
    Reader(browser, dry)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert base64.b64decode(printed).startswith(b"%PDF")


@pytest.mark.skipif(not AXE, reason="AXE=.../axe.min.js is not set (npm install axe-core)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(browser: Any, dry: Path, scheme: str):
    assert AXE
    axe = Path(AXE).read_text("utf-8")
    wish = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wish)
    task, attempts = searched_by(dry, "ring")
    chosen = next(a for a in attempts if a["saw"])
    place = ("ring", chosen["round"], chosen["particle"])
    reader = Reader(browser, dry)
    for fragment in (
        *("#/", "#/tasks"),
        task_address(task, *place),
        task_address(task, *place, versus=tuple(chosen["saw"][0])),
    ):
        reader.open(fragment)
        reader.until(lambda: reader.all("#overview h2, #matrix tbody, #attempt h3"))
        reader.run(axe)
        found = browser.execute_async_script(
            "axe.run().then((found) => arguments[0](found.violations))"
        )
        serious = [
            (rule["id"], [node["target"] for node in rule["nodes"]][:5])
            for rule in found
            if rule["impact"] in ("serious", "critical")
        ]
        assert not serious, fragment
