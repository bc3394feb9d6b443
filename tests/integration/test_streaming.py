"""Streams: their form, their rhythm, and clients that go away."""

import contextlib
import itertools
import json
import shutil
import socket
import struct
import subprocess
import threading
import time

import httpx
import pytest
from raw_http import connect, read_all
from sse import check_grammar, joined_text, last, read_events, start, stream, tokens

SCHEMA = """<schema name="streams">
  <module name="text">Once upon a time there was a small server that remembered what it had read.</module>
</schema>
"""
PROMPT = "<prompt schema='streams'><text/><user>Tell me a long story.</user></prompt>"


@pytest.fixture
def streams(server):
    server.register(SCHEMA)
    return server


def head(body, version="1.1", close=True):
    return (
        f"POST /generate HTTP/{version}\r\nHost: x\r\nContent-Type: application/json\r\n"
        + ("Connection: close\r\n" if close else "")
        + f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def body(**fields):
    return json.dumps({"prompt": PROMPT, "temperature": 0, "ignore_eos": True, **fields}).encode()


def test_headers_and_events(streams):
    with streams.client.stream("POST", "/generate", json=json.loads(body(max_tokens=5))) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in response.headers
        assert response.headers["x-request-id"]
        events = list(read_events(response.iter_raw()))
    check_grammar(events)
    assert set(start(events)) == {"id", "model", "schema", "version", "usage", "cache"}
    assert set(start(events)["usage"]) == {"prompt_tokens", "cached_tokens", "new_tokens"}
    for token in tokens(events):
        assert set(token.data) == {"text", "token_id", "logprob"}
    done = last(events)
    assert set(done) == {"finish_reason", "usage", "timing"}
    assert set(done["timing"]) == {
        "queue_ms",
        "load_ms",
        "prefill_ms",
        "ttft_ms",
        "decode_ms",
        "tokens_per_second",
    }


# Tokens come one by one, as they are made.
def test_tokens_arrive_spread_out(streams):
    events = stream(streams.client, PROMPT, temperature=0, max_tokens=60, ignore_eos=True)
    arrivals = [token.arrived for token in tokens(events)]
    assert len(arrivals) == 60
    total = arrivals[-1] - arrivals[0]
    assert total > 0.2
    assert max(b - a for a, b in itertools.pairwise(arrivals)) < total / 2


def test_http_1_0_is_streamed_until_close(streams):
    with connect(streams) as connection:
        connection.sendall(head(body(max_tokens=5), version="1.0", close=False))
        answer = read_all(connection)
    headers, _, content = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in headers.lower()
    events = list(read_events([content]))
    check_grammar(events)
    assert len(tokens(events)) == 5


def test_a_connection_serves_streams_one_after_another(streams):
    for _ in range(3):
        assert len(tokens(stream(streams.client, PROMPT, temperature=0, max_tokens=3, ignore_eos=True))) == 3


def test_many_streams_do_not_starve_probes(streams):
    slowest = 0.0
    stop = threading.Event()

    def run():
        with httpx.Client(base_url=streams.url, timeout=120) as client:
            stream(client, PROMPT, temperature=0, max_tokens=40, ignore_eos=True)

    threads = [threading.Thread(target=run) for _ in range(24)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        started = time.monotonic()
        assert streams.client.get("/healthz").status_code == 200
        slowest = max(slowest, time.monotonic() - started)
        stop.wait(0.05)
    for thread in threads:
        thread.join()
    assert slowest < 0.25


# S13: a request that waits says so, and the comment disturbs nobody.
def test_heartbeats_while_waiting(start_tiny):
    server = start_tiny("--max-running", "1")
    server.register(SCHEMA)
    blocker = connect(server)
    blocker.sendall(head(body(max_tokens=90_000)))
    assert b"event: token" in blocker.recv(65536) + blocker.recv(65536)
    received = []

    def run():
        with (
            httpx.Client(base_url=server.url, timeout=120) as client,
            client.stream("POST", "/generate", json=json.loads(body(max_tokens=2))) as response,
        ):
            received.append(("head", response.status_code, time.monotonic()))
            for event in read_events(response.iter_raw()):
                received.append((event.name, event.data, time.monotonic()))

    started = time.monotonic()
    thread = threading.Thread(target=run)
    thread.start()
    while not any(kind == "comment" for kind, _, _ in received) and time.monotonic() < started + 40:
        time.sleep(0.05)
    blocker.close()
    thread.join()
    kinds = [kind for kind, _, _ in received]
    assert kinds[:2] == ["head", "comment"], kinds
    assert received[0][1] == 200
    assert 10 < received[1][2] - started < 20
    assert [kind for kind in kinds if kind != "comment"] == ["head", "start", "token", "token", "done"]


def reset(connection):
    """Closes with RST, as a crashed client's kernel does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def wait_until_idle(server, seconds=2.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        metrics = server.metrics()
        if metrics["requests_running"] == 0 and metrics["requests_waiting"] == 0:
            return metrics
        time.sleep(0.02)
    raise AssertionError(f"still busy: {server.metrics()['requests_running']} running")


# S12: whoever goes is forgotten at once: while streaming, while waiting or being prefilled, streamed or not.
def test_clients_that_go_away(streams):
    open_connections = []
    for index in range(30):
        connection = connect(streams)
        connection.sendall(head(body(max_tokens=2000, stream=index % 3 != 2)))
        open_connections.append(connection)
    first_events = [c for index, c in enumerate(open_connections) if index % 3 == 0]
    for connection in first_events:
        assert connection.recv(1024).startswith(b"HTTP/1.1 200")
        reset(connection)
    time.sleep(0.3)
    for index, connection in enumerate(open_connections):
        if index % 3 == 1:
            reset(connection)
        elif index % 3 == 2:
            connection.close()
    metrics = wait_until_idle(streams)
    time.sleep(0.3)
    assert streams.metrics()["generated_tokens_total"] == metrics["generated_tokens_total"]
    started = time.monotonic()
    assert streams.text(PROMPT, max_tokens=1) is not None
    assert time.monotonic() - started < 2


def test_a_client_that_goes_during_a_long_prefill(streams):
    text = "word " * 3000
    prompt = f"<prompt schema='streams'><text/>{text}</prompt>"
    connections = []
    for streamed in (True, False):
        connection = connect(streams)
        connection.sendall(head(json.dumps({"prompt": prompt, "max_tokens": 4, "stream": streamed}).encode()))
        connections.append(connection)
    deadline = time.monotonic() + 5
    while streams.metrics()["requests_running"] + streams.metrics()["requests_waiting"] < 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    for connection in connections:
        reset(connection)
    wait_until_idle(streams)


def test_cancelled_requests_are_counted_as_such(streams):
    before = streams.metrics()
    connection = connect(streams)
    connection.sendall(head(body(max_tokens=2000)))
    connection.recv(1024)
    reset(connection)
    wait_until_idle(streams)
    deadline = time.monotonic() + 2
    name = 'requests_total{outcome="cancelled",route="generate"}'
    while streams.metrics().get(name, 0) != before.get(name, 0) + 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    after = streams.metrics()
    ttft = 'time_to_first_token_seconds_count{cache="device"}'
    assert after.get(ttft, 0) == before.get(ttft, 0)


# A failure after the first token is an event, and the end.
def test_errors_within_a_stream(start_tiny):
    server = start_tiny("--request-timeout", "3s")
    server.register(SCHEMA)
    events = stream(server.client, PROMPT, temperature=0, max_tokens=90_000, ignore_eos=True)
    assert events[-1].name == "error"
    assert last(events)["error"]["code"] == "timeout"
    assert last(events)["error"]["request_id"]
    assert len(tokens(events)) > 1
    unstreamed = server.client.post("/generate", json=json.loads(body(max_tokens=90_000, stream=False)))
    assert unstreamed.status_code == 503
    assert unstreamed.json()["error"]["code"] == "timeout"
    assert server.generate(PROMPT, max_tokens=2)["text"] is not None


NGINX = """
daemon off; master_process off; pid {directory}/nginx.pid; error_log {directory}/error.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {url}; }} }}
}}
"""


@contextlib.contextmanager
def nginx_in_front(server, directory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = directory / "nginx.conf"
    config.write_text(NGINX.format(directory=directory, port=port, url=server.url))
    process = subprocess.Popen([shutil.which("nginx"), "-c", str(config), "-p", str(directory)])
    try:
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(httpx.HTTPError):
                httpx.get(f"http://127.0.0.1:{port}/healthz")
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


# S13: nginx as Debian ships it, with its buffering on.
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_through_nginx(streams, tmp_path):
    with nginx_in_front(streams, tmp_path) as url, httpx.Client(base_url=url, timeout=60) as client:
        events = stream(client, PROMPT, temperature=0, max_tokens=60, ignore_eos=True)
        arrivals = [token.arrived for token in tokens(events)]
        assert arrivals[-1] - arrivals[0] > 0.2
        assert len({round(arrival, 2) for arrival in arrivals}) > 10
        assert joined_text(events) == streams.text(PROMPT, max_tokens=60, ignore_eos=True)


# S13: the same on the routes of OpenAI's clients.
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_openai_streams_through_nginx(streams, tmp_path, path):
    text = "Tell me a long story."
    prompt = {"messages": [{"role": "user", "content": text}]} if "chat" in path else {"prompt": text}
    request = {**prompt, "temperature": 0, "max_tokens": 60, "ignore_eos": True}
    whole = streams.client.post(path, json=request).json()["choices"][0]
    joined, arrivals = "", []
    with (
        nginx_in_front(streams, tmp_path) as url,
        httpx.Client(base_url=url, timeout=60) as client,
        client.stream("POST", path, json={**request, "stream": True}) as response,
    ):
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-cache"
        for line in response.iter_lines():
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                joined += choice["delta"].get("content", "") if "chat" in path else choice["text"]
                arrivals.append(time.monotonic())
    assert joined == (whole["message"]["content"] if "chat" in path else whole["text"])
    assert arrivals[-1] - arrivals[0] > 0.2
    assert len({round(arrival, 2) for arrival in arrivals}) > 10
