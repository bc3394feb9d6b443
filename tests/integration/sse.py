"""A strict reader of server-sent events, and the grammar our streams keep."""

import json
import time


class Event:
    def __init__(self, name, data, arrived):
        self.name = name
        self.data = data
        self.arrived = arrived

    def __repr__(self):
        return f"{self.name}: {self.data}"


def read_events(chunks):
    """Yields Events from an iterable of bytes; comments have the name 'comment'. Anything malformed fails."""
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        while b"\n\n" in buffer:
            block, buffer = buffer.split(b"\n\n", 1)
            yield parse_block(block)
    assert buffer == b"", f"the stream ends within an event: {buffer!r}"


def parse_block(block):
    lines = block.decode("utf-8", errors="strict").split("\n")
    arrived = time.monotonic()
    if lines[0].startswith(":"):
        assert len(lines) == 1, lines
        return Event("comment", lines[0], arrived)
    assert len(lines) == 2, lines
    assert lines[0].startswith("event: "), lines
    assert lines[1].startswith("data: "), lines
    return Event(lines[0][7:], json.loads(lines[1][6:]), arrived)


def check_grammar(events):
    """start, tokens, one done or error at the end; comments anywhere."""
    names = [event.name for event in events if event.name != "comment"]
    assert names, "an empty stream"
    assert names[-1] in ("done", "error"), names
    if names == ["error"]:
        return
    assert names[0] == "start", names
    assert all(name == "token" for name in names[1:-1]), names


def stream(client, prompt, **fields):
    """All events of one streamed request."""
    with client.stream("POST", "/generate", json={"prompt": prompt, **fields}) as response:
        if response.status_code != 200:
            response.read()
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "text/event-stream"
        events = list(read_events(response.iter_raw()))
    check_grammar(events)
    return events


def tokens(events):
    return [event for event in events if event.name == "token"]


def start(events):
    return next(event for event in events if event.name == "start").data


def joined_text(events):
    return "".join(event.data["text"] for event in tokens(events))


def last(events):
    return events[-1].data
