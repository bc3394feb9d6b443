#!/usr/bin/env python3
"""Time to first token by the tier that a request's module lies in: the table and figure of docs/benchmarks.md.

For each tier a server of its own is started, all on the same machine at the same time and idle but for the one that is asked. Every
round asks each once for the same module of 3,500 tokens and 24 new ones, after putting the module where it is to be found: dropped
from the device, and for the disk from the system's page cache too. On its way to the host tier it makes room for another module,
which is then deleted. In "host, full device" two modules share room for one and are asked for in turn, so that the time holds the other's
way out as well. `computed` is `cache: bypass` on the device's server.

Redis is started from the system's redis-server, S3 is moto's server (`pip install 'moto[server]'` into .venv); a tier whose server
is not there is left out.

Writes docs/benchmarks.md (between its markers), docs/images/tiers.png and loadtest/results/tiers.json; with --quick only the latter.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench
import document
import figure
import machine
import serving
import stats
from client import Client

TOKENS = 3500
QUICK_TOKENS = 500
FILLER_TOKENS = 400  # more than ROOM_BYTES hold
FIGURE = serving.PROJECT / "docs" / "images" / "tiers.png"
RECORD = serving.RESULTS / "tiers.json"
BUCKET = "modules"
ROOM_BYTES = 8 << 20  # for the request's own tokens


class Place:
    """A server that keeps its module in one tier."""

    def __init__(self, name, title, tier, *arguments, environment=None, modules=1, disk=None, pushed=False):
        self.name, self.title, self.tier, self.arguments = name, title, tier, arguments
        self.environment, self.modules, self.disk, self.pushed = environment or {}, modules, disk, pushed
        self.ttft_s = []
        self._asked = 0

    def start(self, stack, options):
        with patched_environment(self.environment):
            server = stack.enter_context(serving.Server(options, "--prefix-cache", "off", *self.arguments, name=f"tiers-{self.name}"))
        self.client = Client(server.url, timeout_s=1800)

    def register(self, cases):
        self._cases, self._filler = cases[: self.modules], cases[-1]
        for case in self._cases:
            self.client.register(case.pml("one"))
        if self.tier in ("disk", "remote"):
            self.wait_for_entries(len(self._cases))

    def wait_for_entries(self, count):
        """Until what is carried in the background is there."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            tiers = {tier["tier"]: tier for tier in json.loads(self.client.call("GET", "/cache"))["tiers"]}
            if tiers[self.tier]["entries"] >= count:
                return
            time.sleep(0.05)
        sys.exit(f"{self.name}: nothing came")

    def push_down(self):
        """Another module takes the device's room, and goes."""
        self.client.register(self._filler.pml("one"))
        self.wait_for_entries(1)
        self.client.delete_schema(self._filler.name("one"))

    def ask(self, question, cache="use"):
        case = self._cases[self._asked % len(self._cases)]
        self._asked += 1
        if self.pushed:
            self.push_down()
        if self.tier in ("disk", "remote"):
            self.client.call("DELETE", "/cache?tier=device")
        if self.disk:
            drop_from_page_cache(self.disk)
        answer = bench.ask(self.client, case.prompt("one", question), cache)
        found = {part["tier"] for part in answer.cache if part["tokens"]}
        if found != {self.tier}:
            sys.exit(f"{self.name}: the module came from {found}")
        return answer


class Computed(Place):
    """Shares the device's server."""

    def __init__(self, device):
        super().__init__("computed", "computed anew", "computed")
        self._device = device

    def start(self, stack, options):
        self.client = self._device.client

    def register(self, cases):
        self._cases = cases[:1]

    def ask(self, question, cache="bypass"):
        return super().ask(question, cache)


@contextlib.contextmanager
def patched_environment(values):
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)


def drop_from_page_cache(folder):
    os.sync()
    for path in pathlib.Path(folder).rglob("*.kv"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def background(command, port, what):
    """A server of others, as soon as it listens."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not serving.listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{what} did not start: {' '.join(map(str, command))}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def redis_place(stack):
    if shutil.which("redis-server") is None:
        return None
    port = serving.free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    stack.enter_context(background(command, port, "redis"))
    return Place("redis", "Redis", "remote", "--kv-host-bytes", "0", "--kv-remote", f"redis://127.0.0.1:{port}")


def s3_place(stack):
    moto = pathlib.Path(sys.executable).parent / "moto_server"
    if not moto.exists():
        return None
    port = serving.free_port()
    stack.enter_context(background([moto, "--host", "127.0.0.1", "--port", str(port)], port, "moto"))
    client = Client(f"http://127.0.0.1:{port}")
    client.call("PUT", f"/{BUCKET}")
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    uri = f"s3://{BUCKET}/tiers?endpoint=http://127.0.0.1:{port}&region=us-east-1"
    return Place("s3", "S3 (moto)", "remote", "--kv-host-bytes", "0", "--kv-remote", uri, environment=keys)


def places(stack, folder, one_module_bytes):
    device = Place("device", "device", "device", "--kv-host-bytes", "0")
    one = ["--kv-device-bytes", str(one_module_bytes + ROOM_BYTES)]
    host = [*one, "--kv-host-bytes", "2GiB"]
    found = [device, Place("host", "host", "host", *host, pushed=True)]
    found.append(Place("host-int8", "host, int8", "host", *host, "--kv-codec", "int8", pushed=True))
    found.append(Place("host-full", "host, full device", "host", *host, modules=2))
    for codec, title in (("raw", "disk"), ("int8", "disk, int8")):
        path = os.path.join(folder, f"disk-{codec}")
        arguments = ["--kv-host-bytes", "0", "--kv-disk-path", path, "--kv-codec", codec]
        found.append(Place(f"disk-{codec}", title, "disk", *arguments, disk=path))
    found += [place for place in (redis_place(stack), s3_place(stack)) if place]
    return [*found, Computed(device)]


def measure(options):
    tokens = QUICK_TOKENS if options.quick else TOKENS
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.disk_folder))
        with serving.Server(options, name="tiers-ruler") as server:
            client = Client(server.url)
            cases, question = bench.make_cases(client, [tokens, tokens - 1, FILLER_TOKENS])
            kv_bytes = client.register(cases[0].pml("one"), dry_run="true")["kv_bytes"]
            client.close()
        found = places(stack, folder, kv_bytes)
        for place in found:
            place.start(stack, options)
            place.register(cases)
            place.ask(question)  # the first request meets cold code
            bench.show_progress(f"{place.title}: ready")
        foreign = machine.ForeignLoad()
        for number in range(options.rounds):
            for place in found:
                place.ttft_s.append(place.ask(question).ttft_s)
            bench.show_progress(
                f"round {number + 1} of {options.rounds}: " + ", ".join(f"{p.title} {stats.show_seconds(p.ttft_s[-1])}" for p in found)
            )
        return {
            "machine": machine.describe(), "model": options.model.name, "tokens": tokens, "new_tokens": bench.NEW_TOKENS,
            "kv_bytes": kv_bytes, "rounds": options.rounds, "foreign_cores": round(foreign.cores(), 2),
            "titles": [place.title for place in found], "ttft_s": [place.ttft_s for place in found],
        }  # fmt: skip


HEADER = ["the module lies in", "time to first token", "times the device's"]


def table_rows(result):
    device = result["ttft_s"][0]
    for title, times in zip(result["titles"], result["ttft_s"], strict=True):
        ratios = [time / own for time, own in zip(times, device, strict=True)]
        yield [title, stats.show_spread(stats.spread(times)), f"{statistics.median(ratios):.2f}"]


def markdown(result):
    return "\n".join([
        document.table(HEADER, table_rows(result)), "",
        f"Medians of {result['rounds']} interleaved rounds, in brackets the smallest and the largest; a module of {result['tokens']:,} "
        f"tokens ({result['kv_bytes'] / 2**20:.0f} MiB of KV) and {result['new_tokens']} new ones. {result['model']} on "
        f"{result['machine']}. Meanwhile {result['foreign_cores']} cores were busy with other things.",
    ])  # fmt: skip


def report(result, options):
    print(stats.table(HEADER, table_rows(result)))
    serving.RESULTS.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(result, indent=1) + "\n")
    to_docs = not (options.quick or options.no_docs)
    picture = FIGURE if to_docs else serving.RESULTS / "tiers.png"
    figure.times_by_tier(list(zip(result["titles"], result["ttft_s"], strict=True)), result["tokens"], picture)
    if to_docs:
        document.write_part("tiers", markdown(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    serving.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--disk-folder", help="where the disk tier is measured (default: the system's temporary folder)")
    parser.add_argument("--quick", action="store_true", help="a short module and few rounds; docs/ stays as it is")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/ as it is")
    parser.add_argument("--from-json", action="store_true", help="measure nothing: write docs/ from the last loadtest/results/tiers.json")
    options = parser.parse_args()
    if options.quick:
        options.rounds = min(options.rounds, 3)
    report(json.loads(RECORD.read_text()) if options.from_json else measure(options), options)


if __name__ == "__main__":
    try:
        main()
    except serving.ServerFailed as fault:
        sys.exit(str(fault))
