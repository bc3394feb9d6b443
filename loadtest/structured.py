#!/usr/bin/env python3
"""Decoding with a grammar against decoding without: the table of docs/benchmarks.md.

One server, one prompt. Every round asks for the same number of tokens in each form, and without any, one request alone and then
eight at once; forms go on for longer than that, so no answer ends before. Tokens a second are the client's, from the first token's event
to the last one's; at once, of all eight together, from the first of any to the last of any.

Writes docs/benchmarks.md (between its markers) and loadtest/results/structured.json; with --quick only the latter.
"""

import argparse
import json
import statistics
import sys
import threading
import time

import bench
import document
import machine
import serving
import stats
from client import Client

TOKENS = 128
AT_ONCE = 8
RECORD = serving.RESULTS / "structured.json"
SCHEMA = "<schema name='structured'><module name='m'>You keep a list of people, in JSON.</module></schema>"
PROMPT = "<prompt schema='structured'><m/><user>Write the list down, as long as it gets.</user></prompt>"

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "role": {"enum": ["owner", "member", "guest"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4},
        "address": {"type": "object", "properties": {"city": {"type": "string"}, "code": {"type": "string", "pattern": "^[0-9]{5}$"}}},
    },
    "required": ["name", "age", "role", "tags", "address"],
    "additionalProperties": False,
}


def json_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "benchmark", "schema": schema}}


# By title; the first is what the others are measured against.
FORMS = {
    "without": None,
    "a list of records": json_schema({"type": "array", "items": PERSON, "minItems": 1000}),
    "any JSON in a list": json_schema({"type": "array", "minItems": 1000}),
    "one long text": json_schema({"type": "string", "minLength": 10_000}),
    "a regex": {"type": "regex", "regex": r"([A-Z][a-z]{2,9} [0-9]{1,3}(, |\n)){200,}"},
}


def ask(client, response_format, seed):
    fields = {"response_format": response_format} if response_format else {"ignore_eos": True}
    answer = client.generate(PROMPT, max_tokens=TOKENS, temperature=1, seed=seed, **fields)
    if not answer.ok or len(answer.tokens) != TOKENS:
        sys.exit(f"{len(answer.tokens)} tokens, {answer.error} {answer.message}: {answer.text}")
    return answer


def rate_alone(client, response_format, seed):
    times = ask(client, response_format, seed).token_times_s
    return (len(times) - 1) / (times[-1] - times[0])


def rate_at_once(clients, response_format, seed):
    times = []

    def one(client, own_seed):
        began = time.perf_counter()
        times.append([began + arrived for arrived in ask(client, response_format, own_seed).token_times_s])

    threads = [threading.Thread(target=one, args=(client, seed + i)) for i, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(times) != len(clients):
        sys.exit("a request failed")
    return sum(map(len, times)) / (max(t[-1] for t in times) - min(t[0] for t in times))


def measure(options):
    with serving.Server(options, name="structured") as server:
        clients = [Client(server.url) for _ in range(AT_ONCE)]
        clients[0].register(SCHEMA)
        for response_format in FORMS.values():
            ask(clients[0], response_format, 0)  # the first request meets cold code
        rates = {title: {"alone": [], "at_once": []} for title in FORMS}
        foreign = machine.ForeignLoad()
        for number in range(options.rounds):
            for title, response_format in FORMS.items():
                seed = 1 + 100 * number
                rates[title]["alone"].append(rate_alone(clients[0], response_format, seed))
                rates[title]["at_once"].append(rate_at_once(clients, response_format, seed))
            shown = ", ".join(f"{title} {own['alone'][-1]:.0f} and {own['at_once'][-1]:.0f}" for title, own in rates.items())
            bench.show_progress(f"round {number + 1} of {options.rounds}: {shown} tokens/s")
        return {
            "machine": machine.describe(), "model": options.model.name, "tokens": TOKENS, "at_once": AT_ONCE,
            "rounds": options.rounds, "foreign_cores": round(foreign.cores(), 2), "rates": rates,
        }  # fmt: skip


HEADER = ["form", "one request", "times without", "eight at once", "times without"]


def show_rate(rate):
    return f"{rate:.1f}/s"


def table_rows(result):
    without = next(iter(result["rates"].values()))
    for title, own in result["rates"].items():
        row = [title]
        for way in ("alone", "at_once"):
            ratios = [rate / other for rate, other in zip(own[way], without[way], strict=True)]
            row += [
                stats.show_spread(stats.spread(own[way]), show_rate),
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} – {max(ratios):.2f})",
            ]
        yield row


def markdown(result):
    return "\n".join([
        document.table(HEADER, table_rows(result)), "",
        f"Medians of {result['rounds']} interleaved rounds, in brackets the smallest and the largest; {result['tokens']} tokens an answer, "
        f"temperature 1. {result['model']} on {result['machine']}. Meanwhile {result['foreign_cores']} cores were busy with other things.",
    ])  # fmt: skip


def report(result, options):
    print(stats.table(HEADER, table_rows(result)))
    serving.RESULTS.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(result, indent=1) + "\n")
    if not (options.quick or options.no_docs):
        document.write_part("structured", markdown(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    serving.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="few rounds; docs/ stays as it is")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/ as it is")
    parser.add_argument(
        "--from-json", action="store_true", help="measure nothing: write docs/ from the last loadtest/results/structured.json"
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds = min(options.rounds, 3)
    report(json.loads(RECORD.read_text()) if options.from_json else measure(options), options)


if __name__ == "__main__":
    try:
        main()
    except serving.ServerFailed as fault:
        sys.exit(str(fault))
