"""The hosted default, addresses without their passwords, and where keys are found."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

from policy import EndpointRefused

DEFAULT_BASE_URL = "https://zeroproofai--whileai-serve-qwen3-4b.modal.run/v1"
DEFAULT_MODEL = "Qwen/Qwen3-4B"

PASSWORD = re.compile(r"(?<=//)[^/?#\s]*@")


def without_password(address: str) -> str:
    """An address as it may be shown and saved: what stands before an @ is cut out."""
    return PASSWORD.sub("", address)


def basic_auth(address: str) -> str | None:
    """The Authorization header of an address like http://user:password@host, if it is one."""
    found = PASSWORD.search(address)
    if found is None:
        return None
    return "Basic " + base64.b64encode(unquote(found[0][:-1]).encode()).decode()


def key_name(base_url: str) -> str:
    """Where the user sets the key of an endpoint."""
    if base_url.rstrip("/") == DEFAULT_BASE_URL:
        return "WHILEAI_API_KEY, or `wai login`"
    return "OPENAI_API_KEY"


def find_key(base_url: str) -> str:
    """The key for an endpoint; EndpointRefused when the hosted one has none.

    The hosted model: WHILEAI_API_KEY, else the key that `wai login` saved in
    ~/.whileai/credentials.json (`whileai` moves that folder with WHILEAI_HOME). Any other:
    OPENAI_API_KEY, else a placeholder, since a local server needs none and the client wants one.
    """
    if base_url.rstrip("/") != DEFAULT_BASE_URL:
        return _usable(os.environ.get("OPENAI_API_KEY", ""), "OPENAI_API_KEY") or "no-key"
    if key := _usable(os.environ.get("WHILEAI_API_KEY", ""), "WHILEAI_API_KEY"):
        return key
    try:
        folder = Path(os.environ.get("WHILEAI_HOME") or Path.home() / ".whileai")
        path = folder / "credentials.json"
        key = _usable(str(json.loads(path.read_text("utf-8"))["api_key"] or ""), str(path))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # RuntimeError: no home
        key = ""
    if not key:
        raise EndpointRefused(
            "no key for the hosted model: set WHILEAI_API_KEY, or `pip install whileai` and run "
            "`wai login`, or give another endpoint with --base-url, or try --dry-run"
        )
    return key


def _usable(key: str, source: str) -> str:
    key = key.strip()
    if key and not (key.isascii() and key.isprintable()):
        raise EndpointRefused(f"the key in {source} holds characters that no key has")
    return key
