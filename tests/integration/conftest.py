"""Starts the real server on a real model; the tests talk to it over HTTP as clients do.

PROMPTCACHED_BINARY and PROMPTCACHED_TEST_MODEL say which; by default build/promptcached on the default model.
"""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

PROJECT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("PROMPTCACHED_BINARY", PROJECT / "build/promptcached"))
MODEL = Path(os.environ.get("PROMPTCACHED_TEST_MODEL") or os.environ.get("PROMPTCACHED_MODEL") or PROJECT / "models/smollm2-135m-instruct")
START_SECONDS = 120


def clean_environment():
    """Without the variables that steer the tests: the server refuses those it does not know."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PROMPTCACHED_")}


class Server:
    """One server process, on a free port of 127.0.0.1."""

    def __init__(self, log_path, *arguments, model=MODEL, kv="192MiB", environment=None):
        self.log_path = Path(log_path)
        self.arguments = [str(BINARY), "--model", str(model), "--listen", "127.0.0.1:0"]
        if kv:
            self.arguments += ["--kv-device-bytes", kv]
        self.arguments += [str(argument) for argument in arguments]
        self.environment = {**clean_environment(), **(environment or {})}
        self.process = None
        self.url = None
        self.client = None

    def start(self, ready=True):
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(self.arguments, stderr=log, stdout=log, env=self.environment)
        self.url = self.wait_for_log(r"listening on (https?://\S+)")
        self.client = httpx.Client(base_url=self.url, timeout=120, verify=False)
        if ready:
            self.wait_ready()
        return self

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_for_log(self, pattern, seconds=START_SECONDS):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.log())
            if found:
                return found.group(1) if found.groups() else found.group(0)
            assert not ended, f"the server ended with {self.process.returncode}:\n{self.log()}"
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in the log:\n{self.log()}")

    def wait_ready(self, seconds=START_SECONDS):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended:\n{self.log()}"
            if self.client.get("/readyz").status_code == 200:
                return
            time.sleep(0.05)
        raise AssertionError(f"not ready:\n{self.log()}")

    @property
    def address(self):
        host, port = self.url.split("://")[1].rsplit(":", 1)
        return host, int(port)

    def rss_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def terminate(self, seconds=60):
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def stop(self):
        if self.client:
            self.client.close()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)

    # ---- What tests do most ----

    def register(self, pml, **parameters):
        response = self.client.post("/schemas", content=pml, headers={"Content-Type": "application/xml"}, params=parameters)
        assert response.status_code in (200, 201, 202), response.text
        return response.json()

    def generate(self, prompt, **fields):
        """Unstreamed; the whole document."""
        response = self.client.post("/generate", json={"prompt": prompt, "stream": False, **fields})
        assert response.status_code == 200, response.text
        return response.json()

    def text(self, prompt, **fields):
        return self.generate(prompt, temperature=0, **fields)["text"]

    def assert_alive(self):
        assert self.process.poll() is None, self.log()
        self.register("<schema name='alive'>Say hello.</schema>")
        assert self.generate("<prompt schema='alive'>Hello</prompt>", temperature=0, max_tokens=2)["text"] is not None

    def metrics(self):
        return parse_metrics(self.client.get("/metrics").text)


def parse_metrics(text):
    """{'name{label="x"}': value}, labels sorted; names without their prefix."""
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            base, _, labels = name.partition("{")
            parts = sorted(re.findall(r'\w+="[^"]*"', labels))
            key = base.removeprefix("promptcached_") + ("{" + ",".join(parts) + "}" if parts else "")
            values[key] = float(value)
    return values


@pytest.fixture
def start_server(tmp_path):
    """Starts servers of a test's own; they are gone when it ends."""
    servers = []

    def start(*arguments, ready=True, **options):
        server = Server(tmp_path / f"server-{len(servers)}.log", *arguments, **options)
        servers.append(server)
        return server.start(ready=ready)

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("shared") / "server.log", "--max-queue", "300", "--kv-check")
    try:
        yield server.start()
    finally:
        server.stop()
        print(server.log()[-20000:])


@pytest.fixture
def server(shared_server):
    """The server most tests share. It must be alive, and idle, after each of them."""
    yield shared_server
    shared_server.assert_alive()
