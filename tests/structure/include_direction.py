#!/usr/bin/env python3
"""Fails when a file includes what its room may not know (docs/architecture.md, "Direction").

Usage: include_direction.py ROOT
"""

import pathlib
import re
import sys

# Room -> rooms whose headers it may include, besides its own.
ALLOWED = {
    "core/base": set(),
    "core/checkpoint": {"core/base"},
    "core/tokenizer": {"core/base", "core/checkpoint"},
    "core/guide": {"core/base", "core/tokenizer"},
    "core/kv": {"core/base", "core/kernels"},
    "core/kernels": set(),
    "core/model": {"core/base", "core/checkpoint", "core/kernels"},
    "core/pml": {"core/base", "core/tokenizer"},
    "core/engine": {"core/base", "core/kernels", "core/tokenizer", "core/pml", "core/guide", "core/kv", "core/model"},
    "api": {"core/base", "core/tokenizer", "core/pml", "core/guide", "core/kv", "core/model", "core/engine"},
    "server": {"core/base", "core/checkpoint", "core/tokenizer", "core/pml", "core/kv", "core/model", "core/engine", "api"},
}
# Where the engine and those above it may look into the model's room: these headers are free of torch.
MODEL_FRONT = {"core/model/causal_lm.h", "core/model/forward_batch.h"}

# Library headers, and the only places that may include them (a room, or a file of it).
LIBRARIES = {
    r"(ATen|c10|torch)/": ["core/model/"],
    r"hwy/": ["core/kernels/"],
    r"(zstd|lz4)\.h": ["core/kv/kv_codec.cpp"],
    r"xxhash\.h": ["core/kv/kv_record.cpp"],
    r"httplib\.h": ["server/http_server.cpp"],
    r"pugixml\.hpp": ["core/pml/parser.cpp"],
    r"spdlog/": ["core/base/log.cpp"],
    r"prometheus/": ["core/base/metrics.cpp"],
    r"nlohmann/": ["core/checkpoint/", "core/model/", "core/tokenizer/", "api/", "server/"],
    r"(toml\+\+|CLI)/": ["server/"],
    r"openssl/": ["core/base/", "api/", "server/"],
    r"sys/(socket|epoll)\.h": ["server/"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def room_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "core" else parts[0]


def faults_in(path, text):
    room = room_of(path)
    for match in INCLUDE.finditer(text):
        own, library = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        if own is not None:
            target = room_of(own)
            if target != room and target not in ALLOWED[room]:
                yield f"{path}:{line}: {room} may not include {own}"
            if target == "core/model" and room not in ("core/model", "server") and own not in MODEL_FRONT:
                yield f"{path}:{line}: only {', '.join(sorted(MODEL_FRONT))} may be included from {room}, not {own}"
            continue
        for pattern, places in LIBRARIES.items():
            if re.match(pattern, library) and not any(path.startswith(place) for place in places):
                yield f"{path}:{line}: <{library}> belongs in {', '.join(places)} alone"


def main():
    root = pathlib.Path(sys.argv[1])
    files = [path for folder in ("core", "api", "server") for path in sorted((root / folder).rglob("*")) if path.suffix in (".h", ".cpp")]
    if len(files) < 50:
        sys.exit(f"only {len(files)} sources found under {root}: is that the project's root?")
    faults = [fault for path in files for fault in faults_in(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))]
    for fault in faults:
        print(fault)
    print(f"{len(files)} files, {len(faults)} forbidden includes")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
