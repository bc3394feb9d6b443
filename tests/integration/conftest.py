"""Starts the real server; the tests talk to it over HTTP as clients do.

What an answer is worth is tested on a real model: PROMPTCACHED_TEST_MODEL, by default the default model. What does not
depend on it (starting, stopping, connections) is tested on a tiny random one, which loads in no time. PROMPTCACHED_BINARY
says which server; by default build/promptcached.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file

PROJECT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("PROMPTCACHED_BINARY", PROJECT / "build/promptcached"))
MODEL = Path(os.environ.get("PROMPTCACHED_TEST_MODEL") or os.environ.get("PROMPTCACHED_MODEL") or PROJECT / "models/smollm2-135m-instruct")
START_SECONDS = 120


def clean_environment():
    """Without the variables that steer the tests: the server refuses those it does not know."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PROMPTCACHED_")}


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


class Server:
    """One server process, on a free port of 127.0.0.1."""

    def __init__(self, log_path, *arguments, model=MODEL, kv="192MiB", host="0", environment=None):
        self.log_path = Path(log_path)
        self.arguments = [str(BINARY), "--model", str(model), "--listen", "127.0.0.1:0"]
        if kv:
            self.arguments += ["--kv-device-bytes", kv]
        if host:
            self.arguments += ["--kv-host-bytes", host]
        self.arguments += [str(argument) for argument in arguments]
        self.environment = {**clean_environment(), **(environment or {})}
        self.process = None
        self.url = None
        self.client = None

    def start(self, ready=True):
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(self.arguments, stderr=log, stdout=log, env=self.environment)
        self.url = self.wait_for_log(r"listening on (https?://[^\s\"]+)")
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

    def _status_bytes(self, field):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", status).group(1)) * 1024

    def rss_bytes(self):
        return self._status_bytes("VmRSS")

    def allocated_bytes(self):
        """Resident memory without pages of files, which the system reads and drops as it likes."""
        return self._status_bytes("RssAnon")

    def memory(self):
        """What the process's memory is, for a message: its largest mappings in KiB, beside the computer's cores."""
        resident = re.findall(
            r"^\w+-\w+ \S+ \S+ \S+ \S+ *(.*)\nSize: +(\d+) kB\n(?:.*\n)*?Rss: +(\d+) kB",
            Path(f"/proc/{self.process.pid}/smaps").read_text(),
            re.MULTILINE,
        )
        largest = sorted(((int(rss), int(size), name) for name, size, rss in resident), reverse=True)[:40]
        return f"{os.cpu_count()} cores, resident of mapped: " + ", ".join(f"{rss}/{size} {Path(name).name}" for rss, size, name in largest)

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


def make_tiny_model(directory):
    """A Llama with random weights and the tests' 700-token vocabulary (with BOS), good for 100,000 positions."""
    hidden, inner, layers, heads, kv_heads, head_dim, vocab = 64, 128, 2, 4, 2, 16, 704
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": hidden,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": vocab, "max_position_embeddings": 100_000,
        "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    random = np.random.default_rng(7)

    def matrix(rows, columns):
        return random.normal(0, 0.3, (rows, columns)).astype(np.float32)

    ones = np.ones(hidden, np.float32)
    tensors = {"model.embed_tokens.weight": matrix(vocab, hidden), "lm_head.weight": matrix(vocab, hidden), "model.norm.weight": ones}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "input_layernorm.weight": ones,
            prefix + "post_attention_layernorm.weight": ones,
            prefix + "self_attn.q_proj.weight": matrix(heads * head_dim, hidden),
            prefix + "self_attn.k_proj.weight": matrix(kv_heads * head_dim, hidden),
            prefix + "self_attn.v_proj.weight": matrix(kv_heads * head_dim, hidden),
            prefix + "self_attn.o_proj.weight": matrix(hidden, heads * head_dim),
            prefix + "mlp.gate_proj.weight": matrix(inner, hidden),
            prefix + "mlp.up_proj.weight": matrix(inner, hidden),
            prefix + "mlp.down_proj.weight": matrix(hidden, inner),
        }
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(PROJECT / "tests/data/oracle/metaspace-tokenizer" / name, directory)
    return directory


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-random")


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


@pytest.fixture
def start_tiny(start_server, tiny_model):
    """The same on the tiny model."""

    def start(*arguments, **options):
        return start_server(*arguments, model=tiny_model, **{"kv": "64MiB", **options})

    return start


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("shared") / "server.log", "--max-queue", "300", "--max-batch-tokens", "128", "--kv-check")
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
