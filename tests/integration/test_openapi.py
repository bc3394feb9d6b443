"""/openapi.json, and the server it describes: schemathesis makes requests of it, good and bad, and looks at the answers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Server, clean_environment, make_tiny_model

TEMPLATE = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
CONFIG = Path(__file__).parent / "openapi/schemathesis.toml"
HEADERS = {"Authorization": "Bearer 0123456789abcdef"}


@pytest.fixture
def keyed(tmp_path):
    """A server that asks for a key, on a tiny model with a chat template."""
    model = make_tiny_model(tmp_path / "tiny-chat")
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    (tmp_path / "keys").write_text("0123456789abcdef\n")
    server = Server(tmp_path / "server.log", "--api-keys", tmp_path / "keys", "--kv-check", model=model, kv="64MiB")
    try:
        yield server.start()
    finally:
        server.stop()


def test_the_server_is_as_described(keyed):
    document = keyed.client.get("/openapi.json")  # without the key
    assert document.status_code == 200
    assert keyed.client.get("/v1/models").status_code == 401
    done = subprocess.run(
        [Path(sys.executable).parent / "schemathesis", "--config-file", CONFIG, "run", f"{keyed.url}/openapi.json"],
        cwd=CONFIG.parent,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]

    # It is worth something where requests were served as well as refused.
    keyed.client.headers.update(HEADERS)
    metrics = keyed.metrics()
    for route in ("generate", "explain", "completions", "chat", "tokenize", "schemas", "models", "cache"):
        assert metrics[f'requests_total{{outcome="ok",route="{route}"}}'] > 0, route
