"""What clients get for broken, hostile and oversized requests: one form, and a server that lives on."""

import json
import threading
import time

import pytest
from raw_http import Response, connect, exchange, post, read_all

MIB = 2**20
BODY_LIMIT = 8 * MIB


def get(path, *headers):
    return (f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + "".join(h + "\r\n" for h in headers) + "\r\n").encode()


# S17: bytes that are no JSON, or JSON of the wrong kind, on every endpoint that takes it.
BROKEN_JSON = {
    "empty": b"",
    "cut": b"{:",
    "byte 0xFF": b'{"prompt":"\xff","schema":"\xff"}',
    "overlong": b'{"prompt":"\xc0\xaf","schema":"\xc0\xaf"}',
    "lone surrogate": b'{"prompt":"\\ud83d","schema":"\\ud83d"}',
    "bare NUL": b'{"prompt":"\x00"}',
    "UTF-16": '{"prompt":"x"}'.encode("utf-16"),
    "array": b'[{"prompt":"x"}]',
    "string": b'"x"',
    "nested": b"[" * 200_000,
    "nested objects": b'{"a":' * 100_000,
}


@pytest.mark.parametrize("method,path", [("POST", "/generate"), ("POST", "/schemas"), ("PUT", "/schemas/x"), ("PATCH", "/schemas/alive")])
@pytest.mark.parametrize("name", BROKEN_JSON)
def test_broken_json(server, method, path, name):
    server.register("<schema name='alive'>Say hello.</schema>")
    response = server.client.request(method, path, content=BROKEN_JSON[name], headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    error = json.loads(response.content.decode("utf-8", errors="strict"))["error"]
    assert error["code"] in ("invalid_json", "invalid_pml"), error


# A NUL is JSON, but no PML.
@pytest.mark.parametrize(
    "path,field,pml",
    [("/generate", "prompt", "<prompt schema='alive'>"), ("/schemas", "schema", "<schema name='s'>")],
)
def test_nul_in_pml(server, path, field, pml):
    server.register("<schema name='alive'>Say hello.</schema>")
    response = server.client.post(path, json={field: f"{pml}a\0b</{field}>"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_pml"
    assert response.json()["error"]["column"] == len(pml) + 2


# S18: one answer per content type, whatever the size.
def test_content_types_do_not_depend_on_size(server):
    server.register("<schema name='sized'>Say hello.</schema>")
    answers = {}
    for size in (1_000, 100_000):
        # Long in bytes, not in tokens: a comment.
        prompt = f"<prompt schema='sized'>Hello<!-- {'x' * size} --></prompt>"
        body = json.dumps({"prompt": prompt, "max_tokens": 1, "stream": False}).encode()
        for content_type in (
            "application/x-www-form-urlencoded",
            "text/plain",
            None,
            "application/json; charset=utf-8",
            "multipart/form-data; boundary=x",
            "application/json; charset=latin-1",
        ):
            answers.setdefault(content_type, []).append(exchange(server, post("/generate", body, content_type)))
    statuses = {content_type: {answer.status for answer in both} for content_type, both in answers.items()}
    assert statuses == {
        "application/x-www-form-urlencoded": {415},
        "text/plain": {400},  # PML, and this is none
        None: {200},
        "application/json; charset=utf-8": {200},
        "multipart/form-data; boundary=x": {415},
        "application/json; charset=latin-1": {415},
    }
    assert "application/x-www-form-urlencoded" in answers["application/x-www-form-urlencoded"][0].error()["message"]


def test_bodies_over_the_limit(server):
    before = server.rss_bytes()
    with_length = exchange(server, post("/generate", b"x" * (BODY_LIMIT + 1)))
    assert with_length.status == 413
    assert with_length.error()["code"] == "body_too_large"
    assert str(BODY_LIMIT) in with_length.error()["message"]
    assert with_length.headers["connection"] == "close"

    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    chunked = (
        b"POST /schemas HTTP/1.1\r\nHost: x\r\nContent-Type: text/xml\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk * (BODY_LIMIT // 0x10000 + 1)
        + b"0\r\n\r\n"
    )
    without = exchange(server, chunked)
    assert without.status == 413
    assert without.error()["code"] == "body_too_large"

    # Far beyond it: refused by the announcement alone, without waiting for the bytes.
    started = time.monotonic()
    with connect(server) as connection:
        connection.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{")
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        assert Response(data).status == 413
    assert time.monotonic() - started < 2
    assert server.rss_bytes() - before < 2 * BODY_LIMIT


def test_a_body_at_the_limit_is_read(server):
    body = b'{"prompt": "' + b"x" * (BODY_LIMIT - 14) + b'"}'
    assert len(body) == BODY_LIMIT
    response = exchange(server, post("/generate", body))
    assert response.status == 400
    assert response.error()["code"] == "invalid_pml"


def test_many_large_bodies_at_once_stay_in_bounds(server):
    before = server.rss_bytes()
    results = []

    def send():
        results.append(exchange(server, post("/generate", b"x" * (BODY_LIMIT + 1))).status)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [413] * 8
    assert server.rss_bytes() - before < 2 * BODY_LIMIT


def test_chunked_bodies_are_served(server):
    server.register("<schema name='alive'>Say hello.</schema>")
    body = json.dumps({"prompt": "<prompt schema='alive'>Hello</prompt>", "max_tokens": 1, "stream": False}).encode()
    parts = [body[:10], body[10:11], body[11:]]
    chunks = b"".join(f"{len(part):x};ext=1\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\nTrailer: x\r\n\r\n"
    request = (
        b"POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + chunks
    )
    response = exchange(server, request)
    assert response.status == 200, response.body
    assert json.loads(response.body)["usage"]["completion_tokens"] == 1


def test_expect_continue(server):
    with connect(server) as connection:
        body = b"{}"
        connection.sendall(
            b"POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert Response(read_all(connection)).status == 400
    # What will be refused is refused instead of being asked for.
    request = (
        b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
    )
    with connect(server) as connection:
        connection.sendall(request)
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


# Heads that are no HTTP, or HTTP that two servers could read differently.
@pytest.mark.parametrize(
    "name,request_bytes,status",
    [
        ("no HTTP", b"hello\r\n\r\n", 400),
        ("unknown method", b"BREW /generate HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("bad version", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 400),
        ("long target", b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        ("long header", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 400),
        ("many headers", b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: aaaaaaaa\r\n" * 10_000 + b"\r\n", 431),
        ("endless target", b"GET /" + b"a" * 200_000, 431),
        ("bad range", b"GET /healthz HTTP/1.1\r\nHost: x\r\nRange: bytes=oops\r\n\r\n", 416),
        ("bad expectation", b"POST /generate HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\nContent-Length: 2\r\n\r\n{}", 417),
        ("bad length", b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        ("two lengths", b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400),
        (
            "length and chunks",
            b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("unknown coding", b"POST /generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (
            "bad chunk",
            b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
        ),
        (
            "chunk longer than it says",
            b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}xx\r\n",
            400,
        ),
    ],
)
def test_malformed_http(server, name, request_bytes, status):
    response = exchange(server, request_bytes)
    assert response.status == status, response.status_line
    assert response.error()["type"] == "invalid_request_error"
    assert response.headers["connection"] == "close"


def test_paths_and_methods(server):
    missing = exchange(server, get("/nothing/%ff%00"))
    assert missing.status == 404
    assert missing.error()["code"] == "not_found"
    wrong = exchange(server, get("/generate"))
    assert wrong.status == 405
    assert wrong.headers["allow"] == "POST, OPTIONS"
    assert wrong.error()["code"] == "method_not_allowed"
    options = exchange(server, b"OPTIONS /schemas HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert options.status == 204
    assert options.headers["allow"] == "GET, HEAD, POST, OPTIONS"
    assert "content-length" not in options.headers
    head = exchange(server, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert head.status == 200
    assert head.body == b""
    assert int(head.headers["content-length"]) > 0


def test_ranges_and_compression_are_ignored(server):
    response = exchange(server, get("/metrics", "Range: bytes=0-3", "Accept-Encoding: gzip, br"))
    assert response.status == 200
    assert "content-encoding" not in response.headers
    assert b"promptcached_" in response.body
    assert int(response.headers["content-length"]) == len(response.body)


def test_request_ids(server):
    assert exchange(server, get("/healthz", "X-Request-Id: abc-1:2")).headers["x-request-id"] == "abc-1:2"
    made = exchange(server, get("/healthz", "X-Request-Id: a%0d%0aSet-Cookie: x")).headers
    assert made["x-request-id"].startswith("req-")
    assert "set-cookie" not in made


def test_a_post_without_a_body_does_not_wait_for_one(server):
    started = time.monotonic()
    response = exchange(server, b"POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n")
    assert response.status == 400
    assert time.monotonic() - started < 2


def test_connections_are_kept_alive_and_pipelined(server):
    with connect(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 3 + get("/healthz"))
        data = read_all(connection)
    assert data.count(b"HTTP/1.1 200 OK") == 4


# S19: hostile XML is refused quickly, with its place, without reading files and without growing.
DOCTYPE = "<!DOCTYPE s [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;'>]>"
HOSTILE = {
    "entities": lambda root: DOCTYPE + f"<{root}>&c;</{root.split()[0]}>",
    "undeclared": lambda root: f"<{root}>&nope;</{root.split()[0]}>",
    "file": lambda root: f"<!DOCTYPE s [<!ENTITY f SYSTEM 'file:///etc/passwd'>]><{root}>&f;</{root.split()[0]}>",
    "deep": lambda root: f"<{root}>" + "<module name='m'>" * 200_000,
    "deep and closed": lambda root: f"<{root}>" + "<m>" * 200_000 + "</m>" * 200_000 + f"</{root.split()[0]}>",
    "bare <": lambda root: f"<{root}>if a<b then</{root.split()[0]}>",
    "bare &&": lambda root: f"<{root}>x && y</{root.split()[0]}>",
    "cut": lambda root: f"<{root}>text <module na",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("path,root", [("/schemas", "schema name='s'"), ("/generate", "prompt schema='alive'")])
def test_hostile_xml(server, path, root, name):
    server.register("<schema name='alive'>Say hello.</schema>")
    before = server.rss_bytes()
    started = time.monotonic()
    response = server.client.post(path, content=HOSTILE[name](root).encode(), headers={"Content-Type": "application/xml"})
    assert time.monotonic() - started < 1
    assert response.status_code == 400, response.text[:500]
    error = response.json()["error"]
    assert error["code"] == "invalid_pml", error
    assert error["line"] >= 1 and error["column"] >= 1
    assert "root:" not in response.text
    if name.startswith("bare"):
        assert "CDATA" in error["message"] or "&amp;" in error["message"] or "&lt;" in error["message"]
    assert server.rss_bytes() - before < 50 * MIB


def test_slow_heads_do_not_keep_others_waiting(server):
    slow = [connect(server) for _ in range(40)]
    try:
        for connection in slow:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost")
        started = time.monotonic()
        assert server.client.get("/healthz").status_code == 200
        assert time.monotonic() - started < 0.5
    finally:
        for connection in slow:
            connection.close()
