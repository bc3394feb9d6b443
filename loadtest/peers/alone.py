"""What is measured of our server alone: reuse against its own bypass, many segments against one, and what it takes at rest."""

import time

import bench
import machine
from client import Client

SIZE = 3500
SEGMENTS = 32
REUSED = 5  # requests of each kind for one that computes everything
OVERHEAD_REQUESTS = 20
REST_S = 10


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


def rest(server):
    """Of a server that has done nothing yet."""
    before = machine.busy_s(server.pid)
    time.sleep(REST_S)
    return {"resident_bytes": machine.resident_bytes(server.pid), "busy_s": machine.busy_s(server.pid) - before, "seconds": REST_S}
