"""Chat templates in the manner of the supported families, and what transformers renders with them.

Written for this purpose from the formats the families document; whitespace and control tokens are theirs, the Jinja is not.

A family's fields beside its template and special tokens say where a conversation written with role tags and the template's own
rendering part, so that the test can make them meet:
    default_system  the system text the template writes where a conversation has none; PML writes none that was not asked for
    system_prefix   what the template writes in front of a given system text, inside its turn
    system_place    "last user turn": it moves the system text there; "dropped": it leaves it out
    bos_each_turn   it writes BOS in front of every user turn; PML writes one, at position 0
    end             what it writes behind a conversation that is not to be continued
"""

from __future__ import annotations

import json
from pathlib import Path

ONE = [{"role": "user", "content": "What is the capital of France?"}]
THREE = [
    {"role": "user", "content": "Name a colour."},
    {"role": "assistant", "content": "Blue."},
    {"role": "user", "content": "Another one, <b>please</b>."},
    {"role": "assistant", "content": "Green,\nor red."},
    {"role": "user", "content": "And a third?\nWith a second line: ünïcödé 🎨"},
]
SYSTEM = [{"role": "system", "content": "You answer in one word.\nAlways."}]
CONVERSATIONS = {
    "one turn": ONE,
    "one turn, system": SYSTEM + ONE,
    "three turns": THREE,
    "three turns, system": SYSTEM + THREE,
    "answered": THREE[:4],
}

ALTERNATE = (
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
)
TAKE_SYSTEM = (
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set turns = messages[1:] %}"
    "{%- else %}{%- set turns = messages %}{%- endif %}"
)

LLAMA2 = (
    TAKE_SYSTEM + "{% for message in turns %}" + ALTERNATE + "{% set text = message['content'] %}"
    "{% if loop.first and system is defined %}{% set text = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + text %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + text.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)

LLAMA3_TURNS = (
    "{% for message in messages %}{% set text = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' "
    "+ message['content'] | trim + '<|eot_id|>' %}{{ bos_token + text if loop.first else text }}{% endfor %}"
)
LLAMA3_ANSWER = "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"

LLAMA31 = (
    "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = '26 Jul 2024' %}\n{%- endif %}\n"
    "{%- if messages[0]['role'] == 'system' %}\n    {%- set system_text = messages[0]['content'] | trim %}\n"
    "    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system_text = '' %}\n{%- endif %}\n"
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}\n"
    "{{- 'Cutting Knowledge Date: December 2023\\n' }}\n{{- 'Today Date: ' + date_string + '\\n\\n' }}\n"
    "{{- system_text }}\n{{- '<|eot_id|>' }}\n{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}\n"
    "{%- endfor %}\n{%- if add_generation_prompt %}\n    " + LLAMA3_ANSWER.replace("{{", "{{-") + "\n{%- endif %}\n"
)
LLAMA31_DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"


def mistral(opening: str, closing: str, answer: str, system_in: str | None) -> str:
    """Versions 0.1 to 3 and Tekken: they differ in spaces, and in the turn that takes the system text."""
    take, text = "{%- set turns = messages %}", "message['content']"
    if system_in:
        take = TAKE_SYSTEM
        text = f"(system + '\\n\\n' if loop.{system_in} and system is defined else '') + message['content']"
    return (
        take + "{{- bos_token }}{%- for message in turns %}" + ALTERNATE + "{%- if message['role'] == 'user' %}"
        f"{{{{- '{opening}' + {text} + '{closing}' }}}}{{%- else %}}{{{{- {answer} }}}}{{%- endif %}}{{%- endfor %}}"
    )


MISTRAL_V7 = (
    TAKE_SYSTEM + "{{- bos_token }}{{- '[SYSTEM_PROMPT]' + (system if system is defined else 'You are a model.') + '[/SYSTEM_PROMPT]' }}"
    "{%- for message in turns %}\n    {%- if message['role'] == 'user' %}\n        {{- '[INST]' + message['content'] + '[/INST]' }}\n"
    "    {%- elif message['role'] == 'assistant' %}\n        {{- message['content'] + eos_token }}\n"
    "    {%- else %}\n        {{- raise_exception('Only user, system and assistant roles are supported!') }}\n"
    "    {%- endif %}\n{%- endfor %}"
)


def chatml(before: str = "", answer: str = "<|im_start|>assistant\\n") -> str:
    return (
        before + "{%- for message in messages %}\n"
        "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '" + answer + "' }}\n{%- endif %}\n"
    )


QWEN25_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
QWEN25 = chatml(
    "{%- if messages[0]['role'] != 'system' %}\n    {{- '<|im_start|>system\\n" + QWEN25_SYSTEM + "<|im_end|>\\n' }}\n{%- endif %}\n"
)

# Thoughts of earlier answers are left out; an answer behind the last question is given a thought, be it empty.
QWEN3 = (
    "{%- if messages[0].role == 'system' %}\n    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n{%- endif %}\n"
    "{%- set ns = namespace(searching=true, last_query=messages|length - 1) %}\n{%- for message in messages[::-1] %}\n"
    "    {%- set index = (messages|length - 1) - loop.index0 %}\n"
    "    {%- if ns.searching and message.role == 'user' and not message.content.startswith('<tool_response>') %}\n"
    "        {%- set ns.searching = false %}\n        {%- set ns.last_query = index %}\n    {%- endif %}\n{%- endfor %}\n"
    "{%- for message in messages %}\n    {%- set content = message.content if message.content is string else '' %}\n"
    "    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}\n"
    "    {%- elif message.role == 'assistant' %}\n        {%- set thought = '' %}\n        {%- if '</think>' in content %}\n"
    "            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n"
    "            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n        {%- endif %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' }}\n        {%- if loop.index0 > ns.last_query and (loop.last or thought) %}\n"
    "            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}\n        {%- endif %}\n"
    "        {{- content.lstrip('\\n') + '<|im_end|>\\n' }}\n    {%- endif %}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n"
    "    {%- if enable_thinking is defined and enable_thinking is false %}\n        {{- '<think>\\n\\n</think>\\n\\n' }}\n"
    "    {%- endif %}\n{%- endif %}"
)

GEMMA_TURNS = (
    "{%- for message in turns -%}" + ALTERNATE.replace("{%", "{%-").replace("%}", "-%}") + "\n"
    "    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}\n"
    "    {{ '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}{{ message['content'] | trim }}"
    "{{ '<end_of_turn>\\n' }}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n    {{ '<start_of_turn>model\\n' }}\n{%- endif -%}\n"
)
GEMMA2 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{%- set first = '' -%}{%- set turns = messages -%}" + GEMMA_TURNS
)
GEMMA3 = "{{ bos_token }}\n" + TAKE_SYSTEM + "\n{%- set first = system + '\\n\\n' if system is defined else '' -%}\n" + GEMMA_TURNS

FALCON_CHAT = (
    "{% for message in messages %}{% if not loop.first %}{{ '\\n' }}{% endif %}{% if message['role'] == 'system' %}{{ 'System: ' }}"
    "{% elif message['role'] == 'user' %}{{ 'User: ' }}{% else %}{{ 'Falcon: ' }}{% endif %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\\n' + 'Falcon:' }}{% endif %}"
)


def falcon_instruct(answerer: str, before_first: str) -> str:
    """The system text stands alone in front; two newlines open each turn, the first one too or not."""
    return (
        TAKE_SYSTEM + "{% for message in turns %}{% if loop.first and system is defined %}{{ system.strip() + '\\n\\n' }}"
        "{% else %}{{ '" + before_first + "' if loop.first else '\\n\\n' }}{% endif %}"
        "{{ ('User' if message['role'] == 'user' else '" + answerer + "') + ': ' }}"
        "{{ message['content'].strip().replace('\\r\\n', '\\n').replace('\\n\\n', '\\n') }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '\\n\\n" + answerer + ":' }}{% endif %}"
    )


FALCON_11B = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ 'User: \\n' + message['content'] }}\n"
    "{% elif message['role'] == 'system' %}\n{{ 'System: ' + message['content'] }}\n{% else %}\n{{ 'Falcon:\\n' + message['content'] }}\n"
    "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ 'Falcon:' }}\n{% endif %}\n{% endfor %}"
)
FALCON3 = (
    "{% for message in messages %}{% if message['role'] != 'assistant' %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '\\n' }}"
    "{% else %}{{ '<|assistant|>\\n' + message['content'] + eos_token + ('' if loop.last else '\\n') }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)

MPT_SYSTEM = "A conversation between a user and an assistant."
MPT = (
    TAKE_SYSTEM + "{% for message in turns %}{% if loop.first %}"
    "{{ '<|im_start|>system\\n' + (system if system is defined else '" + MPT_SYSTEM + "').strip() + '<|im_end|>' }}{% endif %}"
    "{{ '\\n<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' }}"
    "{% if loop.last and add_generation_prompt == true %}{{ '\\n<|im_start|>assistant\\n' }}{% endif %}{% endfor %}"
)

PHI3_FIRST = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '<|user|>' + '\\n' + message['content'] + '<|end|>' + '\\n' + '<|assistant|>' + '\\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + '<|end|>' + '\\n' }}{% endif %}{% endfor %}"
)


def phi(after_role: str, after_end: str) -> str:
    return (
        "{% for message in messages %}{{ '<|' + message['role'] + '|>"
        + after_role
        + "' + message['content'] + '<|end|>"
        + after_end
        + "' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>"
        + after_role
        + "' }}{% else %}{{ eos_token }}{% endif %}"
    )


PHI4_FIRST = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>' }}{% elif message['role'] == 'user' %}"
    "{{ '<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|><|im_start|>assistant<|im_sep|>' }}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
)
PHI4 = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '<|im_sep|>' + message['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"
)


def tokens(bos: str | None, eos: str) -> dict[str, str]:
    return ({"bos_token": bos} if bos else {}) | {"eos_token": eos}


S = tokens("<s>", "</s>")
LLAMA = tokens("<|begin_of_text|>", "<|eot_id|>")
QWEN = tokens(None, "<|im_end|>")
GEMMA = tokens("<bos>", "<eos>")
FALCON = tokens(None, "<|endoftext|>")
PHI = tokens("<s>", "<|endoftext|>")
LAST = {"system_place": "last user turn"}

FAMILIES = {
    "llama-2": {"template": LLAMA2, "tokens": S, "bos_each_turn": True},
    # The first release opened an answer whether asked to or not.
    "llama-3-first": {"template": LLAMA3_TURNS + LLAMA3_ANSWER, "tokens": LLAMA},
    "llama-3": {"template": LLAMA3_TURNS + "{% if add_generation_prompt %}" + LLAMA3_ANSWER + "{% endif %}", "tokens": LLAMA},
    "llama-3.1": {"template": LLAMA31, "tokens": LLAMA, "default_system": LLAMA31_DATES, "system_prefix": LLAMA31_DATES},
    "mistral-v0.1": {"template": mistral("[INST] ", " [/INST]", "message['content'] + eos_token + ' '", None), "tokens": S},
    "mistral-v0.2": {"template": mistral(" [INST] ", " [/INST]", "' ' + message['content'] + eos_token", "first"), "tokens": S},
    "mistral-v3": {"template": mistral("[INST] ", "[/INST]", "' ' + message['content'] | trim + eos_token", "last"), "tokens": S} | LAST,
    "mistral-v3-tekken": {"template": mistral("[INST]", "[/INST]", "message['content'] | trim + eos_token", "last"), "tokens": S} | LAST,
    "mistral-v7": {"template": MISTRAL_V7, "tokens": S, "default_system": "You are a model."},
    "qwen2.5": {"template": QWEN25, "tokens": QWEN, "default_system": QWEN25_SYSTEM},
    "qwen3": {"template": QWEN3, "tokens": QWEN},
    "qwen3-thinking": {"template": chatml(answer="<|im_start|>assistant\\n<think>\\n"), "tokens": QWEN},
    "gemma-2": {"template": GEMMA2, "tokens": GEMMA},
    "gemma-3": {"template": GEMMA3, "tokens": GEMMA},
    "falcon-chat": {"template": FALCON_CHAT, "tokens": FALCON},
    "falcon-instruct": {"template": falcon_instruct("Falcon", ""), "tokens": FALCON},
    "falcon-instruct-assistant": {"template": falcon_instruct("Assistant", "\\n\\n"), "tokens": FALCON},
    "falcon-11b": {"template": FALCON_11B, "tokens": tokens(">>", "<|endoftext|>")},
    "falcon-3": {"template": FALCON3, "tokens": FALCON},
    "mpt-chat": {"template": MPT, "tokens": tokens("<|endoftext|>", "<|im_end|>"), "default_system": MPT_SYSTEM},
    "phi-3-first": {"template": PHI3_FIRST, "tokens": PHI, "system_place": "dropped"},
    "phi-3": {"template": phi("\\n", "\\n"), "tokens": PHI, "end": "<|endoftext|>"},
    "phi-4-mini": {"template": phi("", ""), "tokens": tokens("<|endoftext|>", "<|endoftext|>"), "end": "<|endoftext|>"},
    "phi-4-first": {"template": PHI4_FIRST, "tokens": tokens("<|endoftext|>", "<|im_end|>")},
    "phi-4": {"template": PHI4, "tokens": tokens("<|endoftext|>", "<|im_end|>")},
}


def render_cases(template: str, special_tokens: dict[str, str]) -> list[dict]:
    """Every conversation with and without the generation prompt: "rendered", or the "error" the template raises."""
    from jinja2.exceptions import TemplateError
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **special_tokens)
    tokenizer.chat_template = template
    cases = []
    for name, messages in CONVERSATIONS.items():
        for generation in (False, True):
            case = {"conversation": name, "add_generation_prompt": generation}
            try:
                case["rendered"] = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation)
            except TemplateError as error:
                case["error"] = str(error)
            cases.append(case)
    return cases


def write_chat_families(out: Path, say) -> None:
    families = {}
    for name, family in FAMILIES.items():
        families[name] = {"special_tokens": family["tokens"]}
        families[name] |= {field: value for field, value in family.items() if field != "tokens"}
        families[name]["cases"] = render_cases(family["template"], family["tokens"])
    text = json.dumps({"conversations": CONVERSATIONS, "families": families}, indent=1)
    (out / "chat_families.json").write_text(text + "\n")
    refused = [name for name, family in families.items() if any("error" in case for case in family["cases"])]
    say(f"chat families: {len(families)}, of which {', '.join(refused)} refuse a system text")
