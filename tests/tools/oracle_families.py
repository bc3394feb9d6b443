"""Tiny random models of every architecture, with transformers' logits: the section `families` of make_oracle.py.

Two things transformers cannot be asked for from outside, and get from here: ALiBi biases taken from position IDs (BLOOM, MPT and Falcon
take them from indices), and sliding windows measured in positions under an explicit mask.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import save_file

VOCABULARY = 96
LONG_FACTORS = [1.0, 2.0, 3.5, 6.0]


def families() -> dict[str, tuple[str, dict]]:
    """name -> (architecture without ForCausalLM's config class, fields)."""
    llama = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, vocab_size=VOCABULARY, max_position_embeddings=512)
    llama |= dict(num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    gemma = llama | dict(hidden_size=48, head_dim=16, num_attention_heads=3, num_key_value_heads=1)
    neox = {key: value for key, value in llama.items() if key != "num_key_value_heads"}
    opt = {key: value for key, value in neox.items() if key != "intermediate_size"} | dict(ffn_dim=64, word_embed_proj_dim=32)
    falcon = {key: value for key, value in neox.items() if key != "intermediate_size"} | dict(num_attention_heads=4)
    mpt = dict(d_model=48, n_heads=6, n_layers=2, max_seq_len=512, vocab_size=VOCABULARY)
    bloom = dict(hidden_size=48, n_head=6, n_layer=2, vocab_size=VOCABULARY, seq_length=512)
    gpt2 = dict(n_embd=32, n_head=2, n_layer=2, n_positions=512, n_inner=64, vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2)
    long_rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": LONG_FACTORS}
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64}
    sliding = {"rope_type": "default", "rope_theta": 10000.0}
    full = {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}
    return {
        "family-llama-yarn": ("Llama", llama | dict(rope_parameters=yarn)),
        "family-llama-dynamic": ("Llama", llama | dict(rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0})),
        "family-mistral": ("Mistral", llama | dict(sliding_window=9, head_dim=8)),
        "family-qwen2": ("Qwen2", llama | dict(num_attention_heads=6, num_key_value_heads=3, hidden_size=48, tie_word_embeddings=True)),
        "family-qwen2-window": ("Qwen2", llama | dict(use_sliding_window=True, sliding_window=7, max_window_layers=1, num_hidden_layers=3)),
        "family-qwen3": ("Qwen3", llama | dict(head_dim=20)),
        "family-gemma": ("Gemma", gemma),
        "family-gemma2": (
            "Gemma2",
            gemma | dict(query_pre_attn_scalar=24, sliding_window=11, num_hidden_layers=3, attn_logit_softcapping=5.0),
        ),
        "family-gemma3": (
            "Gemma3Text",
            gemma
            | dict(query_pre_attn_scalar=20, sliding_window=9, num_hidden_layers=3)
            | dict(layer_types=["sliding_attention", "sliding_attention", "full_attention"])
            | dict(rope_parameters={"sliding_attention": sliding, "full_attention": full}),
        ),
        "family-phi3-longrope": (
            "Phi3",
            llama | dict(rope_parameters=long_rope, original_max_position_embeddings=16, num_key_value_heads=4, tie_word_embeddings=True),
        ),
        "family-phi3-window": ("Phi3", llama | dict(sliding_window=10, rope_parameters={**sliding, "partial_rotary_factor": 0.5})),
        "family-opt": ("OPT", opt),
        "family-opt-plain": ("OPT", opt | dict(enable_bias=False, num_attention_heads=1, tie_word_embeddings=False)),
        "family-falcon-7b": ("Falcon", falcon | dict(hidden_size=36, num_attention_heads=3)),
        "family-falcon-40b": ("Falcon", falcon | dict(new_decoder_architecture=True, num_kv_heads=2)),
        "family-falcon-11b": ("Falcon", falcon | dict(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, bias=True)),
        "family-falcon-rw": (
            "Falcon",
            falcon | dict(alibi=True, multi_query=False, parallel_attn=False, bias=True, num_attention_heads=8),
        ),
        "family-mpt": ("Mpt", mpt),
        "family-mpt-clip": ("Mpt", mpt | dict(n_heads=4, attn_config={"clip_qkv": 0.8, "softmax_scale": 0.4})),
        "family-gpt2": ("GPT2", gpt2),
        "family-neox": ("GPTNeoX", neox),
        "family-neox-sequential": ("GPTNeoX", neox | dict(use_parallel_residual=False, rotary_pct=1.0, hidden_act="gelu_new")),
        "family-bloom": ("Bloom", bloom),
        "family-mpt-80": ("Mpt", mpt | dict(d_model=80, n_heads=1, n_layers=1)),
        "family-bloom-96": ("Bloom", bloom | dict(hidden_size=96, n_head=1, n_layer=1)),
        "family-starcoder2": ("Starcoder2", llama | dict(sliding_window=12)),
    }


def model_class(config_name: str):
    import transformers

    names = {"Gemma3Text": "Gemma3ForCausalLM", "GPT2": "GPT2LMHeadModel"}
    return getattr(transformers, names.get(config_name, f"{config_name}ForCausalLM")), getattr(transformers, f"{config_name}Config")


def windowed(mask: torch.Tensor, positions: torch.Tensor, window: int) -> torch.Tensor:
    return mask & (positions[:, None] - positions[None] < window)


def additive(mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)[None, None]


@contextlib.contextmanager
def alibi_by_position(model, positions, mask):
    """Makes an ALiBi model take distances from positions, and its mask as it is."""
    kind = type(model.config).__name__.removesuffix("Config").lower()
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(module, "create_causal_mask", lambda **_: additive(mask)))
        if kind == "mpt":
            original = module.build_mpt_alibi_tensor
            pair = original(model.config.n_heads, 2, alibi_bias_max=model.config.attn_config.alibi_bias_max)
            slopes = (pair[..., 1] - pair[..., 0]).reshape(-1, 1, 1)
            stack.enter_context(mock.patch.object(type(model.transformer), "build_mpt_alibi_tensor", lambda *_, **__: slopes * positions))
        else:
            pair = module.build_alibi_tensor(torch.ones(1, 2), model.config.num_attention_heads, torch.float32)
            slopes = (pair[..., 1] - pair[..., 0]).reshape(-1, 1, 1)
            owner = model.transformer if kind == "bloom" else module
            stack.enter_context(mock.patch.object(owner, "build_alibi_tensor", lambda *_, **__: slopes * positions))
        yield


@torch.no_grad()
def logits_of(model, ids, positions, mask) -> torch.Tensor:
    config = model.config
    if getattr(config, "alibi", False) or type(config).__name__ in ("BloomConfig", "MptConfig"):
        with alibi_by_position(model, positions, mask):
            # With a mask, if of nothing: without one BLOOM computes its biases from indices right away.
            return model(input_ids=ids[None], attention_mask=torch.ones(1, len(ids)), use_cache=False).logits[0].float()
    attention_mask = additive(mask)
    window = getattr(config, "sliding_window", None)
    if window and (getattr(config, "layer_types", None) and type(config).__name__ != "MistralConfig"):
        attention_mask = {"full_attention": additive(mask), "sliding_attention": additive(windowed(mask, positions, window))}
    elif window:
        attention_mask = additive(windowed(mask, positions, window))
    return model(input_ids=ids[None], position_ids=positions[None], attention_mask=attention_mask, use_cache=False).logits[0].float()


def randomize(model, generator) -> None:
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = "norm" in key or ".ln" in key or "ln_" in key
            if key.endswith("bias"):
                parameter.copy_(0.3 * noise)
            elif is_norm and type(model.config).__name__.startswith("Gemma"):
                parameter.copy_(0.2 * noise)
            elif is_norm:
                parameter.copy_(1 + 0.2 * noise)
            elif "embed" in key or "wte" in key or "wpe" in key or "lm_head" in key:
                parameter.copy_(0.5 * noise)
            else:
                parameter.copy_(noise * 1.2 / parameter.shape[-1] ** 0.5)


def write_families(out: Path, causal, say) -> None:
    n = 40
    holes = torch.cat([torch.arange(0, 9), torch.arange(20, 31), torch.arange(20, 28), torch.arange(40, 52)])
    group = torch.tensor([0] * 9 + [1] * 11 + [2] * 8 + [3] * 12)
    mask = causal(n) & ((group[:, None] == group[None]) | (group[None] == 0) | ((group[:, None] == 3) & (group[None] != 1)))
    for index, (name, (config_name, fields)) in enumerate(families().items()):
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        model_type, config_type = model_class(config_name)
        generator = torch.Generator().manual_seed(5000 + index)
        model = model_type(config_type(**fields)).eval()
        randomize(model, generator)
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        # Falcon's eager attention adds ALiBi's biases twice: to the scores, and as part of the mask.
        attention = "sdpa" if fields.get("alibi") else "eager"
        loaded = model_type.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
        ids = torch.randint(3, VOCABULARY, (n,), generator=generator)
        tensors = {}
        for case, (positions, visible) in {"plain": (torch.arange(n), causal(n)), "holes": (holes, mask)}.items():
            logits = logits_of(loaded, ids, positions, visible)
            tensors |= {
                f"{case}.token_ids": ids.clone(),
                f"{case}.position_ids": positions,
                f"{case}.mask": visible.to(torch.uint8),
                f"{case}.rows": torch.arange(n),
                f"{case}.logits": logits.contiguous(),
            }
        with torch.no_grad():  # what transformers does by itself
            own = loaded(input_ids=ids[None], use_cache=False).logits[0]
        difference = (own - tensors["plain.logits"]).abs().max().item()
        save_file(tensors, folder / "oracle.safetensors")
        size = sum(path.stat().st_size for path in folder.iterdir())
        say(f"families: {name}: {size / 1000:.0f} kB, logits {own.min():.1f} ... {own.max():.1f}, by itself {difference:.1g}")
        assert difference < 1e-4 and size < 600_000, name
