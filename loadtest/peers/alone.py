"""What is measured of our server alone: reuse against its own bypass, many segments against one, answers that share a module's reads,
and what it takes at rest."""

import threading
import time

import bench
import machine
from client import Client

SIZE = 3500
SEGMENTS = 32
REUSED = 5  # requests of each kind for one that computes everything
OVERHEAD_REQUESTS = 20
REST_S = 10
TOGETHER = 8
SHARING_ROUNDS = 3
SHARING_TOKENS = 64


def reuse(server):
    """Seconds to the first token at SIZE module tokens: computed anew, and reused as one module and as SEGMENTS."""
    client = Client(server.url, timeout_s=900)
    (case,), question = bench.make_cases(client, [SIZE], SEGMENTS)
    case.register(client)
    case.ask(client, "bypass", question)
    for _ in range(REUSED):
        case.ask(client, "one", question)
        case.ask(client, "many", question)
    overhead = bench.measure_overhead(server.url, case, question, OVERHEAD_REQUESTS)
    client.close()
    return {**{f"{kind}_s": times for kind, times in case.ttft_s.items()}, "overhead_s": overhead["overhead"]}


def sharing(server):
    """Tokens a second in total: of one answer, of eight over one module, and of eight over a module of the same length each."""
    client = Client(server.url, timeout_s=900)
    (case,), question = bench.make_cases(client, [SIZE], 1)
    names = []
    for number in range(TOGETHER):
        words = [f" {number}", *case.schemas["one"][0][:-1]]
        names.append(f"apart_{number}")
        client.register(f"<schema name='{names[-1]}'><module name='part0'>{''.join(words)}</module></schema>")
    prompts = [f"<prompt schema='{name}'><part0/>{question}</prompt>" for name in names]
    found = {"one_rate": [], "shared_rate": [], "apart_rate": []}
    for _ in range(SHARING_ROUNDS):
        found["one_rate"].append(rate_together(server.url, prompts[:1]))
        found["shared_rate"].append(rate_together(server.url, prompts[:1] * TOGETHER))
        found["apart_rate"].append(rate_together(server.url, prompts))
    client.close()
    return found


def rate_together(url, prompts):
    def ask(prompt):
        client = Client(url, timeout_s=900)
        client.generate(prompt, temperature=0, max_tokens=SHARING_TOKENS, ignore_eos=True)
        client.close()

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return SHARING_TOKENS * len(prompts) / (time.perf_counter() - began)


def rest(server):
    """Of a server that has done nothing yet."""
    before = machine.busy_s(server.pid)
    time.sleep(REST_S)
    return {"resident_bytes": machine.resident_bytes(server.pid), "busy_s": machine.busy_s(server.pid) - before, "seconds": REST_S}
