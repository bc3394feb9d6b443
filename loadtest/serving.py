"""Starts a server, waits until it is ready, and ends it. Also what scripts that start ours have as arguments."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from client import Client, RequestFailed

PROJECT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = PROJECT / "loadtest" / "results"
BINARY = pathlib.Path(os.environ.get("PROMPTCACHED_BINARY", PROJECT / "build" / "promptcached"))
MODEL = pathlib.Path(os.environ.get("PROMPTCACHED_MODEL", PROJECT / "models" / "smollm2-135m-instruct"))


class ServerFailed(Exception):
    pass


def add_arguments(parser):
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY, help="the server (default: PROMPTCACHED_BINARY or this tree's)")
    parser.add_argument("--model", type=pathlib.Path, default=MODEL, help="its model (default: PROMPTCACHED_MODEL or this tree's)")
    parser.add_argument("--server-args", default="", metavar="'ARG …'", help="further arguments of the server, in one string")


class Process:
    """A context manager: within it the server, whichever it is, is ready.

    `command(port)`: what to start. Ready is when GET `ready_path` is answered with 2xx.
    """

    good_exits = (0, -signal.SIGTERM)

    def __init__(self, command, ready_path, environment, name, ready_timeout_s=300):
        self._command, self._ready_path, self._environment = command, ready_path, environment
        self._ready_timeout_s = ready_timeout_s
        RESULTS.mkdir(parents=True, exist_ok=True)
        self.log_path = RESULTS / f"{name}-{os.getpid()}.log"  # kept when something goes wrong
        self.exit_status = None

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that whoever ends the script ends the server
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        with open(self.log_path, "w") as log:
            self._process = subprocess.Popen(
                self._command(port), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment, start_new_session=True
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, fault, *_):
        self.stop()
        if fault is None and self.exit_status in self.good_exits:
            self.log_path.unlink()

    @property
    def pid(self):
        return self._process.pid

    def running(self):
        return self._process.poll() is None

    def stop(self, grace_s=60):
        """SIGTERM, and SIGKILL when that does not help, also to what it started; the exit status is kept."""
        if self.running():
            self._process.send_signal(signal.SIGTERM)
        try:
            self.exit_status = self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.exit_status = self._process.wait()
        with contextlib.suppress(ProcessLookupError):  # there is no such group unless it left someone behind
            os.killpg(self._process.pid, signal.SIGKILL)

    def log_tail(self, lines=15):
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _wait_until_ready(self):
        deadline = time.monotonic() + self._ready_timeout_s
        while time.monotonic() < deadline:
            if not self.running():
                raise ServerFailed(f"the server ended with status {self._process.returncode}:\n{self.log_tail()}")
            client = Client(self.url, timeout_s=5)
            try:
                client.call("GET", self._ready_path)
                return
            except (OSError, RequestFailed):
                time.sleep(0.1)
            finally:
                client.close()
        raise ServerFailed(f"the server was not ready after {self._ready_timeout_s} s:\n{self.log_tail()}")


class Server(Process):
    """Ours."""

    good_exits = (0,)

    def __init__(self, options, *arguments, name="server", ready_timeout_s=300):
        for path, what in ((options.binary, "server: run make build"), (options.model, "model: run make model")):
            if not path.exists():
                raise ServerFailed(f"{path} is not there: no {what}")
        command = [str(options.binary), "--model", str(options.model), *arguments, *options.server_args.split()]
        # The server refuses variables it does not know, and what is measured should depend on the arguments alone.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PROMPTCACHED_")}
        super().__init__(lambda port: [*command, "--listen", f"127.0.0.1:{port}"], "/readyz", environment, name, ready_timeout_s)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
