"""What schemathesis cannot know: PML, what is registered, and how to keep answers short."""

import schemathesis
from hypothesis import strategies as st

SCHEMA = """<schema name="travel"><module name="maui">Maui has beaches.</module>
<module name="plan">For <param name="days" len="4"/> days.</module></schema>"""
INSIDE = ["<maui/>", "<plan days='2'/>", "<maui/><user>hi</user>", "text 🙂", "<none/>", "<user>", "&"]

# Schemas where prompts are wanted, and prompts where schemas are, among those that fit.
schemathesis.openapi.format(
    "pml",
    st.one_of(
        st.just(SCHEMA),
        st.sampled_from(INSIDE).map(lambda inner: f"<prompt schema='travel'>{inner}</prompt>"),
        st.text("<>/&;=\"' aé\n🙂", max_size=20),
    ),
)


@schemathesis.serializer("application/xml", "text/xml")
def as_it_is(context, value):
    return value.encode() if isinstance(value, str) else repr(value).encode()


GENERATE = ("/generate", "/v1/completions", "/v1/chat/completions")
MOST = {"max_tokens": 4, "max_completion_tokens": 4, "n": 3, "best_of": 3}
# Fields that go with others, or with what the model knows, alone.
PICKY = ("best_of", "echo", "model", "prompt_cache", "response_format", "stream_options", "tools", "top_logprobs", "logit_bias")
PICKY += ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "tool_choice")


@schemathesis.hook
def map_case(context, case):
    """Short answers, and bodies that get a hearing."""
    if isinstance(case.body, dict) and case.operation.path in GENERATE:
        for field, most in MOST.items():
            value = case.body.get(field)
            if isinstance(value, int) and most < value < 2**31:
                case.body[field] = most
        case.body.setdefault("max_tokens", 4)
        if case.meta is not None and case.meta.generation.mode.is_positive:
            for field in PICKY:
                case.body.pop(field, None)
    if case.operation.path == "/generate" and case.media_type == "application/json":
        case.query = {}  # refused beside JSON, whatever it says
    return case
