"""What reuse may change about an answer: nothing."""

import threading

import httpx
import pytest
from near_ties import assert_same_or_near_tie

FACTS = (
    "The lighthouse at Cape Morrow was built in 1871 of grey granite. Its keeper, Ansel Brook, kept a diary in green "
    "ink. In the winter of 1888 the lamp failed for nine nights and the schooner Halcyon was lost on the bar. "
)


def ask(server, prompt, count=32, **fields):
    """Greedy; the document, with the two best of every token."""
    return server.generate(prompt, temperature=0, max_tokens=count, ignore_eos=True, logprobs=2, **fields)


# S01: cold and warm, alone and among others, before and after a restart.
def test_cold_and_warm_answers(start_server):
    schema = f"<schema name='s01'><module name='m'>{FACTS * 8}</module></schema>"
    other = "<schema name='other'><module name='m'>Something else entirely.</module></schema>"
    prompt = "<prompt schema='s01'><m/><user>Who kept the light, and what happened in 1888?</user></prompt>"
    noise = "<prompt schema='other'><m/><user>Tell me about number {}.</user></prompt>"

    def answers(server):
        server.register(schema)
        server.register(other)
        server.client.delete("/cache")
        cold = ask(server, prompt)
        assert all(part["tier"] == "computed" for part in cold["cache"])
        warm = [ask(server, prompt) for _ in range(3)]
        assert all(part["tier"] == "device" for part in warm[0]["cache"])
        bypassed = ask(server, prompt, cache="bypass")
        crowded = []

        def among_others(index):
            with httpx.Client(base_url=server.url, timeout=120) as client:
                fields = {"temperature": 0, "max_tokens": 32, "ignore_eos": True, "logprobs": 2, "stream": False}
                text = prompt if index < 3 else noise.format(index)
                answer = client.post("/generate", json={"prompt": text, **fields}).json()
                if index < 3:
                    crowded.append(answer)

        threads = [threading.Thread(target=among_others, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return cold, warm, bypassed, crowded

    server = start_server("--kv-check", "--kv-poison")
    cold, warm, bypassed, crowded = answers(server)
    assert {answer["text"] for answer in warm} == {warm[0]["text"]}
    assert [answer["tokens"] for answer in warm[1:]] == [warm[0]["tokens"]] * 2
    for answer in (cold, bypassed, *crowded):
        assert_same_or_near_tie(warm[0]["tokens"], answer["tokens"])
    assert len(crowded) == 3
    assert server.terminate() == 0

    again = start_server("--kv-check")
    again.register(schema)
    # Its own text is computed here, and was found there.
    assert_same_or_near_tie(ask(again, prompt)["tokens"], warm[0]["tokens"])


# S03: a prompt that is all cache still has a token to compute.
def test_prompts_without_new_text(server):
    server.register("<schema name='s03'><module name='m1'>One, two, three,</module><module name='m2'> four, five,</module></schema>")
    prompt = "<prompt schema='s03'><m1/><m2/></prompt>"
    for count in (1, 8):
        first, second = (ask(server, prompt, count) for _ in range(2))
        assert first["text"] == second["text"]
        for answer in (first, second):
            assert answer["usage"]["cached_tokens"] < answer["usage"]["prompt_tokens"]
            assert answer["usage"]["new_tokens"] == 1
            assert answer["usage"]["completion_tokens"] == count


@pytest.mark.parametrize("count", [16, 32, 64, 128, 256])
def test_prompts_of_exactly_whole_blocks(server, count):
    server.register(f"<schema name='s03'><module name='m'>{' word' * count}</module></schema>")
    tokens = server.client.get("/schemas/s03").json()["modules"][0]["tokens"]
    prompt = "<prompt schema='s03'><m/></prompt>"
    first, second = (ask(server, prompt, 2) for _ in range(2))
    assert first["usage"]["prompt_tokens"] == tokens
    assert first["text"] == second["text"]


# S04: a module's states hold nothing of its neighbours; a scaffold is told apart.
def test_modules_are_encoded_apart(server):
    def schema(name, digits, scaffold=""):
        return (
            f"<schema name='{name}' attention='isolated'>{scaffold}<module name='a'>{digits}</module>"
            "<module name='b'>The code word is heron. The code number follows.</module></schema>"
        )

    x = server.register(schema("s04x", "1 2 3 4"))
    y = server.register(schema("s04y", "5 6 7 8"))
    assert [m["start"] for m in x["modules"]] == [m["start"] for m in y["modules"]]
    answers = [ask(server, f"<prompt schema='{name}'><b/>The code word is</prompt>", 12) for name in ("s04x", "s04y")]
    assert answers[0]["text"] == answers[1]["text"]
    assert answers[0]["tokens"] == answers[1]["tokens"]

    joint = schema("s04z", "1 2 3 4", "<scaffold modules='a b'/>")
    response = server.client.post("/schemas", content=joint, headers={"Content-Type": "text/xml"})
    assert response.status_code == 201, response.text
    alone = ask(server, "<prompt schema='s04z'><b/>The code word is</prompt>", 12)
    assert alone["tokens"] == answers[0]["tokens"]
    together = ask(server, "<prompt schema='s04z'><a/><b/>The code word is</prompt>", 12)
    apart = ask(server, "<prompt schema='s04x'><a/><b/>The code word is</prompt>", 12)
    assert together["tokens"] != apart["tokens"]


# S05: BOS, where a model has one, appears once; and never per module. Ten more modules cost ten modules' tokens.
def test_modules_bring_no_tokens_of_their_own(server):
    def prompt_tokens(count):
        modules = "".join(f"<module name='m{i}'>7</module>" for i in range(count))
        schema = server.register(f"<schema name='s05-{count}'>{modules}</schema>")
        assert schema["tokens"] == count
        imports = "".join(f"<m{i}/>" for i in range(count))
        return ask(server, f"<prompt schema='s05-{count}'>{imports}x</prompt>", 1)["usage"]["prompt_tokens"]

    assert prompt_tokens(20) - prompt_tokens(10) == 10


def test_bos_appears_once(start_tiny):
    server = start_tiny()
    tokens = {}
    for count in (1, 2, 10, 20):
        modules = "".join(f"<module name='m{i}'>7</module>" for i in range(count))
        server.register(f"<schema name='s05'>{modules}</schema>")
        imports = "".join(f"<m{i}/>" for i in range(count))
        answer = ask(server, f"<prompt schema='s05'>{imports}x</prompt>", 1, echo=True)
        assert answer["prompt_text"].count("<s>") == 1
        assert answer["prompt_text"].startswith("<s>")
        tokens[count] = answer["usage"]["prompt_tokens"]
    one = tokens[2] - tokens[1]
    assert tokens[20] - tokens[10] == 10 * one


# S06: a schema that passes the model's positions is refused when it is registered, also if a prompt needs only its end.
def test_schemas_longer_than_the_model(server):
    modules = "".join(f"<module name='m{i}'>{'word ' * 1000}</module>" for i in range(9))
    response = server.client.post("/schemas", content=f"<schema name='s06'>{modules}</schema>", headers={"Content-Type": "text/xml"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert "8192" in response.json()["error"]["message"]


def test_order_of_imports_is_free(server):
    server.register("<schema name='order'><module name='a'>Apples are red. </module><module name='b'>Pears are green. </module></schema>")
    one = ask(server, "<prompt schema='order'><a/><b/>What colour are pears?</prompt>", 12)
    other = ask(server, "<prompt schema='order'><b/><a/>What colour are pears?</prompt>", 12)
    assert one["tokens"] == other["tokens"]


# A module changed under its old name never meets its old states.
def test_replaced_modules_are_new(server):
    prompt = "<prompt schema='replaced'><code/><user>What is the code word?</user></prompt>"
    for word in ("heron", "walnut", "heron"):
        server.register(f"<schema name='replaced'><module name='code'>The code word is {word}. Remember: {word}.</module></schema>")
        answer = ask(server, prompt, 16)["text"].lower()
        assert word in answer
        assert {"heron": "walnut", "walnut": "heron"}[word] not in answer


# More modules than memory: they come and go, and every answer stays the same.
def test_answers_under_memory_pressure(start_server):
    server = start_server("--kv-check", "--kv-poison", kv="12MiB")
    names = [f"doc{i}" for i in range(6)]
    prompts = {name: f"<prompt schema='{name}'><m/><user>Summarise this.</user></prompt>" for name in names}
    expected = {}
    for index, name in enumerate(names):
        server.register(f"<schema name='{name}'><module name='m'>Document {index}. {FACTS}</module></schema>")
        expected[name] = ask(server, prompts[name], 8)
    failures = []

    def run(order):
        with httpx.Client(base_url=server.url, timeout=120) as client:
            for name in order:
                fields = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "logprobs": 2, "stream": False}
                response = client.post("/generate", json={"prompt": prompts[name], **fields})
                try:
                    assert response.status_code == 200, response.text
                    assert_same_or_near_tie(expected[name]["tokens"], response.json()["tokens"])
                except AssertionError as failure:
                    failures.append((name, failure))

    orders = [names, names[::-1], names[3:] + names[:3]]
    threads = [threading.Thread(target=run, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    evictions = server.metrics().get('cache_evictions_total{reason="capacity",tier="device"}', 0)
    assert evictions > 0


# S02: names that read alike when they are joined are not alike, and the same text behind another one is other KV.
def test_names_that_join_to_the_same(start_server):
    schemas = {
        "a": f"<schema name='a'>These are notes of the harbour office. <module name='b.c'>{FACTS}</module></schema>",
        "a.b": f"<schema name='a.b'>What follows was written by a child. <module name='c'>{FACTS}</module></schema>",
    }
    prompts = {
        "a": "<prompt schema='a'><b.c/><user>Who kept the diary?</user></prompt>",
        "a.b": "<prompt schema='a.b'><c/><user>Who kept the diary?</user></prompt>",
    }
    alone = {}
    for name, schema in schemas.items():
        server = start_server()
        server.register(schema)
        alone[name] = ask(server, prompts[name])["tokens"]
        server.stop()
    server = start_server("--kv-check")
    server.register(schemas["a"])
    before = server.metrics()["module_encodes_total"]
    server.register(schemas["a.b"])
    assert server.metrics()["module_encodes_total"] > before  # nothing of the other's is taken for its own
    for name, prompt in prompts.items():
        assert ask(server, prompt)["tokens"] == alone[name]
