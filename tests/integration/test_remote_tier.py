"""A store that several servers share: real Redis and S3 servers, killed, slowed down and spoilt."""

import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from conftest import wait_for
from test_tiers import ask, check_under_pressure, entries, expected_answers, hits, register_all


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Store:
    """Another program's server on a port of its own."""

    def __init__(self, command, port):
        self.command, self.port = command, port
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", self.port)) == 0)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def redis():
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    store = Store(command, port).start()
    store.uri = f"redis://127.0.0.1:{port}"
    yield store
    store.kill()


@pytest.fixture
def s3():
    program = Path(sys.executable).parent / "moto_server"
    if not program.exists():
        pytest.skip("moto is not installed")
    port = free_port()
    store = Store([program, "--host", "127.0.0.1", "--port", str(port)], port).start()
    try:
        assert httpx.put(f"http://127.0.0.1:{port}/modules").status_code == 200
        store.uri = f"s3://modules/tests?endpoint=http://127.0.0.1:{port}&region=us-east-1"
        yield store
    finally:
        store.kill()


KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def redis_cli(store, *arguments):
    return subprocess.run(["redis-cli", "-p", str(store.port), *arguments], capture_output=True, check=True).stdout


# S22, with a store as the last tier.
@pytest.mark.parametrize("kind", ["redis", "s3"])
def test_answers_under_pressure(start_server, request, kind):
    store = request.getfixturevalue(kind)
    arguments = ["--kv-remote", store.uri]
    server = check_under_pressure(start_server, "remote", arguments, schemas=8, sentences=6, host_modules=2.5, environment=KEYS)
    assert server.metrics()['tier_errors_total{tier="remote"}'] == 0


def test_a_replica_encodes_nothing_that_another_has_seen(start_server, redis):
    first = start_server("--kv-remote", redis.uri)
    register_all(first, 2)
    expected = expected_answers(first, 2)
    wait_for(lambda: entries(first, "remote") == 2)
    second = start_server("--kv-remote", redis.uri)
    register_all(second, 2)
    assert expected_answers(second, 2) == expected
    assert second.metrics()["module_encodes_total"] == 0
    first.client.delete("/schemas/file0")
    wait_for(lambda: redis_cli(redis, "DBSIZE").strip() == b"1")


def test_redis_that_goes_away_and_comes_back(start_tiny, redis):
    server = start_tiny("--kv-remote", redis.uri, "--kv-remote-timeout", "300ms", "--kv-check")
    register_all(server, 4)
    expected = expected_answers(server, 4)
    wait_for(lambda: entries(server, "remote") == 4)
    failures, stop = [], threading.Event()

    def keep_asking():
        with httpx.Client(base_url=server.url, timeout=120) as client:
            number = 0
            while not stop.is_set():
                number = (number + 1) % 4
                client.delete("/cache")
                if ask(client, number)["tokens"] != expected[number]:
                    failures.append(number)

    thread = threading.Thread(target=keep_asking)
    thread.start()
    time.sleep(1)
    redis.kill()
    time.sleep(2)
    redis.start()
    time.sleep(3)
    stop.set()
    thread.join()
    assert not failures
    assert server.metrics()['tier_errors_total{tier="remote"}'] > 0
    assert "answers again" in server.log()
    before = hits(server, "remote")

    def is_used_again():
        server.client.delete("/cache")
        assert expected_answers(server, 4) == expected
        return hits(server, "remote") > before

    # A store that was measured as slow is passed by, and tried again after half a minute.
    wait_for(is_used_again, seconds=100)


# S23, for a store.
def test_a_value_that_was_cut_short_is_a_miss(start_tiny, redis):
    server = start_tiny("--kv-remote", redis.uri)
    register_all(server, 1)
    expected = expected_answers(server, 1)
    wait_for(lambda: entries(server, "remote") == 1)
    for name in redis_cli(redis, "KEYS", "*").split():
        value = redis_cli(redis, "GET", name)
        redis_cli(redis, "SET", name, value[:200].hex())
    server.client.delete("/cache")
    assert expected_answers(server, 1) == expected
    assert server.metrics()['cache_corrupt_total{tier="remote"}'] > 0


class SlowProxy(threading.Thread):
    """Hands on to a server what it gets, each piece after a while."""

    def __init__(self, target, delay):
        super().__init__(daemon=True)
        self.target, self.delay = target, delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            client, _ = self.listener.accept()
            upstream = socket.create_connection(("127.0.0.1", self.target))
            for source, sink in ((client, upstream), (upstream, client)):
                threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    def pump(self, source, sink):
        while data := source.recv(1 << 16):
            time.sleep(self.delay)
            sink.sendall(data)


def test_a_slow_store_is_passed_by(start_tiny, redis):
    proxy = SlowProxy(redis.port, 0.2)
    server = start_tiny("--kv-remote", f"redis://127.0.0.1:{proxy.port}", "--kv-remote-timeout", "5s")
    register_all(server, 3)
    expected = expected_answers(server, 3)
    wait_for(lambda: entries(server, "remote") == 3, seconds=60)
    for _ in range(3):
        server.client.delete("/cache")
        assert expected_answers(server, 3) == expected
    assert server.metrics()['tier_bypasses_total{tier="remote"}'] > 0


def test_a_store_that_is_not_there_does_not_stop_the_start(start_tiny):
    server = start_tiny("--kv-remote", f"redis://127.0.0.1:{free_port()}")
    register_all(server, 2)
    expected_answers(server, 2)
    server.assert_alive()


def test_a_wrong_uri_is_refused(start_tiny, tmp_path):
    server = start_tiny()
    for uri, hint in (("http://host", "redis://"), ("redis://", "host"), ("s3://", "bucket")):
        ended = subprocess.run([*server.arguments, "--kv-remote", uri], env=server.environment, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 1
        assert "--kv-remote" in ended.stderr
        assert hint in ended.stderr
