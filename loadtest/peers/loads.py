"""What is sent to every server in a round: the workloads of workloads.py, cut to a few requests.

  cold     the whole of W2's prompt with nothing kept of it; for our server too it is one plain text, so that all compute the same
  w2       questions behind the same prefix, which is there
  decode   a long answer behind the same prefix
  w1, w3   as written
  w4       the turns after the first
  w5       eight at once

Where a first request fills the cache, it is the load's `prime` and counts nowhere. Every record of a load is of one kind, then. Rounds
send different requests, and none that filled the cache in the same round, but for decode's, of which only what follows the first token
counts.
"""

import workloads

ANSWER_TOKENS = 128  # of decode
PER_ROUND = {"w1": 3, "w2": 4, "w3": 4}


def cut(load, number, count):
    """`count` of the load's requests, from where round `number` begins, primed by the one before."""
    requests = load["requests"]
    chosen = [requests[(number * count + i) % len(requests)] for i in range(min(count, len(requests)))]
    return {**load, "prime": {**requests[(number * count - 1) % len(requests)], "max_tokens": 1}, "requests": chosen}


def w1(number, count):
    return {**cut(workloads.w1_rag(), number, count), "prime": None}


def w2(number, count):
    return cut(workloads.w2_template(), number, count)


def cold(number, count):
    first = {**w2(number, count)["prime"], "max_tokens": 16}
    return workloads.workload("cold", "plain", {}, [], [{**first, "modules": [], "text": first["prompt"]}])


def decode(number, count):
    load = w2(number, count)
    return {**load, "workload": "decode", "requests": [{**load["prime"], "max_tokens": ANSWER_TOKENS, "answer": None}]}


def w3(number, count):
    return cut(workloads.w3_personas(), number, count)


def w4(_number, _count):
    load = workloads.w4_multi_turn()
    first, *later = load["requests"]
    return {**load, "prime": {**first, "max_tokens": 1}, "requests": later}


def w5(_number, _count):
    return workloads.w5_batch()


MAKERS = {"cold": cold, "w2": w2, "decode": decode, "w1": w1, "w3": w3, "w4": w4, "w5": w5}


def load(name, number, count=None):
    """A load of round `number`. `count`: how many requests of w1, w2 and w3."""
    kind = "w2" if name in ("cold", "decode") else name
    return MAKERS[name](number, count or PER_ROUND.get(kind))
