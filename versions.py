"""What made a run: versions, the checkout's commit, the judge's and the endpoint's lines."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def git_commit() -> str | None:
    """The checkout's commit, read from .git; None outside a checkout."""
    git = Path(__file__).parent / ".git"
    try:
        if git.is_file():  # a linked work tree or a submodule: "gitdir: PATH"
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        ref = head.removeprefix("ref: ")
        if (git / "commondir").exists():  # where a linked work tree keeps its branches
            git /= (git / "commondir").read_text().strip()
        if (git / ref).exists():
            return (git / ref).read_text().strip()
        packed = (git / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(" " + ref)), None)
    except OSError:
        return None


def environment(sandbox_line: str, endpoint_line: str, *extra: str) -> dict[str, Any]:
    """What is saved of this machine; `extra` names packages that only this run needs."""
    packages = ("huggingface_hub", "numpy", "openai", "pyarrow", "scipy", "tqdm", *extra)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in packages},
        "git_commit": git_commit(),
        "sandbox": sandbox_line,
        "endpoint": endpoint_line,
    }
