"""Modules below the device: what comes back from there is what was there, and what goes wrong there is a miss."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time

import httpx
import pytest
from conftest import wait_for
from near_ties import assert_same_or_near_tie

TOKEN_BYTES = 23_040  # of the default model, in fp16
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "islet", "jetty", "knoll", "larch", "marsh", "north"]
ANSWER_TOKENS = 12


def code_word(number):
    return f"{WORDS[number % len(WORDS)]}{number * 37 % 101}"


def schema(number, sentences=10):
    """A page of text of its own, with a code word, of about 25 tokens a sentence."""
    pages = " ".join(
        f"Note {i} of file {number}: the {WORDS[(number + i) % len(WORDS)]} gate was checked {i + 2} times and the "
        f"{WORDS[(number * 3 + i) % len(WORDS)]} lamp was lit."
        for i in range(sentences)
    )
    text = f"The code word of file {number} is {code_word(number)}. {pages}"
    return f"<schema name='file{number}'><module name='page'>{text}</module></schema>"


def prompt(number):
    return f"<prompt schema='file{number}'><page/><user>What is the code word of file {number}?</user></prompt>"


def ask(client, number):
    fields = {"temperature": 0, "max_tokens": ANSWER_TOKENS, "ignore_eos": True, "logprobs": 2, "stream": False}
    response = client.post("/generate", json={"prompt": prompt(number), **fields})
    assert response.status_code == 200, response.text
    return response.json()


def register_all(server, count, **kind):
    for number in range(count):
        server.register(schema(number, **kind))


def expected_answers(server, count):
    return [ask(server.client, number)["tokens"] for number in range(count)]


def assert_answers_again(server, expected):
    for one, other in zip(expected, expected_answers(server, len(expected)), strict=True):
        assert_same_or_near_tie(one, other)


def ask_in_random_order(server, count, rounds, concurrency):
    """(number, answer) of all, from as many threads."""
    order = random.Random(count).sample(list(range(count)) * rounds, count * rounds)
    answers, lock = [], threading.Lock()

    def work():
        with httpx.Client(base_url=server.url, timeout=300) as client:
            while True:
                with lock:
                    if not order:
                        return
                    number = order.pop()
                answer = ask(client, number)
                with lock:
                    answers.append((number, answer))

    threads = [threading.Thread(target=work) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def check_answers(answers, expected):
    for number, answer in answers:
        assert_same_or_near_tie(expected[number], answer["tokens"])
        for other in range(len(expected)):
            assert other == number or code_word(other) not in answer["text"]


def entries(server, tier):
    """How many of the files' pages the tier holds. (The tiny model's root text, a BOS, is an entry of its own.)"""
    modules = server.client.get("/cache").json()["modules"]
    return sum(module["tier"] == tier and not all(user.endswith("#root") for user in module["used_by"]) for module in modules)


def hits(server, tier):
    return server.metrics()[f'module_hits_total{{tier="{tier}"}}']


# S22: room for two modules on the device, some on the host, and for the rest in the last tier.
def check_under_pressure(start_server, last, arguments, schemas, sentences, host_modules, environment=None):
    """Asks in random order, and holds the answers against a server's with room for all; returns the server."""
    count = int(os.environ.get("TIERS_SCHEMAS", schemas))
    sentences = int(os.environ.get("TIERS_SENTENCES", sentences))
    plenty = start_server(kv="4GiB" if count > 10 else "512MiB")
    register_all(plenty, count, sentences=sentences)
    expected = expected_answers(plenty, count)
    module = plenty.client.get("/schemas/file0").json()["kv_bytes"]
    plenty.stop()
    # Each running request takes a few blocks of its own beside its module.
    kv = module * 2 + 8 * 3 * 64 * TOKEN_BYTES
    server = start_server("--kv-check", *arguments, kv=str(kv), host=str(int(module * host_modules)), environment=environment)
    register_all(server, count, sentences=sentences)
    wait_for(lambda: entries(server, last) == count, seconds=60)
    encoded = server.metrics()["module_encodes_total"]
    answers = ask_in_random_order(server, count, rounds=3, concurrency=8)
    assert len(answers) == 3 * count
    check_answers(answers, expected)
    for tier in ("device", "host", last):
        assert hits(server, tier) > 0
    assert server.metrics()["module_encodes_total"] == encoded
    return server


def test_answers_under_pressure(start_server, tmp_path):
    arguments = ["--kv-disk-path", tmp_path / "kv"]
    server = check_under_pressure(start_server, "disk", arguments, schemas=10, sentences=10, host_modules=4.5)
    assert server.terminate() == 0


def test_a_second_start_reads_what_the_first_encoded(start_server, tmp_path):
    arguments = ["--kv-check", "--kv-disk-path", tmp_path / "kv"]
    first = start_server(*arguments)
    register_all(first, 3)
    expected = expected_answers(first, 3)
    assert first.terminate() == 0
    second = start_server(*arguments)
    register_all(second, 3)
    assert_answers_again(second, expected)
    assert second.metrics()["module_encodes_total"] == 0
    second.client.delete("/cache")
    answer = ask(second.client, 1)
    assert [part["tier"] for part in answer["cache"] if part["tokens"]] == ["disk"]
    assert answer["tokens"] == expected[1]
    third = subprocess.run(second.arguments, env=second.environment, capture_output=True, text=True, timeout=60)
    assert third.returncode == 1
    assert "another process uses" in third.stderr


def test_a_schema_that_is_deleted_leaves_every_tier(start_tiny, tmp_path):
    server = start_tiny("--kv-disk-path", tmp_path / "kv", host="16MiB")
    register_all(server, 3)
    wait_for(lambda: entries(server, "disk") == 3)
    for number in range(3):
        assert server.client.delete(f"/schemas/file{number}").status_code == 204
    wait_for(lambda: entries(server, "disk") == 0)
    wait_for(lambda: not list((tmp_path / "kv/modules").iterdir()))
    metrics = server.metrics()
    for tier in ("device", "host", "disk"):
        assert metrics[f'cache_bytes{{tier="{tier}"}}'] == 0


def test_cache_tells_and_drops_by_tier(start_tiny, tmp_path):
    server = start_tiny("--kv-disk-path", tmp_path / "kv", host="16MiB")
    register_all(server, 1)
    server.register(schema(0).replace("file0'", "twin0'"))
    wait_for(lambda: entries(server, "disk") == 1)
    modules = server.client.get("/cache").json()["modules"]
    pages = [module for module in modules if "file0/page" in module["used_by"]]
    assert sorted(page["tier"] for page in pages) == ["device", "disk"]
    assert all(page["used_by"] == ["file0/page", "twin0/page"] for page in pages)  # one entry for both
    assert server.client.delete("/cache").json()["freed_bytes"] > 0
    assert server.client.get("/schemas/file0").json()["modules"][0]["tier"] == "disk"
    assert server.client.delete("/cache", params={"tier": "disk"}).json()["freed_bytes"] > 0
    assert server.client.get("/schemas/file0").json()["modules"][0]["tier"] == "none"
    refused = server.client.delete("/cache", params={"tier": "remote"})
    assert refused.status_code == 400
    assert "device, host, disk" in refused.json()["error"]["message"]


# S23: whatever became of the files, an answer is the cold one.
@pytest.mark.parametrize("running", [False, True])
def test_damaged_files_are_misses(start_tiny, tmp_path, running):
    arguments = ["--kv-disk-path", tmp_path / "kv", "--kv-check"]
    server = start_tiny(*arguments)
    register_all(server, 4)
    expected = expected_answers(server, 4)
    wait_for(lambda: entries(server, "disk") == 4)
    if not running:
        assert server.terminate() == 0
    files = sorted((tmp_path / "kv/modules").iterdir(), key=lambda file: -file.stat().st_size)[:4]
    os.truncate(files[0], files[0].stat().st_size // 2)
    content = bytearray(files[1].read_bytes())
    content[-10] ^= 1
    files[1].write_bytes(content)
    files[2].write_bytes(b"")
    if running:
        server.client.delete("/cache")
    else:
        server = start_tiny(*arguments)
        register_all(server, 4)
    assert_answers_again(server, expected)
    metrics = server.metrics()
    assert metrics['cache_corrupt_total{tier="disk"}'] == 3
    assert metrics["module_encodes_total"] - (5 if running else 0) == 3
    wait_for(lambda: entries(server, "disk") == 4)  # good ones in their places


def test_another_dtype_never_reads_the_files(start_tiny, tmp_path):
    arguments = ["--kv-disk-path", tmp_path / "kv"]
    first = start_tiny(*arguments, "--kv-dtype", "fp16")
    register_all(first, 2)
    wait_for(lambda: entries(first, "disk") == 2)
    assert first.terminate() == 0
    alone = start_tiny("--kv-dtype", "bf16")
    register_all(alone, 2)
    expected = expected_answers(alone, 2)
    second = start_tiny(*arguments, "--kv-dtype", "bf16")
    register_all(second, 2)
    assert_answers_again(second, expected)
    metrics = second.metrics()
    assert metrics['cache_corrupt_total{tier="disk"}'] == 3  # two pages and the root
    assert metrics["module_encodes_total"] == 3


def register_until_killed(server, count):
    with contextlib.suppress(httpx.HTTPError):
        register_all(server, count, sentences=60)


# S23: killed while it writes, twenty times over.
def test_killed_while_spilling(start_tiny, tmp_path):
    count = 6
    alone = start_tiny()
    register_all(alone, count, sentences=60)
    expected = expected_answers(alone, count)
    alone.stop()
    arguments = ["--kv-disk-path", tmp_path / "kv", "--kv-check"]
    for round_number in range(20):
        server = start_tiny(*arguments, kv="2MiB", host="2MiB")
        writer = threading.Thread(target=register_until_killed, args=(server, count))
        writer.start()
        time.sleep(random.Random(round_number).uniform(0, 0.25))
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(30)
        writer.join()
    server = start_tiny(*arguments, kv="2MiB", host="2MiB")
    register_all(server, count, sentences=60)
    assert_answers_again(server, expected)
    assert server.metrics()['cache_corrupt_total{tier="disk"}'] == 0
    wait_for(lambda: entries(server, "disk") == count)
    assert not list((tmp_path / "kv/modules").glob("*.tmp"))


# S23: a volume that is full.
def test_a_full_disk_costs_nothing_but_the_tier(start_tiny, tmp_path):
    volume = tmp_path / "volume"
    volume.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", volume], capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a volume")
    try:
        server = start_tiny("--kv-disk-path", volume / "kv", "--kv-check", kv="2MiB")
        register_all(server, 6, sentences=60)
        answers = expected_answers(server, 6)
        wait_for(lambda: server.metrics()['tier_errors_total{tier="disk"}'] > 0)
        assert_answers_again(server, answers)
        assert server.terminate() == 0
    finally:
        subprocess.run(["umount", "-l", volume], check=True)


# S24: the budgets hold, whatever is asked for.
def test_memory_stays_within_the_budgets(start_server):
    budget = 24 << 20
    server = start_server("--kv-check", kv=str(budget), host=str(budget))
    # A server that has worked has its working memory, and what remains of it in the heaps of its threads.
    server.register(schema(90, sentences=8))
    ask(server.client, 90)
    server.client.delete("/schemas/file90")
    wait_for(lambda: server.metrics()['cache_bytes{tier="device"}'] == 0)
    baseline = server.allocated_bytes()

    def use(numbers):
        for number in numbers:
            server.register(schema(number, sentences=8))
            ask(server.client, number)
        return server.allocated_bytes() - baseline

    full = use(range(24))
    metrics = server.metrics()
    assert metrics['cache_evictions_total{reason="capacity",tier="host"}'] > 0
    assert metrics['cache_bytes{tier="host"}'] <= budget
    # Some working memory stays in the heaps of many threads; the modules without a budget would take 220 MiB.
    assert full < 2 * budget * 1.1 + (48 << 20), server.memory()
    assert use(range(24, 48)) < full + (16 << 20), server.memory()
    refused = server.client.post("/schemas", content=schema(99, sentences=120), headers={"Content-Type": "application/xml"})
    assert refused.status_code == 507
    assert refused.json()["error"]["code"] == "too_large_for_cache"
    for number in range(48):
        server.client.delete(f"/schemas/file{number}")
    wait_for(lambda: server.metrics()['cache_bytes{tier="host"}'] == 0)
    assert server.metrics()['cache_bytes{tier="device"}'] == 0
    server.assert_alive()


@pytest.mark.parametrize("codec", ["int8", "raw"])
@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_forms_below_the_device(start_server, tmp_path, codec, compression):
    server = start_server("--kv-codec", codec, "--kv-compression", compression, "--kv-disk-path", tmp_path / "kv")
    register_all(server, 1)
    exact = ask(server.client, 0)
    wait_for(lambda: entries(server, "disk") == 1)
    server.client.delete("/cache")
    answer = ask(server.client, 0)
    assert [part["tier"] for part in answer["cache"] if part["tokens"]] == ["disk"]
    if codec == "raw":
        assert answer["tokens"] == exact["tokens"]
    else:
        assert_same_or_near_tie(exact["tokens"], answer["tokens"])
        tiers = {tier["tier"]: tier for tier in server.client.get("/cache").json()["tiers"]}
        assert tiers["disk"]["used_bytes"] < tiers["device"]["module_bytes"] * 0.6
