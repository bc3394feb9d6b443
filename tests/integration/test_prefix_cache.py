"""Text outside modules, and answers, are kept for prompts that begin alike."""

import pytest
from near_ties import assert_same_or_near_tie

SCHEMA = """<schema name="keeper">
  <system>You answer in one short sentence.</system>
  <module name="facts">The lighthouse at Cape Morrow was built in 1871. Its keeper, Ansel Brook, kept a diary in green ink.</module>
</schema>
"""
QUESTIONS = (
    "I have read in an old newspaper that the keeper of this lighthouse wrote every evening, whatever the weather was, and that "
    "his notes are still shown to visitors on Saturdays. Before I go there I would like to know a little more. Who was he, please?",
    "And in what colour did he write? Please name only the colour.",
    "When was the tower built?",
)


def ask(server, prompt, count=24, **fields):
    return server.generate(prompt, temperature=0, max_tokens=count, logprobs=2, **fields)


def prompt_of(turns):
    return f"<prompt schema='keeper'><facts/>{''.join(turns)}</prompt>"


def found(answer):
    """Tokens outside modules that were not computed for it."""
    return sum(part["tokens"] for part in answer["cache"] if part["module"] == "#prefix")


def converse(server):
    """The answers of a conversation, each turn of which repeats all before it."""
    turns, answers = [], []
    for question in QUESTIONS:
        turns.append(f"<user>{question}</user>")
        answers.append(ask(server, prompt_of(turns)))
        assert_same_or_near_tie(answers[-1]["tokens"], ask(server, prompt_of(turns), cache="bypass")["tokens"])
        turns.append(f"<assistant>{answers[-1]['text']}</assistant>")
    return answers


def test_a_turn_computes_what_is_new(start_server):
    server = start_server("--kv-check", "--kv-poison")
    server.register(SCHEMA)
    answers = converse(server)
    assert found(answers[0]) == 0
    for earlier, later in zip(answers, answers[1:], strict=False):
        usage = later["usage"]
        assert usage["prompt_tokens"] == usage["cached_tokens"] + usage["new_tokens"]
        assert later["cache"][-1]["module"] == "#prefix"
        assert later["cache"][-1]["tier"] == "device"
        # All that stood before the answer, and the answer but for its last token and what a template puts behind it.
        assert usage["cached_tokens"] >= earlier["usage"]["prompt_tokens"] + earlier["usage"]["completion_tokens"] - 2
    assert server.client.get("/schemas/keeper").json()["modules"]

    metrics = server.metrics()
    assert metrics["prefix_hit_tokens_total"] == sum(found(answer) for answer in answers)
    assert metrics["prefix_lookup_tokens_total"] > metrics["prefix_hit_tokens_total"]
    cache = server.client.get("/cache").json()
    device = cache["tiers"][0]
    assert device["prefix_bytes"] == metrics['prefix_cache_bytes{tier="device"}'] > 0
    assert device["prefix_entries"] == metrics['prefix_cache_entries{tier="device"}'] > 0
    assert device["sequence_bytes"] == 0
    assert device["free_bytes"] + device["module_bytes"] + device["prefix_bytes"] == device["capacity_bytes"]
    assert all(module["used_by"] for module in cache["modules"])
    assert server.client.delete("/cache").json()["freed_bytes"] == device["used_bytes"]


def test_the_same_question_again(start_server):
    server = start_server("--kv-check")
    server.register(SCHEMA)
    prompt = prompt_of([f"<user>{QUESTIONS[0]}</user>"])
    first, second = (ask(server, prompt) for _ in range(2))
    assert second["usage"]["new_tokens"] == 1
    assert_same_or_near_tie(first["tokens"], second["tokens"])
    bypassed = ask(server, prompt, cache="bypass")
    assert bypassed["usage"]["cached_tokens"] == 0
    assert_same_or_near_tie(first["tokens"], bypassed["tokens"])


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_a_conversation_that_was_evicted(start_server, tmp_path, tier):
    arguments = {"host": {"host": "64MiB"}, "disk": {}}[tier]
    flags = ["--kv-disk-path", tmp_path / "kv"] if tier == "disk" else []
    server = start_server("--kv-check", *flags, kv="12MiB", **arguments)
    server.register(SCHEMA)
    prompt = prompt_of([f"<user>{QUESTIONS[0]}</user>"])
    first = ask(server, prompt)
    for number in range(4):
        ask(server, prompt_of([f"<user>{number} {'and so on ' * 110}</user>"]), count=1)
    again = ask(server, prompt)
    assert again["usage"]["new_tokens"] == 1
    assert again["cache"][-1]["tier"] == tier
    assert_same_or_near_tie(first["tokens"], again["tokens"])


def test_without_it(start_server):
    server = start_server("--prefix-cache", "off", "--kv-check")
    server.register(SCHEMA)
    assert not any(found(answer) for answer in converse(server))
    assert server.client.get("/cache").json()["tiers"][0]["prefix_bytes"] == 0


# ---- fidelity: exact ----


def tokens_of_prompt(server, prompt):
    """The prompt's token ids, as the model sees them."""
    text = ask(server, prompt, 1, echo=True)["prompt_text"]
    response = server.client.post("/tokenize", json={"prompt": text, "add_special_tokens": False})
    assert response.status_code == 200, response.text
    return response.json()["tokens"]


def by_text(tokens):
    return [{**token, "token_id": token["text"]} for token in tokens]


def openai_tokens(logprobs):
    """As /generate has them, with texts for ids."""
    return [
        {"token_id": text, "top_logprobs": [{"logprob": value} for value in top.values()]}
        for text, top in zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)
    ]


def test_exact_is_the_text_without_modules(start_server):
    server = start_server("--kv-check", "--kv-poison")
    server.register(SCHEMA)
    prompt = prompt_of([f"<user>{QUESTIONS[0]}</user>"])
    modular = ask(server, prompt)
    exact = ask(server, prompt, fidelity="exact")
    assert exact["schema"] == "keeper"
    assert exact["cache"] == []
    assert exact["usage"]["new_tokens"] == exact["usage"]["prompt_tokens"] == modular["usage"]["prompt_tokens"]
    assert_same_or_near_tie(exact["tokens"], ask(server, prompt, fidelity="exact", cache="bypass")["tokens"])

    # The same tokens without PML are the same prompt: what one has computed the other finds.
    tokens = tokens_of_prompt(server, prompt)
    assert len(tokens) == exact["usage"]["prompt_tokens"]
    plain = server.client.post("/v1/completions", json={"prompt": tokens, "max_tokens": 24, "temperature": 0, "logprobs": 2}).json()
    assert plain["usage"]["prompt_tokens_details"]["cached_tokens"] == len(tokens) - 1
    again = ask(server, prompt, fidelity="exact")
    assert again["usage"]["new_tokens"] == 1
    assert_same_or_near_tie(exact["tokens"], again["tokens"])
    assert_same_or_near_tie(by_text(exact["tokens"]), openai_tokens(plain["choices"][0]["logprobs"]))


def test_exact_turns_reuse_earlier_ones(start_server):
    server = start_server("--kv-check")
    server.register(SCHEMA)
    turns = [f"<user>{QUESTIONS[0]}</user>"]
    first = ask(server, prompt_of(turns), fidelity="exact")
    turns += [f"<assistant>{first['text']}</assistant>", f"<user>{QUESTIONS[1]}</user>"]
    second = ask(server, prompt_of(turns), fidelity="exact")
    assert second["usage"]["cached_tokens"] >= first["usage"]["prompt_tokens"]
    assert second["cache"][0]["module"] == "#prefix"
    assert_same_or_near_tie(second["tokens"], ask(server, prompt_of(turns), fidelity="exact", cache="bypass")["tokens"])


def test_exact_from_the_openai_route(start_server):
    server = start_server()
    server.register(SCHEMA)

    def chat(**cache):
        body = {
            "messages": [{"role": "user", "content": QUESTIONS[2]}],
            "prompt_cache": {"schema": "keeper", "modules": {"facts": {}}, **cache},
            "temperature": 0,
            "max_tokens": 8,
        }
        return server.client.post("/v1/chat/completions", json=body)

    assert chat().json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 30
    assert chat(fidelity="exact").json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert chat(fidelity="exact").json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 30
    assert "fidelity" in chat(fidelity="best").json()["error"]["message"]


# S02: what one tenant computed, another never finds, whatever a key or a tenant is called; and a tenant always does.
@pytest.mark.parametrize("path", ["/generate", "/v1/completions", "/v1/chat/completions"])
def test_tenants_find_only_their_own(start_server, tmp_path, path):
    (tmp_path / "keys").write_text(
        "alice-0123456789\nbob-0123456789ab generate\nteam-one-01234567 generate tenant=team\nteam-two-01234567 generate tenant=team\n"
        "named-0123456789 generate tenant=alice-0123456789\n"
    )
    server = start_server("--api-keys", tmp_path / "keys", "--kv-check")
    server.client.headers["Authorization"] = "Bearer alice-0123456789"
    server.register(SCHEMA)
    body = {
        "/generate": {"prompt": f"<prompt schema='keeper'><user>{QUESTIONS[0]}</user></prompt>", "stream": False},
        "/v1/completions": {"prompt": QUESTIONS[0]},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": QUESTIONS[0]}]},
    }[path]

    def cached(key):
        response = server.client.post(path, json={**body, "max_tokens": 2, "temperature": 0}, headers={"Authorization": f"Bearer {key}"})
        assert response.status_code == 200, response.text
        answer = response.json()
        return found(answer) if path == "/generate" else answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    for first, second in (
        ("alice-0123456789", "alice-0123456789"),
        ("bob-0123456789ab", "bob-0123456789ab"),
        ("team-one-01234567", "team-two-01234567"),
        ("named-0123456789", "named-0123456789"),
    ):
        assert cached(first) == 0
        assert cached(second) > 0
