#!/usr/bin/env bash
# Compare every family of models with transformers and with itself, and write the table of docs/models.md.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
export PROMPTCACHED_MODEL=$MODEL_DIR PROMPTCACHED_MODEL_TABLE=$rows
step "every family of models" build/test_parity "every family*"
"$VENV/bin/python" - "$rows" docs/models.md <<'PYTHON'
"""Puts the rows between the page's two marks."""

import pathlib
import sys

rows, page = map(pathlib.Path, sys.argv[1:])
begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
head = "| architecture | tiny model | against transformers | cached against direct | greedy agreement |\n|---|---|---:|---:|---:|\n"
before, _, rest = page.read_text().partition(begin)
_, _, after = rest.partition(end)
page.write_text(before + begin + head + rows.read_text() + end + after)
PYTHON
say "wrote docs/models.md"
