"""A GGUF file as the model: what the same model's directory answers, and what becomes of broken files."""

import struct
import subprocess
import time

import pytest
from conftest import BINARY, MODEL, PROJECT, Server, clean_environment
from near_ties import assert_same_or_near_tie

GGUF = PROJECT / "models/smollm2-135m-instruct.Q4_1.gguf"
STARTS_WITHIN_SECONDS = 5

SCHEMA = """<schema name="guide">
  <system>You answer travellers in two short sentences.</system>
  <user>
    <module name="lisbon">Lisbon has seven hills, yellow trams, and custard tarts that are best eaten warm.</module>
    <module name="oslo">Oslo has a fjord, an opera house with a roof to walk on, and expensive coffee.</module>
    <module name="trip">The trip takes <param name="days" len="4"/> days.</module>
</schema>"""

QUESTIONS = [
    "What should I eat?",
    "Where can I walk?",
    "Is it hilly?",
    "Write a haiku about it.",
    "What does coffee cost?",
    "Name three sights.",
    "¿Qué tiempo hace en marzo?",
    "Plan a morning.",
    "def trip(days):",
    "Is it worth a week?",
]
IMPORTS = ["<lisbon/>", "<oslo/><trip days='three'/>"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """One on the directory, one on the file."""
    logs = tmp_path_factory.mktemp("gguf")
    started = [Server(logs / f"{index}.log", model=model) for index, model in enumerate((MODEL, GGUF))]
    try:
        yield [server.start() for server in started]
    finally:
        for server in started:
            server.stop()


def test_the_file_answers_as_the_directory(servers):
    for server in servers:
        server.register(SCHEMA)
    for imports in IMPORTS:
        for question in QUESTIONS:
            prompt = f"<prompt schema='guide'>{imports}{question}</user></prompt>"
            one, other = (server.generate(prompt, temperature=0, max_tokens=24, logprobs=2) for server in servers)
            assert one["usage"]["prompt_tokens"] == other["usage"]["prompt_tokens"]
            assert one["finish_reason"] == other["finish_reason"]
            assert one["text"] == other["text"], question
            assert_same_or_near_tie(one["tokens"], other["tokens"])


def test_what_it_says_of_itself(servers):
    file = servers[1]
    assert file.register(SCHEMA)["model"] == "smollm2-135m-instruct.Q4_1"
    assert "loaded 134.5 million parameters, 136 MiB as int8" in file.log()


def refusal(path):
    """What the server says of a model it cannot load: one line, soon, and no signal."""
    began = time.monotonic()
    arguments = [str(BINARY), "--model", str(path), "--listen", "127.0.0.1:0"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, env=clean_environment(), check=False)
    assert time.monotonic() - began < STARTS_WITHIN_SECONDS
    assert done.returncode > 0, done.returncode  # not by a signal
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line]
    assert str(path) in line
    return line


@pytest.mark.parametrize("percent", [0, 10, 50, 99])
def test_s29_a_file_cut_short_is_refused(tmp_path, percent):
    path = tmp_path / "cut.gguf"
    size = GGUF.stat().st_size * percent // 100 or 9
    with GGUF.open("rb") as whole:
        path.write_bytes(whole.read(size))
    assert "truncated" in refusal(path)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "version"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensor_count"),
        (b"GGUF" + struct.pack("<IQQQIB", 3, 0, 1, 0, 0, 0), "empty name"),  # 37 bytes: one key of no characters
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "general.architecture"),
    ],
)
def test_s29_a_malformed_file_is_refused_by_its_field(tmp_path, content, named):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    assert named in refusal(path)


def test_a_file_that_is_no_model_is_refused(tmp_path):
    path = tmp_path / "notes.gguf"
    path.write_text("GGML is not GGUF")
    assert "GGUF" in refusal(path)
