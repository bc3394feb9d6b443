"""Percentiles and plain-text tables."""


def percentile(values, fraction):
    """Linear interpolation between the two nearest ranks; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = fraction * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values):
    return percentile(values, 0.5)


def spread(values):
    """What a table or a JSON file says about a series of numbers; None of nothing."""
    values = list(values)
    if not values:
        return None
    return {
        "count": len(values),
        "min": min(values),
        "p50": percentile(values, 0.5),
        "p95": percentile(values, 0.95),
        "p99": percentile(values, 0.99),
        "max": max(values),
        "mean": sum(values) / len(values),
    }


def show_seconds(seconds):
    """Three significant digits, in the unit a person would choose."""
    if seconds is None:
        return "–"
    if seconds < 1:
        milliseconds = seconds * 1000
        digits = 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
        return f"{milliseconds:.{digits}f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def show_spread(spread, show=show_seconds):
    return f"{show(spread['p50'])} ({show(spread['min'])} – {show(spread['max'])})"


def show_share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "–"


def table(header, rows):
    """Columns aligned: the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        parts = [cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(parts).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
