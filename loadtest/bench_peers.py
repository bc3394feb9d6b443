#!/usr/bin/env python3
"""Our server and others on the same workloads, interleaved: the comparison of docs/benchmarks.md.

In every round each server is started, warmed, measured and stopped, one after the other; the order rotates. Ratios are taken within
a round. What the workloads are is told in peers/loads.py. Peers are installed when they are first asked for, into build/peers/; one
that cannot be installed, or fails, is reported and left out.

All of it takes an hour and more on two cores. It can be done in pieces: whatever was measured is in loadtest/results/peers-SESSION.json
at once, and a run with the same --session measures what is missing there. --report puts sessions together.

Examples:
  bench_peers.py --peers llamacpp-f16-nofa --rounds 1 --workload w2 w3 --no-docs
  bench_peers.py --session one --rounds 5 --workload cold w2 decode     and later
  bench_peers.py --session one --rounds 5
  bench_peers.py --report loadtest/results/peers-one.json loadtest/results/peers-two.json

Writes docs/benchmarks.md (between its markers) and docs/images/peers.png, but not with --quick or --no-docs.
"""

import argparse
import itertools
import json
import pathlib
import sys
import time

import document
import figure
import machine
import serving
from client import RequestFailed
from peers import alone, loads, report, servers

FIGURE = serving.PROJECT / "docs" / "images" / "peers.png"
PEERS = ["llamacpp-f16", "llamacpp-f16-nofa", "vllm"]
ALONE = {"reuse": alone.reuse, "sharing": alone.sharing, "rest": alone.rest}
WORKLOADS = [*loads.MAKERS, *ALONE]  # in this order: what finds nothing comes before what finds it
QUICK_WORKLOADS = ["w3", "rest"]


class Session:
    """The runs so far, in a file that is written after each."""

    def __init__(self, path, options):
        self.path = path
        self._found = json.loads(path.read_text()) if path.exists() else {"runs": []}
        self._found.update({"machine": machine.describe(), "model": options.model.name})

    def name_servers(self, chosen):
        for key, value in (("versions", lambda s: s.version()), ("titles", lambda s: s.title)):
            self._found.setdefault(key, {}).update({server.name: value(server) for server in chosen})

    def has(self, number, server, workload):
        return any((run["round"], run["server"], run["workload"]) == (number, server.name, workload) for run in self._found["runs"])

    def add(self, number, server, workload, **measured):
        self._found["runs"].append({"round": number, "server": server.name, "workload": workload, **measured})
        serving.RESULTS.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self._found, indent=1) + "\n")
        partial.replace(self.path)


def say(text):
    print(text, file=sys.stderr, flush=True)


class Benchmark:
    def __init__(self, session, options):
        self._session, self._options = session, options
        ours, known = [servers.Ours(options), servers.OursPlain(options)], servers.peers(options)
        ours[0].prepare()
        self._servers = [*ours, *(known[name] for name in options.peers if self._prepared(known[name]))]
        session.name_servers(self._servers)

    @staticmethod
    def _prepared(server):
        try:
            server.prepare()
            return True
        except serving.ServerFailed as fault:
            say(f"{server.title} is left out: {fault}")
            return False

    def run(self):
        for number in range(self._options.rounds):
            for server in rotated(list(self._servers), number):
                try:
                    self._measure(number, server)
                except (serving.ServerFailed, RequestFailed, OSError) as fault:
                    say(f"{server.title} is left out from now on: {fault}")
                    self._servers.remove(server)

    def _measure(self, number, server):
        asked = [name for name in self._options.workload if server.workloads is None or name in server.workloads]
        missing = [name for name in asked if not self._session.has(number, server, name)]
        chosen = [loads.load(name, number, self._options.requests) for name in missing if name in loads.MAKERS]
        for slots, group in itertools.groupby(chosen, key=server.slots):
            with server.start(slots) as started:
                server.warm_up(started.url)
                for load in group:
                    self._send(number, server, started, load)
        if server.name == report.OURS:
            for name in (name for name in ALONE if name in missing):
                self._measure_alone(number, server, name)

    def _send(self, number, server, started, load):
        foreign = machine.ForeignLoad()
        records = server.send(started.url, load)
        resident = sum(machine.resident_bytes(pid) or 0 for pid in machine.tree(started.pid))
        cores = round(foreign.cores(), 2)
        self._session.add(number, server, load["workload"], records=records, foreign_cores=cores, resident_bytes=resident)
        self._tell(number, server, load["workload"], cores)

    def _measure_alone(self, number, server, name):
        with server.start_by_default() if name == "rest" else server.start(0) as started:
            if name != "rest":  # which is of a server that has done nothing yet
                server.warm_up(started.url)
            foreign = machine.ForeignLoad()
            values = ALONE[name](started)
            cores = round(foreign.cores(), 2)
            self._session.add(number, server, name, values=values, foreign_cores=cores)
        self._tell(number, server, name, cores)

    def _tell(self, number, server, workload, foreign_cores):
        say(f"round {number + 1} of {self._options.rounds}: {server.title}, {workload}; {foreign_cores:.2f} cores busy with other things")


def rotated(items, by):
    by %= len(items) or 1
    return items[by:] + items[:by]


def write_report(paths, to_docs):
    comparison = report.Comparison([json.loads(path.read_text()) for path in paths])
    print(report.plain(comparison))
    picture = FIGURE if to_docs else serving.RESULTS / "peers.png"
    rows = report.figure_rows(comparison)
    if rows:
        figure.times_better(rows, picture)
    if to_docs:
        document.write_part("peers", report.markdown(comparison))
    say(f"{'docs/benchmarks.md and ' if to_docs else ''}{picture.relative_to(serving.PROJECT) if rows else 'no figure'}")


def peer_list(text):
    return [name for name in text.split(",") if name]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    serving.add_arguments(parser)
    parser.add_argument("--peers", type=peer_list, default=PEERS, help=f"default: {','.join(PEERS)}; '' for none")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=WORKLOADS, metavar="NAME", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, help=f"of w1, w2 and w3 in each round (default: {loads.PER_ROUND})")
    parser.add_argument("--session", default=time.strftime("%Y%m%d-%H%M%S"), help="measure what this session lacks (default: a new one)")
    parser.add_argument("--report", type=pathlib.Path, nargs="+", metavar="FILE", help="measure nothing: the tables of these sessions")
    parser.add_argument("--quick", action="store_true", help="a minute or two to see that it works; docs/ stays as it is")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/ as it is")
    options = parser.parse_args()
    unknown = set(options.peers) - set(PEERS)
    if unknown:
        parser.error(f"there is no peer {', '.join(sorted(unknown))}: {', '.join(PEERS)}")
    if options.quick:
        options.rounds, options.requests, options.workload = 1, 1, QUICK_WORKLOADS
    options.workload = [name for name in WORKLOADS if name in options.workload]
    return options


def main():
    options = arguments()
    to_docs = not (options.quick or options.no_docs)
    if options.report:
        write_report(options.report, to_docs)
        return
    session = Session(serving.RESULTS / f"peers-{options.session}.json", options)
    Benchmark(session, options).run()
    if session.path.exists():
        say(f"{session.path.relative_to(serving.PROJECT)}")
        write_report([session.path], to_docs)


if __name__ == "__main__":
    try:
        main()
    except serving.ServerFailed as fault:
        sys.exit(str(fault))
