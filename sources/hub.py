"""Data sets of the Hugging Face hub -> files in the hub's own cache.

The cache is looked at first, so that a run on cached files makes no request. A part of a data set
is never taken for the whole: the cache holds the list of its files, and they are compared.
"""

from __future__ import annotations

import glob
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from sources import DataError, one_line
from sources.files import kind_of

DATASET = "deepmind/code_contests"
REVISION = "802411c3010cb00d1b05bad57ca77365a3c699d6"
SPLITS = ("train", "valid", "test")
DEFAULT_SPLITS = ("test", "valid")
HUB = "hf:"
_PLACE = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_CARD = "README.md"
_KNOWN_SPLITS = ("train", "test", "valid", "validation", "val", "dev")

T = TypeVar("T")
Files = list[tuple[str, Path]]  # split and file


def code_contests(split: str) -> list[Path]:
    """The parquet files of a split of deepmind/code_contests at the pinned revision.

    Raises:
        DataError: no such split, or it is not in the cache and the hub does not give it.
    """
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}: choose from {', '.join(SPLITS)}")

    def attempt(cache_only: bool) -> list[Path]:
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            DATASET,
            repo_type="dataset",
            revision=REVISION,
            allow_patterns=[f"data/{split}-*.parquet"],
            local_files_only=cache_only,
        )
        files = sorted(Path(folder, "data").glob(f"{split}-*.parquet"))
        return files if files and len(files) == _shards(files[0]) else []

    return _fetch(DATASET, f"the {split} split of {DATASET}", attempt)


def data_set(place: str, splits: Sequence[str], config: str | None) -> tuple[str, Files]:
    """The files of splits of any data set, and "hf:OWNER/NAME@COMMIT", which names them for good.

    Args:
        place: "hf:OWNER/NAME" or "hf:OWNER/NAME@REVISION"; without one, the revision that is in
            the cache, else the newest.
        splits: their names; DEFAULT_SPLITS stand for those of them that it has, or its only one.
        config: a part of the data set that its card names, or a folder of it.

    Raises:
        DataError: it can't be had, or has no such split or config.
    """
    match = _PLACE.fullmatch(place)
    if match is None:
        raise DataError(f"--tasks {place}: write hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    name, revision = match[1], match[2] or "main"

    def attempt(cache_only: bool) -> Files:
        from huggingface_hub import get_cached_repo_tree, metadata_load, snapshot_download

        def get(*files: str, cached: bool = cache_only) -> Path:
            return Path(
                snapshot_download(
                    name,
                    repo_type="dataset",
                    revision=revision,
                    allow_patterns=[glob.escape(file) for file in files],
                    local_files_only=cached,
                )
            )

        folder = get(_CARD)  # the list of all files comes with it
        tree = get_cached_repo_tree(name, repo_type="dataset", revision=revision)
        paths = sorted(file.path for file in tree)
        card = metadata_load(folder / _CARD) if _CARD in paths else None
        chosen = choose(paths, card or {}, splits, config, f"--tasks {place}")
        folder = get(*(path for _, path in chosen))
        return [(split, folder / path) for split, path in chosen]

    files = _fetch(name, f"{name} (revision {revision})", attempt)
    commit = next(p.name for p in files[0][1].parents if p.parent.name == "snapshots")
    return f"{HUB}{name}@{commit}", files


def choose(
    paths: Sequence[str],
    card: Mapping[str, Any],
    splits: Sequence[str],
    config: str | None,
    what: str,
) -> list[tuple[str, str]]:
    """The split and path of each file to read, given all paths of a data set and its card.

    The card's `configs` say it; without them a file's path holds the name of its split. `what`
    begins the text of a DataError.
    """
    by_split = _of_card(paths, card.get("configs"), config, what)
    if by_split is None:
        by_split = _of_names(paths, config, what)
    found = ", ".join(by_split) or "none"
    wanted = list(dict.fromkeys(splits))
    if tuple(wanted) == DEFAULT_SPLITS:
        wanted = [split for split in ("test", "valid", "validation") if by_split.get(split)]
        if not wanted and len(by_split) == 1:
            wanted = list(by_split)
        if not wanted:
            raise DataError(f"{what} needs --splits, some of: {found}")
    for split in wanted:
        if not by_split.get(split):
            raise DataError(f"{what} has no rows of the split {split!r}; its splits: {found}")
    return [(split, path) for split in wanted for path in by_split[split]]


def _of_card(
    paths: Sequence[str], configs: Any, config: str | None, what: str
) -> dict[str, list[str]] | None:
    """Split -> paths, as the card says; None when it says nothing."""
    known = {
        str(entry["config_name"]): entry
        for entry in (configs if isinstance(configs, list) else [])
        if isinstance(entry, dict) and entry.get("config_name") and entry.get("data_files")
    }
    if not known:
        return None
    if config is None:
        default = [n for n, entry in known.items() if entry.get("default") or n == "default"]
        config = next(iter(known if len(known) == 1 else default), None)
    if config not in known:
        asked = f"has no config {config!r}" if config else "needs --config"
        raise DataError(f"{what} {asked}; one of: {', '.join(known)}")
    found: dict[str, list[str]] = {}
    data_files = known[config]["data_files"]
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        split, given = ("train", entry)
        if isinstance(entry, dict):
            split, given = str(entry.get("split", "train")), entry.get("path", [])
        patterns = [given] if isinstance(given, str) else given
        found.setdefault(split, []).extend(
            path
            for path in paths
            if kind_of(Path(path)) and any(fnmatchcase(path, pattern) for pattern in patterns)
        )
    return found


def _of_names(paths: Sequence[str], config: str | None, what: str) -> dict[str, list[str]]:
    """Split -> paths, by the words of a path; all are "train" when none has such a word."""
    files = [path for path in paths if kind_of(Path(path))]
    if config is not None:
        files = [path for path in files if config in Path(path).parent.parts]
        if not files:
            raise DataError(f"{what} has no config {config!r}: no folder of rows has that name")
    found: dict[str, list[str]] = {}
    for path in files:
        for split in _KNOWN_SPLITS:
            if re.search(rf"(?:^|[/_.-]){split}(?=[/_.\d-])", path):
                found.setdefault(split, []).append(path)
                break
    return found or ({"train": files} if files else {})


def _fetch(name: str, what: str, attempt: Callable[[bool], list[T]]) -> list[T]:
    """What `attempt` finds in the cache (True), else on the hub (False)."""
    from huggingface_hub import constants, get_session  # slow to import

    # The client's own lines and bars would stand between ours, and what it says we say.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    problem: Exception | None = None
    for cache_only in (True, False):
        try:
            if not cache_only and not constants.HF_HUB_OFFLINE:
                # A download is tried for half a minute: ask once whether anything answers.
                get_session().head(f"{constants.ENDPOINT}/api/datasets/{name}", timeout=10)
            files = attempt(cache_only)
        except DataError:
            raise
        # The client's errors, those of its HTTP library and the disk's have no common base.
        except Exception as error:
            problem = error
            continue
        problem = None
        if files:
            return files
    offline = "it is not whole in the cache and HF_HUB_OFFLINE is set"
    why = offline if constants.HF_HUB_OFFLINE else one_line(problem or "some files are missing")
    raise DataError(
        f"can't get {what} from the hub: {why}; check the network and "
        "HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE, or take local tasks by --tasks PATH"
    ) from problem


def _shards(path: Path) -> int:
    """Return n of a name like test-00000-of-0000n-9c49eeff30aacaa8.parquet."""
    match = re.search(r"-of-(\d+)", path.name)
    return int(match[1]) if match else 0
