"""What is found out of a server before anything is spent.

The smallest request settles what the server takes: it asks for as much as the run will, is
streamed, and is left as soon as its first word is there. Two short replies with other seeds then
show that the server samples, and what they cost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath

import httpx2
import openai

from policy import EndpointRefused, Message
from policy.failures import BadRequest, Retry, Unanswerable, Unreachable, in_words
from policy.key import DEFAULT_BASE_URL
from policy.reply import Draft
from policy.server import Server

PROBE: list[Message] = [{"role": "user", "content": "Reply with the one word: ready"}]
VARIED: list[Message] = [{"role": "user", "content": "Write one line of thirty random words."}]
SEEDS = (2**32 - 2, 7, 8)  # the first as large as those of a run get
SHORT = 48  # tokens that show whether two replies differ
LIST_SECONDS = 10.0


class Probe:
    """The questions to one server; their answers are left in its shape.

    Args:
        thinking: whether the model may think.
        extra: names of fields that the user set, and that may not be given up.
        greedy: whether equal replies are what was asked for.
        streams: whether the server may be asked for a stream.
        notify: called with one line for the user.

    Attributes:
        waits_for: what is being waited for, for the user.
    """

    def __init__(
        self,
        server: Server,
        *,
        thinking: bool,
        extra: AbstractSet[str],
        greedy: bool,
        streams: bool,
        notify: Callable[[str], None],
    ) -> None:
        self.server, self.shape = server, server.shape
        self.waits_for = "an answer"
        self._thinking, self._extra, self._greedy = thinking, extra, greedy
        self._streams, self._notify = streams, notify
        self._named = server.shape.model is not None
        self._warned = False

    async def ask(self) -> None:
        """Ask all questions; Retry when the server should be asked again."""
        try:
            await self._settle()
        except Unanswerable as error:
            raise EndpointRefused(
                f"{self.server.base_url} refuses the smallest request ({error.outcome}): {error}"
            ) from error
        except Unreachable as error:
            raise EndpointRefused(self._unreachable(error)) from error

    async def _settle(self) -> None:
        if self.shape.model is None:
            self.waits_for = "the list of its models"
            self.shape.model = await self._only_model()
        while True:
            self.waits_for = f"the first word of {self.shape.model}"
            try:
                draft = await self.server.request(
                    PROBE, SEEDS[0], stream=self._streams, enough=_knows
                )
                if self._still_thinks(draft):
                    continue
                self.waits_for = f"two short replies of {self.shape.model}"
                drafts = await self._short_replies()
            except BadRequest as refusal:
                self._adapt(refusal)
                continue
            if not any(map(self._still_thinks, drafts)):
                break
        if None in drafts[0].usage_counts()[:2]:
            self._notify("the endpoint sends no usage: token counts are unknown")
        if self._named:
            await self._check_name()

    def _unreachable(self, error: Unreachable) -> str:
        url = self.server.base_url
        hints = "is the server running, and --base-url right?"
        if url.startswith("https:") and re.search("SSL|TLS|ConnectTimeout", str(error)):
            hints = "does the server speak https there, or http only?"
            if "CERTIFICATE_VERIFY" in str(error):
                hints = "is its certificate's authority in SSL_CERT_FILE?"
        return f"cannot connect to {url}: {error}; {hints}"

    # --- the model ----------------------------------------------------------------------------

    async def _only_model(self) -> str:
        names = await self._served()
        if len(names) == 1:
            return names[0]
        shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if names[20:] else "")
        raise EndpointRefused(f"give --model: {self.server.base_url} serves {shown or 'no model'}")

    async def _served(self) -> list[str]:
        url = self.server.base_url
        try:
            body = await self.server.models()
        except (openai.APIError, httpx2.HTTPError, ValueError) as error:
            meaning = self.server.explain(error)
            status = getattr(error, "status_code", None)
            if isinstance(meaning, Retry) or (
                isinstance(meaning, EndpointRefused) and status not in (404, 405)
            ):
                raise meaning from error
            advice = "give --model" if url.endswith("/v1") else "end --base-url in /v1"
            raise EndpointRefused(
                f"{advice}: {url} does not list its models ({in_words(error)})"
            ) from error
        if isinstance(body, str):
            raise EndpointRefused(
                f"{url}/models is no list of models but text ({' '.join(body.split())[:60]!r}): is "
                "--base-url the address of an API? It mostly ends in /v1"
            )
        rows = body.get("data") if isinstance(body, dict) else None
        if not isinstance(rows, list):
            raise EndpointRefused(f"give --model: {url}/models lists none")
        return [str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row]

    async def _check_name(self) -> None:
        """Whether the server knows the model by the name given: llama.cpp answers as any."""
        url, model = self.server.base_url, str(self.shape.model)
        if url == DEFAULT_BASE_URL:
            return
        self.waits_for = "the list of its models"
        try:
            async with asyncio.timeout(LIST_SECONDS):
                names = await self._served()
        except (EndpointRefused, Retry, TimeoutError):
            return  # it answers, and may keep no list
        if not names or any(_same_model(model, name) for name in names):
            return
        if len(names) == 1:
            raise EndpointRefused(
                f"{url} answers to the name {model}, but what it serves is {names[0]}: give "
                "that as --model, or leave --model out"
            )
        self._notify(f"WARNING: {model} is not among the {len(names)} models that {url} lists")

    # --- the fields ---------------------------------------------------------------------------

    def _adapt(self, refusal: BadRequest) -> None:
        """Drop or swap the field that the server refuses, or raise EndpointRefused."""
        shape, url = self.shape, self.server.base_url
        name = self._blamed(refusal.error)
        if name is None:
            if self._streams and re.search(r"\bstream", str(refusal), re.IGNORECASE):
                self._streams = False
                return
            raise EndpointRefused(f"{url} refuses the request: {refusal}") from refusal
        if name == "temperature" and "chat_template_kwargs" in shape.fields:
            name = "chat_template_kwargs"  # some models take a temperature once they do not think
        if name in self._extra:
            raise EndpointRefused(f"{url} refuses {name} of --extra-body: {refusal}") from refusal
        shape.refused.append(name)
        if name == "seed":
            shape.seeded = False
            return
        value = shape.fields.pop(name)
        if name == "max_tokens":
            shape.fields["max_completion_tokens"] = value
        elif name == "chat_template_kwargs" and not self._thinking:
            shape.fields.setdefault("reasoning_effort", "none")
        elif name == "temperature":
            self._notify(
                f"WARNING: the endpoint refuses temperature {value} ({refusal}); it samples at "
                "its own, and results are not comparable with runs at yours"
            )

    def _blamed(self, error: openai.APIError) -> str | None:
        """The field of ours that a 400 names first, its `param` before its words."""
        fields = [*self.shape.fields, "seed"] if self.shape.seeded else [*self.shape.fields]
        if "max_completion_tokens" in fields:
            fields.remove("max_completion_tokens")  # a reply has to have some limit
        if error.param in fields:
            return error.param
        text = f"{error.message} {error.body}"
        found = {name: re.search(rf"\b{re.escape(name)}\b", text) for name in fields}
        places = {name: match.start() for name, match in found.items() if match}
        return min(places, key=lambda name: places[name], default=None)

    def _still_thinks(self, draft: Draft) -> bool:
        """Whether to ask again with the other way to turn thinking off.

        Ollama ignores chat_template_kwargs and takes reasoning_effort.
        """
        reply = draft.reply()
        thinks = reply.reasoning.strip() or reply.reasoning_tokens
        if (
            self._thinking
            or not thinks
            or self._extra & {"chat_template_kwargs", "reasoning_effort"}
        ):
            return False
        if self.shape.fields.pop("chat_template_kwargs", None):
            self.shape.fields["reasoning_effort"] = "none"
            return True
        if not self._warned:
            self._warned = True
            self._notify("WARNING: the model thinks although it was asked not to")
        return False

    # --- whether it samples -------------------------------------------------------------------

    async def _short_replies(self) -> list[Draft]:
        """Two replies to one prompt with two seeds; a third seed when they are equal."""
        first, second = [
            await self.server.ask(VARIED, seed, max_tokens=SHORT) for seed in SEEDS[:2]
        ]
        drafts = [first, second]
        if not self._greedy and _said(first) and _said(first) == _said(second):
            drafts.append(await self.server.ask(VARIED, SEEDS[2], max_tokens=SHORT))
            if _said(drafts[2]) == _said(first):
                self._notify(
                    f"WARNING: {self.server.base_url} gave the same reply to three seeds: it "
                    "caches, or ignores seeds or the temperature, and 8 rollouts are then worth "
                    "one; switch its cache off, and sampling on (do_sample in the generation "
                    "config of transformers serve)"
                )
        return drafts


def _knows(draft: Draft) -> bool:
    """Whether a reply has begun, and with what: thinking or an answer."""
    content = "".join(draft.content).strip()
    if content and "<think>".startswith(content[:7]) and len(content) < 7:
        return False
    reply = draft.reply()
    return bool(draft.finish_reason or reply.reasoning.strip() or reply.text.strip())


def _said(draft: Draft) -> str:
    return ("".join(draft.reasoning) + "".join(draft.content)).strip()


def _same_model(asked: str, listed: str) -> bool:
    """Whether a listed name stands for the one asked for: paths, tags and prefixes differ."""
    a, b = asked.lower(), listed.lower()
    if "*" in b or a == b or a.startswith(f"{b}:") or b.startswith(f"{a}:"):
        return True
    names = [PurePosixPath(name).name.removesuffix(".gguf") for name in (a, b)]
    return names[0] == names[1] or a.endswith(f"/{b}") or b.endswith(f"/{a}")
