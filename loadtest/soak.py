#!/usr/bin/env python3
"""Many streams for minutes, over more schemas than the memory holds, every answer checked.

First a server with room for everything registers the schemas and answers each prompt alone: the answers to expect, and how sure the
model was of each token. Then a second server, whose KV budget is half of what the schemas' modules take (running requests' own blocks
come out of the same budget), is asked the same prompts by many clients at once. Modules are evicted and encoded again all the time.

Passes when: no request failed; every answer equals its unloaded one (a first difference counts as equal only where the unloaded
answer's two best tokens were within 0.15 of each other, where the shape of a batch may decide); health probes, sent ten times a second
on connections of their own by a process of their own, all took less than 50 ms; the memory (what is allocated: pages of files do not
count) of the second half of the run is that of the first; modules really were evicted; and the server ended cleanly.

With --tiers the second server also has a host tier as large as its device budget, and a disk four times that size (and with --remote a
store behind it): modules go down and come up all the time. Then memory has to stay within both budgets and a tenth, beyond what the same
server takes that has served as many streams and holds nothing; every byte of the device's has to be accounted for when the load has
ended, no descriptor may be left open, and every tier must have given hits.

Writes loadtest/results/soak.json and soak.png. The exit status is 1 when something did not pass.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import random
import sys
import tempfile
import threading
import time
from xml.sax.saxutils import escape

import document
import figure
import machine
import metrics
import serving
import stats
import workloads
from client import Client
from probe import HealthProbe

NEAR_TIE = 0.15
HEALTH_LIMIT_S = 0.05
PROBE_EVERY_S = 0.1
SETTLING_SHARE = 0.2  # of the run: until every stream has its buffers, memory may grow
MEMORY_SLACK_SHARE, MEMORY_SLACK_BYTES = 0.02, 8 << 20
MODES = ["rooted", "isolated", "contextual"]


# ---- What is asked ----


class Topic:
    """One schema: root text, a module with a slot, a union of two, a module; and prompts that import different parts of it."""

    def __init__(self, number, words):
        self.name = f"soak_{number:02d}"
        self.mode = MODES[number % len(MODES)]
        draw = workloads.Draw("soak", number)
        self.place = workloads.PLACES[number % len(workloads.PLACES)]
        self.texts = {part: " ".join(workloads.prose(draw, self.place, words)) for part in ("history", "east", "west", "rules")}
        self.visitors = draw.some(workloads.PEOPLE, 2)
        self.items = draw.some(workloads.ITEMS, 4)

    def schema(self):
        text = {part: escape(text) for part, text in self.texts.items()}
        return f"""<schema name="{self.name}" attention="{self.mode}">
  <system>You answer questions about {self.place}, briefly and from the notes alone.</system>
  <user>
    <module name="history">{text["history"]} The visitor is <param name="visitor" len="6"/>, who was here before.</module>
    <union>
      <module name="east">East wing. {text["east"]}</module>
      <module name="west">West wing. {text["west"]}</module>
    </union>
    <module name="rules">Rules. {text["rules"]}</module>
</schema>
"""

    def prompts(self):
        first, second = self.visitors
        a, b, c, d = self.items
        bodies = [
            f'<history visitor="{first}"/><east/>Where are the {a} kept?</user>',
            f"<rules/><west/>What do the notes say about the {b}?</user>",
            f'<history visitor="{second}"/>Say it in plain words.<rules/>Who counted the {c}?</user>',
            f"Name one thing to know about {d}.</user>",
        ]
        return [f'<prompt schema="{self.name}">{body}</prompt>' for body in bodies]


@dataclasses.dataclass
class Question:
    """A prompt, and its answer when nothing else is asked."""

    id: str
    prompt: str
    max_tokens: int
    token_ids: list[int] = dataclasses.field(default_factory=list)
    gaps: list[float] = dataclasses.field(default_factory=list)  # between the two best tokens, at each place
    seconds: float = 0.0


def questions_of(topics):
    lengths = [8, 12, 16, 24]
    return [
        Question(f"{topic.name}/{variant}", prompt, lengths[(number + variant) % len(lengths)])
        for number, topic in enumerate(topics)
        for variant, prompt in enumerate(topic.prompts())
    ]


def record_unloaded(url, topics, questions):
    """Registers, asks one at a time, and returns the schemas' sizes in bytes."""
    client = Client(url)
    sizes = [client.register(topic.schema())["kv_bytes"] for topic in topics]
    for question in questions:
        answer = client.generate(question.prompt, temperature=0, max_tokens=question.max_tokens, logprobs=2)
        if not answer.ok:
            sys.exit(f"{question.id} failed without load: {answer.error} {answer.message}")
        question.token_ids, question.seconds = answer.token_ids, answer.total_s
        for token in answer.tokens:
            best, second = sorted((top["logprob"] for top in token["top_logprobs"]), reverse=True)[:2]
            question.gaps.append(best - second)
    client.close()
    return sizes


# ---- How it goes under load ----


def compare(question, token_ids):
    """ "equal", "near tie", or what is wrong."""
    for place, (expected, seen) in enumerate(zip(question.token_ids, token_ids, strict=False)):
        if expected != seen:
            gap = question.gaps[place]
            return "near tie" if gap < NEAR_TIE else f"token {place} is {seen}, not {expected} (gap {gap:.2f})"
    if len(token_ids) != len(question.token_ids):
        # The end token has no event: an answer that ends early or late differs at an end that is not in the list.
        return f"{len(token_ids)} tokens, not {len(question.token_ids)}"
    return "equal"


class Load:
    """The streams: threads that ask until the time is over."""

    def __init__(self, url, questions, options):
        self._url, self._questions, self._options = url, questions, options
        self._stop = threading.Event()
        self._lock = threading.Lock()  # guards what follows, which all streams add to
        self.verdicts = collections.Counter()
        self.wrong, self.errors = [], []
        self.hung_up = 0
        self.ttft_s, self.total_s = [], []
        self.cached_tokens = self.prompt_tokens = 0

    def run(self, seconds):
        threads = [threading.Thread(target=self._stream, args=(i,)) for i in range(self._options.streams)]
        for thread in threads:
            thread.start()
        self._stop.wait(seconds)
        self._stop.set()
        for thread in threads:
            thread.join()

    def stop(self):
        self._stop.set()

    def _stream(self, number):
        draw, client = random.Random(f"{self._options.seed}/{number}"), Client(self._url)
        while not self._stop.is_set():
            question = draw.choice(self._questions)
            hang_up_after = 2 if draw.random() < self._options.hang_up else None
            answer = client.generate(question.prompt, hang_up_after, temperature=0, max_tokens=question.max_tokens)
            self._take(question, answer)
        client.close()

    def _take(self, question, answer):
        with self._lock:
            if not answer.ok:
                self.errors.append(f"{question.id}: {answer.error} {answer.message}")
                return
            if answer.finish_reason == "hung up":
                self.hung_up += 1
                return
            verdict = compare(question, answer.token_ids)
            self.verdicts[verdict if verdict in ("equal", "near tie") else "wrong"] += 1
            if verdict not in ("equal", "near tie"):
                self.wrong.append(f"{question.id}: {verdict}")
            self.ttft_s.append(answer.ttft_s)
            self.total_s.append(answer.total_s)
            self.cached_tokens += answer.usage["cached_tokens"]
            self.prompt_tokens += answer.usage["prompt_tokens"]


class MemorySampler:
    def __init__(self, pid, every_s=0.5):
        self._pid, self._every_s = pid, every_s
        self._began = time.perf_counter()
        self._stop = threading.Event()
        self.samples = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            allocated = machine.allocated_bytes(self._pid)
            if allocated is not None:
                self.samples.append((time.perf_counter() - self._began, allocated))
            self._stop.wait(self._every_s)

    def stop(self):
        self._stop.set()
        self._thread.join()
        return self.samples


# ---- What to say of it ----


def memory_growth(samples):
    """Medians of the first and the second half, after the settling; None when there are too few samples."""
    if len(samples) < 10:
        return None
    end = samples[-1][0]
    settled = [(t, resident) for t, resident in samples if t >= SETTLING_SHARE * end]
    middle = (settled[0][0] + end) / 2
    first = stats.median([resident for t, resident in settled if t < middle])
    second = stats.median([resident for t, resident in settled if t >= middle])
    return first, second


def checks(result):
    """(what, seen, wanted, passed) for each thing that has to hold."""
    answers, probes, memory = result["answers"], result["health"], result["memory"]
    first, second = memory["first_half_bytes"], memory["second_half_bytes"]
    slack = max(MEMORY_SLACK_BYTES, MEMORY_SLACK_SHARE * first)
    slowest = stats.show_seconds(probes["spread_s"]["max"])
    return [
        ("failed requests", len(result["errors"]), "0", not result["errors"]),
        ("wrong answers", answers["wrong"], "0", answers["wrong"] == 0),
        ("right answers", answers["equal"] + answers["near tie"], "some", answers["equal"] > 0),
        ("slowest health probe", slowest, f"< {HEALTH_LIMIT_S * 1000:.0f} ms", probes["spread_s"]["max"] < HEALTH_LIMIT_S),
        ("failed health probes", probes["failed"], "0", probes["failed"] == 0),
        ("memory, second half less first", f"{(second - first) / 2**20:+.1f} MiB", f"< {slack / 2**20:.0f} MiB", second - first < slack),
        ("evictions", int(result["server"]["evictions"]), "some", result["server"]["evictions"] > 0),
        *tier_checks(result),
        ("exit status after SIGTERM", result["exit_status"], "0", result["exit_status"] == 0),
    ]


def tier_checks(result):
    """With --tiers."""
    tiers = result.get("tiers")
    if not tiers:
        return
    hits = result["server"]["hits_by_tier"]
    for tier in tiers["names"]:
        yield (f"hits from {tier}", int(hits[tier]), "some", hits[tier] > 0)
    limit = tiers["idle_bytes"] + 1.1 * tiers["budget_bytes"]
    most = result["memory"]["most_bytes"]
    yield ("most memory", f"{most / 2**20:.0f} MiB", f"at most {limit / 2**20:.0f} MiB", most <= limit)
    device = tiers["device"]
    counted = device["free_bytes"] + device["module_bytes"] + device["prefix_bytes"] + device["sequence_bytes"]
    yield ("device bytes counted", counted, str(device["capacity_bytes"]), counted == device["capacity_bytes"])
    yield ("of those, of requests that have ended", device["sequence_bytes"], "0", device["sequence_bytes"] == 0)
    yield ("descriptors, end less start", tiers["descriptors"], "at most 4", tiers["descriptors"] <= 4)
    yield ("tiers' faults", int(result["server"]["tier_faults"]), "0", result["server"]["tier_faults"] == 0)


def account(result):
    """What happened, as lines."""
    answers, probes = result["answers"], result["health"]["spread_s"]
    ttft, counted = result["ttft_s"], result["server"]
    return [
        f"{result['streams']} streams for {result['seconds']:.0f} s over {result['schemas']} schemas; "
        f"KV budget {result['budget_bytes'] / 2**20:.0f} MiB, modules {result['module_bytes'] / 2**20:.0f} MiB",
        f"{answers['equal']} answers equal, {answers['near tie']} equal up to a near tie, {answers['wrong']} wrong; "
        f"{result['hung_up']} hung up on",
        f"first token p50 {stats.show_seconds(ttft['p50'])}, p99 {stats.show_seconds(ttft['p99'])}; "
        f"{stats.show_share(result['cached_tokens'], result['prompt_tokens'])} of prompt tokens reused; "
        f"{counted['module_encodes']:.0f} modules encoded, {counted['evictions']:.0f} evicted",
        f"health: {probes['count']} probes, p50 {stats.show_seconds(probes['p50'])}, p99 {stats.show_seconds(probes['p99'])}, "
        f"max {stats.show_seconds(probes['max'])}; {result['health']['slow']} of 50 ms or more",
        f"{result['foreign_cores']} cores were busy with other things",
    ]


def rows_of(result):
    return [(what, str(seen), wanted, "pass" if passed else "FAIL") for what, seen, wanted, passed in checks(result)]


def report(result):
    print("\n".join(["", *account(result), ""]))
    print(stats.table(["check", "seen", "wanted", ""], rows_of(result)))
    for line in (result["errors"] + result["wrong"])[:20]:
        print("  " + line)


def markdown(result):
    lines = [f"* {line}" for line in account(result)]
    table = document.table(["check", "seen", "wanted", ""], rows_of(result))
    return "\n".join([table, "", *lines, f"* {result['model']} on {result['machine']}"])


def under_load(url, pid, questions, topics, options):
    """Everything measured while the second server is loaded."""
    control = Client(url)
    for topic in topics:
        control.register(topic.schema())
    before, foreign = metrics.scrape(control), machine.ForeignLoad()
    descriptors = metrics.total(before, "process_open_fds")
    health, memory = HealthProbe(url, PROBE_EVERY_S), MemorySampler(pid)
    load = Load(url, questions, options)
    began = time.perf_counter()
    try:
        load.run(options.minutes * 60)
    finally:
        load.stop()
        probes, samples = health.stop(), memory.stop()
    if options.tiers:
        time.sleep(5)  # until what was in flight has ended
    after = metrics.scrape(control)
    if growth := memory_growth(samples):
        first, second = growth
    else:
        sys.exit("the run was too short to tell whether memory is flat")
    return {
        "seconds": time.perf_counter() - began,
        "answers": {verdict: load.verdicts[verdict] for verdict in ("equal", "near tie", "wrong")},
        "wrong": load.wrong,
        "errors": load.errors,
        "hung_up": load.hung_up,
        "ttft_s": stats.spread(t for t in load.ttft_s if t is not None) or stats.spread([0.0]),
        "total_s": stats.spread(load.total_s),
        "cached_tokens": load.cached_tokens,
        "prompt_tokens": load.prompt_tokens,
        "health": {
            "spread_s": stats.spread(seconds for _, seconds, _ in probes),
            "slow": sum(seconds >= HEALTH_LIMIT_S for _, seconds, _ in probes),
            "failed": sum(error is not None for _, _, error in probes),
            "probes": [(round(t, 2), round(seconds, 5)) for t, seconds, _ in probes],
        },
        "memory": {
            "first_half_bytes": first,
            "second_half_bytes": second,
            "most_bytes": max(resident for _, resident in samples),
            "samples": [(round(t, 1), resident) for t, resident in samples],
        },
        "server": metrics.reuse(before, after),
        "descriptors": metrics.total(after, "process_open_fds") - descriptors,
        "device": json.loads(control.call("GET", "/cache"))["tiers"][0],
        "foreign_cores": round(foreign.cores(), 2),
    }


def tier_arguments(stack, options, budget):
    if not options.tiers:
        return ["--kv-host-bytes", "0"]
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    remote = ["--kv-remote", options.remote] if options.remote else []
    return ["--kv-host-bytes", str(budget), "--kv-disk-path", folder, "--kv-disk-bytes", str(4 * budget), "--kv-check", *remote]


def allocated_after_work(server, topics, questions, options, seconds=20):
    """Of a server that has served as many streams as it will, and holds nothing any more: all but what caching takes."""
    some = topics[: options.streams]
    control = Client(server.url)
    for topic in some:
        control.register(topic.schema())
    names = {topic.name for topic in some}
    Load(server.url, [question for question in questions if question.id.split("/")[0] in names], options).run(seconds)
    for topic in some:
        control.call("DELETE", f"/schemas/{topic.name}")
    control.close()
    return machine.allocated_bytes(server.pid)


def soak(options):
    topics = [Topic(number, options.words) for number in range(options.schemas)]
    questions = questions_of(topics)
    with serving.Server(options, name="soak-unloaded") as alone:
        sizes = record_unloaded(alone.url, topics, questions)
    took = stats.spread(question.seconds for question in questions)
    print(f"{len(questions)} answers without load, p50 {stats.show_seconds(took['p50'])}", file=sys.stderr)
    budget = int(sum(sizes) * options.budget_share)
    with contextlib.ExitStack() as stack:
        arguments = ["--kv-device-bytes", str(budget), "--max-running", str(options.streams)]
        arguments += tier_arguments(stack, options, budget)
        loaded = stack.enter_context(serving.Server(options, *arguments, name="soak-server"))
        idle = allocated_after_work(loaded, topics, questions, options) if options.tiers else 0
        result = under_load(loaded.url, loaded.pid, questions, topics, options)
    if options.tiers:
        names = ["device", "host", "disk", *(["remote"] if options.remote else [])]
        result["tiers"] = {"names": names, "idle_bytes": idle, "budget_bytes": 2 * budget}
        result["tiers"] |= {"device": result["device"], "descriptors": result["descriptors"]}
    return {
        "machine": machine.describe(),
        "model": options.model.name,
        "streams": options.streams,
        "schemas": options.schemas,
        "budget_bytes": budget,
        "module_bytes": sum(sizes),
        "exit_status": loaded.exit_status,
        **result,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    serving.add_arguments(parser)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--schemas", type=int, default=20)
    parser.add_argument("--words", type=int, default=45, help="of each of a schema's four modules, at least (default: 45)")
    parser.add_argument("--budget-share", type=float, default=0.5, help="KV budget as a share of all modules' bytes (default: 0.5)")
    parser.add_argument("--hang-up", type=float, default=0, metavar="SHARE", help="share of requests whose client leaves after two tokens")
    parser.add_argument("--tiers", action="store_true", help="with tiers below the device")
    parser.add_argument("--remote", metavar="URI", help="and this store")
    parser.add_argument("--seed", default="promptcached")
    parser.add_argument("--docs", action="store_true", help="write the result into docs/benchmarks.md")
    options = parser.parse_args()
    result = soak(options)
    report(result)
    (serving.RESULTS / "soak.json").write_text(json.dumps(result, indent=1) + "\n")
    figure.soak_run(result["memory"]["samples"], result["health"]["probes"], serving.RESULTS / "soak.png")
    print("loadtest/results/soak.json and soak.png")
    if options.docs:
        document.write_part("soak-tiers" if options.tiers else "soak", markdown(result))
    sys.exit(0 if all(passed for *_, passed in checks(result)) else 1)


if __name__ == "__main__":
    try:
        main()
    except serving.ServerFailed as fault:
        sys.exit(str(fault))
