#!/usr/bin/env python3
"""Write tests/data/gguf/ and the seeds of the GGUF and safetensors fuzz targets with the Python package `gguf`: what the C++ reader is
compared with.

Not part of `make test`: the files are committed. To make them again, in a virtual environment of its own:

    pip install gguf==0.19.0 safetensors==0.8.0 numpy
    python tests/tools/make_gguf.py

Files:
    tests/data/gguf/quants.gguf         a tensor for each number format, under the format's name in lower case
    tests/data/gguf/quants.safetensors  the same tensors in float32, by gguf.quants.dequantize
    tests/fuzz/gguf_corpus/*.gguf       one block of each format; a value of each metadata type
    tests/fuzz/safetensors_corpus/*     a few small tensors
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "gguf"
FUZZ = ROOT / "tests" / "fuzz"

PLAIN = [GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16]
# Where the half-precision factors lie in a block: random bytes there would be infinities and NaNs.
FACTORS = {
    GGMLQuantizationType.Q8_0: [0],
    GGMLQuantizationType.Q4_0: [0],
    GGMLQuantizationType.Q4_1: [0, 2],
    GGMLQuantizationType.Q5_0: [0],
    GGMLQuantizationType.Q5_1: [0, 2],
    GGMLQuantizationType.Q4_K: [0, 2],
    GGMLQuantizationType.Q5_K: [0, 2],
    GGMLQuantizationType.Q6_K: [208],
}
QUANTIZERS = [kind for kind in FACTORS if not kind.name.endswith("_K")]


def factors(rng: np.random.Generator, count: int) -> np.ndarray:
    """Finite half-precision numbers: ordinary ones, then denormals, then both zeros and the largest."""
    bits = rng.integers(0, 0x7C00, count, dtype=np.uint16) | (rng.integers(0, 2, count, dtype=np.uint16) << 15)
    bits[: count // 2] = rng.normal(0, 0.01, count // 2).astype(np.float16).view(np.uint16)
    bits[-count // 4 :] &= 0x83FF
    bits[-5:] = [0x0000, 0x8000, 0x7BFF, 0xFBFF, 0x0001]
    return bits


def random_blocks(rng: np.random.Generator, kind: GGMLQuantizationType, count: int) -> np.ndarray:
    """[count, bytes of a block]: random but for finite factors."""
    blocks = rng.integers(0, 256, (count, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    for offset in FACTORS[kind]:
        blocks[:, offset : offset + 2] = rng.permutation(factors(rng, count)).view(np.uint8).reshape(count, 2)
    return blocks


def plain_numbers(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    numbers = rng.normal(0, 1, (rows, columns)).astype(np.float32)
    numbers[-1] *= np.float32(2.0) ** rng.integers(-30, 15, columns).astype(np.float32)
    numbers[0, :4] = [0.0, -0.0, np.inf, -np.inf]
    return numbers


def quantized_numbers(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Rows that meet every branch of a quantizer: ordinary, zero, constant, tiny, huge."""
    numbers = rng.normal(0, 0.05, (rows, columns)).astype(np.float32)
    numbers[1] = 0
    numbers[2] = 0.25
    numbers[3] *= np.float32(1e-5)
    numbers[-1] *= np.float32(2e5)
    return numbers


def encode(rng: np.random.Generator, kind: GGMLQuantizationType, rows: int, columns: int) -> np.ndarray:
    """[rows, bytes of a row]; half of the rows from numbers where the package can quantize."""
    if kind in PLAIN:
        return quantize(plain_numbers(rng, rows, columns), kind).view(np.uint8)
    size, _ = GGML_QUANT_SIZES[kind]
    if kind not in QUANTIZERS:
        return random_blocks(rng, kind, rows * columns // size).reshape(rows, -1)
    made = quantize(quantized_numbers(rng, rows // 2, columns), kind)
    return np.concatenate([made, random_blocks(rng, kind, made.size // GGML_QUANT_SIZES[kind][1]).reshape(made.shape)])


def write(path: Path, tensors: dict[str, tuple[GGMLQuantizationType, np.ndarray]], metadata) -> None:
    writer = GGUFWriter(path, "test")
    metadata(writer)
    for name, (kind, rows) in tensors.items():
        writer.add_tensor(name, rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_quants() -> None:
    rng = np.random.default_rng(20240401)
    shapes = {1: (2, 96), 32: (10, 128), 256: (4, 768)}  # by the format's block
    tensors = {}
    for kind in [*PLAIN, *FACTORS]:
        tensors[kind.name.lower()] = (kind, encode(rng, kind, *shapes[GGML_QUANT_SIZES[kind][0]]))
    write(DATA / "quants.gguf", tensors, lambda writer: None)
    expected = {name: np.ascontiguousarray(dequantize(rows, kind), np.float32) for name, (kind, rows) in tensors.items()}
    save_file(expected, DATA / "quants.safetensors")


def every_type(writer: GGUFWriter) -> None:
    for kind in GGUFValueType:
        if kind not in (GGUFValueType.ARRAY, GGUFValueType.STRING, GGUFValueType.BOOL):
            writer.add_key_value(f"test.{kind.name.lower()}", 7, kind)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "text")
    writer.add_array("test.strings", ["<s>", "é", ""])
    writer.add_array("test.integers", [1, -2, 3])
    writer.add_array("test.numbers", [0.5, -1.5])
    writer.add_array("test.bools", [True, False])
    writer.add_custom_alignment(8)


def write_seeds() -> None:
    rng = np.random.default_rng(7)
    tensors = {}
    for kind in [*PLAIN, *FACTORS]:
        size, _ = GGML_QUANT_SIZES[kind]
        rows = random_blocks(rng, kind, 8)[:1] if kind in FACTORS else quantize(np.ones((1, 4), np.float32), kind).view(np.uint8)
        tensors[kind.name.lower()] = (kind, rows)
    write(FUZZ / "gguf_corpus" / "formats.gguf", tensors, lambda writer: None)
    write(FUZZ / "gguf_corpus" / "metadata.gguf", {"f32": tensors["f32"]}, every_type)
    seeds = FUZZ / "safetensors_corpus"
    save_file({"a": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float16)}, seeds / "two.safetensors", {"format": "pt"})
    save_file({"empty": np.zeros((0, 3), np.int64), "scalar": np.ones((), np.int8)}, seeds / "odd.safetensors")


if __name__ == "__main__":
    for folder in (DATA, FUZZ / "gguf_corpus", FUZZ / "safetensors_corpus"):
        folder.mkdir(parents=True, exist_ok=True)
    write_quants()
    write_seeds()
