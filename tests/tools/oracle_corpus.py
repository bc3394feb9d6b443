"""The texts that make_oracle.py gives to the reference tokenizers and models. Written for this purpose; nothing is quoted."""

TRAINING_TEXT = (
    """\
A prompt cache keeps the attention states of text that many prompts share. The first prompt pays for them, and the next ones
read what is already there. A schema names the parts, a module is one part, and a union says that only one of several parts
may be used. The server lays every module out at its own positions, so that a prompt may leave some of them away.
Travellers ask where to swim, what to eat and how to get there. The train leaves at 7:45 and costs 23.50 in summer, 31.00 in
winter. It is raining, it was raining, it will be raining again; still the harbour is full of boats.
def encode(text: str) -> list[int]:
    return [token for token in tokenizer(text) if token >= 0]
for (int i = 0; i < n; ++i) { total += values[i] * 2; }
Der Zug fährt um acht Uhr, die Straße ist naß. Le café est fermé à midi, où est la forêt ? El niño corrió mañana por la calle.
Поезд уходит утром, а вечером мы снова дома. Το τρένο φεύγει το πρωί.
"""
    * 4
)

LONG_TEXT = (
    "The old lighthouse keeper wrote down the weather every morning. On the first day the wind came from the west and the sea was "
    "calm. On the second day there was fog until noon, and two fishing boats waited outside the harbour. On the third day it rained "
    "so hard that the path to the village was under water, and nobody came with bread. He counted his supplies: eleven candles, four "
    "tins of beans, a sack of flour, and a jar of honey that his sister had sent from the mountains. In the evening he lit the lamp, "
    "sat down at the table and read the letters of the past year once more. One of them was from a painter who wanted to stay for a "
    "week in spring, another from the harbour office, which asked him to report every ship that passed at night without lights. He "
    "had seen three of them since autumn. He answered both letters, carefully and without haste, because the post would not leave "
    "before Thursday anyway. Then he wound the clock, looked once more at the horizon, and noticed a small green light far out that "
    "did not move. It was not a star, and it was not on any of his charts. He took the telescope from its case, wiped the lens, and "
    "waited for the clouds to open. When they did, he saw a raft with a tent on it, and a person who was waving a lantern slowly "
    "from side to side. He ran down the stairs to the boat house, pulled the tarpaulin from the old rowing boat and pushed it into "
    "the dark water. The waves were high, but the current helped him, and after half an hour he could hear a voice."
)

PASSAGES = {
    "root": "You are a careful travel planner. Answer in one short paragraph.\n",
    "miami": "Miami: long beaches, art deco hotels, Cuban coffee, heat and thunderstorms in summer.\n",
    "maui": "Maui: volcanoes, surf in winter, whales from December to April, rain on the east side.\n",
    "question": "Where should I swim in March, and what should I eat afterwards?",
}

MESSAGES = {
    "one_turn": [{"role": "user", "content": "What is the capital of France?"}],
    "one_turn_system": [
        {"role": "system", "content": "You answer in one word."},
        {"role": "user", "content": "What is the capital of France?"},
    ],
    "three_turns": [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "Another one, please."},
        {"role": "assistant", "content": "Green."},
        {"role": "user", "content": "And a third?\nWith a second line."},
    ],
    "three_turns_system": [
        {"role": "system", "content": "  Be brief.  "},
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "Another one, please."},
        {"role": "assistant", "content": "Green."},
        {"role": "user", "content": "And a third? «ünïcödé» 🎨"},
    ],
    "two_user_turns": [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}],
    "empty_content": [{"role": "user", "content": ""}],
}

# Templates in the manner of well-known model families, each using what those families' templates use.
TEMPLATES = {
    "inst": (
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
        "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
        "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Roles must alternate') }}{% endif %}"
        "{% if loop.index0 == 0 and system_message != false %}"
        "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
        "{% else %}{% set content = message['content'] %}{% endif %}"
        "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    ),
    "headers": (
        "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = '26 Jul 2024' %}\n{%- endif %}\n"
        "{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = messages[0]['content']|trim %}\n"
        "    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system_message = '' %}\n{%- endif %}\n"
        "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}\n{{- 'Today: ' + date_string + '\\n\\n' }}\n"
        "{{- system_message }}\n{{- '<|eot_id|>' }}\n"
        "{%- for message in messages %}\n    {%- if not (message.role == 'ipython' or message.role == 'tool' "
        "or 'tool_calls' in message) %}\n"
        "        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}\n"
        "    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
        "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n"
    ),
    "turns": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'].rstrip() + '\\n\\n' %}"
        "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
        "{% for message in rest %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
        "{{ '<start_of_turn>' + role + '\\n' + (first if loop.first else '') "
        "+ message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
    ),
    "namespace": (
        "{%- set ns = namespace(found=false, count=0) -%}\n{%- for message in messages -%}\n"
        "  {%- if message.role == 'system' -%}{%- set ns.found = true -%}{%- endif -%}\n"
        "  {%- set ns.count = ns.count + 1 -%}\n{%- endfor -%}\n"
        "{%- if not ns.found %}<|system|>default{{ '\\n' }}{% endif -%}\n"
        "{%- for message in messages %}\n"
        "{%- if message['content'].startswith('  ') %}<|{{ message.role | upper }}|>{{ message.content.lstrip() }}\n"
        "{%- else %}<|{{ message.role }}|>{{ message.content.split('\\n')[0] }}{% endif %}\n"
        "{%- for key, value in message.items() %}{{ key }}={{ value | length }};{% endfor %}\n"
        "{%- if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}\n"
        "{%- if add_generation_prompt %}\n<|assistant|>{% endif %} ({{ ns.count }}) {{ messages[-1]['content'] | tojson }}"
    ),
}


def tokenizer_corpus() -> list[str]:
    scripts = [
        "Hello, world!",
        "hello",
        " hello",
        "hello ",
        "  hello  ",
        "The quick brown fox jumps over the lazy dog.",
        "Ünïcödé çhàrâctërs ÀÉÎÕÜ ßſ",
        "Der Fluß fließt über Straßen – „schnell“, nicht wahr?",
        "L’été, c’est déjà fini… n'est-ce pas ?",
        "¿Dónde está el niño? ¡Mañana!",
        "Zażółć gęślą jaźń",
        "Příliš žluťoučký kůň úpěl ďábelské ódy",
        "Árvíztűrő tükörfúrógép",
        "İstanbul'da ığdır şişe",
        "Жил-был в лесу старый медведь.",
        "Ґрунт і їжак",
        "Το γρήγορο καφέ αλεπού",
        "שלום עולם, מה שלומך?",
        "שָׁלוֹם",
        "مرحبا بالعالم، كيف حالك؟",
        "اَلسَّلامُ عَلَيْكُم",
        "سلام دنیا ۱۲۳۴۵۶",
        "नमस्ते दुनिया, आप कैसे हैं?",
        "क्षत्रिय ज्ञान",
        "হ্যালো বিশ্ব",
        "வணக்கம் உலகம்",
        "హలో ప్రపంచం",
        "ಹಲೋ ವರ್ಲ್ಡ್",
        "ഹലോ വേൾഡ്",
        "ස්තූතියි",
        "สวัสดีชาวโลก วันนี้อากาศดี",
        "ສະບາຍດີ",
        "မင်္ဂလာပါ",
        "សួស្តី",
        "გამარჯობა მსოფლიო",
        "Բարեւ աշխարհ",
        "ሰላም ዓለም",
        "ᏣᎳᎩ",
        "你好，世界！今天天气很好。",
        "繁體中文字與標點「引號」",
        "こんにちは世界。カタカナとひらがな",
        "ｶﾀｶﾅ ＦＵＬＬＷＩＤＴＨ１２３",
        "안녕하세요 세계",
        "한글",
        "ᄒᆞᆫ글 옛한글",
        "Xin chào thế giới, tiếng Việt",
        "ᠮᠣᠩᠭᠣᠯ",
        "བཀྲ་ཤིས་བདེ་ལེགས།",
        "𐍈𐌰𐌿 gothic",
        "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝓜𝓪𝓽𝓱",
        "𠜎𠜱𠝹 rare han",
    ]
    emoji = [
        "😀",
        "😀😃😄",
        "I ❤️ you",
        "👍🏽 skin tone",
        "👨‍👩‍👧‍👦 family",
        "🏳️‍🌈 flag",
        "🇩🇪🇫🇷🇯🇵",
        "1️⃣2️⃣",
        "🧑🏿‍🚀 in space🚀",
        "a😀b😀c",
        "🤷🏻‍♀️",
        "©®™ ℃ № ½ ² ③",
        "⠓⠑⠇⠇⠕",
        "🫠🫨🪿",
        "\u200d\u200d alone joiners",
        "♥♦♣♠ ♔♕",
    ]
    code = [
        "def f(x):\n    return x ** 2\n",
        "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
        "SELECT * FROM t WHERE a = 'b' AND c >= 10;",
        '{"key": [1, 2.5e-10, null, true], "nested": {"a": "\\u00e9"}}',
        '<div class="x">&amp; text</div>',
        "#!/bin/sh\nset -eu\necho \"$HOME\" | sed 's/a/b/g'\n",
        "std::vector<std::unique_ptr<Foo>> v{};",
        "let x = y?.z ?? await fn(...args) => ({});",
        "https://example.com/path?q=1&r=%20#frag",
        "user.name+tag@example.co.uk",
        "C:\\Users\\me\\file.txt",
        "```python\nprint('hi')\n```",
        "$\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$",
        "snake_case camelCase PascalCase kebab-case SCREAMING_CASE",
        "0x1F 0b1010 1_000_000 1e10",
        "a=b+c*d/e%f^g&h|i~j!k",
        "// TODO(me): fix\n/* block */",
        "if(a){b}else{c}",
    ]
    numbers = [
        "0",
        "7",
        "42",
        "1234567890",
        "3.14159",
        "1,234,567.89",
        "2024-02-29T23:59:59Z",
        "+49 (0)30 123456",
        "½ ¾ ⅞",
        "١٢٣٤",
        "৪৫৬",
        "Ⅷ Ⅻ",
        "a1b2c3",
        "100%",
        "x²+y³",
        "1st 2nd 3rd",
    ]
    english = [
        "I'm you're he's we'll they'd I've",
        "I'M YOU'RE HE'S",
        "don’t won’t",
        "'s 't 're",
        "''''",
        "\"quoted\" 'single' `tick`",
        "e.g. i.e. etc.",
        "Mr. O'Neil-Smith, Jr.",
        "ALL CAPS TEXT",
        "tHiS iS mIxEd",
        "antidisestablishmentarianism",
        "well-known, state-of-the-art",
        "wait...what?!",
        "—em dash– en dash",
        "(parens) [brackets] {braces}",
    ]
    spaces = [
        " ",
        "  ",
        "   ",
        "\n",
        "\n\n",
        "\t",
        "\t\t\t",
        " \n ",
        "\r\n",
        "\r",
        "a\r\nb\r\n\r\nc",
        "a\rb",
        "line one\nline two",
        "line one\n\n\n\nline two",
        "a  b   c    d     e",
        "trailing spaces   ",
        "trailing newline\n",
        "\n leading",
        "tab\tseparated\tvalues",
        "    indented by four",
        "\u00a0nbsp\u00a0here\u00a0",
        "em\u2003space thin\u2009space",
        "zero\u200bwidth",
        "line\u2028separator para\u2029separator",
        "ideographic\u3000space",
        "\ufeffbom at start",
        "vertical\x0btab form\x0cfeed",
        "nel\x85here",
        " " * 17,
        "\n" * 9,
        " \t \t \n\t ",
        "x" + " " * 50 + "y",
    ]
    control = [
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|im_start|>user\nhi<|im_end|>\n",
        "text<|im_end|>text",
        " <|im_end|> ",
        "<|im_end",
        "|im_end|>",
        "<|IM_END|>",
        "< |im_end| >",
        "<|im_start|><|im_start|>",
        "<repo_name>x<file_sep>",
        "</s>",
        "<s>",
        "<unk>",
        "[INST] hi [/INST]",
        "<|im_end|><|endoftext|>tail",
        "<0x0A>",
        "<issue_comment>",
    ]
    marks = [
        "e\u0301 versus \u00e9",
        "n\u0303 A\u030a o\u0308",
        "Z\u0351\u036b\u0343a\u0363\u0362l\u0348\u0353g\u0321\u032eo\u0315",
        "\u0301 mark first",
        "ﬁ ﬂ ligatures ﬀ",
        "Å Å (angstrom twice)",
        "\u202eright to left\u202c",
        "a\u0000b",
        "\u0001\u0002\u001b[0m",
        "\u007f",
        "\ufffd replacement",
        "\ue000 private use",
        "\U0010ffff last",
        "\ufffe",
        "soft\u00adhyphen",
    ]
    long = [
        "",
        "a",
        "a" * 300,
        "ab" * 200,
        "word " * 120,
        "1" * 130,
        "." * 77,
        "-" * 80 + "\n",
        "é" * 90,
        "漢" * 64,
        "😀" * 33,
        "=" * 5 + " heading " + "=" * 5,
        LONG_TEXT,
        LONG_TEXT.replace(". ", ".\n\n") + "\n",
        "ha" * 3 + "!" * 20,
        "\\n not a newline",
        "Ġ Ċ ▁ byte-level markers",
        "▁▁leading metaspace",
        "_under_ *star* #hash",
    ]
    return scripts + emoji + code + numbers + english + spaces + control + marks + long
