"""The server's /metrics as numbers, and what a run changed in them."""

import re

TIERS = ("device", "host", "disk", "remote")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def scrape(client):
    """{(name without prefix, ((label, value), …)): number}"""
    values = {}
    for line in client.call("GET", "/metrics").splitlines():
        if not line or line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        name, _, labels = series.partition("{")
        values[name.removeprefix("promptcached_"), tuple(sorted(LABEL.findall(labels)))] = float(value)
    return values


def total(values, name, **labels):
    """The sum over the series of `name` that have these labels."""
    wanted = set(labels.items())
    return sum(value for (series, its_labels), value in values.items() if series == name and wanted <= set(its_labels))


def change(before, after, name, **labels):
    return total(after, name, **labels) - total(before, name, **labels)


def reuse(before, after):
    """What the server says about reuse between two scrapes."""
    return {
        "module_lookups": change(before, after, "module_lookups_total"),
        "module_hits": change(before, after, "module_hits_total"),
        "module_encodes": change(before, after, "module_encodes_total"),
        "evictions": change(before, after, "cache_evictions_total"),
        "hits_by_tier": {tier: change(before, after, "module_hits_total", tier=tier) for tier in TIERS},
        "tier_faults": change(before, after, "cache_corrupt_total") + change(before, after, "tier_errors_total"),
        "prompt_tokens_reused": sum(change(before, after, "prompt_tokens_total", source=tier) for tier in TIERS),
        "prompt_tokens_computed": change(before, after, "prompt_tokens_total", source="computed"),
        "generated_tokens": change(before, after, "generated_tokens_total"),
    }
