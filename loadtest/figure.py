"""The figures. Drawn on an opaque light card, so that they read the same on a light page and on a dark one."""

import statistics

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter

INK, SOFT, GRID, CARD = "#1f2933", "#5b6773", "#dfe4ea", "#fbfcfd"
COLOURS = ["#0b6e99", "#c2410c", "#3f7d20", "#7c3aed", "#b45309", "#64748b"]

plt.rcParams.update({
    "figure.facecolor": CARD, "axes.facecolor": CARD, "savefig.facecolor": CARD,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": SOFT, "xtick.color": SOFT, "ytick.color": SOFT,
    "axes.grid": True, "grid.color": GRID, "axes.spines.top": False, "axes.spines.right": False,
    "font.size": 11, "axes.titlesize": 13, "axes.titleweight": "bold", "axes.titlelocation": "left",
})  # fmt: skip


def show_time(seconds, _=None):
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1000:g} ms" if seconds > 0 else "0"


def save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def ttft_against_length(sizes, series, new_tokens, path):
    """`series`: [(label, [spread for each size])]; the first is the one computed anew. The ratio of the first two is written in."""
    figure, axes = plt.subplots(figsize=(9, 5.4), layout="constrained")
    for (label, spreads), colour, marker in zip(series, COLOURS[1::-1] + COLOURS[2:], "osD", strict=False):
        middle = [spread["p50"] for spread in spreads]
        axes.fill_between(sizes, [s["min"] for s in spreads], [s["max"] for s in spreads], color=colour, alpha=0.15, linewidth=0)
        axes.plot(sizes, middle, color=colour, marker=marker, markersize=5, linewidth=2, label=label)
    axes.set(xscale="log", yscale="log", xlabel="Tokens in the prompt's modules", ylabel="Time to first token (log scale)")
    axes.set_title(f"Time to first token, {new_tokens} new tokens behind the modules")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30 if len(sizes) > 6 else 0)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(show_time))
    axes.grid(which="minor", axis="y", color=GRID, linewidth=0.4)
    mark_ratio(axes, sizes, series)
    axes.legend(frameon=False, loc="upper left")
    save(figure, path)


def mark_ratio(axes, sizes, series):
    """How far the curves lie apart, at the length people ask about."""
    place = min(range(len(sizes)), key=lambda i: abs(sizes[i] - 3000))
    above, below = (spreads[place]["p50"] for _, spreads in series[:2])
    axes.annotate(
        "", (sizes[place], above), (sizes[place], below), arrowprops={"arrowstyle": "<->", "color": SOFT, "shrinkA": 5, "shrinkB": 5}
    )
    axes.annotate(
        f"{above / below:.0f} times\nsooner", (sizes[place], (above * below) ** 0.5), xytext=(-8, 0), textcoords="offset points",
        ha="right", va="center", color=INK, fontweight="bold",
    )  # fmt: skip


def times_better(rows, path):
    """`rows`: [(title, wanted, {peer: [ratio of each round]})]. How many times better than each peer we are; the line is even."""
    peers = list(dict.fromkeys(peer for _, _, ratios in rows for peer in ratios))
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.62 * len(rows)), layout="constrained")
    for place, (_, wanted, ratios) in enumerate(rows):
        axes.plot([wanted, wanted], [place - 0.36, place + 0.36], color=SOFT, linewidth=1.5, linestyle=":")
        for number, peer in enumerate(peers):
            if peer in ratios:
                y = place + (number - (len(peers) - 1) / 2) * 0.22
                axes.plot([min(ratios[peer]), max(ratios[peer])], [y, y], color=COLOURS[number], alpha=0.4, linewidth=5)
                axes.plot(statistics.median(ratios[peer]), y, "o", color=COLOURS[number], markersize=7)
    for number, peer in enumerate(peers):
        axes.plot([], [], "o", color=COLOURS[number], label=peer)
    axes.plot([], [], color=SOFT, linestyle=":", label="wanted, against the best")
    axes.axvline(1, color=INK, linewidth=1)
    axes.set(xscale="log", xlabel="Times better than the peer (log scale; right of 1 is ours)", title="promptcached against its peers")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    axes.set_yticks(range(len(rows)), [title for title, _, _ in rows], color=INK)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    figure.legend(frameon=False, loc="outside lower center", ncols=len(peers) + 1)
    save(figure, path)


def times_by_tier(rows, tokens, path):
    """`rows`: [(title, [seconds of each round])]; the first is what the others are compared with."""
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.5 * len(rows)), layout="constrained")
    for place, (_, times) in enumerate(rows):
        middle = statistics.median(times)
        axes.barh(place, middle, height=0.55, color=COLOURS[0] if place < len(rows) - 1 else COLOURS[1])
        axes.plot([min(times), max(times)], [place, place], color=INK, linewidth=1.2)
        ratio = statistics.median(time / first for time, first in zip(times, rows[0][1], strict=True))
        axes.annotate(f"{ratio:.3g} ×", (max(times), place), xytext=(6, 0), textcoords="offset points", va="center", color=INK)
    axes.set(xscale="log", xlabel="Time to first token (log scale)", title=f"A module of {tokens:,} tokens, by where it lies")
    axes.xaxis.set_major_formatter(FuncFormatter(show_time))
    axes.margins(x=0.12)
    axes.set_yticks(range(len(rows)), [title for title, _ in rows], color=INK)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    save(figure, path)


def load_run(records, title, path):
    """Left: which share of the requests had their first token by when. Right: the same requests over the run's time."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for workload, colour in zip(sorted({r["workload"] for r in records}), COLOURS * 2, strict=False):
        done = [r for r in records if r["workload"] == workload and r["ttft_s"] is not None]
        if not done:
            continue
        times = sorted(r["ttft_s"] for r in done)
        left.step([*times, times[-1]], [i / len(times) for i in range(len(times))] + [1.0], where="post", color=colour, label=workload)
        right.scatter([r["sent_s"] for r in done], [r["ttft_s"] for r in done], s=12, color=colour, alpha=0.7, label=workload)
    failed = [r["sent_s"] for r in records if r["error"]]
    if failed:
        right.scatter(failed, [0] * len(failed), marker="x", color="#b91c1c", label="failed", clip_on=False)
    left.set(title=title, xlabel="Time to first token", ylabel="Share of requests", xscale="log", ylim=(0, 1.02))
    right.set(xlabel="Sent after, s", ylabel="Time to first token", ylim=(0, None))
    left.xaxis.set_major_formatter(FuncFormatter(show_time))
    right.yaxis.set_major_formatter(FuncFormatter(show_time))
    right.legend(frameon=False)
    save(figure, path)


def ramp(clients, levels, title, path):
    """`levels`: the summary of each number of clients."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    left.plot(clients, [level["requests_per_second"] for level in levels], color=COLOURS[0], marker="o")
    left.set(title=title, xlabel="Clients", ylabel="Requests done a second", ylim=(0, None))
    for place, label, colour in (("p99", "p99", COLOURS[1]), ("p50", "median", COLOURS[0])):
        right.plot(clients, [(level["ttft_s"] or {}).get(place) for level in levels], color=colour, marker="o", label=label)
    right.set(xlabel="Clients", ylabel="Time to first token", ylim=(0, None))
    right.yaxis.set_major_formatter(FuncFormatter(show_time))
    right.legend(frameon=False)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(clients, clients)
        axes.xaxis.set_minor_formatter(NullFormatter())
    save(figure, path)


def soak_run(memory, probes, path):
    """`memory`: [(second, bytes)], `probes`: [(second, seconds taken)]."""
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 5.6), sharex=True, layout="constrained")
    top.plot([t for t, _ in memory], [b / 2**20 for _, b in memory], color=COLOURS[0])
    top.set(title="Resident memory and health probes under load", ylabel="Resident memory, MiB", ylim=(0, None))
    bottom.scatter([t for t, _ in probes], [s * 1000 for _, s in probes], s=4, color=COLOURS[1])
    bottom.set(xlabel="Second of the run", ylabel="GET /healthz, ms", ylim=(0, None))
    save(figure, path)
