#!/usr/bin/env python3
"""Write the fixtures under tests/data/oracle/ with Hugging Face transformers and tokenizers: what the C++ code is compared with.

Not part of `make test`: the fixtures are committed. To make them again, in a virtual environment of its own:

    pip install torch==2.11.0 transformers==5.24.0 tokenizers==0.23.3 gguf==0.19.0 jinja2==3.1.6 accelerate==1.15.0
    python tests/tools/make_oracle.py [--gguf FILE] [--only SECTION ...]

Sections:
    check       the converted default model equals transformers' own load of the GGUF (needs --gguf; writes nothing)
    model       smollm2-135m-instruct.safetensors: logits and greedy continuations of the default model
    tiny        tiny-*/: random models of a few hundred kB, one per thing a config.json can say, with full logits
    families    family-*/: tiny random models of every architecture (oracle_families.py), with full logits
    tokenizer   tokenizer_corpus.json, metaspace-tokenizer/ and llama2-tokenizer/ with their own corpora
    chat        chat_templates.json: rendered conversations
    chat_families   chat_families.json: the same for templates in the manner of every supported family (oracle_chat_families.py)

All forward passes run in float32 with the eager attention and an explicit additive mask. The mask is explicit even where it is
the plain causal one: without it, transformers takes a jump in position_ids for the start of another, packed sequence.

Tensors of one case `x` in a file (n tokens, p logit rows):
    x.token_ids [n] i64, x.position_ids [n] i64, x.mask [n, n] u8 (1: the row's token sees the column's)
    x.rows [p] i64: which tokens' logits follow
    tiny models:    x.logits [p, vocab] f32
    default model:  x.top_ids [p, 64] i64, x.top_logits [p, 64] f32, x.logsumexp [p] f32, x.last_logits [vocab] f32
                    x.greedy_ids [48] i64: the continuation at last position + 1, which sees every token (plain and holes cases)
                    x.greedy_gaps [48] f32: top-1 minus top-2 logit at each step, to know near ties by
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent))
import oracle_corpus as corpus
from oracle_chat_families import write_chat_families
from oracle_families import write_families

ROOT = Path(__file__).resolve().parents[2]
TOP = 64
GREEDY_TOKENS = 48


def say(message: str) -> None:
    print(f"make_oracle: {message}", flush=True)


# --- forward passes -------------------------------------------------------------------------------------------------------------


def causal(n: int) -> torch.Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril()


@torch.no_grad()
def forward(model, token_ids, position_ids, mask) -> torch.Tensor:
    """Logits [n, vocab] of one sequence under an explicit mask [n, n]."""
    additive = torch.zeros(mask.shape, dtype=torch.float32).masked_fill(~mask, torch.finfo(torch.float32).min)
    output = model(input_ids=token_ids[None], position_ids=position_ids[None], attention_mask=additive[None, None], use_cache=False)
    return output.logits[0].float()


def greedy(model, token_ids, position_ids, mask, count: int):
    """`count` greedy tokens after a sequence, and the gap between the two best logits at each step."""
    ids, gaps = [], []
    for _ in range(count):
        logits = forward(model, token_ids, position_ids, mask)[-1]
        best = torch.topk(logits, 2)
        ids.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        n = len(token_ids)
        token_ids = torch.cat([token_ids, best.indices[:1]])
        position_ids = torch.cat([position_ids, position_ids.max()[None] + 1])
        grown = torch.zeros(n + 1, n + 1, dtype=torch.bool)
        grown[:n, :n] = mask
        grown[n] = True
        mask = grown
    return torch.tensor(ids), torch.tensor(gaps)


def load_model(folder: Path, **options):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **options)
    return model.eval()


# --- the default model ----------------------------------------------------------------------------------------------------------


def check_against_gguf(model_dir: Path, gguf: Path) -> None:
    """The converted directory against transformers' own reading of the GGUF: weights, logits, configuration and token ids."""
    from transformers import AutoTokenizer

    converted = load_model(model_dir)
    native = load_model(gguf.parent, gguf_file=gguf.name)
    ours, theirs = converted.state_dict(), native.state_dict()
    if ours.keys() != theirs.keys():
        sys.exit(f"make_oracle: other tensors: {sorted(ours.keys() ^ theirs.keys())}")
    worst = max((ours[name] - theirs[name]).abs().max().item() for name in ours)
    say(f"check: {len(ours)} tensors, largest weight difference {worst:g}")
    for key in ("rope_parameters", "max_position_embeddings", "num_key_value_heads", "head_dim", "tie_word_embeddings"):
        say(f"check: config {key}: {getattr(converted.config, key)} / {getattr(native.config, key)}")
    if abs(converted.config.rms_norm_eps - native.config.rms_norm_eps) > 1e-11 or worst != 0:
        sys.exit("make_oracle: the converted model differs from the GGUF")

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    reference = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    texts = corpus.tokenizer_corpus()
    different = [text for text in texts if tokenizer(text).input_ids != reference(text).input_ids]
    with_digits = [text for text in different if any(c.isnumeric() for c in text)]
    say(f"check: {len(texts)} texts, {len(different)} with other ids ({len(with_digits)} of them hold digits)")
    for text in different:
        if text not in with_digits:
            say(f"check: other ids without a digit: {text!r}")
    largest = 0.0
    for text in [t for t in texts if len(tokenizer(t).input_ids) > 1][::8]:
        ids = torch.tensor(tokenizer(text).input_ids)[:256]
        positions = torch.arange(len(ids))
        difference = forward(converted, ids, positions, causal(len(ids))) - forward(native, ids, positions, causal(len(ids)))
        largest = max(largest, difference.abs().max().item())
    say(f"check: largest logit difference {largest:g}")
    if largest > 1e-4:
        sys.exit("make_oracle: logits differ")


def module_case(encode):
    """A prompt as PML lays it out: root text, two union members at one position of which one is imported, and new text at the end.

    Both members are in the sequence. Members see the root and themselves, never each other; the new text sees the root and `maui`.
    """
    ids, positions, groups = [], [], []
    root, miami, maui, question = (encode(corpus.PASSAGES[name]) for name in ("root", "miami", "maui", "question"))
    starts = (0, len(root), len(root), len(root) + max(len(miami), len(maui)) + 5)
    for group, (tokens, start) in enumerate(zip((root, miami, maui, question), starts, strict=False)):
        ids += tokens
        positions += range(start, start + len(tokens))
        groups += [group] * len(tokens)
    sees = {0: {0}, 1: {0, 1}, 2: {0, 2}, 3: {0, 2, 3}}
    n = len(ids)
    mask = torch.zeros(n, n, dtype=torch.bool)
    for row in range(n):
        for column in range(row + 1):
            mask[row, column] = groups[column] in sees[groups[row]]
    return torch.tensor(ids), torch.tensor(positions), mask


def write_model(model_dir: Path, out: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    model = load_model(model_dir)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    long_ids = encode(corpus.LONG_TEXT)
    chat = encode("<|im_start|>user\nName three things to see in Lisbon, in one sentence.<|im_end|>\n<|im_start|>assistant\n")
    holes = torch.cat([torch.arange(0, 20), torch.arange(37, 60), torch.arange(128, 149), torch.arange(2000, 2016)])

    cases = {}
    for name, ids in (("short", long_ids[:12]), ("medium", long_ids[:64]), ("long", long_ids[:300]), ("chat", chat)):
        cases[name] = (torch.tensor(ids), torch.arange(len(ids)), causal(len(ids)))
    cases["holes"] = (torch.tensor(long_ids[: len(holes)]), holes, causal(len(holes)))
    cases["modules"] = module_case(encode)

    tensors = {}
    for name, (ids, positions, mask) in cases.items():
        logits = forward(model, ids, positions, mask)
        rows = torch.arange(max(0, len(ids) - 4), len(ids))
        if name == "modules":  # and the last token of each part
            rows = torch.unique(torch.cat([rows, (positions[1:] != positions[:-1] + 1).nonzero().flatten()]))
        top = torch.topk(logits[rows], TOP)
        tensors |= {
            f"{name}.token_ids": ids,
            f"{name}.position_ids": positions,
            f"{name}.mask": mask.to(torch.uint8),
            f"{name}.rows": rows,
            f"{name}.top_ids": top.indices,
            f"{name}.top_logits": top.values,
            f"{name}.logsumexp": torch.logsumexp(logits[rows].double(), -1).float(),
            f"{name}.last_logits": logits[-1].clone(),
        }
        if name != "modules":
            tensors[f"{name}.greedy_ids"], gaps = greedy(model, ids, positions, mask, GREEDY_TOKENS)
            tensors[f"{name}.greedy_gaps"] = gaps
            text = tokenizer.decode(tensors[f"{name}.greedy_ids"].tolist())
            say(f"model: {name}: {len(ids)} tokens, smallest gap {gaps.min():.3f}, {text!r}")
        else:
            say(f"model: {name}: {len(ids)} tokens, rows {rows.tolist()}, next {tokenizer.decode([int(top.indices[-1][0])])!r}")
    # The explicit causal mask is what transformers does by itself for a plain sequence.
    with torch.no_grad():
        plain = model(input_ids=cases["long"][0][None]).logits[0]
    difference = (plain[-1] - tensors["long.last_logits"]).abs().max().item()
    say(f"model: explicit against implicit causal mask: {difference:g}")
    assert difference < 1e-4
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out / "smollm2-135m-instruct.safetensors")


# --- tiny models ----------------------------------------------------------------------------------------------------------------

LLAMA3_SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def tiny_models() -> dict[str, dict]:
    """name -> LlamaConfig fields, and under "_" how the directory is written."""
    base = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, vocab_size=128, max_position_embeddings=512)
    base |= dict(bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5, tie_word_embeddings=True)
    default_rope = {"rope_type": "default", "rope_theta": 10000.0}
    gqa = base | dict(num_attention_heads=6, num_key_value_heads=2, rope_parameters=default_rope)
    mha = base | dict(num_attention_heads=4, num_key_value_heads=4)
    return {
        "tiny-gqa": gqa,
        "tiny-mha-untied": mha | dict(rope_parameters=default_rope, tie_word_embeddings=False, num_hidden_layers=3, intermediate_size=48),
        "tiny-bias": gqa | dict(attention_bias=True, mlp_bias=True),
        "tiny-head-dim": gqa | dict(num_attention_heads=3, num_key_value_heads=1, head_dim=20),
        "tiny-mqa": gqa | dict(num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-3),
        "tiny-rope-linear": mha | dict(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}),
        "tiny-rope-linear-legacy": mha
        | dict(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}, _={"legacy_rope": "type"}),
        "tiny-rope-llama3": gqa | dict(rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0} | LLAMA3_SCALING),
        "tiny-rope-llama3-legacy": gqa
        | dict(rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0} | LLAMA3_SCALING, _={"legacy_rope": "rope_type"}),
        "tiny-sharded": gqa | dict(tie_word_embeddings=False, _={"max_shard_size": "60KB"}),
        "tiny-bf16": gqa | dict(_={"dtype": torch.bfloat16}),
        "tiny-fp16": gqa | dict(_={"dtype": torch.float16}),
    }


def rewrite_rope(folder: Path, kind_key: str) -> None:
    """config.json as transformers 4 wrote it: rope_theta and rope_scaling at the top, the kind under `kind_key`."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {kind_key: rope.pop("rope_type")} | rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_tiny(out: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    for index, (name, fields) in enumerate(tiny_models().items()):
        how = fields.pop("_", {})
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        generator = torch.Generator().manual_seed(1000 + index)
        model = LlamaForCausalLM(LlamaConfig(**fields)).eval()
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                if "norm" in key:
                    parameter.copy_(1 + 0.2 * noise)
                elif key.endswith("bias"):
                    parameter.copy_(0.3 * noise)
                elif "embed" in key or "lm_head" in key:
                    parameter.copy_(0.5 * noise)
                else:
                    parameter.copy_(noise * 1.5 / parameter.shape[-1] ** 0.5)
        model.to(how.get("dtype", torch.float32)).save_pretrained(folder, max_shard_size=how.get("max_shard_size", "5GB"))
        if "legacy_rope" in how:
            rewrite_rope(folder, how["legacy_rope"])
        (folder / "generation_config.json").unlink(missing_ok=True)

        reloaded = load_model(folder)
        stored = model.float().state_dict()
        assert all(torch.equal(stored[key], value) for key, value in reloaded.state_dict().items())
        rope = {key: value for key, value in reloaded.config.rope_parameters.items() if value is not None and key != "type"}
        assert rope == fields["rope_parameters"], (rope, fields["rope_parameters"])

        n = 40
        ids = torch.randint(3, fields["vocab_size"], (n,), generator=generator)
        holes = torch.cat([torch.arange(0, 9), torch.arange(50, 61), torch.arange(50, 58), torch.arange(300, 312)])
        group = torch.tensor([0] * 9 + [1] * 11 + [2] * 8 + [3] * 12)
        mask = causal(n) & ((group[:, None] == group[None]) | (group[None] == 0) | ((group[:, None] == 3) & (group[None] != 1)))
        tensors = {}
        for case, (positions, visible) in {"plain": (torch.arange(n), causal(n)), "holes": (holes, mask)}.items():
            logits = forward(reloaded, ids, positions, visible)
            tensors |= {
                f"{case}.token_ids": ids.clone(),
                f"{case}.position_ids": positions,
                f"{case}.mask": visible.to(torch.uint8),
                f"{case}.rows": torch.arange(n),
                f"{case}.logits": logits,
            }
        save_file(tensors, folder / "oracle.safetensors")
        size = sum(path.stat().st_size for path in folder.iterdir())
        files = ", ".join(sorted(path.name for path in folder.glob("model*")))
        say(f"tiny: {name}: {size / 1000:.0f} kB, logits {logits.min():.1f} ... {logits.max():.1f}; {files}")
        assert size < 300_000


# --- tokenizers -----------------------------------------------------------------------------------------------------------------


def corpus_entries(tokenizer, with_bos: bool) -> list[dict]:
    """ids: control-token spellings are control tokens. plain_ids: they are text. ids_with_bos: after the post-processor.

    decoded and decoded_skip_special are of `ids`, plain_decoded of `plain_ids`.
    """
    entries = []
    for text in corpus.tokenizer_corpus():
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        entry = {"text": text, "ids": ids}
        if with_bos:
            entry["ids_with_bos"] = tokenizer.encode(text, add_special_tokens=True).ids
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        entry |= {
            "plain_ids": plain,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True),
            "plain_decoded": tokenizer.decode(plain, skip_special_tokens=False),
        }
        entries.append(entry)
    return entries


def write_entries(path: Path, entries: list[dict]) -> None:
    """One entry a line, ASCII only, so that diffs and editors cope with every character."""
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    path.write_text(f"[\n{lines}\n]\n")
    differ = sum(entry["ids"] != entry["plain_ids"] for entry in entries)
    lossy = sum(entry["plain_decoded"] != entry["text"] for entry in entries)
    say(f"tokenizer: {path.parent.name}/{path.name}: {len(entries)} texts, {differ} with control tokens, {lossy} not round-tripping")


def sentencepiece_like(style: str):
    """A small BPE tokenizer with byte fallback and a bos, in the two forms such tokenizers have in tokenizer.json.

    metaspace: a Metaspace pre-tokenizer. llama2: a normalizer that prepends and replaces, and no pre-tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    special = ["<unk>", "<s>", "</s>"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special + byte_tokens, show_progress=False)
    trained.train_from_iterator(corpus.TRAINING_TEXT.splitlines(), trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in model["merges"]]

    tokenizer = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if style == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def write_tokenizers(model_dir: Path, out: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    write_entries(out / "tokenizer_corpus.json", corpus_entries(tokenizer, with_bos=False))
    for style in ("metaspace", "llama2"):
        folder = out / f"{style}-tokenizer"
        folder.mkdir(exist_ok=True)
        tokenizer = sentencepiece_like(style)
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        config = {
            "add_bos_token": True,
            "add_eos_token": False,
            "bos_token": "<s>",
            "chat_template": corpus.TEMPLATES["inst"],
            "clean_up_tokenization_spaces": False,
            "eos_token": "</s>",
            "model_max_length": 512,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
        write_entries(folder / "corpus.json", corpus_entries(tokenizer, with_bos=True))


# --- chat templates -------------------------------------------------------------------------------------------------------------


def write_chat(model_dir: Path, out: Path) -> None:
    """Conversations rendered by transformers: "default" with the model's own template, the others with one given in the entry.

    An entry has either "rendered" (and, for the default model, "ids") or "error": true, where the template refuses.
    """
    from jinja2.exceptions import TemplateError
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    entries = []
    for template_name, template in {"default": None, **corpus.TEMPLATES}.items():
        for name, messages in corpus.MESSAGES.items():
            for generation in (False, True):
                entry = {"template": template_name, "name": name, "add_generation_prompt": generation, "messages": messages}
                arguments = dict(chat_template=template, add_generation_prompt=generation)
                try:
                    entry["rendered"] = tokenizer.apply_chat_template(messages, tokenize=False, **arguments)
                except TemplateError:
                    entry["error"] = True
                if template is None:
                    entry["ids"] = list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **arguments))
                entries.append(entry)
    tokens = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    templates = {"default": tokenizer.chat_template, **corpus.TEMPLATES}
    text = json.dumps({"special_tokens": tokens, "templates": templates, "cases": entries}, indent=1)
    (out / "chat_templates.json").write_text(text + "\n")
    say(f"chat: {len(entries)} conversations, {sum('error' in entry for entry in entries)} refused")


def main() -> None:
    sections = ("check", "model", "tiny", "families", "tokenizer", "chat", "chat_families")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2-135m-instruct", help="the converted default model")
    parser.add_argument("--gguf", type=Path, help="the GGUF it was made from, for the check")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "data" / "oracle")
    parser.add_argument("--only", nargs="+", choices=sections, default=sections)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    if "check" in options.only:
        if options.gguf is None:
            say("check: skipped, no --gguf")
        else:
            check_against_gguf(options.model, options.gguf)
    if "model" in options.only:
        write_model(options.model, options.out)
    if "tiny" in options.only:
        write_tiny(options.out)
    if "families" in options.only:
        write_families(options.out, causal, say)
    if "tokenizer" in options.only:
        write_tokenizers(options.model, options.out)
    if "chat" in options.only:
        write_chat(options.model, options.out)
    if "chat_families" in options.only:
        write_chat_families(options.out, say)
    for path in options.out.rglob("*.*"):
        if path.is_file():
            path.chmod(0o644)


if __name__ == "__main__":
    main()
