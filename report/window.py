"""Whether the server's window cut replies, which it cuts more of where prompts are longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from swarm import Record, cut_by_window


def window(
    records: Mapping[tuple[str, str], Mapping[tuple[int, int], Record]], max_tokens: object
) -> dict[str, Any] | None:
    """Replies cut below max_tokens, by arm, and the window in tokens that cuts none.

    None where that cannot be said: written replies, or a server that counts no tokens.
    """
    found = [record for saved in records.values() for record in saved.values()]
    prompts = [record.prompt_tokens for record in found if record.prompt_tokens is not None]
    if not isinstance(max_tokens, int) or not prompts:
        return None
    cut = Counter(record.key.arm for record in found if cut_by_window(record, max_tokens))
    return {"cut": dict(sorted(cut.items())), "needed": max(prompts) + max_tokens}


def window_warning(found: dict[str, Any] | None) -> str | None:
    if not found or not found["cut"]:
        return None
    listed = ", ".join(f"{arm} {count:,}" for arm, count in found["cut"].items())
    return (
        f"Replies cut below --max-tokens by the server's window: {listed}. Arms with longer "
        "prompts got shorter replies, so they are not compared at the same budget; a window of "
        f"{found['needed']:,} tokens cuts none."
    )
