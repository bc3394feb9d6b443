"""POST, PUT, GET, PATCH and DELETE /schemas."""

import threading
import time

import httpx
import pytest
from sse import joined_text, last, stream

TRAVEL = """<schema name="travel">
  <system>You are a careful travel planner.</system>
  <user>
    <module name="trip-plan">
      Plan a trip of <param name="duration" len="4"/> days.
    </module>
    <union>
      <module name="miami">Miami: beaches, art deco, heat.</module>
      <module name="maui">Maui: volcanoes, surf, rain.</module>
    </union>
</schema>
"""


def xml(client, method, path, content, **options):
    return client.request(method, path, content=content, headers={"Content-Type": "application/xml"}, **options)


@pytest.fixture
def travel(server):
    server.client.delete("/schemas/travel")
    yield server
    server.client.delete("/schemas/travel")


def test_registering(travel):
    first = xml(travel.client, "POST", "/schemas", TRAVEL)
    assert first.status_code == 201, first.text
    assert first.headers["location"] == "/schemas/travel"
    schema = first.json()
    assert schema["name"] == "travel"
    assert schema["state"] == "ready"
    assert schema["model"] == "smollm2-135m-instruct"
    assert schema["attention"] == "rooted"
    assert schema["kv_bytes"] > 0
    assert schema["encode_ms"] > 0
    modules = {module["path"]: module for module in schema["modules"]}
    assert set(modules) == {"trip-plan", "miami", "maui"}
    assert modules["trip-plan"]["params"] == [{"name": "duration", "start": modules["trip-plan"]["params"][0]["start"], "len": 4}]
    assert "union" not in modules["trip-plan"]
    assert modules["miami"]["union"] == modules["maui"]["union"] == 1
    assert modules["miami"]["start"] == modules["maui"]["start"] == modules["trip-plan"]["end"]
    assert all(module["tier"] == "device" for module in modules.values())
    assert all(module["kv_bytes"] > 0 for module in modules.values())

    again = xml(travel.client, "POST", "/schemas", TRAVEL)
    assert again.status_code == 200
    assert again.json()["version"] == schema["version"]

    changed = xml(travel.client, "POST", "/schemas", TRAVEL.replace("volcanoes", "mountains"))
    assert changed.status_code == 200
    assert changed.json()["version"] != schema["version"]


def test_the_same_content_is_not_computed_again(travel):
    travel.register(TRAVEL)
    before = travel.metrics()["module_encodes_total"]
    travel.register(TRAVEL)
    assert travel.metrics()["module_encodes_total"] == before
    # One module changed: its siblings' KV is the same, and is kept.
    travel.register(TRAVEL.replace("volcanoes", "mountains"))
    assert travel.metrics()["module_encodes_total"] == before + 1


def test_equal_modules_of_two_schemas_share_kv(travel):
    travel.register(TRAVEL)
    twin = travel.register(TRAVEL.replace('name="travel"', 'name="twin"'))
    assert all(module["shared"] for module in twin["modules"])
    assert travel.client.delete("/schemas/twin").status_code == 204
    assert not any(module["shared"] for module in travel.client.get("/schemas/travel").json()["modules"])


def test_json_body(travel):
    response = travel.client.post("/schemas", json={"schema": TRAVEL, "pin": True, "ttl_seconds": 3600})
    assert response.status_code == 201, response.text
    shown = travel.client.get("/schemas/travel", params={"source": "true"}).json()
    assert shown["source"] == TRAVEL
    assert shown["pin"] is True
    assert shown["ttl_seconds"] == 3600


def test_without_waiting(travel):
    response = xml(travel.client, "POST", "/schemas", TRAVEL, params={"wait": "false"})
    assert response.status_code in (201, 202)
    deadline = time.monotonic() + 60
    while travel.client.get("/schemas/travel").json()["state"] == "encoding":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert travel.client.get("/schemas/travel").json()["state"] == "ready"


def test_dry_run_changes_nothing(travel):
    response = xml(travel.client, "POST", "/schemas", TRAVEL, params={"dry_run": "true"})
    assert response.status_code == 200
    assert response.json()["state"] == "dry_run"
    assert response.json()["positions"] > 0
    assert travel.client.get("/schemas/travel").status_code == 404


def test_conditions(travel):
    assert xml(travel.client, "PUT", "/schemas/other", TRAVEL).status_code == 409
    assert xml(travel.client, "PUT", "/schemas/travel", TRAVEL).status_code == 201
    refused = travel.client.post("/schemas", content=TRAVEL, headers={"Content-Type": "text/xml", "If-None-Match": "*"})
    assert refused.status_code == 412
    assert refused.json()["error"]["code"] == "precondition_failed"


def test_list_and_unknown_names(travel):
    travel.register(TRAVEL)
    assert "travel" in [schema["name"] for schema in travel.client.get("/schemas").json()["schemas"]]
    missing = travel.client.get("/schemas/travell")
    assert missing.status_code == 404
    assert "travel" in missing.json()["error"]["message"]
    assert travel.client.delete("/schemas/nothing-like-it").status_code == 404


def test_patch_pins_modules(travel):
    travel.register(TRAVEL)
    response = travel.client.patch("/schemas/travel", json={"modules": {"maui": {"pin": True, "priority": 5}}})
    assert response.status_code == 200, response.text
    modules = {module["path"]: module for module in response.json()["modules"]}
    assert modules["maui"]["pin"] is True
    assert modules["maui"]["priority"] == 5
    assert modules["miami"]["pin"] is False

    assert travel.client.delete("/cache", params={"tier": "device"}).json()["freed_bytes"] > 0
    tiers = {module["path"]: module["tier"] for module in travel.client.get("/schemas/travel").json()["modules"]}
    assert tiers == {"trip-plan": "none", "miami": "none", "maui": "device"}
    # What was dropped comes back when it is needed.
    answer = travel.generate("<prompt schema='travel'><miami/>Where?</user></prompt>", temperature=0, max_tokens=2)
    assert {part["module"]: part["tier"] for part in answer["cache"]}["miami"] == "computed"

    unknown = travel.client.patch("/schemas/travel", json={"modules": {"mauii": {"pin": True}}})
    assert unknown.status_code == 400
    assert unknown.json()["error"]["code"] == "unknown_module"


def test_cache_lists_what_is_there(travel):
    travel.register(TRAVEL)
    travel.generate("<prompt schema='travel'><maui/>Where?</user></prompt>", temperature=0, max_tokens=2)
    cache = travel.client.get("/cache").json()
    device = cache["tiers"][0]
    assert device["tier"] == "device"
    assert device["capacity_bytes"] == 192 * 2**20
    assert device["used_bytes"] + device["free_bytes"] == device["capacity_bytes"]
    used = {user: entry for entry in cache["modules"] for user in entry["used_by"]}
    assert {"travel/#root", "travel/trip-plan", "travel/miami", "travel/maui"} <= set(used)
    assert used["travel/maui"]["hits"] >= 1
    assert used["travel/maui"]["bytes"] > 0
    assert used["travel/maui"]["idle_seconds"] >= 0


def test_deleting_gives_the_memory_back(travel):
    before = travel.client.get("/cache").json()["tiers"][0]
    travel.register(TRAVEL)
    assert travel.client.get("/cache").json()["tiers"][0]["entries"] > before["entries"]
    response = travel.client.delete("/schemas/travel")
    assert response.status_code == 204
    assert response.content == b""
    assert travel.client.get("/cache").json()["tiers"][0]["entries"] == before["entries"]
    gone = travel.client.post("/generate", json={"prompt": "<prompt schema='travel'>x</prompt>"})
    assert gone.status_code == 404
    assert gone.json()["error"]["code"] == "unknown_schema"
    assert gone.json()["error"]["line"] == 1


def test_requests_in_flight_finish_on_their_version(travel):
    travel.register(TRAVEL)
    prompt = "<prompt schema='travel'><maui/>Where should I swim?</user></prompt>"
    expected = travel.text(prompt, max_tokens=80, ignore_eos=True)
    result = {}

    def run():
        with httpx.Client(base_url=travel.url, timeout=120) as client:
            result["events"] = stream(client, prompt, temperature=0, max_tokens=80, ignore_eos=True)

    thread = threading.Thread(target=run)
    thread.start()
    while travel.metrics()["requests_running"] < 1 and thread.is_alive():
        time.sleep(0.005)
    travel.register(TRAVEL.replace("volcanoes", "mountains"))
    assert travel.client.delete("/schemas/travel").status_code == 204
    thread.join()
    assert joined_text(result["events"]) == expected
    assert last(result["events"])["finish_reason"] == "length"


def test_faults_are_told_with_their_place(travel):
    cases = [
        ("<schema name='s'>\n  <module/></schema>", "invalid_pml", 2, 3),
        ("<schema name='s'><module name='a'>x</module>\n<module name='a'>y</module></schema>", "duplicate_name", 2, 1),
        ("<schema name='s'>é<unknown/></schema>", "invalid_pml", 1, 19),
        ("<schema name='s'>a && b</schema>", "invalid_pml", 1, 20),
        ("<schema name='s'>", "invalid_pml", None, None),
    ]
    for pml, code, line, column in cases:
        response = xml(travel.client, "POST", "/schemas", pml)
        assert response.status_code == 400, (pml, response.text)
        error = response.json()["error"]
        assert error["code"] == code, (pml, error)
        if line:
            assert (error["line"], error["column"]) == (line, column), (pml, error)


def test_a_schema_longer_than_the_model_is_refused_with_both_numbers(travel):
    words = "word " * 9000
    response = xml(travel.client, "POST", "/schemas", f"<schema name='long'><module name='m'>{words}</module></schema>")
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "8192" in error["message"]
    assert "9000" in error["message"] or "9001" in error["message"]
