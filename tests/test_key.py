"""Where keys are found, and addresses without their passwords."""

from __future__ import annotations

import pytest

from policy import (
    EndpointRefused,
)
from policy.key import DEFAULT_BASE_URL, find_key, without_password

# --- the key ----------------------------------------------------------------------------------


def test_the_key_of_the_hosted_model(monkeypatch, tmp_path):
    monkeypatch.delenv("WHILEAI_API_KEY", raising=False)
    monkeypatch.delenv("WHILEAI_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "not for this endpoint")
    for content in (None, "", "[]", '{"api_key": null}', '{"api_key": ""}'):
        if content is not None:
            (tmp_path / ".whileai").mkdir(exist_ok=True)
            (tmp_path / ".whileai" / "credentials.json").write_text(content)
        with pytest.raises(EndpointRefused, match=r"^no key for the hosted model: "):
            find_key(DEFAULT_BASE_URL)
    (tmp_path / ".whileai" / "credentials.json").write_text('{"api_key": "zp_saved"}')
    assert find_key(DEFAULT_BASE_URL) == "zp_saved"
    monkeypatch.setenv("WHILEAI_API_KEY", " zp_set\n")
    assert find_key(DEFAULT_BASE_URL + "/") == "zp_set"
    monkeypatch.setenv("WHILEAI_API_KEY", "zp_\u00e9")
    with pytest.raises(EndpointRefused, match="the key in WHILEAI_API_KEY"):
        find_key(DEFAULT_BASE_URL)


def test_the_key_of_another_endpoint(monkeypatch):
    monkeypatch.setenv("WHILEAI_API_KEY", "not for this endpoint")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert find_key("http://localhost:8000/v1") == "no-key"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert find_key("http://localhost:8000/v1") == "sk-1"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("http://u:p@localhost:8000/v1", "http://localhost:8000/v1"),
        ("--base-url=https://u:p@h/v1,http://t@i/v1", "--base-url=https://h/v1,http://i/v1"),
        ("http://h/v1 http://u:p@i/v1", "http://h/v1 http://i/v1"),
        ("a@b", "a@b"),
    ],
)
def test_passwords_are_cut_out_of_addresses_wherever_they_stand(given, shown):
    assert without_password(given) == shown
