"""What the process says and returns when it is started wrongly. How options are read is tested in tests/unit/server."""

import subprocess

import pytest
from conftest import BINARY, clean_environment


def run(*arguments, **environment):
    return subprocess.run(
        [str(BINARY), *map(str, arguments)],
        capture_output=True, text=True, timeout=60, env={**clean_environment(), **environment}, check=False,
    )  # fmt: skip


def test_help_and_version():
    help_text = run("--help")
    assert help_text.returncode == 0
    assert help_text.stderr == ""
    for group in ("Model:", "Cache:", "Load:", "Network:", "Logs and debugging:"):
        assert group in help_text.stdout
    version = run("--version")
    assert version.returncode == 0
    assert version.stdout.startswith("promptcached ")


@pytest.mark.parametrize(
    "arguments,environment,words",
    [
        (["--kv-device-byte", "1GiB"], {}, "did you mean '--kv-device-bytes'?"),
        ([], {"PROMPTCACHED_MAX_QEUE": "5"}, "did you mean 'PROMPTCACHED_MAX_QUEUE'?"),
        (["--config", "missing.toml"], {}, "missing.toml"),
        ([], {"PROMPTCACHED_SERVICE_HOST": "10.0.0.1"}, "--model is required"),
    ],
)
def test_refusals_are_one_line_and_status_1(arguments, environment, words):
    result = run(*arguments, **environment)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert words in result.stderr
