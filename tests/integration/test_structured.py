"""Structured output: answers that must match a schema, a regex, a choice or a grammar; forced calls of tools."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import jsonschema
import openai
import pydantic
import pytest
from conftest import MODEL
from schema_generator import SchemaGenerator
from sse import joined_text, last, read_events

QUESTION = [{"role": "user", "content": "Tell me about a city that you like."}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def json_schema(schema, name="answer", **more):
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, **more}}


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
def model_name(server):
    return server.client.get("/v1/models").json()["data"][0]["id"]


@pytest.fixture
def chat(client, model_name):
    return lambda messages=QUESTION, **fields: client.chat.completions.create(model=model_name, messages=messages, **fields)


@pytest.fixture
def travel(server):
    server.register("<schema name='structured'><module name='m'>You answer in JSON.</module></schema>")
    return "<prompt schema='structured'><m/><user>Who are you?</user></prompt>"


# ---- The official client ----


def test_json_schema(chat):
    for fields in ({"temperature": 0}, {"temperature": 1, "seed": 5}, {"temperature": 1.5, "top_p": 0.9, "seed": 1}):
        answer = chat(response_format=json_schema(PERSON, strict=True), max_tokens=100, **fields)
        choice = answer.choices[0]
        assert choice.finish_reason == "stop", choice
        value = json.loads(choice.message.content)
        jsonschema.validate(value, PERSON)
        assert list(value) == ["name", "age"]  # the schema's order, not the alphabet's


def test_json_object(chat):
    answer = chat(response_format={"type": "json_object"}, temperature=0, max_tokens=60)
    text = answer.choices[0].message.content
    assert text.startswith("{")
    assert not re.match(r"\{\s\s", text)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    size: Literal["small", "large"]
    districts: list["District"] = pydantic.Field(max_length=2)


class District(pydantic.BaseModel):
    code: int = pydantic.Field(ge=0, le=99)
    old: bool


@pytest.mark.parametrize("stream", [False, True])
def test_parse(client, model_name, stream):
    fields = {"model": model_name, "messages": QUESTION, "response_format": City, "temperature": 0, "max_tokens": 200}
    if stream:
        with client.chat.completions.stream(**fields) as events_of_stream:
            answer = events_of_stream.get_final_completion()
    else:
        answer = client.chat.completions.parse(**fields)
    assert isinstance(answer.choices[0].message.parsed, City)


def test_streamed_text_is_the_unstreamed(chat):
    fields = {"response_format": json_schema(PERSON), "temperature": 1, "seed": 11, "max_tokens": 100}
    whole = chat(**fields)
    chunks = list(chat(stream=True, logprobs=True, **fields))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_choices_are_independent(chat):
    answer = chat(response_format=json_schema(PERSON), n=4, temperature=1.2, seed=3, max_tokens=100)
    texts = [choice.message.content for choice in answer.choices]
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)
    assert len(set(texts)) > 1


def test_max_tokens_cuts(chat):
    answer = chat(response_format=json_schema(PERSON), temperature=0, max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 3


def test_logprobs_are_the_models_own(chat):
    answer = chat(extra_body={"guided_choice": ["xylophone"]}, temperature=0, max_tokens=20, logprobs=True, top_logprobs=2)
    first = answer.choices[0].logprobs.content[0]
    assert first.logprob < -3  # what it would hardly have said
    assert first.top_logprobs[0].logprob > first.logprob


# ---- vLLM's fields ----


@pytest.mark.parametrize("structured", [False, True])
def test_guided_fields(client, model_name, structured):
    def ask(kind, value):
        body = {"structured_outputs": {kind: value}} if structured else {f"guided_{kind}": value}
        chat = client.chat.completions.create(model=model_name, messages=QUESTION, temperature=1, seed=2, max_tokens=60, extra_body=body)
        completion = client.completions.create(model=model_name, prompt="It is", temperature=1, seed=2, max_tokens=60, extra_body=body)
        assert chat.choices[0].finish_reason == completion.choices[0].finish_reason == "stop"
        return chat.choices[0].message.content, completion.choices[0].text

    for text in ask("choice", ["Paris", "London", 'say "hi"']):
        assert text in ("Paris", "London", 'say "hi"')
    for text in ask("regex", r"[A-Z][a-z]{2,8} \d{4}"):
        assert re.fullmatch(r"[A-Z][a-z]{2,8} \d{4}", text)
    for text in ask("grammar", 'start: "(" (NUMBER ",")~2 NUMBER ")"\nNUMBER: /[0-9]{1,3}/\n'):
        assert re.fullmatch(r"\((\d{1,3},){2}\d{1,3}\)", text)
    for schema in (PERSON, json.dumps(PERSON)):
        for text in ask("json", schema):
            jsonschema.validate(json.loads(text), PERSON)


# ---- /generate ----


def test_generate(server, travel):
    for fields in ({"temperature": 0}, {"temperature": 1, "seed": 4, "ignore_eos": True}):
        answer = server.generate(travel, response_format=json_schema(PERSON), max_tokens=100, **fields)
        assert answer["finish_reason"] == "stop"
        jsonschema.validate(json.loads(answer["text"]), PERSON)
    answer = server.generate(travel, response_format={"type": "regex", "regex": "(yes|no)!"}, temperature=0)
    assert answer["text"] in ("yes!", "no!")
    answer = server.generate(travel, response_format={"type": "grammar", "grammar": 'start: "a" | "b"'}, temperature=0)
    assert answer["text"] in ("a", "b")


def test_generate_streamed_from_a_query(server, travel):
    query = {"response_format": json.dumps(json_schema(PERSON)), "temperature": "1", "seed": "9"}
    headers = {"Content-Type": "application/xml"}
    with server.client.stream("POST", "/generate", params=query, content=travel, headers=headers) as response:
        assert response.status_code == 200
        received = list(read_events(response.iter_raw()))
    assert list(json.loads(joined_text(received))) == ["name", "age"]
    assert last(received)["finish_reason"] == "stop"


# ---- Refusals ----


@pytest.mark.parametrize(
    ("field", "part"),
    [
        ({"type": "yaml"}, "json_schema"),
        ({"type": "json_schema"}, "json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "schema"),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": "y"}}, "schema"),
        (json_schema({"type": "object", "propertyNames": {"pattern": "a"}}), "propertyNames"),
        (json_schema({"type": "strong"}), "strong"),
        (json_schema({"type": "string", "pattern": "(a"}), "(a"),
        (json_schema({"type": "string", "minLength": 9, "maxLength": 1}), "minLength"),
        (json_schema({"$ref": "#/$defs/nowhere"}), "nowhere"),
        (json_schema({"$ref": "http://127.0.0.1:1/schema"}), "127.0.0.1"),
        (json_schema({"type": "object", "properties": {f"p{i}": {} for i in range(1500)}}), "1000"),
        (json_schema({"enum": ["x" * 200_000]}), "bytes"),
        ({"type": "regex"}, "regex"),
        ({"type": "regex", "regex": "(a"}, "unclosed"),
        ({"type": "regex", "regex": 5}, "regex"),
        ({"type": "regex", "regex": "a?" * 9000}, "bytes"),
        ({"type": "regex", "regex": "a?" * 2000}, "too"),
        ({"type": "regex", "regex": r"(?!a)b"}, "look-a"),
        ({"type": "grammar", "grammar": "start: other"}, "other"),
        ({"type": "grammar", "grammar": "start: " + "(" * 5000 + '"a"' + ")" * 5000}, "nested"),
        ("json", "response_format"),
    ],
)
def test_bad_formats(server, travel, field, part):
    for path, body in (
        ("/v1/chat/completions", {"messages": QUESTION}),
        ("/v1/completions", {"prompt": "x"}),
        ("/generate", {"prompt": travel}),
    ):
        response = server.client.post(path, json={**body, "response_format": field})
        assert response.status_code == 400, (path, response.text)
        error = response.json()["error"]
        assert error["param"].startswith("response_format"), error
        assert part in error["message"], error
        assert len(error["message"]) < 1000


def test_one_format_a_request(server, travel):
    chat = {"messages": QUESTION, "guided_regex": "a", "response_format": {"type": "json_object"}}
    response = server.client.post("/v1/chat/completions", json=chat)
    assert response.status_code == 400
    assert "guided_regex" in response.text and "response_format" in response.text
    for body in (
        {"guided_choice": []},
        {"guided_choice": ["a", ""]},
        {"guided_json": 5},
        {"structured_outputs": {"regex": "(", "unknown": 1}},
        {"structured_outputs": {"json": {}, "regex": "a"}},
    ):
        assert server.client.post("/v1/chat/completions", json={"messages": QUESTION, **body}).status_code == 400, body
    # /generate has one way to say it, and knows every field of it.
    assert server.client.post("/generate", json={"prompt": travel, "guided_regex": "a"}).status_code == 400
    response = server.client.post("/generate", json={"prompt": travel, "response_format": {"type": "json_object", "more": 1}})
    assert response.json()["error"]["code"] == "unknown_field"


def test_unsupported_keywords_may_be_overlooked(chat):
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False, "propertyNames": {}}
    with pytest.raises(openai.BadRequestError, match="propertyNames"):
        chat(response_format=json_schema(schema), max_tokens=10)
    answer = chat(response_format=json_schema(schema | {"x-guidance": {"lenient": True}}), temperature=0, max_tokens=20)
    assert json.loads(answer.choices[0].message.content) == {"a": 1}


def test_costly_formats_leave_the_server_alive(server):
    for regex in (r"((((((a{1,100}){1,100}){1,100}){1,100}){1,100}){1,100})b", r"(.*a){50}.{500}", r"(a|b)*a(a|b){25}"):
        body = {"prompt": "x", "max_tokens": 8, "temperature": 1, "response_format": {"type": "regex", "regex": regex}}
        assert server.client.post("/v1/completions", json=body).status_code in (200, 400)
    wide = {"allOf": [{"anyOf": [{"properties": {f"a{i}": {}}}, {"properties": {f"b{i}": {}}}]} for i in range(20)]}
    for schema in (wide, {"type": "array", "items": {"type": "integer"}, "minItems": 10**9}, {"$ref": "#"}):
        body = {"prompt": "x", "max_tokens": 8, "response_format": json_schema(schema)}
        assert server.client.post("/v1/completions", json=body).status_code in (200, 400)


# ---- Two hundred schemas ----


def test_every_answer_validates(server, model_name):
    """Of 200 random schemas; temperatures from greedy to wild, eight at a time."""

    def ask(number):
        schema = SchemaGenerator(number).schema()
        body = {
            "model": model_name,
            "messages": [{"role": "user", "content": f"Answer number {number} in JSON."}],
            "response_format": json_schema(schema),
            "temperature": (0, 0.7, 1, 1.5)[number % 4],
            "seed": number,
            "max_tokens": 600,
        }
        response = server.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, (response.text, schema)
        return schema, response.json()["choices"][0]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(200)))
    for schema, choice in answers:
        assert choice["finish_reason"] == "stop", (schema, choice)
        value = json.loads(choice["message"]["content"])
        jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(value)


# ---- Forced calls ----

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find_flight",
            "parameters": {
                "type": "object",
                "properties": {"to": {"$ref": "#/$defs/city"}, "day": {"type": "integer", "minimum": 1, "maximum": 31}},
                "required": ["to", "day"],
                "additionalProperties": False,
                "$defs": {"city": {"enum": ["Paris", "Rome"]}},
            },
        },
    },
    {"type": "function", "function": {"name": "stop"}},
]
TEMPLATES = {
    "hermes": '{% if tools %}<tools>{{ tools | tojson }}</tools> Answer <tool_call>{"name": …}</tool_call>.{% endif %}',
    "llama": '{% if tools %}{{ tools | tojson }} Answer {"name": function name, "parameters": dictionary}.{% endif %}',
    "mistral": "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }} [TOOL_CALLS]{% endif %}",
    "mistral-args": "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }} [TOOL_CALLS]name[ARGS]{% endif %}",
}
MESSAGES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("syntax", TEMPLATES)
def test_forced_calls(start_server, tmp_path, syntax):
    """The default model under a template that teaches calls."""
    directory = tmp_path / "model"
    directory.mkdir()
    for file in MODEL.iterdir():
        if file.is_file() and file.name != "tokenizer_config.json":
            (directory / file.name).symlink_to(file.resolve())
    config = json.loads((MODEL / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATES[syntax] + MESSAGES}))
    shutil.rmtree(directory / "chat_template.jinja", ignore_errors=True)
    server = start_server(model=directory)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)

    def ask(choice, **fields):
        return client.chat.completions.create(
            model="", messages=QUESTION, tools=TOOLS, tool_choice=choice, max_tokens=120, **({"temperature": 0} | fields)
        )

    for fields in ({}, {"temperature": 1.2, "seed": 8, "n": 3}):
        for choice in ask("required", **fields).choices:
            assert choice.finish_reason == "tool_calls", choice
            (call,) = choice.message.tool_calls
            assert not choice.message.content
            assert call.function.name in ("find_flight", "stop")
    named = ask({"type": "function", "function": {"name": "find_flight"}}, temperature=1, seed=1)
    (call,) = named.choices[0].message.tool_calls
    assert call.function.name == "find_flight"
    jsonschema.validate(json.loads(call.function.arguments), TOOLS[0]["function"]["parameters"])
    streamed = list(ask({"type": "function", "function": {"name": "stop"}}, stream=True))
    (delta,) = [c.choices[0].delta for c in streamed if c.choices and c.choices[0].delta.tool_calls]
    assert delta.tool_calls[0].function.name == "stop"
    assert json.loads(delta.tool_calls[0].function.arguments) == {}
    for choice in ({"type": "function", "function": {"name": "other"}}, "sometimes"):
        with pytest.raises(openai.BadRequestError) as fault:
            ask(choice)
        assert fault.value.body["param"] == "tool_choice"
    with pytest.raises(openai.BadRequestError, match="response_format"):
        ask("required", response_format={"type": "json_object"})
    # What must look otherwise is no call, even where it looks like one.
    answer = ask(
        "auto",
        response_format=json_schema(
            {"type": "object", "properties": {"name": {"const": "x"}}, "required": ["name"], "additionalProperties": False}
        ),
    )
    assert json.loads(answer.choices[0].message.content) == {"name": "x"}


def test_calls_cannot_be_forced_without_tools(client, model_name):
    for fields in ({}, {"tools": TOOLS}):
        with pytest.raises(openai.BadRequestError) as fault:
            client.chat.completions.create(model=model_name, messages=QUESTION, tool_choice="required", **fields)
        assert fault.value.body["param"] in ("tool_choice", "tools")
