"""The tables and the figure of docs/benchmarks.md, from the runs of one session or of several.

A run is what one server did in one round with one load: {"session", "round", "server", "workload", "records" or "values", …}.
Ratios are taken within a round, then their median; above 1 is better for us.
"""

import collections
import dataclasses
from collections.abc import Callable

import document
import stats

OURS = "promptcached"
PLAIN = "promptcached-v1"  # asked as the peers are: text without modules
TURNS = [f"w4-{turn}" for turn in range(1, 6)]
PICTURE = "![How many times better than each peer, for each workload](images/peers.png)"


def first_token_s(run):
    return stats.median(record["ttft_s"] for record in run["records"] if record["ttft_s"] is not None)


def first_token_of(request):
    """Seconds to the first token of one request of a run."""
    return lambda run: stats.median(r["ttft_s"] for r in run["records"] if r["id"] == request and r["ttft_s"] is not None)


def decode_rate(run):
    """Tokens a second within an answer, the first one left out."""
    done = [r for r in run["records"] if not r["error"] and r["inter_token_s"]]
    return stats.median((r["completion_tokens"] - 1) / sum(r["inter_token_s"]) for r in done)


def total_rate(run):
    """Tokens a second of all answers together, from the first request's sending to the last answer's end."""
    done = [r for r in run["records"] if not r["error"]]
    if not done:
        return None
    wall_s = max(r["sent_s"] + r["total_s"] for r in done) - min(r["sent_s"] for r in done)
    return sum(r["completion_tokens"] for r in done) / wall_s


def show_rate(rate):
    return f"{rate:.1f}/s"


def show_times(ratio):
    return f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


@dataclasses.dataclass
class Row:
    """A line of the comparison. `wanted`: how many times better than the best peer it should be, at least and at best."""

    title: str
    workload: str
    wanted: tuple[float, float]
    value: Callable = first_token_s
    show: Callable = stats.show_seconds
    more_is_better: bool = False
    also_wanted: str = ""
    ours: str = OURS

    def ratio(self, ours, theirs):
        return ours / theirs if self.more_is_better else theirs / ours


ROWS = [
    Row("W2: first token behind the same prefix", "w2", (1.5, 2), also_wanted="; llama.cpp 3.5 (5)"),
    Row("W1: first token, documents chosen anew", "w1", (100, 150)),
    Row("W3: first token, personas", "w3", (8, 12)),
    Row("W4: first token of the next turn", "w4", (2.5, 4)),
    Row("cold: first token, nothing known", "cold", (1.2, 1.5)),
    Row("decode behind that prefix, tokens", "decode", (2.2, 2.7), decode_rate, show_rate, True),
    Row("W5: eight at once, tokens in total", "w5", (4, 6), total_rate, show_rate, True),
]

PLAIN_ROWS = [
    Row("W2: first token behind the same prefix", "w2", (2.5, 4), ours=PLAIN),
    *(Row(f"W4: first token of turn {turn}", "w4", (2.5, 4), first_token_of(request), ours=PLAIN)
      for turn, request in enumerate(TURNS, 2)),
]  # fmt: skip

MIB = 2**20
ALONE = [  # title, workload, value of a run's values, show, wanted
    ("reuse against our own bypass at 3,500 tokens, times", "reuse",
     lambda v: stats.median(v["bypass_s"]) / stats.median(v["one_s"]), show_times, "70 (90)"),
    ("32 segments against one, time to first token, times", "reuse",
     lambda v: stats.median(v["many_s"]) / stats.median(v["one_s"]), lambda r: f"{r:.2f}", "at most 1.1 (1.02)"),
    ("eight answers over one module against one alone, tokens in total, times", "sharing",
     lambda v: stats.median(v["shared_rate"]) / stats.median(v["one_rate"]), show_times, "2"),
    ("the same against eight over a module each, times", "sharing",
     lambda v: stats.median(v["shared_rate"]) / stats.median(v["apart_rate"]), lambda r: f"{r:.2f}", "more than 1"),
    ("overhead of a request, everything but the model, p50", "reuse",
     lambda v: v["overhead_s"]["p50"], stats.show_seconds, "at most 1 ms (0.3 ms)"),
    ("resident memory without KV, default options", "rest",
     lambda v: v["resident_bytes"], lambda b: f"{b / MIB:,.0f} MiB", "at most 1,024 MiB (410 MiB)"),
    ("cores busy at rest", "rest",
     lambda v: v["busy_s"] / v["seconds"], lambda c: f"{c:.3f}", ""),
]  # fmt: skip


class Comparison:
    """All values by row and server, round by round."""

    def __init__(self, sessions):
        self.sessions = sessions
        self.runs = [{**run, "session": i} for i, session in enumerate(sessions) for run in session["runs"]]
        self.titles = {name: title for session in sessions for name, title in session["titles"].items()}
        self.versions = sorted({version for session in sessions for version in session["versions"].values()})
        present = {run["server"] for run in self.runs}
        self.peers = [name for name in self.titles if name in present and name not in (OURS, PLAIN)]

    def values(self, row, server):
        """{(session, round): value}"""
        found = {}
        for run in self.runs:
            if run["server"] == server and run["workload"] == row.workload:
                value = row.value(run)
                if value is not None:
                    found[run["session"], run["round"]] = value
        return found

    def ratios(self, row, peer):
        ours, theirs = self.values(row, row.ours), self.values(row, peer)
        return [row.ratio(ours[key], theirs[key]) for key in sorted(ours.keys() & theirs.keys())]

    def best_peer(self, row):
        """The one that is nearest to us, or ahead."""
        ratios = {peer: self.ratios(row, peer) for peer in self.peers}
        return min((peer for peer in self.peers if ratios[peer]), key=lambda peer: stats.median(ratios[peer]), default=None)

    def alone(self, workload, value):
        return [value(run["values"]) for run in self.runs if run["workload"] == workload]


def spread(values, show):
    return stats.show_spread(stats.spread(values), show) if values else "–"


def absolute_rows(comparison, rows):
    for row in rows:
        cells = [spread(comparison.values(row, server).values(), row.show) for server in (row.ours, *comparison.peers)]
        if any(cell != "–" for cell in cells):
            yield [row.title, *cells]


def ratio_rows(comparison, rows):
    for row in rows:
        best = comparison.best_peer(row)
        if best is None:
            continue
        cells = {peer: spread(comparison.ratios(row, peer), show_times) for peer in comparison.peers}
        cells[best] = f"**{cells[best]}**"
        yield [row.title, *cells.values(), f"{row.wanted[0]:g} ({row.wanted[1]:g}){row.also_wanted}"]


def plain_rows(comparison):
    """Only where our server was asked so, too. Below the times, how many of each turn's tokens were found."""
    if not any(run["server"] == PLAIN for run in comparison.runs):
        return []
    return [*absolute_rows(comparison, PLAIN_ROWS), *(found_row(comparison, request) for request in TURNS)]


def found_row(comparison, request):
    cells = []
    prompt_tokens = 0
    for server in (PLAIN, *comparison.peers):
        records = [r for run in comparison.runs if run["server"] == server for r in run.get("records", []) if r["id"] == request]
        cells.append(spread([r["cached_tokens"] for r in records], lambda count: f"{count:,.0f}"))
        prompt_tokens = max([prompt_tokens, *(r["prompt_tokens"] for r in records)])
    return [f"W4: tokens found of the {prompt_tokens:,} of turn {TURNS.index(request) + 2}", *cells]


def alone_rows(comparison):
    for title, workload, value, show, wanted in ALONE:
        values = comparison.alone(workload, value)
        if values:
            yield [title, spread(values, show), wanted]


def notes(comparison):
    """What a reader has to know of the conditions, and what went wrong."""
    rounds = len({(run["session"], run["round"]) for run in comparison.runs})
    foreign = spread([run["foreign_cores"] for run in comparison.runs], lambda cores: f"{cores:.2f}")
    conditions = ", ".join(sorted({f"{session['model']} on {session['machine']}" for session in comparison.sessions}))
    yield (
        f"Medians of {rounds} rounds, in brackets the smallest and the largest. {conditions}. {', '.join(comparison.versions)}. Cores "
        f"that were busy with other things meanwhile: {foreign}."
    )
    memory = {server: [run["resident_bytes"] for run in comparison.runs if run["server"] == server and run.get("resident_bytes")]
              for server in (OURS, *comparison.peers)}  # fmt: skip
    told = [f"{comparison.titles[server]} {max(sizes) / MIB:,.0f} MiB" for server, sizes in memory.items() if sizes]
    yield f"Most resident memory after a load: {', '.join(told)}."
    errors = collections.Counter(
        f"{comparison.titles[run['server']]} {run['workload']} {record['error']}"
        for run in comparison.runs
        for record in run.get("records", [])
        if record["error"]
    )
    if errors:
        yield f"Failed requests: {', '.join(f'{what} ({count})' for what, count in errors.items())}."
    yield from token_differences(comparison)


def token_differences(comparison):
    """The same text should have as many tokens everywhere."""
    counts = collections.defaultdict(set)
    for run in comparison.runs:
        for record in run.get("records", []):
            if not record["error"]:
                counts[record["workload"], record["id"]].add(record["prompt_tokens"])
    differing = sorted({workload for (workload, _), seen in counts.items() if len(seen) > 1})
    if differing:
        yield f"Beware: servers counted different numbers of prompt tokens in {', '.join(differing)}."


def parts(comparison):
    """[(header, rows)] of the tables that have rows."""
    titles = [comparison.titles[peer] for peer in comparison.peers]
    found = [
        (["", comparison.titles.get(OURS, OURS), *titles], list(absolute_rows(comparison, ROWS))),
        (["times better than", *titles, "wanted (at best)"], list(ratio_rows(comparison, ROWS))),
        (["text without modules", comparison.titles.get(PLAIN, PLAIN), *titles], plain_rows(comparison)),
        (["times better than", *titles, "wanted (at best)"], list(ratio_rows(comparison, PLAIN_ROWS))),
        (["promptcached alone", "", "wanted (at best)"], list(alone_rows(comparison))),
    ]
    return [(header, rows) for header, rows in found if rows]


def markdown(comparison):
    tables = [document.table(header, rows) for header, rows in parts(comparison)]
    picture = [PICTURE] if figure_rows(comparison) else []
    return "\n\n".join([*picture, *tables, *notes(comparison)])


def plain(comparison):
    tables = [stats.table(header, rows) for header, rows in parts(comparison)]
    return "\n\n".join([*tables, *notes(comparison)])


def figure_rows(comparison):
    """[(title, wanted, {peer's title: [ratio of each round]})]"""
    rows = []
    for row in ROWS:
        ratios = {comparison.titles[peer].replace("`", ""): comparison.ratios(row, peer) for peer in comparison.peers}
        if any(ratios.values()):
            rows.append((row.title, row.wanted[0], {peer: values for peer, values in ratios.items() if values}))
    return rows
