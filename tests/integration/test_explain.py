"""POST /explain says what a request will come to; then the request is sent, and it must come to that."""

import random
import time

import pytest
from conftest import Server

NAMES = ("harbour", "mill", "library", "station")


WORDS = ("the", "river", "of", "stone", "old", "bridge", "keeps", "its", "own", "slow", "time", "and", "every", "lamp", "was", "lit")
UNION = "<union><module name='short'>yes</module><module name='other'>no</module></union>"


def text_of(rng, words):
    return " ".join(rng.choices(WORDS, k=words))


def schema_of(rng, name):
    modules = "".join(f"<module name='{module}'>{text_of(rng, rng.randrange(100, 700))}</module>" for module in NAMES)
    return f"<schema name='{name}'><system>You are a guide.</system>{modules}{UNION}</schema>"


def random_prompt(rng, schemas):
    imports = "".join(f"<{module}/>" for module in NAMES if rng.random() < 0.5)
    return f"<prompt schema='{rng.choice(schemas)}'>{imports}<user>{text_of(rng, rng.choice((5, 20, 60, 200)))}</user></prompt>"


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """A server with room for some of its schemas on the device, and for the others below it."""
    server = Server(tmp_path_factory.mktemp("explain") / "server.log", "--kv-check", kv="96MiB", host="128MiB")
    try:
        server.start()
        rng = random.Random(11)
        schemas = [f"town{number}" for number in range(4)]
        for name in schemas:
            server.register(schema_of(rng, name))
        yield server, rng, schemas
    finally:
        server.stop()


def explain(server, **body):
    response = server.client.post("/explain", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def explain_at_rest(server, **body):
    """Once what an earlier request pushed out has arrived below."""
    last = None
    while (now := explain(server, **body))["cache"] != last:
        last = now["cache"]
        time.sleep(0.03)
    return now


def foreseen_and_seen(explained, tiers):
    """Of one random request, which must come to what was foreseen: the predicted time to the first token by the real one."""
    server, rng, schemas = explained
    prompt = random_prompt(rng, schemas)
    before = server.metrics()
    foreseen = explain_at_rest(server, prompt=prompt, max_tokens=2)
    assert server.metrics()["generated_tokens_total"] == before["generated_tokens_total"]
    answer = server.generate(prompt, max_tokens=2)
    usage = {name: answer["usage"][name] for name in ("prompt_tokens", "cached_tokens", "new_tokens")}
    assert (foreseen["usage"], foreseen["cache"]) == (usage, answer["cache"])
    assert foreseen["compute"]["new_tokens"] == usage["new_tokens"]
    tiers.update(part["tier"] for part in foreseen["cache"])
    return foreseen["predicted"]["ttft_ms"] / answer["timing"]["ttft_ms"]


def test_what_is_explained_happens(explained):
    """Nine of ten first tokens come within 1.5 times the time foreseen, or 1.5 times sooner. Other work on the machine moves the times
    that are compared, so a round that it disturbed is done again; where it disturbs them all, the middle one must be right."""
    tiers = set()
    for _ in range(20):  # what things cost here is yet to be learned
        foreseen_and_seen(explained, tiers)
    for _ in range(4):
        ratios = sorted(foreseen_and_seen(explained, tiers) for _ in range(30))
        if sum(1 / 1.5 <= ratio <= 1.5 for ratio in ratios) >= 27:
            break
    else:
        assert 1 / 1.5 <= ratios[len(ratios) // 2] <= 1.5, f"times are foreseen badly: {ratios}"
    assert {"device", "host"} <= tiers


def test_openai_bodies(explained):
    server, rng, _ = explained
    text = text_of(rng, 200)
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 2, "temperature": 0}
    assert explain(server, **body)["usage"]["cached_tokens"] == 0
    server.client.post("/v1/chat/completions", json=body)
    foreseen = explain(server, **body)
    usage = server.client.post("/v1/chat/completions", json=body).json()["usage"]
    assert foreseen["usage"]["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
    assert foreseen["cache"] == [{"module": "#prefix", "tier": "device", "tokens": usage["prompt_tokens"] - 1}]
    assert explain(server, prompt=text)["usage"]["prompt_tokens"] > 150
    module = {"type": "module", "schema": "town0", "name": "mill"}
    parts = [module, {"type": "text", "text": "What is here?"}]
    assert explain(server, messages=[{"role": "user", "content": parts}])["schema"] == "town0"


def test_warnings_and_positions(explained):
    server, *_ = explained
    foreseen = explain(server, prompt="<prompt schema='town0'><mill/><short/>And now?</prompt>")
    assert any("'short' has 1 token" in warning for warning in foreseen["warnings"])
    assert not any("union" in warning for warning in foreseen["warnings"])
    assert foreseen["positions"]["next"] <= foreseen["positions"]["max"]
    layout = {module["path"]: module for module in server.client.get("/schemas/town0").json()["modules"]}
    holes = foreseen["positions"]["holes"]
    for name in ("harbour", "library", "station"):
        assert any(hole["start"] <= layout[name]["start"] and layout[name]["end"] <= hole["end"] for hole in holes), (name, holes)
    server.register("<schema name='bare'>Say hello.<union><module name='a'>one</module><module name='b'>two</module></union></schema>")
    bare = explain(server, prompt="<prompt schema='bare'>Now.</prompt>")
    assert any("union 1 is not used" in warning for warning in bare["warnings"])
    assert any("role tag" in warning for warning in bare["warnings"])


def test_errors_are_those_of_the_request(explained):
    server, *_ = explained
    for body in (
        {"prompt": "<prompt schema='nowhere'>x</prompt>"},
        {"prompt": "<prompt schema='town0'><nothing/>x</prompt>"},
        {"prompt": "<prompt schema='town0'>x</prompt>", "max_tokens": 100000},
        {"prompt": "<prompt schema='town0'>x</prompt>", "temperature": 9},
    ):
        ours = server.client.post("/explain", json=body)
        theirs = server.client.post("/generate", json=body)
        assert (ours.status_code, ours.json()["error"]["message"]) == (theirs.status_code, theirs.json()["error"]["message"])
    several = server.client.post("/explain", json={"prompt": ["one", "two"]})
    assert several.status_code == 400
    assert "one by one" in several.json()["error"]["message"]
