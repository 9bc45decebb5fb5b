"""A run -> out/report.html: one file, opened from disk, without a network or a server.

The page holds the numbers of results.json, a row a task, and the texts of tasks as compressed
chunks that its script unpacks when they are looked at. What a policy wrote is hostile: it is in
the page as data only, the script inserts it as text, and the page's own policy allows it to load
and to run nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlencode

from data import rating_band
from report.figures import Figure, figures, standalone
from report.files import write_text
from report.lineage import Saved, summary_of, texts_of
from report.tally import CONTROL
from report.words import points

HERE = Path(__file__).parent
RELOAD_SECONDS = 60  # of a page of a run that goes on


def write_page(
    results: Mapping[str, Any], saved: Saved, folder: Path, *, megabytes: float, finished: bool
) -> Path:
    """Write report.html and figures/*.svg into `folder`; the page's path.

    Args:
        results: of the run so far.
        megabytes: the page's most; texts beyond it are left out, those of rescued tasks last.
        finished: whether the run has ended; a page of one that goes on reloads itself.

    Raises:
        ReportError: a file cannot be written.
    """
    drawn = figures(results)
    for figure in drawn:
        write_text(standalone(figure), folder / "figures" / f"{figure.name}.svg")
    style, script = ((HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    searched = {task for arm, task in saved.records if arm in saved.arms}
    rows = [summary_of(saved, task, task in searched) for task in sorted(saved.facts)]
    for row in rows:
        row["title"], row["band"] = _title(saved, row["id"]), rating_band(row["rating"])
    fixed = _body(results, drawn) + style + script + _json(rows)
    room = int(megabytes * 1e6) - len(fixed.encode()) - 20_000
    chunks, left_out = _chunks(saved, rows, room)
    for row in rows:
        row["text"] = int(row["id"] in chunks)
    data = {
        "arms": list(saved.arms),
        "shape": results["shape"],
        "rows": rows,
        "places": {task: i for i, task in enumerate(chunks)},
        "left_out": left_out,
        "finished": finished,
        "reload": RELOAD_SECONDS,
    }
    page = Template((HERE / "page.html").read_text("utf-8")).substitute(
        policy=_policy(style, script),
        style=style,
        script=script,
        body=_body(results, drawn),
        state="" if finished else _unfinished(results),
        data=_json(data),
        chunks="\n".join(
            f'<script type="text/plain" id="chunk-{i}">{chunk}</script>'
            for i, chunk in enumerate(chunks.values())
        ),
    )
    path = folder / "report.html"
    write_text(page, path)
    return path


def _policy(style: str, script: str) -> str:
    """Nothing from outside; of styles and scripts only these two."""
    hashes = [
        base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    """JSON that cannot end the element that holds it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _title(saved: Saved, task: str) -> str:
    if task in saved.tasks:
        return saved.tasks[task].name
    asked = [m["content"].strip().splitlines() for m in saved.fresh(task) if m["role"] == "user"]
    return next((lines[2][:80] for lines in asked if len(lines) > 2), task)


def _chunks(
    saved: Saved, rows: Iterable[Mapping[str, Any]], room: int
) -> tuple[dict[str, str], int]:
    """Compressed texts by task, the most wanted first, as far as `room` bytes hold them."""
    chunks: dict[str, str] = {}
    left_out = 0
    for row in sorted(rows, key=_rank):
        if room < 0:
            left_out += 1
            continue
        text = json.dumps(texts_of(saved, row["id"])).encode()
        squeeze = zlib.compressobj(6, wbits=31)
        chunk = base64.b64encode(squeeze.compress(text) + squeeze.flush()).decode()
        room -= len(chunk) + 60
        if room < 0:
            left_out += 1
        else:
            chunks[row["id"]] = chunk
    return chunks, left_out


def _rank(row: Mapping[str, Any]) -> tuple[int, str]:
    """Rescued tasks before other searched ones before the rest."""
    rescued = any(found[0] is not None for found in row["arms"].values())
    return (0 if rescued else 1 if row["searched"] else 2), row["id"]


# --- what is the same for every reader ----------------------------------------------------------


def _body(results: Mapping[str, Any], drawn: Iterable[Figure]) -> str:
    pictures = ['<div class="figures">', *map(_figure, drawn), "</div>"]
    return "\n".join([*_answers(results), *pictures, _settings(results)])


def _answers(results: Mapping[str, Any]) -> Iterable[str]:
    yield '<section aria-labelledby="answer"><h2 id="answer">The answer</h2>'
    if results["scripted"]:
        words = "Scripted policy: its replies are written; the numbers mean nothing."
        yield f'<p class="warning">{words}</p>'
    for warning in results["warnings"]:
        yield f'<p class="warning">{escape(warning)}</p>'
    cohort = results["cohort"]
    yield (
        f"<p>{results['all_fail']:,} of {results['tasks']:,} tasks are all-fail; the arms searched "
        f"{cohort['tasks']:,} ({escape(cohort['band'])}).</p><ul>"
    )
    for arm, row in results["arms"].items():
        delta = results["deltas"].get(arm)
        said = f"{arm}: rescued {row['rescued']:,} of {row['n']:,}."
        if delta:
            said = delta["verdict"] if "verdict" in delta else f"{said} {points(delta['delta'])}"
        kind = (delta or {}).get("conclusion", "")
        links = f" {_one_click(arm, delta)}" if delta else ""
        yield f'<li class="{escape(kind.replace(" ", "-"))}">{escape(said)}{links}</li>'
    yield "</ul></section>"


def _one_click(arm: str, delta: Mapping[str, Any]) -> str:
    """Links to the tasks that one of the two rescued and the other did not."""
    won, lost = (
        f'<a href="#/tasks?{urlencode({"won": a, "lost": b})}">{count:,} {word}</a>'
        for a, b, count, word in (
            (arm, CONTROL, delta["wins"], "won"),
            (CONTROL, arm, delta["losses"], "lost"),
        )
    )
    return f"Against one run: {won}, {lost}."


def _figure(figure: Figure) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in figure.header)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in figure.rows
    )
    return (
        f'<figure id="figure-{figure.name}"><figcaption>{escape(figure.title)}</figcaption>'
        f"{figure.svg}<details><summary>The numbers</summary><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></details></figure>"
    )


def _settings(results: Mapping[str, Any]) -> str:
    shown = {name: results[name] for name in ("settings", "environment", "load", "cost")}
    return (
        "<details><summary>Settings and versions</summary><pre>"
        f"{escape(json.dumps(shown, indent=2))}</pre></details>"
    )


def _unfinished(results: Mapping[str, Any]) -> str:
    calls = results["cost"]["calls"]
    return (
        f'<p class="warning" role="status">This run goes on: {calls:,} rollouts so far. The page '
        "loads itself again.</p>"
    )
