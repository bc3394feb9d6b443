"""POST /generate: options, answers, refusals."""

import json

import pytest
from conftest import MODEL
from sse import joined_text, last, start, stream, tokens

SCHEMA = """<schema name="gen">
  <system>You are helpful.</system>
  <module name="facts">The capital of France is Paris. The capital of Japan is Tokyo.</module>
  <module name="note">Note <param name="what" len="3"/> well.</module>
</schema>
"""
PROMPT = "<prompt schema='gen'><facts/><user>What is the capital of Japan?</user></prompt>"


@pytest.fixture
def gen(server):
    server.register(SCHEMA)
    return server


def refused(server, status, **fields):
    response = server.client.post("/generate", json=fields)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["request_id"] == response.headers["x-request-id"]
    return error


def test_an_answer(gen):
    answer = gen.generate(PROMPT, temperature=0, max_tokens=30)
    assert "Tokyo" in answer["text"]
    assert answer["schema"] == "gen"
    assert answer["model"] == "smollm2-135m-instruct"
    assert answer["id"].startswith("gen-")
    assert answer["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["prompt_tokens"] == usage["cached_tokens"] + usage["new_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert sum(part["tokens"] for part in answer["cache"]) >= usage["cached_tokens"]
    assert [part["module"] for part in answer["cache"]] == ["#root", "facts"]
    assert all(part["tier"] == "device" for part in answer["cache"])
    timing = answer["timing"]
    assert timing["ttft_ms"] >= timing["prefill_ms"] > 0
    assert timing["decode_ms"] > 0
    assert timing["tokens_per_second"] > 0


def test_streamed_and_unstreamed_are_the_same(gen):
    for seed in range(5):
        fields = {"temperature": 0.8, "seed": seed, "max_tokens": 24}
        events = stream(gen.client, PROMPT, **fields)
        answer = gen.generate(PROMPT, **fields)
        assert joined_text(events) == answer["text"]
        assert last(events)["finish_reason"] == answer["finish_reason"]
        assert last(events)["usage"] == answer["usage"]
        assert start(events)["cache"] == answer["cache"]
        assert last(events)["usage"]["completion_tokens"] == len(tokens(events))


def test_seeds(gen):
    fields = {"temperature": 1.5, "max_tokens": 12, "cache": "bypass"}
    one, two, other = (gen.generate(PROMPT, seed=seed, **fields)["text"] for seed in (7, 7, 8))
    assert one == two
    assert one != other
    assert gen.generate(PROMPT, temperature=1.5, max_tokens=12, seed=-1)["text"]


def test_tiny_temperatures_are_greedy(gen):
    assert gen.generate(PROMPT, temperature=1e-5, max_tokens=8)["text"] == gen.text(PROMPT, max_tokens=8)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_max_tokens_is_exact(gen, count):
    answer = gen.generate(PROMPT, temperature=0, max_tokens=count, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == count
    assert answer["finish_reason"] == "length"
    events = stream(gen.client, PROMPT, temperature=0, max_tokens=count, ignore_eos=True)
    assert len(tokens(events)) == count


@pytest.mark.parametrize("value", ["0", "-1", "2.5", '"5"', "1e10", "true", "[]"])
def test_max_tokens_that_is_none(gen, value):
    body = '{"prompt": ' + json.dumps(PROMPT) + ', "max_tokens": ' + value + "}"
    response = gen.client.post("/generate", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "max_tokens"


@pytest.mark.parametrize(
    "field,values",
    [
        ("temperature", ["-0.1", "NaN", "Infinity", "-Infinity", "1e39", "1e999", "3", '"1"']),
        ("top_p", ["0", "1.1", "NaN"]),
        ("top_k", ["-1", "0.5"]),
        ("min_p", ["-1", "2"]),
        ("repetition_penalty", ["0", "-1"]),
        ("stop", ['[""]', "[1]", "7"]),
        ("logit_bias", ['{"x": 1}', '{"49152": 1}', '{"1": 1000}']),
        ("logprobs", ["-1", "21"]),
        ("fidelity", ['"first_k"', '"best"']),
        ("cache", ['"no"']),
    ],
)
def test_bad_values_are_refused_by_field(gen, field, values):
    for value in values:
        body = '{"prompt": ' + json.dumps(PROMPT) + f', "{field}": {value}}}'
        response = gen.client.post("/generate", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 400, (value, response.text)
        error = response.json()["error"]
        assert error["param"] == field, error
        assert field in error["message"], error


def test_null_is_absent(gen):
    nothing = dict.fromkeys(["max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "logit_bias", "logprobs", "cache"])
    assert gen.generate(PROMPT, **{**nothing, "max_tokens": 2})["usage"]["completion_tokens"] <= 2
    assert gen.client.post("/generate", json={"prompt": PROMPT, **nothing, "stream": False}).status_code == 200


def test_unknown_fields_are_refused_with_the_nearest(gen):
    error = refused(gen, 400, prompt=PROMPT, max_token=5)
    assert error["code"] == "unknown_field"
    assert "'max_tokens'" in error["message"]


def test_pml_body_with_options_in_the_query(gen):
    expected = gen.text(PROMPT, max_tokens=8)
    for content_type in ("application/xml", "text/xml; charset=utf-8", "text/plain"):
        response = gen.client.post(
            "/generate",
            content=PROMPT,
            headers={"Content-Type": content_type},
            params={"temperature": "0", "max_tokens": "8", "stream": "false"},
        )
        assert response.status_code == 200, response.text
        assert response.json()["text"] == expected
    bad = gen.client.post("/generate", content=PROMPT, headers={"Content-Type": "text/xml"}, params={"max_tokens": "many"})
    assert bad.status_code == 400
    assert bad.json()["error"]["param"] == "max_tokens"


def test_stop_strings_are_never_shown(gen):
    whole = gen.text(PROMPT, max_tokens=24)
    assert "Tokyo" in whole
    for stop in ("Tokyo", "okyo", " of Japan"):
        for streamed in (True, False):
            if streamed:
                events = stream(gen.client, PROMPT, temperature=0, max_tokens=24, stop=[stop])
                text, reason = joined_text(events), last(events)["finish_reason"]
            else:
                answer = gen.generate(PROMPT, temperature=0, max_tokens=24, stop=[stop, "never there"])
                text, reason = answer["text"], answer["finish_reason"]
            assert text == whole.split(stop)[0]
            assert reason == "stop"


def test_logprobs(gen):
    answer = gen.generate(PROMPT, temperature=0, max_tokens=6, logprobs=3)
    assert len(answer["tokens"]) == answer["usage"]["completion_tokens"]
    for token in answer["tokens"]:
        best = token["top_logprobs"]
        assert len(best) == 3
        assert [top["logprob"] for top in best] == sorted((top["logprob"] for top in best), reverse=True)
        assert best[0]["token_id"] == token["token_id"]
        assert token["logprob"] == best[0]["logprob"] <= 0
    events = stream(gen.client, PROMPT, temperature=0, max_tokens=6)
    assert [event.data["logprob"] for event in tokens(events)] == pytest.approx([token["logprob"] for token in answer["tokens"]], abs=0.01)
    assert "top_logprobs" not in tokens(events)[0].data


@pytest.fixture
def model_with_end_tokens(tmp_path):
    """Makes a copy of the model, of links but for generation_config.json, that ends at these tokens."""

    def make(end_tokens):
        copy = tmp_path / "more-end-tokens"
        copy.mkdir()
        for file in MODEL.iterdir():
            if file.name != "generation_config.json":
                (copy / file.name).symlink_to(file.resolve())
        (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": end_tokens}))
        return copy

    return make


def test_every_end_token_of_generation_config_ends_an_answer(gen, start_server, model_with_end_tokens):
    other_prompt = "<prompt schema='gen'><user>Hello!</user></prompt>"
    fields = {"temperature": 0, "max_tokens": 30}
    events = stream(gen.client, PROMPT, **fields)
    other_events = stream(gen.client, other_prompt, **fields)
    assert last(events)["finish_reason"] == last(other_events)["finish_reason"] == "stop"
    ids, other_ids = ([event.data["token_id"] for event in tokens(answer)] for answer in (events, other_events))
    second = next(token for token in ids[1:] if token not in other_ids)  # of this answer, and not of the other
    count = ids.index(second)
    config = json.loads((MODEL / "config.json").read_text())

    server = start_server(model=model_with_end_tokens([config["eos_token_id"], second]))
    server.register(SCHEMA)
    shorter = stream(server.client, PROMPT, **fields)
    assert [event.data["token_id"] for event in tokens(shorter)] == ids[:count]
    assert last(shorter)["finish_reason"] == "stop"
    assert last(shorter)["usage"]["completion_tokens"] == count
    # The first one still ends answers, and ignore_eos is of both.
    assert joined_text(stream(server.client, other_prompt, **fields)) == joined_text(other_events)
    ignored = stream(server.client, PROMPT, ignore_eos=True, **fields)
    assert [event.data["token_id"] for event in tokens(ignored)][: len(ids)] == ids
    assert last(ignored)["usage"]["completion_tokens"] == 30


def test_logit_bias(gen):
    first = gen.generate(PROMPT, temperature=0, max_tokens=1, logprobs=1)["tokens"][0]["token_id"]
    biased = gen.generate(PROMPT, temperature=0, max_tokens=1, logprobs=1, logit_bias={str(first): -100})
    assert biased["tokens"][0]["token_id"] != first


def test_echo(gen):
    answer = gen.generate(PROMPT, temperature=0, max_tokens=1, echo=True)
    assert "The capital of France is Paris." in answer["prompt_text"]
    assert answer["prompt_text"].count("<|im_start|>") == 3  # system, user, assistant
    assert answer["prompt_text"].endswith("<|im_start|>assistant\n")
    plain = gen.generate(PROMPT, temperature=0, max_tokens=1, echo=True, add_generation_prompt=False)
    assert not plain["prompt_text"].endswith("assistant\n")
    assert "prompt_text" not in gen.generate(PROMPT, temperature=0, max_tokens=1)


def test_bypass_computes_everything(gen):
    answer = gen.generate(PROMPT, temperature=0, max_tokens=4, cache="bypass")
    assert answer["usage"]["cached_tokens"] == 0
    assert all(part["tier"] == "computed" for part in answer["cache"])


def test_arguments(gen):
    answer = gen.generate("<prompt schema='gen'><note what='this'/>Yes.</prompt>", temperature=0, max_tokens=1, echo=True)
    assert "Note this well." in answer["prompt_text"]
    error = refused(gen, 400, prompt="<prompt schema='gen'><note what='one two three four five'/>Yes.</prompt>")
    assert error["code"] == "argument_too_long"
    assert "3" in error["message"]
    assert error["line"] == 1


@pytest.mark.parametrize(
    "prompt,status,code",
    [
        ("<prompt schema='gne'>x</prompt>", 404, "unknown_schema"),
        ("<prompt schema='gen'><fact/>x</prompt>", 400, "unknown_module"),
        ("<prompt schema='gen'><facts/><facts/>x</prompt>", 400, "duplicate_import"),
        ("<prompt schema='gen'><note wat='x'/>x</prompt>", 400, "unknown_parameter"),
        ("<prompt schema='gen'><facts>text</facts></prompt>", 400, "invalid_pml"),
        ("<prompt>x</prompt>", 400, "invalid_pml"),
        ("no xml at all", 400, "invalid_pml"),
    ],
)
def test_faulty_prompts(gen, prompt, status, code):
    error = refused(gen, status, prompt=prompt)
    assert error["code"] == code
    assert error["param"] == "prompt"
    assert error["line"] == 1
    assert error["column"] >= 1


# S14: an empty prompt is a refusal, or a prompt where the template makes it one; the server lives on.
def test_empty_prompts(gen):
    gen.register("<schema name='nothing'/>")
    assert refused(gen, 400, prompt="<prompt schema='nothing' />")["code"] == "empty_prompt"
    assert refused(gen, 400, prompt="")["param"] == "prompt"
    assert refused(gen, 400)["param"] == "prompt"
    for body in (b"", b" "):
        response = gen.client.post("/generate", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "invalid_json"
        response = gen.client.post("/generate", content=body, headers={"Content-Type": "application/xml"})
        assert response.status_code == 400
    assert gen.generate("<prompt schema='gen'/>", max_tokens=1)["usage"]["new_tokens"] == 1


# S06: prompts and answers that do not fit are refused before anything is sent, with the numbers.
def test_context_length(gen):
    words = "word " * 9000
    error = refused(gen, 400, prompt=f"<prompt schema='gen'><facts/>{words}</prompt>")
    assert error["code"] == "context_length_exceeded"
    assert "8192" in error["message"]

    fits = f"<prompt schema='gen'><facts/>{'word ' * 50}</prompt>"
    error = refused(gen, 400, prompt=fits, max_tokens=8190)
    assert error["code"] == "context_length_exceeded"
    assert "8192" in error["message"] and "8190" in error["message"]


# S09: the limit may cut a character; what is shown stays whole, in the same way streamed and not.
@pytest.mark.parametrize("seed", range(6))
def test_cut_characters(gen, seed):
    prompt = "<prompt schema='gen'><user>🙂🙂🙂 写一句话 👩‍👩‍👧 é</user></prompt>"
    for count in (1, 2, 3, 5, 8, 12):
        # Computed anew both times: what is found was computed in another shape, and rounds differently.
        fields = {"temperature": 1.5, "seed": seed, "max_tokens": count, "ignore_eos": True, "cache": "bypass"}
        if count % 2:
            fields["logprobs"] = 2
        events = stream(gen.client, prompt, **fields)
        answer = gen.generate(prompt, **fields)
        assert joined_text(events) == answer["text"]
        assert answer["finish_reason"] == last(events)["finish_reason"] == "length"
        assert answer["text"].encode("utf-8", errors="strict") is not None


# S08: the same with longer answers, where byte tokens mix with whole characters.
@pytest.mark.parametrize("seed", range(8))
def test_streams_of_all_scripts(gen, seed):
    prompt = "<prompt schema='gen'><user>写一句话 🙂👩‍👩‍👧 é</user></prompt>"
    fields = {"temperature": 1.5, "seed": seed, "max_tokens": 40, "cache": "bypass"}
    assert joined_text(stream(gen.client, prompt, **fields)) == gen.generate(prompt, **fields)["text"]
