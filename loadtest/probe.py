"""Asks /healthz at a steady pace, on a new connection each time as supervisors do, until standard input ends.

A process of its own, so that what the load does to the load generator's interpreter does not look like the server's doing. Prints
one JSON list at the end: [second, seconds taken, error or null] for each probe.
"""

import json
import select
import signal
import subprocess
import sys
import time

from client import Client, RequestFailed


class HealthProbe:
    """Runs this file, from when it is made until stop()."""

    def __init__(self, url, every_s):
        command = [sys.executable, __file__, url, str(every_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self):
        """[(second, seconds taken, error or None)]"""
        out, _ = self._process.communicate()
        return [tuple(probe) for probe in json.loads(out)]


def probe(url):
    """Seconds taken, and the error if there was one."""
    sent = time.perf_counter()
    client = Client(url, timeout_s=10)
    try:
        client.call("GET", "/healthz")
        return time.perf_counter() - sent, None
    except (OSError, RequestFailed) as fault:
        return time.perf_counter() - sent, f"{type(fault).__name__}: {fault}"
    finally:
        client.close()


def main(url, every_s):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us
    began, probes, due = time.perf_counter(), [], 0.0
    while True:
        probes.append((round(time.perf_counter() - began, 2), *probe(url)))
        due = max(due + every_s, time.perf_counter() - began)
        pause = due - (time.perf_counter() - began)
        if select.select([sys.stdin], [], [], max(0.0, pause))[0]:
            break
    json.dump(probes, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
