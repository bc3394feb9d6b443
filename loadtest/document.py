"""docs/benchmarks.md: the parts between markers are written by the scripts that measured them."""

import sys

import serving

PATH = serving.PROJECT / "docs" / "benchmarks.md"


def table(header, rows):
    """As Markdown: the first column to the left, the others to the right."""
    lines = ["| " + " | ".join(row) + " |" for row in [header, *rows]]
    lines.insert(1, "| --- |" + " ---: |" * (len(header) - 1))
    return "\n".join(lines)


def write_part(name, markdown):
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = PATH.read_text()
    head, found_begin, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        sys.exit(f"{PATH.name} has lost its markers {begin} and {end}")
    PATH.write_text(f"{head}{begin}\n{markdown}\n{end}{tail}")
