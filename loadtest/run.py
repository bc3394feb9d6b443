#!/usr/bin/env python3
"""Drive a server with the workloads of workloads.py, and tell what its clients saw.

Ways to send:
  (none)         each request of each workload once, with the workload's own concurrency: comparable across servers and versions
  --closed N     closed loop: N clients, each sends its next request when it has its answer and has thought for --think seconds
  --open RATE    open loop: Poisson arrivals, RATE a second, however slow the answers are
  --ramp N,N,…   closed loops of more and more clients, one after the other, until more clients get no more requests done

Printed: time to first token (from sending to the first event with text), time between tokens, time of the whole, as p50, p95 and p99;
the share of prompt tokens that were reused; errors by code. Written: everything as JSON, and a figure, in loadtest/results/.
The exit status is 1 when a request failed.

Examples:
  run.py --serve --workload w1 w2 w3
  run.py --url http://127.0.0.1:8080 --workload w1=3 w3=1 --closed 8 --think 0.5 --duration 60
  run.py --serve --workload w3 --open 2 --requests 200 --cache bypass
  run.py --serve --workload w3 --ramp 1,2,4,8,16,32 --duration 20
"""

import argparse
import collections
import concurrent.futures
import contextlib
import itertools
import json
import queue
import random
import sys
import threading
import time

import figure
import machine
import metrics
import pml
import serving
import stats
import workloads
from client import Client

SATURATED = 1.05  # a level of the ramp that gets less than this times what the level before got is the last


class Run:
    """What all requests of a run share: where they go, what they ask for, and what came of them."""

    client_type = Client

    def __init__(self, url, options):
        self.url = url
        self.options = options
        self.clients = options.closed  # how many the closed loop has
        self.began = time.perf_counter()
        self.records = []
        self._idle = queue.LifoQueue()

    def now(self):
        return time.perf_counter() - self.began

    @contextlib.contextmanager
    def client(self):
        """A connection nobody else uses meanwhile; the one used last, if there is one."""
        try:
            client = self._idle.get_nowait()
        except queue.Empty:
            client = self.client_type(self.url, self.options.timeout, self.options.api_key)
        try:
            yield client
        finally:
            self._idle.put(client)

    def close(self):
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def ask(self, client, load, request):
        options = self.options
        fields = {"temperature": 0, "ignore_eos": not options.stop_at_end, "cache": options.cache}
        max_tokens = options.max_tokens or request["max_tokens"]
        return client.generate(pml.prompt_pml(load, request), max_tokens=max_tokens, **fields)

    def send(self, load, request, due_s=None):
        """One request. `due_s`: when it should have been sent, which it may have missed."""
        with self.client() as client:
            sent_s = self.now()
            answer = self.ask(client, load, request)
        self.records.append(record_of(load, request, answer, sent_s, sent_s if due_s is None else due_s))


def record_of(load, request, answer, sent_s, due_s):
    return {
        "workload": load["workload"],
        "id": request["id"],
        "sent_s": round(sent_s, 4),
        "late_s": round(sent_s - due_s, 4),
        "error": answer.error,
        "message": answer.message,
        "ttft_s": answer.ttft_s if answer.ok else None,
        "total_s": answer.total_s,
        "inter_token_s": [round(gap, 5) for gap in answer.inter_token_s()],
        "prompt_tokens": answer.usage.get("prompt_tokens", 0),
        "cached_tokens": answer.usage.get("cached_tokens", 0),
        "completion_tokens": answer.usage.get("completion_tokens", len(answer.tokens)),
        "finish_reason": answer.finish_reason,
        "text": answer.text,
        "correct": request["answer"] in answer.text if request["answer"] and answer.ok else None,
        "timing": answer.timing,
    }


def send_as_written(run, loads, _weights):
    for load in loads:
        if load["prime"]:
            with run.client() as client:
                run.ask(client, load, load["prime"])
        width = load["concurrency"]
        start = threading.Barrier(width)

        def one(request, load=load, start=start):
            start.wait()
            run.send(load, request)

        for batch in batches(load["requests"], width):
            with concurrent.futures.ThreadPoolExecutor(width) as pool:
                list(pool.map(one, batch))


def batches(requests, width):
    """Whole batches: each leaves together."""
    return [requests[i : i + width] for i in range(0, len(requests) - width + 1, width)]


def mixed(loads, weights, seed):
    """Endless (load, request): loads drawn by weight, each load's requests in turn."""
    draw = random.Random(seed)
    turns = [itertools.cycle(load["requests"]) for load in loads]
    while True:
        index = draw.choices(range(len(loads)), weights)[0]
        yield loads[index], next(turns[index])


class Limit:
    """Ends a run after --requests requests or --duration seconds, whichever is first."""

    def __init__(self, run):
        self._lock = threading.Lock()  # the clients of a closed loop draw from one source
        self._left = run.options.requests if run.options.requests is not None else float("inf")
        self._end_s = run.now() + run.options.duration
        self._run = run

    def take(self, source):
        with self._lock:
            if self._left <= 0 or self._run.now() >= self._end_s:
                return None
            self._left -= 1
            return next(source)


def send_closed(run, loads, weights):
    source, limit = mixed(loads, weights, run.options.seed), Limit(run)

    def client(number):
        think = random.Random(f"{run.options.seed}/{number}")
        while job := limit.take(source):
            run.send(*job)
            if run.options.think > 0:
                time.sleep(think.expovariate(1 / run.options.think))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(run.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def send_open(run, loads, weights):
    source, limit = mixed(loads, weights, run.options.seed), Limit(run)
    gaps = random.Random(f"{run.options.seed}/arrivals")
    due_s = 0.0
    with concurrent.futures.ThreadPoolExecutor(run.options.max_in_flight) as pool:
        while True:
            due_s += gaps.expovariate(run.options.open)
            time.sleep(max(0.0, due_s - run.now()))
            job = limit.take(source)
            if job is None:
                return
            pool.submit(run.send, *job, due_s)


def send_ramp(run, loads, weights):
    """{level: (its records, its seconds)}; ends with the first level that got hardly more done than the best before it."""
    levels, best = {}, 0.0
    for clients in run.options.ramp:
        run.clients = clients
        first, began_s = len(run.records), run.now()
        send_closed(run, loads, weights)
        records, took_s = run.records[first:], run.now() - began_s
        levels[f"{clients} clients"] = (records, took_s)
        rate = summarise(records, took_s)["requests_per_second"]
        if rate < best * SATURATED:
            break
        best = max(best, rate)
    return levels


def by_workload(records, wall_s):
    """{workload: (its records, the whole run's seconds)}"""
    names = sorted({record["workload"] for record in records})
    return {name: ([record for record in records if record["workload"] == name], wall_s) for name in names}


def summarise(records, wall_s):
    done = [r for r in records if not r["error"]]
    graded = [r["correct"] for r in done if r["correct"] is not None]
    return {
        "requests": len(records),
        "errors": dict(collections.Counter(r["error"] for r in records if r["error"])),
        "ttft_s": stats.spread(r["ttft_s"] for r in done if r["ttft_s"] is not None),
        "inter_token_s": stats.spread(gap for r in done for gap in r["inter_token_s"]),
        "total_s": stats.spread(r["total_s"] for r in done),
        "late_s": stats.spread(r["late_s"] for r in records),
        "prompt_tokens": sum(r["prompt_tokens"] for r in done),
        "cached_tokens": sum(r["cached_tokens"] for r in done),
        "completion_tokens": sum(r["completion_tokens"] for r in done),
        "tokens_per_second": sum(r["completion_tokens"] for r in done) / wall_s,
        "requests_per_second": len(done) / wall_s,
        "correct": f"{sum(graded)}/{len(graded)}" if graded else None,
    }


def print_summary(summaries, server_side):
    rows = []
    for name, summary in summaries.items():
        for key, label in (("ttft_s", "first token"), ("inter_token_s", "between tokens"), ("total_s", "whole answer")):
            spread = summary[key]
            if spread:
                rows.append([f"{name} {label}", spread["count"], *(stats.show_seconds(spread[p]) for p in ("p50", "p95", "p99", "max"))])
    print(stats.table(["", "count", "p50", "p95", "p99", "max"], rows), end="\n\n")
    rows = []
    for name, summary in summaries.items():
        errors = ", ".join(f"{code} {count}" for code, count in sorted(summary["errors"].items())) or "none"
        reused = stats.show_share(summary["cached_tokens"], summary["prompt_tokens"])
        rates = [f"{summary['requests_per_second']:.2f}", f"{summary['tokens_per_second']:.1f}"]
        rows.append([name, summary["requests"], reused, *rates, summary["correct"] or "–", errors])
    print(stats.table(["", "requests", "tokens reused", "requests/s", "tokens/s", "right answers", "errors"], rows), end="\n\n")
    hits = stats.show_share(server_side["module_hits"], server_side["module_lookups"])
    print(
        f"The server: {hits} of {server_side['module_lookups']:.0f} modules were resident, {server_side['module_encodes']:.0f} encoded, "
        f"{server_side['evictions']:.0f} evicted"
    )
    late = summaries["all"]["late_s"]
    if late and late["p99"] > 0.05:
        print(f"Beware: requests were sent late (p99 {stats.show_seconds(late['p99'])}): this client could not keep up")


def parse_mix(names):
    """["w1=3", "w3"] as loads and weights."""
    loads, weights = [], []
    for text in names:
        name, _, weight = text.partition("=")
        if name not in workloads.WORKLOADS:
            sys.exit(f"there is no workload '{name}': {', '.join(workloads.WORKLOADS)}")
        loads.append(workloads.WORKLOADS[name]())
        weights.append(float(weight or 1))
    return loads, weights


def send_all(run, loads, weights):
    """What is to be told apart: {name: (records, seconds)}"""
    if run.options.ramp:
        return send_ramp(run, loads, weights)
    send = send_closed if run.options.closed else send_open if run.options.open else send_as_written
    send(run, loads, weights)
    return by_workload(run.records, run.now())


def mode_of(options):
    if options.ramp:
        return f"closed {','.join(map(str, options.ramp))}"
    return f"closed {options.closed}" if options.closed else f"open {options.open}/s" if options.open else "as written"


def drive(url, options):
    """Register, send, delete; the whole result as one object."""
    loads, weights = parse_mix(options.workload)
    control = Client(url, options.timeout, options.api_key)
    registered = [control.register(pml.schema_pml(load)) for load in loads]
    before, foreign = metrics.scrape(control), machine.ForeignLoad()
    run = Run(url, options)
    told_apart = send_all(run, loads, weights)
    wall_s = run.now()
    run.close()
    result = {
        "mode": mode_of(options),
        "workloads": options.workload,
        "cache": options.cache,
        "machine": machine.describe(),
        "foreign_cores": round(foreign.cores(), 2),
        "wall_s": wall_s,
        "schemas": [{key: schema[key] for key in ("name", "tokens", "kv_bytes", "encode_ms")} for schema in registered],
        "server": metrics.reuse(before, metrics.scrape(control)),
        "records": sorted(run.records, key=lambda r: r["sent_s"]),
    }
    result["summary"] = {name: summarise(*part) for name, part in told_apart.items()}
    result["summary"]["all"] = summarise(run.records, wall_s)
    if not options.keep_schemas:
        for load in loads:
            control.delete_schema(pml.schema_name(load))
    return result


def write(result, options):
    serving.RESULTS.mkdir(parents=True, exist_ok=True)
    base = serving.RESULTS / f"{options.label}-{time.strftime('%Y%m%d-%H%M%S')}"
    base.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    title, picture = f"{' '.join(options.workload)}, {result['mode']}", base.with_suffix(".png")
    if options.ramp:
        levels = [summary for name, summary in result["summary"].items() if name != "all"]
        figure.ramp(options.ramp[: len(levels)], levels, title, picture)
    else:
        figure.load_run(result["records"], title, picture)
    where = base.relative_to(serving.PROJECT)
    print(f"{where}.json and .png; {result['foreign_cores']} cores were busy with other things")


def clients_list(text):
    return [int(number) for number in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--url", help="a running server")
    target.add_argument("--serve", action="store_true", help="start one for this run")
    serving.add_arguments(parser)
    parser.add_argument("--api-key")
    parser.add_argument("--workload", nargs="+", required=True, metavar="NAME[=WEIGHT]", help="w1 … w5; weights for a mix")
    sending = parser.add_mutually_exclusive_group()
    sending.add_argument("--closed", type=int, metavar="N", help="clients of the closed loop")
    sending.add_argument("--ramp", type=clients_list, metavar="N,N,…", help="clients of one closed loop after the other, till saturation")
    sending.add_argument("--open", type=float, metavar="RATE", help="arrivals a second of the open loop")
    parser.add_argument("--think", type=float, default=0, metavar="S", help="mean thinking time in the closed loop (exponential)")
    parser.add_argument("--duration", type=float, default=float("inf"), metavar="S", help="send nothing later (--ramp: of each level)")
    parser.add_argument("--requests", type=int, help="send so many requests (--ramp: in each level)")
    parser.add_argument("--max-in-flight", type=int, default=512, help="most requests of the open loop at once (default: 512)")
    parser.add_argument("--max-tokens", type=int, help="instead of the workload's own")
    parser.add_argument("--stop-at-end", action="store_true", help="let answers end by themselves, not at max_tokens alone")
    parser.add_argument("--cache", choices=["use", "bypass"], default="use", help="bypass: compute every module with the request")
    parser.add_argument("--seed", default="promptcached", help="of the mix, the arrivals and the thinking times")
    parser.add_argument("--timeout", type=float, default=600, metavar="S")
    parser.add_argument("--keep-schemas", action="store_true", help="leave the workloads' schemas registered")
    parser.add_argument("--label", default="run", help="how the result's files are called")
    options = parser.parse_args()
    if (options.closed or options.open or options.ramp) and options.requests is None and options.duration == float("inf"):
        parser.error("--closed, --open and --ramp need --duration or --requests")
    return options


def main():
    options = arguments()
    if options.serve:
        with serving.Server(options, name=f"{options.label}-server") as started:
            result = drive(started.url, options)
    else:
        result = drive(options.url, options)
    print_summary(result["summary"], result["server"])
    write(result, options)
    sys.exit(1 if result["summary"]["all"]["errors"] else 0)


if __name__ == "__main__":
    main()
