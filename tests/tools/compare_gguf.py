#!/usr/bin/env python3
"""Compare greedy answers of the server, on a GGUF file, with transformers' on the same file.

Not part of `make test`, for it wants a model of some size at hand. In a virtual environment of its own:

    pip install gguf==0.19.0 torch==2.11.0 transformers==5.24.0
    python tests/tools/compare_gguf.py MODEL.gguf [BINARY]

Printed: each answer, and how many of its tokens are transformers' own choice; where they part, the gap between transformers' two best
logits. The exit status is 1 when they part other than at a near tie.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

NEAR_TIE = 0.15
TOKENS = 32
QUESTIONS = [  # for a model with a chat template
    "What is the capital of France?",
    "Name three fruits.",
    "Write one sentence about the sea.",
    "What is 7 plus 5?",
    "Translate 'good morning' into Spanish.",
    "Why is the sky blue?",
]
BEGINNINGS = [  # for one without
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "Water boils at a temperature of",
    "def fibonacci(n):",
    "Die Hauptstadt von Italien ist",
    "The three primary colours are",
]


def post(url: str, kind: str, body: str) -> dict:
    request = urllib.request.Request(url, body.encode(), {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/readyz"):
            return True
    except urllib.error.HTTPError:
        return False


def start(binary: str, model: Path, log: Path) -> tuple[subprocess.Popen, str]:
    arguments = [binary, "--model", str(model), "--listen", "127.0.0.1:0", "--kv-device-bytes", "256MiB"]
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=output)
    while not (found := re.search(r"listening on (http://\S+)", log.read_text())):
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    while not is_ready(found.group(1)):
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
    return process, found.group(1)


def answer(url: str, text: str, is_chat: bool) -> dict:
    prompt = f"<prompt schema='compare'>{f'<user>{text}</user>' if is_chat else text}</prompt>"
    body = {"prompt": prompt, "stream": False, "temperature": 0, "max_tokens": TOKENS, "logprobs": 1, "add_generation_prompt": is_chat}
    return post(url + "/generate", "application/json", json.dumps(body))


def prompt_ids_of(tokenizer, text: str, is_chat: bool) -> list[int]:
    if is_chat:
        return tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)["input_ids"]
    return tokenizer(text)["input_ids"]


@torch.no_grad()
def compare(model, prompt_ids: list[int], ids: list[int]) -> tuple[int, float]:
    """How many tokens are the model's own choice, from the first on; and its gap where they part (infinite if they do not)."""
    logits = model(torch.tensor([prompt_ids + ids])).logits[0, len(prompt_ids) - 1 : -1]
    for index, token in enumerate(ids):
        if int(logits[index].argmax()) != token:
            return index, float(logits[index].max() - logits[index][token])
    return len(ids), float("inf")


def main() -> None:
    path = Path(sys.argv[1]).resolve()
    binary = sys.argv[2] if len(sys.argv) > 2 else "build/promptcached"
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    is_chat = tokenizer.chat_template is not None
    parted = 0
    with tempfile.TemporaryDirectory() as folder:
        process, url = start(binary, path, Path(folder) / "log")
        try:
            post(url + "/schemas", "application/xml", "<schema name='compare'/>")
            for text in QUESTIONS if is_chat else BEGINNINGS:
                found = answer(url, text, is_chat)
                prompt_ids = prompt_ids_of(tokenizer, text, is_chat)
                assert len(prompt_ids) == found["usage"]["prompt_tokens"], (prompt_ids, found["usage"])
                ids = [token["token_id"] for token in found["tokens"]]
                same, gap = compare(model, prompt_ids, ids)
                parted += gap != float("inf") and gap > NEAR_TIE
                print(f"{same} of {len(ids)} tokens agree{'' if same == len(ids) else f', gap {gap:.3f}'}: {text!r} -> {found['text']!r}")
        finally:
            process.terminate()
            process.wait(30)
    sys.exit(1 if parted else 0)


if __name__ == "__main__":
    main()
