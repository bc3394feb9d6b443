"""--dry-run: what the process prints of a directory that holds a config.json alone."""

import json
import subprocess

import pytest
from conftest import BINARY, PROJECT, clean_environment

CONFIGS = PROJECT / "tests/data/configs"


def dry_run(model, *arguments):
    return subprocess.run(
        [str(BINARY), "--model", str(model), "--dry-run", *arguments],
        capture_output=True, text=True, timeout=60, env=clean_environment(), check=False,
    )  # fmt: skip


def printed(result):
    """The page's lines by their labels."""
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return {line[:22].rstrip(): line[22:].split() for line in result.stdout.splitlines() if line}


def test_a_configuration_alone_is_enough():
    page = printed(dry_run(CONFIGS / "llama-2-7b", "--device", "cpu", "--kv-dtype", "fp16", "--kv-device-bytes", "8GiB"))
    assert page["architecture"] == ["LlamaForCausalLM"]
    assert page["parameters"] == ["6,738,415,616"]
    assert page["weights"][:4] == ["6.54", "GiB", "as", "int8"]
    assert page["KV per token"][:4] == ["524,288", "bytes", "(0.50", "MiB)"]
    assert page["  device"] == ["8.00", "GiB", "16,384", "--kv-device-bytes"]
    assert "  4,096 tokens" in page


@pytest.mark.parametrize("model", sorted(directory.name for directory in CONFIGS.iterdir()))
def test_every_published_configuration_is_understood(model):
    page = printed(dry_run(CONFIGS / model))
    assert int(page["parameters"][0].replace(",", "")) > 10**8
    assert page["  device"][1] in ("bytes", "KiB", "MiB", "GiB", "TiB")  # the default budget, of what is free here


@pytest.mark.parametrize(
    "config,words",
    [
        (None, "config.json: is missing"),
        ("not JSON", "is not a JSON object"),
        (json.dumps({"architectures": ["MambaForCausalLM"]}), "names 'MambaForCausalLM', which is not supported"),
        (json.dumps({"architectures": ["LlamaForCausalLM"]}), "field 'hidden_size' is missing"),
    ],
)
def test_what_is_not_understood_is_one_line_and_status_1(tmp_path, config, words):
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    result = dry_run(tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert words in result.stderr
