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
