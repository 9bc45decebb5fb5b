"""Numbers of results.json -> pictures: SVG, and the same numbers as tables.

Plain SVG without styles or scripts, so that a picture looks the same in a file of its own and
inside the page, whose policy allows none. Text and axes take the colour of their surroundings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import stats
from report.words import percent, points, tokens

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 120, 16, 44
# Okabe & Ito's colours, which colour-blind readers tell apart; mid-tones for light and dark.
COLOURS = ("#8a8a8a", "#e69f00", "#0096d6", "#00a67a", "#cc79a7", "#d55e00", "#7570b3")


@dataclass(frozen=True)
class Figure:
    """One picture.

    Attributes:
        name: of its file, without .svg.
        title: what it shows, in one line.
        svg: the picture.
        header, rows: its numbers as text.
    """

    name: str
    title: str
    svg: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class _Canvas:
    """A plot with two axes."""

    def __init__(self, title: str, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.title, self.parts = title, []  # type: str, list[str]
        (self.x0, self.x1), (self.y0, self.y1) = x, y

    def px(self, x: float) -> float:
        return LEFT + (x - self.x0) / ((self.x1 - self.x0) or 1) * (WIDTH - LEFT - RIGHT)

    def py(self, y: float) -> float:
        return (
            HEIGHT - BOTTOM - (y - self.y0) / ((self.y1 - self.y0) or 1) * (HEIGHT - TOP - BOTTOM)
        )

    def add(self, tag: str, text: str | None = None, **attributes: object) -> None:
        given = "".join(
            f' {name.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
            for name, value in attributes.items()
        )
        self.parts.append(
            f"<{tag}{given}/>" if text is None else f"<{tag}{given}>{escape(text)}</{tag}>"
        )

    def text(self, x: float, y: float, text: str, anchor: str = "middle", **more: object) -> None:
        self.add("text", text, x=x, y=y, text_anchor=anchor, fill="currentColor", **more)

    def axes(
        self,
        xs: Iterable[tuple[float, str]],
        ys: Iterable[tuple[float, str]],
        label: str = "",
    ) -> None:
        for y, words in ys:
            at = self.py(y)
            self.add("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, stroke="currentColor",
                     stroke_opacity=0.15)  # fmt: skip
            self.text(LEFT - 6, at + 4, words, "end")
        for x, words in xs:
            self.text(self.px(x), HEIGHT - BOTTOM + 18, words)
        self.add("line", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM,
                 stroke="currentColor")  # fmt: skip
        if label:
            self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, label)

    def legend(self, names: Sequence[str], colour: Callable[[str], str]) -> None:
        for i, name in enumerate(names):
            y = TOP + 8 + 18 * i
            self.add("rect", x=WIDTH - RIGHT + 12, y=y - 8, width=10, height=10, fill=colour(name))
            self.text(WIDTH - RIGHT + 27, y + 1, name, "start")

    def line(self, xs: Sequence[float], ys: Sequence[float], colour: str, dash: str = "") -> None:
        places = " ".join(f"{self.px(x):.1f},{self.py(y):.1f}" for x, y in zip(xs, ys, strict=True))
        more = {"stroke_dasharray": dash} if dash else {}
        self.add("polyline", points=places, fill="none", stroke=colour, stroke_width=2, **more)
        for x, y in zip(xs, ys, strict=True):
            self.add("circle", cx=self.px(x), cy=self.py(y), r=3, fill=colour)

    def area(
        self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: str
    ) -> None:
        places = [*zip(xs, highs, strict=True), *reversed([*zip(xs, lows, strict=True)])]
        text = " ".join(f"{self.px(x):.1f},{self.py(y):.1f}" for x, y in places)
        self.add("polygon", points=text, fill=colour, fill_opacity=0.12)

    def bar(self, x: float, width: float, height: float, colour: str) -> None:
        """A bar of pixels `width` around pixel x."""
        top = self.py(height)
        self.add("rect", x=x - width / 2, y=top, width=width,
                 height=max(0.0, HEIGHT - BOTTOM - top), fill=colour)  # fmt: skip

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(self.title)}" font-family="system-ui, sans-serif" font-size="12">'
            f"{''.join(self.parts)}</svg>"
        )


def _short(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def figures(results: Mapping[str, Any]) -> list[Figure]:
    """The pictures of a run, those for which it has numbers."""
    drawn = (
        _histogram(results),
        _curves(results, "samples"),
        _curves(results, "tokens"),
        _deltas(results),
        _by_round(results),
        _by_rating(results),
        _fitness(results),
        _hill(results),
    )
    return [figure for figure in drawn if figure is not None]


def standalone(figure: Figure) -> str:
    """The picture as a file of its own: on white, in black."""
    head, _, rest = figure.svg.partition(">")
    return f'{head} color="#111"><rect width="100%" height="100%" fill="#fff"/>{rest}\n'


def colours_of(results: Mapping[str, Any]) -> Callable[[str], str]:
    """An arm's colour, the same in all pictures; repeats of resample have resample's."""
    places = {arm: COLOURS[i % len(COLOURS)] for i, arm in enumerate(results["arms"])}
    return lambda arm: places.get(arm, COLOURS[0])


def _ticks(most: float, words: Callable[[float], str], least: float = 0) -> list[tuple[float, str]]:
    """At most six round values from 0 on, `least` or more apart."""
    step = next(
        unit * 10**power
        for power in range(-4, 12)
        for unit in (1, 2, 5)
        if most / (unit * 10**power) <= 5 and unit * 10**power >= least
    )
    return [(i * step, words(i * step)) for i in range(int(most / step + 1e-9) + 1)]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _histogram(results: Mapping[str, Any]) -> Figure | None:
    counts = results["histogram"]
    if not any(counts):
        return None
    title = f"Base group: tasks by how many of {len(counts) - 1} rollouts pass"
    canvas = _Canvas(title, (-0.6, len(counts) - 0.4), (0, max(counts) * 1.1))
    every = max(1, len(counts) // 16)
    canvas.axes(
        [(i, str(i)) for i in range(0, len(counts), every)],
        _ticks(max(counts), _whole, 1),
        "rollouts that pass",
    )
    width = (WIDTH - LEFT - RIGHT) / len(counts) * 0.8
    for i, count in enumerate(counts):
        canvas.bar(canvas.px(i), width, count, COLOURS[0] if i else COLOURS[5])
        if count and every == 1:
            canvas.text(canvas.px(i), canvas.py(count) - 4, f"{count:,}")
    rows = tuple((str(i), f"{count:,}") for i, count in enumerate(counts))
    return Figure("histogram", title, canvas.svg(), ("passes", "tasks"), rows)


def _curves(results: Mapping[str, Any], over: str) -> Figure | None:
    """Rescue curves, with Wilson's interval as the band; repeats of resample go on from it."""
    equal, group = results.get("equal_cost") or {}, results["shape"]["group"]
    curves = equal.get("curves") or (
        {
            arm: {
                "samples": [group * (i + 1) for i in range(len(row["by_round"]))],
                "rescued": [count / row["n"] for count in row["cumulative"]],
            }
            for arm, row in results["arms"].items()
            if row["n"]
        }
    )
    curves = {arm: curve for arm, curve in curves.items() if curve.get(over)}
    if not curves:
        return None
    n = max((results["arms"][arm]["n"] for arm in curves if arm in results["arms"]), default=0)
    long = equal.get("long_run") or {}
    drawn = [*curves.values(), *([long] if long.get(over) and len(long["rescued"]) > 3 else [])]
    most = max(max(curve[over]) for curve in drawn)
    bands = {arm: _wilson(curve["rescued"], n) for arm, curve in curves.items()}
    top = max([0.05, *(high for _, highs in bands.values() for high in highs)])
    title = f"Share of tasks rescued, by {over} spent on a task"
    canvas = _Canvas(title, (0, most * 1.02), (0, min(1.0, top * 1.05)))
    words = _whole if over == "samples" else tokens
    canvas.axes(_ticks(most, words), _ticks(canvas.y1, percent), f"{over} a task")
    colour = colours_of(results)
    for arm, curve in curves.items():
        canvas.area(curve[over], *bands[arm], colour(arm))
    if len(drawn) > len(curves):
        canvas.line(long[over], long["rescued"], colour("resample"), "4 3")
    for arm, curve in curves.items():
        canvas.line(curve[over], curve["rescued"], colour(arm))
    canvas.legend([*curves], colour)
    rows = tuple(
        (arm, words(x), percent(share), f"{percent(low)} to {percent(high)}")
        for arm, curve in curves.items()
        for x, share, low, high in zip(curve[over], curve["rescued"], *bands[arm], strict=True)
    )
    return Figure(f"rescued-by-{over}", title, canvas.svg(), ("arm", over, "rescued", "95%"), rows)


def _wilson(shares: Sequence[float], n: int) -> tuple[list[float], list[float]]:
    found = [
        stats.wilson_interval(round(share * n), n) if n else (share, share) for share in shares
    ]
    return [low for low, _ in found], [high for _, high in found]


def _deltas(results: Mapping[str, Any]) -> Figure | None:
    deltas = results["deltas"]
    if not deltas:
        return None
    shown = {arm: row.get("against_mean") or row for arm, row in deltas.items()}
    band = (results.get("noise") or {}).get("band")
    most = max(0.02, *(max(abs(row["low"]), abs(row["high"])) for row in shown.values()))
    most = min(1.0, max(most, band or 0)) * 1.05
    title = "Minus resample, points, with 95% intervals; grey: the noise band"
    canvas = _Canvas(title, (-most, most), (0, len(shown)))
    ticks = [
        (sign * x, points(sign * x)) for x, _ in _ticks(most, percent, most / 3) for sign in (-1, 1)
    ]
    if band:
        left, right = canvas.px(max(-most, -band)), canvas.px(min(most, band))
        canvas.add("rect", x=left, y=TOP, width=right - left, height=HEIGHT - TOP - BOTTOM,
                   fill="currentColor", fill_opacity=0.08)  # fmt: skip
    canvas.axes(dict(ticks).items(), [], "points")
    zero = canvas.px(0)
    canvas.add("line", x1=zero, x2=zero, y1=TOP, y2=HEIGHT - BOTTOM, stroke="currentColor")
    colour = colours_of(results)
    for i, (arm, row) in enumerate(shown.items()):
        y = canvas.py(len(shown) - i - 0.5)
        low, high = canvas.px(max(-most, row["low"])), canvas.px(min(most, row["high"]))
        canvas.add("line", x1=low, x2=high, y1=y, y2=y, stroke=colour(arm), stroke_width=3)
        canvas.add("circle", cx=canvas.px(row["delta"]), cy=y, r=5, fill=colour(arm))
        canvas.text(WIDTH - RIGHT + 12, y + 4, f"{arm} {points(row['delta'])}", "start")
    rows = tuple(
        (arm, points(row["delta"]), f"{points(row['low'])} to {points(row['high'])}",
         f"{row['holm_p']:.3f}")
        for arm, row in shown.items()
    )  # fmt: skip
    return Figure("deltas", title, canvas.svg(), ("arm", "delta", "95%", "Holm p"), rows)


def _grouped(
    name: str,
    title: str,
    results: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, int]],
    first: str,
) -> Figure | None:
    """Bars of counts: one group a name, one bar an arm."""
    if not any(any(counts.values()) for counts in groups.values()):
        return None
    most = max(max(counts.values()) for counts in groups.values())
    canvas = _Canvas(title, (-0.5, len(groups) - 0.5), (0, most * 1.1))
    canvas.axes(list(enumerate(groups)), _ticks(most, _whole, 1))
    colour, arms = colours_of(results), list(results["arms"])
    width = (WIDTH - LEFT - RIGHT) / len(groups) * 0.8 / max(1, len(arms))
    for place, counts in enumerate(groups.values()):
        for i, arm in enumerate(arms):
            x = canvas.px(place) + (i - (len(arms) - 1) / 2) * width
            canvas.bar(x, width * 0.9, counts[arm], colour(arm))
    canvas.legend(arms, colour)
    rows = tuple((group, *(str(counts[arm]) for arm in arms)) for group, counts in groups.items())
    return Figure(name, title, canvas.svg(), (first, *arms), rows)


def _by_round(results: Mapping[str, Any]) -> Figure | None:
    rounds = results["shape"]["rounds"]
    groups = {
        f"round {i}": {arm: row["by_round"][i] for arm, row in results["arms"].items()}
        for i in range(rounds)
    }
    return _grouped("by-round", "Tasks rescued in each round", results, groups, "round")


def _by_rating(results: Mapping[str, Any]) -> Figure | None:
    groups = {
        name: row["rescued"] for name, row in results["rating_bands"].items() if row["searched"]
    }
    return _grouped("by-rating", "Tasks rescued, by rating", results, groups, "rating")


def _fitness(results: Mapping[str, Any]) -> Figure | None:
    fitness, shape = results["fitness"], results["shape"]
    arms = {arm: row for arm, row in fitness["arms"].items() if None not in row["by_round"]}
    if not arms or fitness["floor"] is None:
        return None
    title = "Best share of visible cases passed, mean over tasks; dashed: the best constant answer"
    most = shape["group"] * shape["rounds"]
    canvas = _Canvas(title, (0, most * 1.02), (0, 1))
    xs = [shape["group"] * (i + 1) for i in range(shape["rounds"])]
    canvas.axes([(x, str(x)) for x in [0, *xs]], _ticks(1, percent), "samples a task")
    floor = canvas.py(fitness["floor"])
    canvas.add("line", x1=LEFT, x2=WIDTH - RIGHT, y1=floor, y2=floor, stroke="currentColor",
               stroke_dasharray="4 3")  # fmt: skip
    colour = colours_of(results)
    for arm, row in arms.items():
        canvas.line(xs, row["by_round"], colour(arm))
    canvas.legend([*arms], colour)
    rows = tuple((arm, *(f"{s:.2f}" for s in row["by_round"])) for arm, row in arms.items())
    rows += (("floor", *[f"{fitness['floor']:.2f}"] * shape["rounds"]),)
    return Figure("fitness", title, canvas.svg(), ("arm", *(f"after {x}" for x in xs)), rows)


def _hill(results: Mapping[str, Any]) -> Figure | None:
    hill = results["hill"]
    buckets = [row for row in (hill or {}).get("buckets", ()) if row["programs"]]
    if not buckets:
        return None
    title = "Programs that pass all hidden cases, by their share of visible ones"
    most = max(row["high"] for row in buckets)
    canvas = _Canvas(title, (-0.5, len(buckets) - 0.5), (0, min(1.0, most * 1.05)))
    canvas.axes(
        [(i, row["visible_share"]) for i, row in enumerate(buckets)],
        _ticks(canvas.y1, percent),
        "visible cases passed",
    )
    for i, row in enumerate(buckets):
        x = canvas.px(i)
        canvas.bar(x, 36, row["rate"], COLOURS[2])
        canvas.add("line", x1=x, x2=x, y1=canvas.py(row["low"]), y2=canvas.py(row["high"]),
                   stroke="currentColor")  # fmt: skip
    rows = tuple(
        (row["visible_share"], f"{row['programs']:,}", percent(row["rate"]),
         f"{percent(row['low'])} to {percent(row['high'])}")
        for row in buckets
    )  # fmt: skip
    return Figure("hill", title, canvas.svg(), ("visible", "programs", "pass", "95%"), rows)
