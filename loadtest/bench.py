#!/usr/bin/env python3
"""Time to first token against prompt length, with reuse and without: the figure of docs/benchmarks.md.

For each size there are two schemas with the same text, cut into one module and into eight, and one question of 24 tokens behind
them. Every round asks all sizes, each in turn with its module reused, with its eight modules reused, and with `cache: bypass`, which
computes everything under the same mask. So whatever else goes on in the machine meets all of them alike. Sizes are exact: the
server counts.

Then the reused request at 3,000 tokens is sent many times more, to tell what the server adds to the model: what a bare socket sees
less what the engine says it spent computing. (With the model's weights just streamed through the caches, a Python client that builds
headers and parses events adds nearly a millisecond of its own.)

Writes docs/benchmarks.md (between its markers), docs/images/ttft.png and loadtest/results/bench.json. With --quick, a short run with
few sizes, only the latter, and the figure beside it.
"""

import argparse
import itertools
import json
import socket
import sys
import time
import urllib.parse

import document
import figure
import machine
import serving
import stats
import workloads
from client import Client, RequestFailed

SIZES = [250, 500, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7500]
QUICK_SIZES = [100, 250, 500]
NEW_TOKENS = 24
PARTS = 8
RATIO_SIZE = 3000
ANSWER_TOKENS = 4  # the first that has text ends the measurement; the rest is cheap insurance against one without
QUESTION = "Which of the sites in these reports would you visit first, and what should a visitor ask the keeper there"
FILLER = " too"  # one token, wherever it stands
FIGURE = serving.PROJECT / "docs" / "images" / "ttft.png"
RECORD = serving.RESULTS / "bench.json"


class Ruler:
    """Counts tokens by asking the server how long a module would be."""

    def __init__(self, client):
        self._client = client

    def tokens(self, *texts):
        """Of each text."""
        modules = "".join(f"<module name='part{i}'>{text}</module>" for i, text in enumerate(texts))
        layout = self._client.register(f"<schema name='ruler'>{modules}</schema>", dry_run="true")
        return [module["tokens"] for module in layout["modules"]]

    def cut(self, words, tokens):
        """The longest run of leading words that has at most so many tokens, and as many fillers as are missing."""
        low, high = 0, min(len(words), tokens)
        while low < high:
            middle = (low + high + 1) // 2
            if self._fits("".join(words[:middle]), tokens):
                low = middle
            else:
                high = middle - 1
        kept = words[:low]
        missing = tokens - (self.tokens("".join(kept))[0] if kept else 0)
        kept += [FILLER] * missing
        if self.tokens("".join(kept)) != [tokens]:
            sys.exit(f"no text of exactly {tokens} tokens was found with this tokenizer")
        return kept

    def _fits(self, text, tokens):
        try:
            return self.tokens(text)[0] <= tokens
        except RequestFailed as refusal:
            if refusal.code != "context_length_exceeded":
                raise
            return False


def prose_words(count):
    """Deterministic prose as words, each with the blank before it, so that it has the same tokens wherever the text is cut."""
    draw = workloads.Draw("bench")
    sentences = workloads.prose(draw, draw.one(workloads.PLACES), count)
    return [" " + word for word in " ".join(sentences).split()]


class Case:
    """One size: its two schemas, with one module and with many, and the times that were measured."""

    def __init__(self, size, words, parts=PARTS):
        self.size = size
        cuts = [len(words) * i // parts for i in range(parts + 1)]
        self.schemas = {"one": [words], "many": [words[begin:end] for begin, end in itertools.pairwise(cuts)]}
        self.ttft_s = {"bypass": [], "one": [], "many": []}
        self.encode_ms = {}

    def name(self, cut):
        return f"bench_{cut}_{self.size}"

    def pml(self, cut):
        modules = "".join(f"<module name='part{i}'>{''.join(words)}</module>" for i, words in enumerate(self.schemas[cut]))
        return f"<schema name='{self.name(cut)}'>{modules}</schema>"

    def prompt(self, cut, question):
        imports = "".join(f"<part{i}/>" for i in range(len(self.schemas[cut])))
        return f"<prompt schema='{self.name(cut)}'>{imports}{question}</prompt>"

    def register(self, client):
        for cut in self.schemas:
            schema = client.register(self.pml(cut))
            tokens = sum(module["tokens"] for module in schema["modules"])
            if tokens != self.size:
                sys.exit(f"{schema['name']} has {tokens} tokens, not {self.size}")
            self.encode_ms[cut] = schema["encode_ms"]

    def ask(self, client, kind, question):
        """One request; its time is kept, and the answer returned."""
        bypass = kind == "bypass"
        prompt = self.prompt("one" if bypass else kind, question)
        answer = ask(client, prompt, "bypass" if bypass else "use")
        expected = 0 if bypass else self.size
        if answer.usage["cached_tokens"] != expected or answer.usage["prompt_tokens"] != self.size + NEW_TOKENS:
            sys.exit(f"{kind} at {self.size}: {answer.usage}, but {expected} tokens should have been reused")
        self.ttft_s[kind].append(answer.ttft_s)
        return answer


def ask(client, prompt, cache):
    answer = client.generate(prompt, temperature=0, max_tokens=ANSWER_TOKENS, ignore_eos=True, cache=cache)
    if not answer.ok or answer.ttft_s is None:
        sys.exit(f"a request failed: {answer.error} {answer.message}")
    return answer


def make_cases(client, sizes, parts=PARTS):
    ruler = Ruler(client)
    words = prose_words(max(sizes))
    question = "".join(ruler.cut([" " + word for word in QUESTION.split()], NEW_TOKENS))
    return [Case(size, ruler.cut(words, size), parts) for size in sizes], question


def measure(client, cases, question, rounds):
    for number in range(rounds):
        for case in cases:
            answers = [case.ask(client, kind, question) for kind in ("one", "bypass", "many")]
            show_progress(
                f"round {number + 1} of {rounds}, {case.size} tokens: " + ", ".join(stats.show_seconds(a.ttft_s) for a in answers)
            )


def time_on_bare_socket(url, prompt, repeats):
    """For each request, prepared beforehand: seconds to the first token event, and the server's own timing in milliseconds."""
    address = urllib.parse.urlsplit(url)
    fields = {"prompt": prompt, "temperature": 0, "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
    body = json.dumps(fields).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    request = head.encode() + b"\r\n\r\n" + body
    with socket.create_connection((address.hostname, address.port)) as connection:
        for _ in range(repeats):
            received = b""
            began = time.perf_counter()
            connection.sendall(request)
            while b"event: token" not in received:
                received += receive(connection)
            took = time.perf_counter() - began
            while not received.endswith(b"\r\n0\r\n\r\n"):
                received += receive(connection)
            done = received[received.index(b"event: done\ndata: ") :].split(b"\n")[1]
            yield took, json.loads(done[len(b"data: ") :])["timing"]


def receive(connection):
    chunk = connection.recv(1 << 16)
    if not chunk:
        sys.exit("the server closed the connection within an answer")
    return chunk


def measure_overhead(url, case, question, repeats):
    """What a reused request costs beside the model, in seconds."""
    times = list(time_on_bare_socket(url, case.prompt("one", question), repeats))
    return {
        "module_tokens": case.size,
        "ttft": stats.spread(took for took, _ in times),
        "prefill": stats.spread(timing["prefill_ms"] / 1000 for _, timing in times),
        "overhead": stats.spread(took - timing["prefill_ms"] / 1000 for took, timing in times),
        "queue": stats.spread(timing["queue_ms"] / 1000 for _, timing in times),
        "load": stats.spread(timing["load_ms"] / 1000 for _, timing in times),
    }


def show_progress(text):
    print(text, file=sys.stderr, flush=True)


def check_memory(client, cases):
    """All modules have to stay resident, beside one request that computes the longest prompt."""
    sizes = [client.register(case.pml(cut), dry_run="true")["kv_bytes"] for case in cases for cut in case.schemas]
    needed = sum(sizes) + 2 * max(sizes)
    capacity = sum(tier["capacity_bytes"] for tier in json.loads(client.call("GET", "/cache"))["tiers"])
    if needed > capacity:
        sys.exit(
            f"the modules need {needed / 2**30:.1f} GiB, and the server has {capacity / 2**30:.1f} GiB for them: choose smaller --sizes, "
            "or give it more with --server-args '--kv-device-bytes …'"
        )


def benchmark(options):
    # The same question is asked again and again, and is to be computed each time.
    with serving.Server(options, "--prefix-cache", "off", name="bench-server") as started:
        client = Client(started.url, timeout_s=1800)
        cases, question = make_cases(client, QUICK_SIZES if options.quick else options.sizes)
        check_memory(client, cases)
        for case in cases:
            case.register(client)
            show_progress(f"{case.size} tokens encoded: one module in {case.encode_ms['one'] / 1000:.1f} s")
        foreign = machine.ForeignLoad()
        for cache in ("use", "bypass"):  # the first requests meet cold code
            ask(client, cases[0].prompt("one", question), cache)
        measure(client, cases, question, options.rounds)
        nearest = min(cases, key=lambda case: abs(case.size - RATIO_SIZE))
        overhead = measure_overhead(started.url, nearest, question, options.overhead_repeats)
        result = result_of(cases, overhead, options)
        result["foreign_cores"] = round(foreign.cores(), 2)
    return result


def result_of(cases, overhead, options):
    return {
        "machine": machine.describe(),
        "model": options.model.name,
        "rounds": options.rounds,
        "new_tokens": NEW_TOKENS,
        "parts": PARTS,
        "sizes": [case.size for case in cases],
        "ttft_s": {kind: [stats.spread(case.ttft_s[kind]) for case in cases] for kind in ("bypass", "one", "many")},
        "encode_ms": [case.encode_ms for case in cases],
        "samples_s": [case.ttft_s for case in cases],
        "overhead_s": overhead,
        "server_arguments": options.server_args,
    }


def ratios(result, kind):
    return [above["p50"] / below["p50"] for above, below in zip(result["ttft_s"]["bypass"], result["ttft_s"][kind], strict=True)]


def table_rows(result):
    spreads = (result["ttft_s"][kind] for kind in ("bypass", "one", "many"))
    for size, ratio, *row in zip(result["sizes"], ratios(result, "one"), *spreads, strict=True):
        yield [f"{size:,}", *(stats.show_spread(spread) for spread in row), f"{ratio:.0f}"]


def overhead_sentence(result):
    overhead = result["overhead_s"]
    p50 = {key: stats.show_seconds(overhead[key]["p50"]) for key in ("ttft", "prefill", "overhead", "queue", "load")}
    return (
        f"Of a reused request at {overhead['module_tokens']:,} tokens ({overhead['ttft']['count']} in a row) a bare socket waits "
        f"{p50['ttft']} for its first token, of which the engine computes for {p50['prefill']}. The server's overhead, everything but "
        f"the model, is {p50['overhead']} (medians of each; p95 {stats.show_seconds(overhead['overhead']['p95'])}); {p50['queue']} of it "
        f"passes between the request's last byte and the engine's first step, {p50['load']} of that finding the modules."
    )


HEADER = ["module tokens", "computed anew (bypass)", "reused, one module", f"reused, {PARTS} modules", "times sooner"]


def markdown(result):
    arguments = f"; server arguments `{result['server_arguments']}`" if result["server_arguments"] else ""
    return "\n".join([
        document.table(HEADER, table_rows(result)), "",
        f"Medians of {result['rounds']} interleaved rounds, in brackets the smallest and the largest; {result['new_tokens']} new tokens; "
        f"\"times sooner\" compares the first two columns. {result['model']} on {result['machine']}{arguments}. Meanwhile "
        f"{result['foreign_cores']} cores were busy with other things.", "",
        overhead_sentence(result),
    ])  # fmt: skip


def draw(result, path):
    labels = {
        "bypass": "computed anew (cache: bypass)",
        "one": "reused, one module",
        "many": f"reused, {result['parts']} modules",
    }
    series = [(label, result["ttft_s"][kind]) for kind, label in labels.items()]
    figure.ttft_against_length(result["sizes"], series, result["new_tokens"], path)


def report(result, options):
    print(stats.table(HEADER, table_rows(result)), end="\n\n")
    nearest = min(range(len(result["sizes"])), key=lambda i: abs(result["sizes"][i] - RATIO_SIZE))
    print(
        f"At {result['sizes'][nearest]:,} module tokens reuse is {ratios(result, 'one')[nearest]:.0f} times sooner with one module, "
        f"{ratios(result, 'many')[nearest]:.0f} times with {PARTS}.\n{overhead_sentence(result)}"
    )
    serving.RESULTS.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(result, indent=1) + "\n")
    if options.quick or options.no_docs:
        draw(result, serving.RESULTS / "ttft.png")
        print("loadtest/results/bench.json and ttft.png")
    else:
        draw(result, FIGURE)
        document.write_part("bench", markdown(result))
        print("docs/benchmarks.md, docs/images/ttft.png and loadtest/results/bench.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    serving.add_arguments(parser)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="module tokens (default: those of the figure)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--overhead-repeats", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="a minute's run to see that it works; docs/ stays as it is")
    parser.add_argument("--no-docs", action="store_true", help="measure all, but leave docs/ as it is")
    parser.add_argument("--from-json", action="store_true", help="measure nothing: write docs/ from the last loadtest/results/bench.json")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.overhead_repeats = min(options.rounds, 2), min(options.overhead_repeats, 10)
    report(json.loads(RECORD.read_text()) if options.from_json else benchmark(options), options)


if __name__ == "__main__":
    try:
        main()
    except serving.ServerFailed as fault:
        sys.exit(str(fault))
