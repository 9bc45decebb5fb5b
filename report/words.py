"""Numbers as a reader sees them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: wide characters take two, marks none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """ "1 task", "2,000 tasks"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(parts: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}%"


def points(share: float) -> str:
    return f"{round(100 * share, 1) + 0:+.1f}"  # + 0 makes 0 of -0


def between(low: float, high: float) -> str:
    """An interval of a difference, in points."""
    return f"{points(low)} to {points(high)}"


def p_text(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def times(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio:.2f}"


def slashed(counts: Iterable[int]) -> str:
    return "/".join(f"{count:,}" for count in counts)


def tokens(count: float | None) -> str:
    if count is None:
        return "-"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.1f}{unit}"
    return f"{count:.0f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
