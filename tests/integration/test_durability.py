"""--data-dir: what is registered outlives the process."""

import os
import shutil
import signal

import pytest
from test_lifecycle import run_to_end

SCHEMA = """<schema name="guide">Answer shortly.
  <module name="rome">Rome has seven hills.</module>
  <module name="oslo" priority="3">Oslo lies by the sea.</module></schema>"""
OTHER = '<schema name="other"><module name="m">Something else.</module></schema>'
PROMPT = '<prompt schema="guide"><rome/><user>Go on.</user></prompt>'


@pytest.fixture
def start(start_tiny, tmp_path):
    """Starts a server on one data directory, the same for all of a test's."""
    return lambda *arguments, **options: start_tiny("--data-dir", tmp_path / "data", "--warm", *arguments, **options)


def kill(server):
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(30)


def show(server, name="guide"):
    """What GET says of a schema, but for the time it took to encode."""
    response = server.client.get(f"/schemas/{name}", params={"source": "true"})
    assert response.status_code == 200, response.text
    return {key: value for key, value in response.json().items() if key != "encode_ms"}


def test_schemas_come_back_after_a_kill(start):
    server = start()
    server.register(SCHEMA, ttl_seconds=86400)
    server.register(OTHER, wait="false")
    patch = {"priority": 4, "modules": {"rome": {"pin": True}, "oslo": {"ttl_seconds": None}}}
    assert server.client.patch("/schemas/guide", json=patch).status_code == 200
    while show(server, "other")["state"] == "encoding":
        pass
    before = show(server)
    answer = server.text(PROMPT, max_tokens=8)
    kill(server)

    again = start()
    assert show(again) == before
    rome, oslo = before["modules"]
    assert (rome["pin"], rome["ttl_seconds"], rome["priority"]) == (True, 86400, 4)
    assert (oslo["pin"], oslo["ttl_seconds"], oslo["priority"]) == (False, None, 4)
    assert before["state"] == "ready"
    assert before["source"] == SCHEMA
    assert show(again, "other")["state"] == "ready"
    assert again.text(PROMPT, max_tokens=8) == answer
    assert again.metrics()["schemas"] == 2


def test_new_content_and_deletion_last(start):
    server = start()
    server.register(SCHEMA)
    server.register(OTHER)
    server.register(SCHEMA.replace("seven", "many"))
    assert server.client.delete("/schemas/other").status_code == 204
    kill(server)
    again = start()
    assert "many hills" in show(again)["source"]
    assert again.client.get("/schemas/other").status_code == 404
    assert len(again.client.get("/schemas").json()["schemas"]) == 1


def test_a_damaged_file_is_set_aside(start, tmp_path):
    server = start()
    server.register(SCHEMA)
    server.register(OTHER)
    kill(server)
    file = tmp_path / "data/schemas/other.schema"
    file.write_bytes(file.read_bytes()[:-20])
    again = start()
    assert again.client.get("/schemas/other").status_code == 404
    assert show(again)["state"] == "ready"
    assert str(file) in again.log()
    assert not file.exists()
    assert file.with_name("other.schema.damaged").exists()
    again.register(OTHER)
    assert file.exists()


def test_a_file_of_the_operator_wins(start, tmp_path):
    server = start()
    server.register(SCHEMA)
    server.register(OTHER)
    for name in ("guide", "other"):
        assert server.client.patch(f"/schemas/{name}", json={"pin": True}).status_code == 200
    kill(server)
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "guide.xml").write_text(SCHEMA.replace("seven", "many"))
    (folder / "other.xml").write_text(OTHER)
    again = start("--schemas", folder)
    assert "many hills" in show(again)["source"]
    assert show(again)["pin"] is False  # as the file says
    assert show(again, "other")["pin"] is True  # the same text: as it was
    kill(again)
    assert "many hills" in show(start())["source"]


def test_a_schema_that_fits_no_more_does_not_stop_the_start(start):
    server = start()
    server.register("<schema name='large'><module name='m'>" + "word " * 3000 + "</module></schema>")
    server.register(SCHEMA)
    kill(server)
    again = start("--max-model-len", "1000")
    assert again.client.get("/schemas/large").status_code == 404
    assert "large" in again.log()
    assert show(again)["state"] == "ready"
    kill(again)
    assert show(start(), "large")["state"] == "ready"


def test_one_process_a_directory(start, tiny_model, tmp_path):
    start()
    status, said = run_to_end("--model", tiny_model, "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "data")
    assert status == 1
    assert "in use by another promptcached process" in said
    assert str(tmp_path / "data") in said
    assert "listening" not in said


def test_a_directory_that_cannot_be_had_ends_the_start(tiny_model, tmp_path):
    (tmp_path / "file").write_text("")
    status, said = run_to_end("--model", tiny_model, "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "file")
    assert status == 1
    assert str(tmp_path / "file") in said


def test_what_cannot_be_saved_is_refused(start, tmp_path):
    server = start()
    server.register(SCHEMA)
    before = show(server)
    shutil.rmtree(tmp_path / "data/schemas")
    for response in (
        server.client.post("/schemas", content=OTHER, headers={"Content-Type": "application/xml"}),
        server.client.post("/schemas", content=SCHEMA.replace("seven", "many"), headers={"Content-Type": "application/xml"}),
        server.client.patch("/schemas/guide", json={"pin": True}),
    ):
        assert response.status_code == 507, response.text
        assert response.json()["error"]["code"] == "storage_failed"
        assert str(tmp_path) not in response.text
    assert server.client.get("/schemas/other").status_code == 404
    assert show(server) == before
    assert server.text(PROMPT, max_tokens=2) is not None
    (tmp_path / "data/schemas").mkdir()
    server.register(OTHER)
