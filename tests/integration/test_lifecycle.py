"""Starting, not starting, draining, stopping; many connections."""

import json
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest
from conftest import BINARY, MODEL, clean_environment
from raw_http import Response, connect, read_all
from sse import read_events

SCHEMA = "<schema name='life'><module name='m'>A short text about nothing in particular.</module></schema>"
PROMPT = "<prompt schema='life'><m/><user>Go on.</user></prompt>"


def run_to_end(*arguments, seconds=120):
    """A server that is not meant to serve: its exit status and what it said."""
    result = subprocess.run(
        [str(BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=seconds, env=clean_environment(), check=False
    )
    return result.returncode, result.stderr


def start_stream(server, events, **fields):
    """A stream on a thread of its own, its events collected; returns the thread."""

    def run():
        with (
            httpx.Client(base_url=server.url, timeout=120) as client,
            client.stream("POST", "/generate", json={"prompt": PROMPT, "temperature": 0, "ignore_eos": True, **fields}) as response,
        ):
            events.append(response.status_code)
            for event in read_events(response.iter_raw()):
                events.append(event)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def wait_for_tokens(streams, seconds=30):
    deadline = time.monotonic() + seconds
    while not all(len(events) > 3 for events in streams):
        assert time.monotonic() < deadline, streams
        time.sleep(0.01)


# S30: running streams finish, new work is refused, probes are answered.
def test_sigterm_lets_streams_finish(start_tiny):
    server = start_tiny("--drain-timeout", "300s")
    server.register(SCHEMA)
    streams = [[] for _ in range(5)]
    threads = [start_stream(server, events, max_tokens=1500) for events in streams]
    wait_for_tokens(streams)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for_log("SIGTERM")
    with httpx.Client(base_url=server.url, timeout=10) as client:
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["error"]["code"] == "draining"
        new = client.post("/generate", json={"prompt": PROMPT, "max_tokens": 1})
        assert new.status_code == 503
        assert new.json()["error"]["code"] == "draining"
        assert "retry-after" in new.headers
        assert client.post("/schemas", content=SCHEMA, headers={"Content-Type": "text/xml"}).status_code == 503
        assert client.get("/healthz").status_code == 200
    for thread in threads:
        thread.join()
    for events in streams:
        assert events[-1].name == "done"
        assert events[-1].data["finish_reason"] == "length"
        assert sum(event.name == "token" for event in events[1:]) == 1500
    ended = time.monotonic()
    assert server.process.wait(30) == 0
    assert time.monotonic() - ended < 5


def test_the_drain_timeout_ends_what_is_left_with_an_error(start_tiny):
    server = start_tiny("--drain-timeout", "1s")
    server.register(SCHEMA)
    streams = [[] for _ in range(3)]
    threads = [start_stream(server, events, max_tokens=50_000) for events in streams]
    wait_for_tokens(streams)
    started = time.monotonic()
    assert server.terminate() == 0
    assert time.monotonic() - started < 1 + 5
    for thread in threads:
        thread.join()
    for events in streams:
        assert events[-1].name == "error"
        assert events[-1].data["error"]["code"] == "draining"


def test_a_second_signal_leaves_at_once(start_tiny):
    server = start_tiny("--drain-timeout", "60s")
    server.register(SCHEMA)
    events = []
    with pytest.raises(httpx.HTTPError):
        client = httpx.Client(base_url=server.url, timeout=60)
        with client.stream("POST", "/generate", json={"prompt": PROMPT, "max_tokens": 50_000, "ignore_eos": True}) as response:
            for event in read_events(response.iter_raw()):
                events.append(event)
                if len(events) == 3:
                    server.process.send_signal(signal.SIGINT)
                    server.wait_for_log("SIGINT: shutting down")
                    started = time.monotonic()
                    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 128 + signal.SIGTERM
    assert time.monotonic() - started < 2


def test_sigterm_while_loading(start_server):
    server = start_server(ready=False)
    started = time.monotonic()
    assert server.terminate(10) == 0
    assert time.monotonic() - started < 5


def test_sigterm_when_idle_and_a_restart_on_the_same_port(start_tiny):
    server = start_tiny()
    idle = connect(server)  # a kept-alive connection must not delay the end
    idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in idle.recv(65536)
    started = time.monotonic()
    assert server.terminate(20) == 0
    assert time.monotonic() - started < 5
    assert idle.recv(65536) == b""
    host, port = server.address
    again = start_tiny("--listen", f"{host}:{port}")
    assert again.address == (host, port)


def test_a_start_of_the_default_model(start_server):
    server = start_server("--log-format", "json", ready=False)
    seen = set()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ready = server.client.get("/readyz")
        seen.add(ready.status_code)
        if ready.status_code == 200:
            break
        assert ready.json()["error"]["code"] == "not_ready"
        assert server.client.get("/healthz").status_code == 200
        work = server.client.post("/generate", json={"prompt": PROMPT})
        assert work.status_code in (503, 404)
        time.sleep(0.01)
    assert seen == {200, 503}
    server.wait_for_log("ready in")
    lines = [json.loads(line) for line in server.log().splitlines()]
    text = "\n".join(line["message"] for line in lines)
    for word in ("listening on http://127.0.0.1:", "smollm2-135m-instruct", "cpu", "int8", "fp16", "192 MiB", "ready in"):
        assert word in text, word


def test_prompts_stay_out_of_the_log(start_tiny):
    server = start_tiny("--log-level", "debug")
    server.register(SCHEMA)
    server.generate("<prompt schema='life'><m/>the secret word is xyzzy</prompt>", max_tokens=2)
    server.client.post("/generate", json={"prompt": "<prompt schema='life'><nope/>xyzzy</prompt>"})
    assert "xyzzy" not in server.log()
    assert "nothing in particular" not in server.log()
    talkative = start_tiny("--log-prompts")
    talkative.register(SCHEMA)
    talkative.generate("<prompt schema='life'><m/>the secret word is xyzzy</prompt>", max_tokens=2)
    assert "xyzzy" in talkative.log()


def test_schemas_at_start(start_tiny, tmp_path):
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "b.xml").write_text("<schema name='beta'><module name='m'>Second.</module></schema>")
    (folder / "a.pml").write_text("<schema name='alpha'><module name='m'>First.</module></schema>")
    (folder / "notes.txt").write_text("not a schema")
    server = start_tiny("--schemas", folder, "--warm")
    schemas = {schema["name"]: schema for schema in server.client.get("/schemas").json()["schemas"]}
    assert set(schemas) == {"alpha", "beta"}
    assert all(schema["state"] == "ready" for schema in schemas.values())
    answer = server.generate("<prompt schema='beta'><m/>x</prompt>", max_tokens=1)
    assert answer["cache"][-1]["tier"] == "device"
    assert server.terminate() == 0


def test_a_broken_schema_stops_the_start(tmp_path, tiny_model):
    (tmp_path / "good.xml").write_text("<schema name='good'>x</schema>")
    (tmp_path / "wrong.xml").write_text("<schema name='wrong'>\n  <modul/></schema>")
    status, log = run_to_end("--model", tiny_model, "--listen", "127.0.0.1:0", "--kv-device-bytes", "64MiB", "--schemas", tmp_path)
    assert status == 1
    assert "wrong.xml:2:3" in log


@pytest.mark.parametrize("what", ["no directory", "empty directory", "no weights"])
def test_models_that_are_none(tmp_path, what):
    if what == "no weights":
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (tmp_path / name).write_bytes((MODEL / name).read_bytes())
    directory = tmp_path / "missing" if what == "no directory" else tmp_path
    status, log = run_to_end("--model", directory, "--listen", "127.0.0.1:0")
    assert status == 1
    last = log.strip().splitlines()[-1]
    assert str(directory) in last, log
    assert " error " in last


def test_a_port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, log = run_to_end("--model", MODEL, "--listen", f"127.0.0.1:{port}")
    assert status == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in log.strip().splitlines()[-1]


def hold_connection(server, request):
    """A connection with an answer on its way. The server may not have seen yet that an earlier connection was closed."""
    for _ in range(100):
        connection = connect(server)
        connection.sendall(request)
        if connection.recv(1024).startswith(b"HTTP/1.1 200"):
            return connection
        connection.close()
        time.sleep(0.05)
    raise AssertionError("no connection became free")


def test_connections_beyond_the_limit(start_tiny):
    server = start_tiny("--max-connections", "4", "--ops-listen", "127.0.0.1:0")
    server.register(SCHEMA)
    server.client.close()
    operations = server.wait_for_log(r"operations on (http://\S+)")
    body = json.dumps({"prompt": PROMPT, "max_tokens": 50_000, "ignore_eos": True}).encode()
    request = (
        b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    )
    busy = [hold_connection(server, request) for _ in range(4)]
    started = time.monotonic()
    with connect(server) as refused:
        refused.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        response = Response(read_all(refused))
    assert response.status == 503
    assert response.error()["code"] == "not_ready"
    assert response.headers["connection"] == "close"
    assert time.monotonic() - started < 3
    # The operations listener has connections of its own.
    assert httpx.get(f"{operations}/healthz").status_code == 200
    assert httpx.get(f"{operations}/metrics").status_code == 200
    assert httpx.get(f"{operations}/schemas").status_code == 404
    for connection in busy:
        connection.close()


# A connection that does nothing makes room for one that has something to say.
def test_idle_connections_give_way(start_tiny):
    server = start_tiny("--max-connections", "4")
    server.client.close()
    idle = [connect(server) for _ in range(4)]
    for connection in idle:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in connection.recv(65536)
    for _ in range(6):
        with connect(server) as fresh:
            fresh.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert Response(read_all(fresh)).status == 200
    assert idle[0].recv(65536) == b""
    for connection in idle:
        connection.close()


def test_api_keys(start_tiny, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# operators\nadmin-key-0123456789\nreader-key-0123456789 read\nuser-key-0123456789 generate\n")
    server = start_tiny("--api-keys", keys)
    assert server.client.get("/schemas").status_code == 401
    assert server.client.get("/schemas").headers["www-authenticate"] == "Bearer"
    assert server.client.get("/healthz").status_code == 200

    def status(key, method, path, **options):
        return server.client.request(method, path, headers={"Authorization": f"Bearer {key}"}, **options).status_code

    assert status("admin-key-0123456789", "POST", "/schemas", json={"schema": SCHEMA}) == 201
    assert status("reader-key-0123456789", "GET", "/schemas/life") == 200
    assert status("reader-key-0123456789", "DELETE", "/schemas/life") == 403
    assert status("user-key-0123456789", "POST", "/generate", json={"prompt": PROMPT, "max_tokens": 1}) == 200
    assert status("user-key-0123456789", "GET", "/metrics") == 403
    assert status("nobody-key-0123456789", "GET", "/metrics") == 401
    assert "key-0123456789" not in server.log()


def test_tls(start_tiny, tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    server = start_tiny("--tls-cert", certificate, "--tls-key", key)
    assert server.url.startswith("https://")
    server.register(SCHEMA)
    with server.client.stream(
        "POST", "/generate", json={"prompt": PROMPT, "max_tokens": 20, "ignore_eos": True, "temperature": 0}
    ) as response:
        events = list(read_events(response.iter_raw()))
    assert events[-1].name == "done"
    large = server.client.post("/generate", content=b"x" * (8 * 2**20 + 1), headers={"Content-Type": "application/json"})
    assert large.status_code == 413
    with connect(server) as plain:  # no TLS: closed, without harm
        plain.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        plain.settimeout(5)
        assert b"200" not in plain.recv(65536)
    server.assert_alive()

    status, log = run_to_end("--model", MODEL, "--tls-cert", key, "--tls-key", key, "--listen", "127.0.0.1:0")
    assert status == 1
    assert "TLS certificate" in log
