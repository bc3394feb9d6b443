"""A streaming client that times what it receives.

Blocking sockets of the standard library, one connection a `Client`: at a few milliseconds to the first token, what a larger HTTP
library does in Python for each event would be the greater part of what is measured. One thread each; not thread-safe.
"""

import dataclasses
import http.client
import json
import time
import urllib.parse

# What a kept-alive connection says when the server closed it while it lay idle.
STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


@dataclasses.dataclass
class Answer:
    """One generation as the client saw it. Times are in seconds from the moment the request was sent."""

    error: str | None = None  # the error's code; None when the stream ended as it should
    message: str = ""
    ttft_s: float | None = None  # to the first event that holds text
    total_s: float = 0.0
    token_times_s: list[float] = dataclasses.field(default_factory=list)
    tokens: list[dict] = dataclasses.field(default_factory=list)  # the data of the token events
    finish_reason: str | None = None
    usage: dict = dataclasses.field(default_factory=dict)
    timing: dict = dataclasses.field(default_factory=dict)  # the engine's own account, in milliseconds
    cache: list[dict] = dataclasses.field(default_factory=list)

    @property
    def ok(self):
        return self.error is None

    @property
    def text(self):
        return "".join(token["text"] for token in self.tokens)

    @property
    def token_ids(self):
        return [token["token_id"] for token in self.tokens]

    def inter_token_s(self):
        return [later - earlier for earlier, later in zip(self.token_times_s, self.token_times_s[1:], strict=False)]


class RequestFailed(Exception):
    """A request that is no generation was refused."""

    def __init__(self, status, code, message):
        super().__init__(f"HTTP {status} {code}: {message}")
        self.status = status
        self.code = code


class Client:
    def __init__(self, url, timeout_s=600.0, api_key=None):
        address = urllib.parse.urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"'{url}' is not an address such as http://127.0.0.1:8080")
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(address.hostname, address.port, timeout=timeout_s)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def close(self):
        self._connection.close()

    def call(self, method, path, body=None, content_type="application/json"):
        """The body of a whole answer, as text; RequestFailed unless its status is 2xx."""
        response = self._send(method, path, body, content_type)
        text = response.read().decode()
        if not 200 <= response.status < 300:
            code, message = error_of(text, response.status)
            raise RequestFailed(response.status, code, message)
        return text

    def register(self, pml, **options):
        """POST /schemas; returns what the server says about the schema."""
        query = "?" + urllib.parse.urlencode(options) if options else ""
        return json.loads(self.call("POST", "/schemas" + query, pml, "application/xml"))

    def delete_schema(self, name):
        self.call("DELETE", f"/schemas/{name}")

    def generate(self, prompt, hang_up_after=None, **fields):
        """POST /generate, streamed, as ask() does it."""
        return self.ask("/generate", {"prompt": prompt, **fields}, take_event, hang_up_after)

    def ask(self, path, fields, take, hang_up_after=None):
        """POST something that is answered by a stream. Never raises for what the server or the network does: the Answer says it.

        `take(answer, event, arrived)` reads an event into the answer.
        `hang_up_after`: close the connection after so many tokens, as a client does that has lost interest.
        """
        answer = Answer()
        body = json.dumps(fields)
        began = time.perf_counter()
        try:
            self._stream(answer, path, body, take, began, hang_up_after)
        except (OSError, http.client.HTTPException, ValueError) as fault:
            answer.error = f"connection: {type(fault).__name__}"
            answer.message = str(fault)
        answer.total_s = time.perf_counter() - began
        if answer.error is not None:
            self.close()
        return answer

    def _stream(self, answer, path, body, take, began, hang_up_after):
        response = self._send("POST", path, body, "application/json")
        if response.status != 200:
            answer.error, answer.message = error_of(response.read().decode(), response.status)
            return
        buffer = b""
        while chunk := response.read1(1 << 16):
            arrived = time.perf_counter() - began
            *events, buffer = (buffer + chunk).split(b"\n\n")
            for event in events:
                take(answer, event, arrived)
            if hang_up_after is not None and len(answer.tokens) >= hang_up_after:
                self.close()
                answer.finish_reason = "hung up"
                return
        if answer.finish_reason is None and answer.error is None:
            answer.error = "truncated"
            answer.message = "the stream ended without a done event"

    def _send(self, method, path, body, content_type):
        headers = dict(self._headers)
        if body is not None:
            body = body.encode()
            headers["Content-Type"] = content_type
        reused = self._connection.sock is not None
        try:
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()
        except STALE:
            self.close()
            if not reused:
                raise
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()


def take_event(answer, event, arrived):
    name, _, data = event.partition(b"\n")
    if not name.startswith(b"event: "):
        return  # a comment: the server is alive but has nothing to say
    kind, value = name[7:], json.loads(data[6:])
    if kind == b"token":
        take_token(answer, value, arrived)
    elif kind == b"start":
        answer.usage, answer.cache = value["usage"], value["cache"]
    elif kind == b"done":
        answer.finish_reason, answer.usage, answer.timing = value["finish_reason"], value["usage"], value["timing"]
    elif kind == b"error":
        answer.error, answer.message = value["error"]["code"], value["error"]["message"]


def take_token(answer, token, arrived):
    answer.tokens.append(token)
    answer.token_times_s.append(arrived)
    if answer.ttft_s is None and token["text"]:
        answer.ttft_s = arrived


def error_of(text, status):
    """Code and message of the one form that errors have."""
    try:
        error = json.loads(text)["error"]
        return error["code"], error["message"]
    except (ValueError, KeyError, TypeError):
        return f"http_{status}", text[:200]
