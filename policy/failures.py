"""What a failed request means: try again, mend the request, no reply to this prompt, or give up."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping

import httpx2  # the openai client's own HTTP library
import openai

from descriptors import exhausted
from policy import EndpointRefused
from policy.key import key_name

# What servers say of a prompt that does not fit: OpenAI, vLLM, SGLang, llama.cpp, LM Studio,
# TGI, Gemini, Anthropic's proxies, LiteLLM.
TOO_LONG = re.compile(
    r"context.?(length|size|window)|maximum model length|prompt is too long|input is too long"
    r"|too many (input )?tokens|longer than the model|exceeds? the maximum number of tokens"
    r"|reduce the length|\binputs\b.{0,40}must (have|be)",
    re.IGNORECASE,
)
REFUSAL = re.compile(
    r"content.?filter|content.?(management.?)?policy|usage polic|flagged|moderation"
    r"|data_inspection_failed|invalid_prompt",
    re.IGNORECASE,
)
NO_CREDIT = re.compile(
    r"insufficient.?(quota|credit|balance|funds)|billing.?(hard.?limit|not.?active)|out of credits"
    r"|daily.{0,20}quota|quota.{0,200}(daily|per.?day|a day)",
    re.IGNORECASE,
)


# What LiteLLM and others answer to a wrong key, beside 401.
WRONG_KEY = re.compile(
    r"no connected db|(invalid|incorrect|wrong|missing|no).{0,12}api.?key", re.IGNORECASE
)

# How proxies end a request that has been silent for too long: nginx and load balancers, Cloudflare,
# Modal (a redirect to the result, which the client follows where it says where).
HANG_UPS = {303, 408, 502, 503, 504, 524}


class Retry(Exception):
    """The attempt failed in transport.

    Attributes:
        wait: the server's Retry-After in seconds, if any.
        hung_up: whether what stands between may have ended it for its silence.
        odd: whether the server took the request and sent what is no reply.
    """

    def __init__(
        self, words: str, wait: float | None = None, *, hung_up: bool = False, odd: bool = False
    ) -> None:
        super().__init__(words)
        self.wait = wait
        self.hung_up = hung_up
        self.odd = odd


class BadRequest(Exception):
    """The server does not take the request as it is; `error` is the client's."""

    def __init__(self, words: str, error: openai.APIError) -> None:
        super().__init__(words)
        self.error = error


class Unanswerable(Exception):
    """This prompt gets no reply; `outcome` is a Reply's."""

    def __init__(self, words: str, outcome: str) -> None:
        super().__init__(words)
        self.outcome = outcome


class Unreachable(Retry):
    """No connection came about, so that nobody has seen the request."""


def explain(error: Exception, base_url: str, model: str | None) -> Exception:
    """What a failed request means: Retry, BadRequest, Unanswerable or EndpointRefused.

    The status is HTTP's, or under HTTP 200 the code in the error itself. There only a
    refusal of the key or of payment is final: the server had accepted the request.
    """
    words = in_words(error)
    status = getattr(error, "status_code", None)
    in_body = status is None
    if exhausted(error):
        return EndpointRefused(
            "too few file descriptors for the connections: lower --concurrency, or raise the "
            f"limit (ulimit -n): {words}"
        )
    if not isinstance(error, openai.APIError) or isinstance(error, openai.APIConnectionError):
        return _no_answer(error, words)
    if status is None and error.code is not None and error.code.isdecimal():
        status = int(error.code)
    wait = None if in_body else retry_after(error.response.headers)  # type: ignore[attr-defined]
    text = f"{error.code} {error.type} {error.message} {error.body}"
    if status == 402 or ((in_body or status == 429) and NO_CREDIT.search(text)):
        return EndpointRefused(f"no credit at {base_url}: {words}")
    if status in (400, 403, 413, 422, 500) or in_body:
        if TOO_LONG.search(text):
            return Unanswerable(words, "prompt too long")
        if REFUSAL.search(text):
            return Unanswerable(words, "refusal")
    if status in (401, 403) or (status in (400, 500) and WRONG_KEY.search(text)):
        advice = f"check the key: {key_name(base_url)}"
        return EndpointRefused(f"{base_url} refuses access: {words}; {advice}")
    if in_body or status is None or status in (408, 409, 425, 429) or not 400 <= status < 500:
        return Retry(words, wait, hung_up=not in_body and status in HANG_UPS)
    if status in (404, 405):
        hint = "" if base_url.endswith("/v1") else "; does the address end in /v1?"
        return EndpointRefused(f"{base_url} has no model {model}: {words}{hint}")
    return BadRequest(words, error)


def _no_answer(error: Exception, words: str) -> Retry:
    """What it means that a request got no HTTP answer, or one that broke."""
    cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
    if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return Unreachable(words)
    if isinstance(cause, ValueError):
        return Retry(words, odd=True)
    return Retry(words, hung_up=isinstance(error, openai.APIConnectionError))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait, of any length; None when it does not say."""
    seconds = math.nan
    text = headers.get("retry-after", "")
    try:
        seconds = float(headers["retry-after-ms"]) / 1000
    except (KeyError, ValueError):
        try:
            seconds = float(text)
        except ValueError:
            if date := email.utils.parsedate_tz(text):
                seconds = email.utils.mktime_tz(date) - time.time()
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def in_words(error: Exception) -> str:
    """An error in one line: its class of failure and what the server said."""
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError):
        cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
        text = f"{type(cause or error).__name__}: {cause or error}"
    elif isinstance(error, openai.APIError):
        status = getattr(error, "status_code", None)
        said = error.body.get("message") if isinstance(error.body, dict) else error.body
        if not isinstance(said, str) or said.lstrip().startswith("<"):
            said = error.message if isinstance(error.body, dict) else "(no words)"
        text = f"HTTP {status} {said}" if status else said or error.message
    else:
        text = str(error)
    return " ".join(text.split())[:300]
