#!/usr/bin/env python3
"""Write small SentencePiece vocabularies as GGUF files into tests/data/gguf/, and beside each what its tokenizer makes of texts.

Not part of `make test`: the files are committed. To make them again, in a virtual environment of its own:

    pip install gguf==0.19.0 sentencepiece==0.2.3 torch==2.11.0 transformers==5.24.0
    python tests/tools/make_gguf_tokenizer.py

Files, each with a .json of [{"text": …, "ids": […]}]:
    spm-llama.gguf  as Llama 2's: a space in front of the text; ids by SentencePiece itself
    spm-gemma.gguf  as Gemma 2's: none, and user-defined tokens for runs of spaces and line ends; ids by transformers, which read the
                    file as Gemma's own tokenizer.json does (SentencePiece cuts runs of spaces otherwise)
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import sentencepiece
from gguf import GGUFWriter, TokenType
from oracle_corpus import TRAINING_TEXT

DATA = Path(__file__).resolve().parents[1] / "data"
OUT = DATA / "gguf"
SPACE = "\u2581"
HIDDEN = 4


def train(vocab_size: int, **options) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING_TEXT.splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.98,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def kind_of(model: sentencepiece.SentencePieceProcessor, index: int, user_defined: set[str]) -> TokenType:
    if model.is_unknown(index):
        return TokenType.UNKNOWN
    if model.is_control(index):
        return TokenType.CONTROL
    if model.is_byte(index):
        return TokenType.BYTE
    return TokenType.USER_DEFINED if model.id_to_piece(index) in user_defined else TokenType.NORMAL


def write(path: Path, architecture: str, model: sentencepiece.SentencePieceProcessor, user_defined: list[str], space_prefix: bool) -> None:
    """As llama.cpp's converter writes a SentencePiece model: user-defined tokens with spaces for their marks, and scores of -1000."""
    size = model.get_piece_size()
    kinds = [kind_of(model, index, set(user_defined)) for index in range(size)]
    tokens, scores = [], []
    for index, kind in enumerate(kinds):
        piece = model.id_to_piece(index)
        tokens.append(piece.replace(SPACE, " ") if kind == TokenType.USER_DEFINED else piece)
        scores.append(-1000.0 if kind in (TokenType.USER_DEFINED, TokenType.CONTROL) else model.get_score(index))
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_unk_token_id(model.unk_id())
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(space_prefix)
    writer.add_tensor("token_embd.weight", np.zeros((size, HIDDEN), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def texts() -> list[str]:
    corpus = json.loads((DATA / "oracle" / "llama2-tokenizer" / "corpus.json").read_text(encoding="utf-8"))
    found = [entry["text"] for entry in corpus if len(entry["text"]) < 2000]
    runs = [f"a{' ' * n}b{chr(10) * n}c\t" for n in range(1, 12)]
    return found + runs + [" " * n for n in range(1, 12)] + ["<table> <td>1</td></table>", "<s>", "<0x0A>", f"{SPACE}{SPACE}x"]


def write_ids(path: Path, ids) -> None:
    lines = [json.dumps({"text": text, "ids": ids(text)}, ensure_ascii=False) for text in texts()]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def make_llama() -> None:
    model = train(700)
    write(OUT / "spm-llama.gguf", "llama", model, [], space_prefix=True)
    write_ids(OUT / "spm-llama.json", model.encode)


def make_gemma() -> None:
    from transformers import AutoTokenizer

    user_defined = ["\n" * n for n in range(1, 6)] + [SPACE * n for n in range(2, 8)] + ["<table>", "</table>", "<td>", "</td>"]
    ids = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "pad_piece": "<pad>", "eos_piece": "<eos>", "bos_piece": "<bos>"}
    model = train(700, add_dummy_prefix=False, user_defined_symbols=user_defined, **ids)
    write(OUT / "spm-gemma.gguf", "gemma2", model, user_defined, space_prefix=False)
    tokenizer = AutoTokenizer.from_pretrained(OUT, gguf_file="spm-gemma.gguf")
    write_ids(OUT / "spm-gemma.json", lambda text: tokenizer(text, add_special_tokens=False)["input_ids"])


if __name__ == "__main__":
    make_llama()
    make_gemma()
