"""Flags, environment, file: what they accept, what they refuse, and who wins. No model is loaded here."""

import re
import subprocess

import pytest
from conftest import BINARY, PROJECT, clean_environment


def run(*arguments, **environment):
    return subprocess.run(
        [str(BINARY), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=30,
        env={**clean_environment(), **environment},
        check=False,
    )


def refusal(*arguments, **environment):
    result = run(*arguments, **environment)
    assert result.returncode == 1, result
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def options_of_help():
    help_text = run("--help").stdout
    return help_text, set(re.findall(r"--([a-z-]+)", help_text.split("Options:", 1)[1]))


def test_help_groups_every_option():
    help_text, _ = options_of_help()
    for group in ("Model:", "Cache:", "Load:", "Network:", "Logs and debugging:"):
        assert group in help_text
    for default in ("[127.0.0.1:8080]", "[8MiB]", "[600s]", "[30s]", "[512]", "[64]", "[256]", "[1024]"):
        assert default in help_text, default


@pytest.mark.parametrize("document", ["config/promptcached.toml", "docs/configuration.md"])
def test_documents_hold_every_option(document):
    _, options = options_of_help()
    text = (PROJECT / document).read_text()
    for option in options - {"help", "version", "config"}:
        pattern = rf"^# ?{option} = |^{option} = " if document.endswith("toml") else rf"`--{option}`"
        assert re.search(pattern, text, re.MULTILINE), f"{option} is not in {document}"


def test_the_example_file_is_accepted(tmp_path):
    # With every example uncommented it must still be good; only the model it names is not there.
    text = (PROJECT / "config/promptcached.toml").read_text()
    lines = [re.sub(r"^# ([a-z-]+ = )", r"\1", line) for line in text.splitlines()]
    lines = [line for line in lines if not re.match(r"(tls-|api-keys|schemas|warm|ops-listen|listen|max-model-len)", line)]
    file = tmp_path / "all.toml"
    file.write_text("\n".join(lines))
    result = run("--config", file, "--model", tmp_path / "none", "--listen", "127.0.0.1:0", "--log-format", "text")
    assert result.returncode == 1
    assert "none" in result.stderr.strip().splitlines()[-1]


def test_unknown_names_are_refused_with_the_nearest(tmp_path):
    assert "did you mean '--kv-device-bytes'?" in refusal("--kv-device-byte", "1GiB")
    assert "did you mean '--max-queue'?" in refusal("--max-qeue=5")
    assert "unknown argument 'serve'" in refusal("serve")
    assert "did you mean 'PROMPTCACHED_MAX_QUEUE'?" in refusal(PROMPTCACHED_MAX_QEUE="5")
    file = tmp_path / "bad.toml"
    file.write_text("\nmax-qeue = 5\n")
    message = refusal("--config", file)
    assert "bad.toml:2:" in message and "did you mean 'max-queue'?" in message
    file.write_text("[server]\nmax-queue = 5\n")
    assert "server is not an option" in refusal("--config", file)


@pytest.mark.parametrize(
    "option,values",
    [
        ("kv-device-bytes", ["12", "lots", "-1GiB", "1 GiB", "GiB", "99999999TiB"]),
        ("request-timeout", ["600", "-1s", "1 s", "soon"]),
        ("max-queue", ["-1", "1.5", "many", ""]),
        ("listen", ["8080", "localhost", "127.0.0.1:99999", "127.0.0.1:http", "::1:80"]),
        ("weights", ["fp8", ""]),
        ("device", ["gpu", "cuda:", "cuda:x"]),
        ("log-level", ["loud"]),
        ("log-format", ["xml"]),
        ("threads", ["0"]),
    ],
)
def test_bad_values_are_refused_by_name(tmp_path, option, values):
    for value in values:
        assert f"--{option}" in refusal(f"--{option}={value}")
        variable = "PROMPTCACHED_" + option.upper().replace("-", "_")
        assert variable in refusal(**{variable: value})
        file = tmp_path / "bad.toml"
        file.write_text(f'{option} = "{value}"\n')
        assert f"bad.toml:1: {option}" in refusal("--config", file)


def test_options_that_belong_together():
    assert "--model is required" in refusal()
    assert "--tls-cert and --tls-key" in refusal("--model", "x", "--tls-cert", "c")
    assert "--warm needs --schemas" in refusal("--model", "x", "--warm")


def test_files_that_are_none(tmp_path):
    assert "missing.toml" in refusal("--config", tmp_path / "missing.toml")
    file = tmp_path / "broken.toml"
    file.write_text("model = \n")
    assert "broken.toml:1" in refusal("--config", file)
    file.write_text("max-queue = [1]\n")
    assert "broken.toml:1: max-queue must be" in refusal("--config", file)
    file.write_text("max-queue = 1\nmax-queue = 2\n")
    assert "broken.toml:2" in refusal("--config", file)


# Flags over environment over file: told apart by which of three missing models is named.
def test_who_wins(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(f'model = "{tmp_path}/from-file"\n')

    def named(*arguments, **environment):
        result = run("--listen", "127.0.0.1:0", *arguments, **environment)
        assert result.returncode == 1
        return re.search(r"from-\w+", result.stderr.strip().splitlines()[-1]).group()

    by_environment = {"PROMPTCACHED_MODEL": f"{tmp_path}/from-environment"}
    assert named("--config", file) == "from-file"
    assert named(PROMPTCACHED_CONFIG=str(file)) == "from-file"
    assert named("--config", file, **by_environment) == "from-environment"
    assert named("--config", file, "--model", tmp_path / "from-flag", **by_environment) == "from-flag"


# Kubernetes puts these into every pod beside a Service named "promptcached".
def test_service_variables_are_no_options():
    message = refusal(
        PROMPTCACHED_SERVICE_HOST="10.0.0.1",
        PROMPTCACHED_SERVICE_PORT="80",
        PROMPTCACHED_PORT="tcp://10.0.0.1:80",
        PROMPTCACHED_PORT_80_TCP_ADDR="10.0.0.1",
    )
    assert "--model is required" in message
