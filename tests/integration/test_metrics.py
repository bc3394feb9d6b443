"""What /metrics says, against what the clients saw."""

import itertools
import threading
import time

import httpx
from raw_http import connect
from sse import read_events, stream, tokens

WORDS = "The quick brown fox jumps over the lazy dog near the river bank. "


def ttft(metrics):
    counts = {name: value for name, value in metrics.items() if name.startswith("time_to_first_token_seconds_count")}
    sums = {name: value for name, value in metrics.items() if name.startswith("time_to_first_token_seconds_sum")}
    return sum(counts.values()), sum(sums.values())


# S25: the time to the first token is the client's, of requests that ended well, queueing included.
def test_time_to_first_token(server):
    server.register(f"<schema name='ttft'><module name='m'>{WORDS * 20}</module></schema>")
    prompt = f"<prompt schema='ttft'><m/><user>{WORDS * 40}</user></prompt>"
    before = server.metrics()
    started = time.monotonic()
    events = stream(server.client, prompt, temperature=0, max_tokens=8)
    seen = next(token.arrived for token in tokens(events) if token.data["text"]) - started
    after = server.metrics()
    count_before, sum_before = ttft(before)
    count_after, sum_after = ttft(after)
    assert count_after - count_before == 1
    assert abs((sum_after - sum_before) - seen) < max(0.05, 0.2 * seen)
    assert after['time_to_first_token_seconds_count{cache="device"}'] == (
        before.get('time_to_first_token_seconds_count{cache="device"}', 0) + 1
    )


def test_failed_and_cancelled_requests_add_nothing_to_it(server):
    server.register(f"<schema name='ttft'><module name='m'>{WORDS * 20}</module></schema>")
    before = ttft(server.metrics())
    assert server.client.post("/generate", json={"prompt": "<prompt schema='ttft'><x/></prompt>"}).status_code == 400
    body = b'{"prompt": "<prompt schema=\'ttft\'><m/>' + (WORDS * 100).encode() + b'</prompt>"}'
    with connect(server) as connection:
        connection.sendall(
            b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        time.sleep(0.3)
    deadline = time.monotonic() + 3
    while server.metrics()["requests_running"] > 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert ttft(server.metrics()) == before


def test_the_cache_label_follows_what_was_there(server):
    server.register("<schema name='labels'><module name='a'>one two three</module><module name='b'>four five</module></schema>")
    server.register("<schema name='bare'/>")

    def label_of(prompt, **fields):
        before = server.metrics()
        stream(server.client, prompt, max_tokens=4, ignore_eos=True, temperature=0, **fields)
        after = server.metrics()
        changed = [name for name in after if name.startswith("time_to_first_token_seconds_count") and after[name] != before.get(name, 0)]
        assert len(changed) == 1, changed
        return changed[0].split('"')[1]

    both = "<prompt schema='labels'><a/><b/>six</prompt>"
    assert label_of(both) == "device"
    assert label_of(both, cache="bypass") == "miss"
    assert label_of("<prompt schema='bare'>six</prompt>") == "none"
    server.client.patch("/schemas/labels", json={"modules": {"a": {"pin": True}}})
    server.client.delete("/cache")
    assert label_of(both) == "partial"
    assert label_of(both) == "device"


def test_tokens_are_counted_by_source(server):
    server.register("<schema name='labels'><module name='a'>one two three</module><module name='b'>four five</module></schema>")
    before = server.metrics()
    answer = server.generate("<prompt schema='labels'><a/><b/>six</prompt>", max_tokens=3, ignore_eos=True)
    after = server.metrics()
    usage = answer["usage"]

    def rise(name):
        return after[name] - before.get(name, 0)

    assert rise('prompt_tokens_total{source="device"}') == usage["cached_tokens"]
    assert rise('prompt_tokens_total{source="computed"}') == usage["new_tokens"]
    assert rise("generated_tokens_total") == 3
    assert rise('requests_total{outcome="ok",route="generate"}') == 1
    assert rise("module_lookups_total") == 2
    assert rise('module_hits_total{tier="device"}') == 2
    assert rise("ttft_saved_seconds_total") > 0


# S26: look-ups are counted once per request and module, however often a request has to wait or start again.
def test_lookups_and_hits_match_the_requests(start_tiny):
    server = start_tiny("--max-running", "4", kv="2MiB")
    modules = "".join(f"<module name='m{i}'>{i} {WORDS * 8}</module>" for i in range(8))
    server.register(f"<schema name='many'>{modules}</schema>")
    server.client.delete("/cache")
    first = server.metrics()
    scrapes = [first]
    done = threading.Event()

    def scrape():
        while not done.wait(0.2):
            scrapes.append(server.metrics())

    looked_up = []  # by each request: what its answer says it is made of (the root text, BOS, counts as one)

    def ask(index):
        with httpx.Client(base_url=server.url, timeout=120) as client:
            prompt = f"<prompt schema='many'><m{index % 8}/>Question {index}.</prompt>"
            answer = client.post("/generate", json={"prompt": prompt, "max_tokens": 4, "stream": False})
            assert answer.status_code == 200, answer.text
            looked_up.append(sum(part["module"] != "#prefix" for part in answer.json()["cache"]))

    scraper = threading.Thread(target=scrape)
    scraper.start()
    threads = [threading.Thread(target=ask, args=(index,)) for index in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    scraper.join()
    scrapes.append(server.metrics())
    final = scrapes[-1]
    assert looked_up == [2] * 40
    assert final["module_lookups_total"] - first["module_lookups_total"] == sum(looked_up)
    hits = final['module_hits_total{tier="device"}'] - first.get('module_hits_total{tier="device"}', 0)
    assert 0 <= hits <= sum(looked_up)
    for earlier, later in itertools.pairwise(scrapes):
        for name, value in earlier.items():
            if name.endswith(("_total", "_count")) or "_total{" in name or "_bucket{" in name:
                assert later[name] >= value, name
        assert later.get('module_hits_total{tier="device"}', 0) <= later["module_lookups_total"]


def test_metrics_are_well_formed(server):
    response = server.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in response.text.splitlines():
        assert line.startswith("# ") or float(line.rsplit(" ", 1)[1]) >= 0 or "NaN" in line
    for name in (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "request_duration_seconds",
        "request_queue_seconds",
        "stage_seconds",
        "module_lookups_total",
        "prompt_tokens_total",
        "generated_tokens_total",
        "requests_total",
        "requests_running",
        "requests_waiting",
        "module_encode_seconds",
        "module_encodes_total",
        "cache_bytes",
        "cache_capacity_bytes",
        "cache_pinned_bytes",
        "cache_entries",
        "schemas",
        "batch_size",
        "batch_tokens",
        "kv_blocks_free",
        "build_info",
    ):
        assert f"# TYPE promptcached_{name} " in response.text, name
    assert "process_resident_memory_bytes" in response.text


def test_no_label_holds_what_clients_chose(server):
    server.register("<schema name='very-private-name'><module name='secret-module'>x</module></schema>")
    server.generate("<prompt schema='very-private-name'><secret-module/>hello</prompt>", max_tokens=1)
    server.client.get("/some-private-path")
    text = server.client.get("/metrics").text
    for word in ("very-private-name", "secret-module", "some-private-path"):
        assert word not in text


def test_gauges_return_to_zero(server):
    with (
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream(
            "POST", "/generate", json={"prompt": "<prompt schema='alive'>Hello</prompt>", "max_tokens": 200, "ignore_eos": True}
        ) as response,
    ):
        events = read_events(response.iter_raw())
        next(events)
        assert server.metrics()["requests_running"] == 1
    deadline = time.monotonic() + 2
    while server.metrics()["requests_running"] != 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
