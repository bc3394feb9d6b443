#!/usr/bin/env python3
"""Write tiny random models as GGUF files into tests/data/gguf/models/, and beside each transformers' logits of the model it was made from.

Not part of `make test`: the files are committed. To make them again, in a virtual environment of its own:

    pip install gguf==0.19.0 torch==2.11.0 transformers==5.24.0
    python tests/tools/make_gguf_models.py

Names, orders of rows and norms are those of llama.cpp's conversion. That they are is checked by transformers, which read each file back
and must compute the same logits.
"""

from __future__ import annotations

from pathlib import Path

import torch
from gguf import GGUFWriter, TokenType
from oracle_families import VOCABULARY, logits_of, model_class, randomize
from safetensors.torch import save_file

OUT = Path(__file__).resolve().parents[1] / "data" / "gguf" / "models"

OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA_LAYER = LAYER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def models() -> dict[str, tuple[str, dict]]:
    """general.architecture -> (transformers' configuration class without Config, fields)."""
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=VOCABULARY, max_position_embeddings=512)
    sizes |= dict(num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    gemma = sizes | dict(
        hidden_size=48, head_dim=16, num_attention_heads=3, num_key_value_heads=1, query_pre_attn_scalar=16, sliding_window=11
    )
    return {
        "llama": ("Llama", sizes),
        "qwen2": ("Qwen2", sizes | dict(tie_word_embeddings=True)),
        "qwen3": ("Qwen3", sizes | dict(head_dim=20)),
        "gemma2": ("Gemma2", gemma),
        "gemma3": ("Gemma3Text", gemma | dict(num_hidden_layers=6)),
        "phi3": ("Phi3", sizes | dict(sliding_window=9)),
    }


def rearranged(architecture: str, config, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """As llama.cpp's conversion leaves it: Llama's rotated rows pair by pair, Gemma's norms with the one added."""
    if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
        heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
        by_half = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
        return by_half.swapaxes(1, 2).reshape(tensor.shape)
    return tensor + 1 if architecture.startswith("gemma") and "norm" in name else tensor


def gguf_name(architecture: str, name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in OUTER:
        return f"{OUTER[stem]}.{kind}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{(GEMMA_LAYER if architecture.startswith('gemma') else LAYER)[rest]}.{kind}"


def write(path: Path, architecture: str, model) -> None:
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(1e6 if architecture == "gemma3" else 1e4)
    writer.add_rope_dimension_count(head_dim)
    if getattr(config, "sliding_window", None) and architecture not in ("llama", "qwen2", "qwen3"):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([chr(33 + index) for index in range(VOCABULARY)])
    writer.add_token_types([int(TokenType.NORMAL)] * VOCABULARY)
    writer.add_token_merges([])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            writer.add_tensor(gguf_name(architecture, name), rearranged(architecture, config, name, tensor).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def cases() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Positions, and who sees whom: plain text; and three parts, the third of which sees the first alone."""
    n = 30
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    group = torch.tensor([0] * 10 + [1] * 10 + [2] * 10)
    holes = torch.cat([torch.arange(0, 10), torch.arange(20, 30), torch.arange(40, 50)])
    return {"plain": (torch.arange(n), causal), "holes": (holes, causal & ((group[:, None] == group[None]) | (group[None] == 0)))}


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for index, (architecture, (config_name, fields)) in enumerate(models().items()):
        model_type, config_type = model_class(config_name)
        config = config_type(**fields, attn_implementation="eager")
        generator = torch.Generator().manual_seed(7000 + index)
        model = model_type(config).eval()
        randomize(model, generator)
        path = OUT / f"{architecture}.gguf"
        write(path, architecture, model)
        read_back = model_type.from_pretrained(OUT, gguf_file=path.name, config=config, dtype=torch.float32).eval()
        tensors = {}
        for case, (positions, visible) in cases().items():
            ids = torch.randint(3, VOCABULARY, (len(positions),), generator=generator)
            logits = logits_of(model, ids, positions, visible)
            assert (logits_of(read_back, ids, positions, visible) - logits).abs().max() < 1e-4, architecture
            tensors |= {
                f"{case}.token_ids": ids,
                f"{case}.position_ids": positions,
                f"{case}.mask": visible.to(torch.uint8),
                f"{case}.rows": torch.arange(len(positions)),
                f"{case}.logits": logits.contiguous(),
            }
        save_file(tensors, OUT / f"{architecture}.safetensors")
        print(f"make_gguf_models: {architecture}: {path.stat().st_size / 1000:.0f} kB, logits {logits.min():.1f} … {logits.max():.1f}")


if __name__ == "__main__":
    main()
