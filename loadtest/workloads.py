#!/usr/bin/env python3
"""Deterministic workloads for measuring prompt reuse.

Every workload is a set of named text modules plus requests that import some of
them.  The same object serves three readers:

  * completions peers read ``request["prompt"]`` (modules joined, then the question);
  * a schema converter reads ``schema`` (layout of modules and unions) and
    ``request["modules"]`` / ``request["text"]``;
  * a quality check reads ``request["answer"]``, a phrase that stands in the prompt.

All text is made here from small word banks; nothing is downloaded.  Only
``Random.random()`` is drawn on, because Python promises its sequence across
versions and makes no such promise for ``choice`` or ``sample``.

Modules end in exactly one newline and start with a letter, so byte-level BPE
tokenises a module the same way alone and inside a prompt (see ``--tokenizer``).

Usage:
  workloads.py --out DIR                     write w1.json ... w5.json
  workloads.py --plain w1                    print w1's prompts as JSON lines
  workloads.py --out DIR --tokenizer FILE    also print token counts and check
                                             module boundaries (needs `tokenizers`)
"""

import argparse
import json
import pathlib
import random
import sys

PLACES = [
    "Brindle Harbour",
    "Corran Mill",
    "Dunmere Abbey",
    "Eastlow Station",
    "Fallow Quarry",
    "Garrick Bridge",
    "Hollin Observatory",
    "Ivern Lock",
    "Jessup Orchard",
    "Kestle Foundry",
    "Larkfield Depot",
    "Marren Lighthouse",
    "Norrey Archive",
    "Oakhanger Dairy",
    "Pellow Brickworks",
    "Quarrel Ferry",
    "Rushen Granary",
    "Selwick Pier",
    "Tarrant Weir",
    "Ulver Signal Box",
    "Venn Glasshouse",
    "Wexcombe Forge",
    "Yarrow Pumping House",
    "Zennor Watchtower",
]
PEOPLE = [
    "Ada Merrow",
    "Bram Tolland",
    "Cerys Pike",
    "Dov Hanley",
    "Edda Storm",
    "Finn Averill",
    "Greta Sloane",
    "Hugo Larne",
    "Ines Caddick",
    "Joss Wray",
    "Kaya Bellamy",
    "Leif Orrin",
]
ITEMS = [
    "brass valves",
    "oak beams",
    "copper rods",
    "canvas covers",
    "iron wheels",
    "slate tiles",
    "oil lamps",
    "rope coils",
    "glass panes",
    "clay pipes",
    "steel pins",
    "leather belts",
]
COLOURS = ["amber", "cobalt", "crimson", "ivory", "jade", "ochre", "russet", "silver", "teal", "violet"]
BIRDS = ["heron", "lapwing", "merlin", "nuthatch", "osprey", "plover", "redstart", "siskin", "tern", "wagtail"]
SEASONS = ["early spring", "late spring", "high summer", "the first week of autumn", "midwinter"]
WEATHER = ["steady rain", "a dry easterly wind", "thick morning fog", "hard frost", "unbroken sunshine"]

SENTENCES = [
    "The survey of {place} was carried out in {season} by {person}, who worked through {weather}.",
    "Two crews shared the yard, and {person} kept the tally of {item} in a bound ledger.",
    "Nobody had opened the lower rooms for years, so the {item} there were counted twice.",
    "{person} reported that the {colour} door sticks whenever there is {weather}.",
    "A quarter of the {item} were set aside because the fittings no longer match the drawings.",
    "The older wall leans slightly to the north, yet the gauges have not moved since {season}.",
    "Visitors are asked to wait beside the {colour} post until {person} has signed the book.",
    "During {season} the pumps run every night and rest on the day when the {item} are cleaned.",
    "There is a long note about the {item}, which {person} wants replaced before the next inspection.",
    "The path from {place} to the river was closed after {weather} loosened the bank.",
    "{person} painted a {colour} stripe on each crate so that the {item} would not be mixed.",
    "Records from the previous keeper are incomplete, and the shelf of {item} is described only once.",
    "A second key hangs behind the {colour} panel, although {person} believes that few people know it.",
    "The workshop keeps spare {item} in three drawers, each with a {colour} label and a short list.",
    "When the bell rings twice, everyone at {place} leaves the gallery and meets near the gate.",
    "The cost of new {item} was discussed at length, but the committee postponed its decision.",
    "{person} measured the main hall again and found it shorter than the plan by one pace.",
    "In {season} a school party came to draw the {item}, and their pictures now hang in the office.",
    "Repairs were made with timber from the old barn, which {person} had kept dry under canvas.",
    "The {colour} lamp above the stair is lit at dusk and again whenever there is {weather}.",
]

TRAITS = {
    "role": [
        "a patient museum guide",
        "a brisk ship's engineer",
        "a village librarian",
        "a retired railway clerk",
        "a young orchard keeper",
    ],
    "tone": ["warm and unhurried", "dry and exact", "playful but polite", "formal and reserved", "plain and encouraging"],
    "length": ["two short sentences", "one careful paragraph", "a numbered list of three points", "a single line", "a brief letter"],
    "sources": ["the bound ledger", "the keeper's diary", "the wall map", "the inspection notes", "the visitors' book"],
    "caution": ["doubtful dates", "missing figures", "unsafe stairs", "unsigned notes", "rumours about the keys"],
    "closing": [
        "a question in return",
        "a word of thanks",
        "the next opening time",
        "a reminder about the gate",
        "a small joke about the weather",
    ],
}
TRAIT_TEXT = (
    "Regarding {trait}, the speaker settles on {value}. This choice was agreed with {person} and "
    "holds for the whole conversation, even when the visitor asks about the {item} or the {colour} door.\n"
)

SYSTEM_TEXT = (
    "You speak on behalf of the county's historic sites. Answer from the notes given here, stay "
    "in the character described below, and admit openly when the notes do not contain an answer.\n"
)

WORDS_PER_DOCUMENT = 358  # about 440 tokens with SmolLM2's tokenizer
SYSTEM_PROMPT_WORDS = 1700  # about 2,000 tokens


class Draw:
    """Reproducible picks from a named stream."""

    def __init__(self, *name):
        self._random = random.Random("/".join(map(str, name)))

    def one(self, items):
        return items[int(self._random.random() * len(items))]

    def some(self, items, count):
        """`count` distinct items in random order."""
        left = list(items)
        return [left.pop(int(self._random.random() * len(left))) for _ in range(count)]


def prose(draw, place, words):
    """Sentences about `place`, at least `words` words long."""
    sentences, length = [], 0
    while length < words:
        sentence = draw.one(SENTENCES).format(
            place=place,
            person=draw.one(PEOPLE),
            item=draw.one(ITEMS),
            colour=draw.one(COLOURS),
            season=draw.one(SEASONS),
            weather=draw.one(WEATHER),
        )
        sentences.append(sentence)
        length += len(sentence.split())
    return sentences


def document(series, index):
    """One module about one place, and the password hidden in its middle."""
    draw = Draw(series, index)
    place = PLACES[index % len(PLACES)]
    password = f"{draw.one(COLOURS)} {draw.one(BIRDS)}"
    sentences = prose(draw, place, WORDS_PER_DOCUMENT - 20)
    sentences.insert(len(sentences) // 2, f"The gate password at {place} is {password}.")
    return {"place": place, "password": password, "text": f"Report on {place}. " + " ".join(sentences) + "\n"}


def password_question(place):
    """Starts with the place, so that a prefix cache gains nothing from an earlier question."""
    return f"At {place}, what is the gate password, according to the reports above?\nAnswer: the password is"


def request(request_id, modules, chosen, text, max_tokens, answer=None):
    return {
        "id": request_id,
        "modules": chosen,
        "text": text,
        "max_tokens": max_tokens,
        "answer": answer,
        "prompt": "".join(modules[name] for name in chosen) + text,
    }


def workload(name, title, modules, layout, requests, concurrency=1, prime=None):
    return {
        "workload": name,
        "title": title,
        "modules": modules,
        "schema": {"name": title.replace("-", "_"), "layout": layout},
        "concurrency": concurrency,
        "prime": prime,
        "requests": requests,
    }


def w1_rag(requests=12, pool=16, per_request=8):
    """Documents chosen and ordered anew for each request."""
    documents = {f"doc_{i:02d}": document("rag", i) for i in range(pool)}
    modules = {name: d["text"] for name, d in documents.items()}
    out = []
    for i in range(requests):
        draw = Draw("rag-request", i)
        chosen = draw.some(sorted(modules), per_request)
        asked = documents[draw.one(chosen)]
        out.append(request(f"w1-{i:02d}", modules, chosen, password_question(asked["place"]), 16, asked["password"]))
    return workload("w1", "rag", modules, [{"module": name} for name in modules], out)


def _handbook(count=8):
    documents = {f"section_{i}": document("handbook", i) for i in range(count)}
    return documents, {name: d["text"] for name, d in documents.items()}


def w2_template(requests=12):
    """One fixed prefix, many questions: the best case of prefix caching."""
    documents, modules = _handbook()
    out = []
    for i in range(requests):
        asked = list(documents.values())[i % len(documents)]
        out.append(request(f"w2-{i:02d}", modules, list(modules), password_question(asked["place"]), 16, asked["password"]))
    return workload("w2", "template", modules, [{"module": name} for name in modules], out)


def w3_personas(requests=12):
    """A system text and one alternative from each of six unions."""
    modules, layout = {"system": SYSTEM_TEXT}, [{"module": "system"}]
    for trait, values in TRAITS.items():
        names = []
        for i, value in enumerate(values):
            draw, name = Draw("trait", trait, i), f"{trait}_{i}"
            modules[name] = TRAIT_TEXT.format(
                trait=trait, value=value, person=draw.one(PEOPLE), item=draw.one(ITEMS), colour=draw.one(COLOURS)
            )
            names.append(name)
        layout.append({"union": names})
    out = []
    for i in range(requests):
        draw = Draw("persona-request", i)
        chosen = ["system"] + [draw.one(slot["union"]) for slot in layout[1:]]
        text = f"Visitor: could you tell me what the {draw.one(ITEMS)} at {draw.one(PLACES)} were used for?\nSpeaker:"
        out.append(request(f"w3-{i:02d}", modules, chosen, text, 16))
    return workload("w3", "personas", modules, layout, out)


def w4_multi_turn(turns=6):
    """A long system prompt and a growing conversation with scripted replies. A turn that is over is a module of its own."""
    draw = Draw("multi-turn")
    modules = {"system": SYSTEM_TEXT.rstrip("\n") + " " + " ".join(prose(draw, PLACES[5], SYSTEM_PROMPT_WORDS - 35)) + "\n"}
    out = []
    for i in range(turns):
        question = f"Visitor: who looks after the {draw.one(ITEMS)}, and where are the spare ones kept?\nSpeaker:"
        out.append(request(f"w4-{i}", modules, list(modules), question, 32))
        modules[f"turn{i}"] = (
            f"{question} {draw.one(PEOPLE)} looks after them, and the spare ones lie behind the {draw.one(COLOURS)} "
            f"panel, together with the {draw.one(ITEMS)} that were counted in {draw.one(SEASONS)}.\n"
        )
    return workload("w4", "multi-turn", modules, [{"module": name} for name in modules], out)


def w5_batch(requests=8):
    """Eight requests at once over the prefix of w2, which one request has primed."""
    documents, modules = _handbook()
    places = [d["place"] for d in documents.values()]
    out = [request(f"w5-{i}", modules, list(modules), password_question(place), 64) for i, place in enumerate(places[:requests])]
    prime = request("w5-prime", modules, list(modules), "Question: what are these reports about?\nAnswer:", 1)
    return workload("w5", "batch", modules, [{"module": name} for name in modules], out, requests, prime)


WORKLOADS = {"w1": w1_rag, "w2": w2_template, "w3": w3_personas, "w4": w4_multi_turn, "w5": w5_batch}


def check_tokens(name, load, tokenizer_file):
    """Print token counts; fail if a module tokenises differently inside a prompt."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)

    def ids(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    modules = {key: ids(text) for key, text in load["modules"].items()}
    prompts = []
    for r in load["requests"]:
        parts = sum((modules[key] for key in r["modules"]), []) + ids(r["text"])
        if parts != ids(r["prompt"]):
            sys.exit(f"{r['id']}: tokens of the joined prompt differ from its modules' tokens")
        prompts.append(len(parts))
    sizes, questions = [len(m) for m in modules.values()], [len(ids(r["text"])) for r in load["requests"]]
    print(
        f"{name}: modules {min(sizes)}-{max(sizes)} tokens, text {min(questions)}-{max(questions)}, prompts {min(prompts)}-{max(prompts)}",
        file=sys.stderr,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="folder for w1.json ... w5.json")
    parser.add_argument("--plain", choices=WORKLOADS, help="print this workload's prompts, one JSON object a line")
    parser.add_argument("--tokenizer", help="tokenizer.json used to count tokens and check boundaries")
    args = parser.parse_args()
    for name, make in WORKLOADS.items():
        load = make()
        if args.tokenizer:
            check_tokens(name, load, args.tokenizer)
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / f"{name}.json").write_text(json.dumps(load, indent=1) + "\n")
        if args.plain == name:
            for r in load["requests"]:
                print(json.dumps({"id": r["id"], "prompt": r["prompt"], "max_tokens": r["max_tokens"]}))


if __name__ == "__main__":
    main()
