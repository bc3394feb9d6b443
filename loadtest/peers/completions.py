"""OpenAI's /v1/completions, streamed, for the same Answer and the same run as our own /generate."""

import json

import run
from client import take_token


class CompletionsRun(run.Run):
    """Sends each request as plain text: its modules joined, then its question."""

    def __init__(self, url, options, fields):
        super().__init__(url, options)
        self._fields = fields  # further fields of each request

    def ask(self, client, load, request):
        fields = {
            "prompt": request["prompt"],
            "max_tokens": request["max_tokens"],
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._fields,
        }
        return client.ask("/v1/completions", fields, take_completion)


def take_completion(answer, event, arrived):
    data = event.partition(b"data: ")[2].strip()
    if not data or data == b"[DONE]":
        return
    chunk = json.loads(data)
    if "error" in chunk:
        answer.error, answer.message = "refused", str(chunk["error"])[:200]
    for choice in chunk.get("choices") or []:
        if choice.get("text"):
            take_token(answer, {"text": choice["text"]}, arrived)
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    if chunk.get("usage"):
        answer.usage = usage_of(chunk)


def usage_of(chunk):
    """Under our own names. llama.cpp says what it reused among its timings."""
    usage = chunk["usage"]
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or (chunk.get("timings") or {}).get("cache_n") or 0
    return {"prompt_tokens": usage["prompt_tokens"], "cached_tokens": cached, "completion_tokens": usage["completion_tokens"]}
