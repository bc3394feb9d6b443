//! Token spellings back to bytes.
//!
//! The `tokenizers` crate decodes to `String`, so a token that holds half a character has already become U+FFFD when
//! it comes back. A stream needs the bytes themselves, to tell a character that is still coming from one that is
//! broken. This module runs the same decoders over bytes. Where the crate replaces a whole run of byte tokens as soon
//! as one of them is invalid (`ByteFallback`), the bytes here stay what they are, and only the invalid ones are lost.

use std::sync::LazyLock;

use tokenizers::decoders::strip::Strip;
use tokenizers::{Decoder, DecoderWrapper};

type Bytes = Vec<u8>;

/// What `tokens` stand for. Joined with spaces when the tokenizer has no decoder, as the crate does.
pub fn decode_bytes(decoder: Option<&DecoderWrapper>, tokens: Vec<String>) -> tokenizers::Result<Bytes> {
    match decoder {
        None => Ok(tokens.join(" ").into_bytes()),
        Some(decoder) => {
            let pieces = tokens.into_iter().map(String::into_bytes).collect();
            Ok(run(decoder, pieces)?.concat())
        }
    }
}

fn run(decoder: &DecoderWrapper, pieces: Vec<Bytes>) -> tokenizers::Result<Vec<Bytes>> {
    match decoder {
        DecoderWrapper::Sequence(sequence) => {
            sequence.get_decoders().iter().try_fold(pieces, |pieces, d| run(d, pieces))
        }
        DecoderWrapper::ByteLevel(_) => Ok(pieces.into_iter().map(byte_level).collect()),
        DecoderWrapper::ByteFallback(_) => Ok(pieces.into_iter().map(byte_fallback).collect()),
        DecoderWrapper::Fuse(_) => Ok(vec![pieces.concat()]),
        DecoderWrapper::Strip(s) => Ok(pieces.into_iter().map(|piece| strip(s, piece)).collect()),
        other => {
            // The remaining decoders work on whole characters; pieces with broken ones do not occur in front of them.
            let texts = pieces.iter().map(|piece| String::from_utf8_lossy(piece).into_owned()).collect();
            Ok(other.decode_chain(texts)?.into_iter().map(String::into_bytes).collect())
        }
    }
}

/// GPT-2's alphabet: every byte has a printable character. `BYTE_OF[character]` is the byte, for characters below 512.
static BYTE_OF: LazyLock<[Option<u8>; 512]> = LazyLock::new(|| {
    let mut table = [None; 512];
    let mut next = 256;
    for byte in 0..=255u8 {
        if matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) {
            table[byte as usize] = Some(byte);
        } else {
            table[next] = Some(byte);
            next += 1;
        }
    }
    table
});

/// A piece with any character outside the alphabet (an added token) stands for itself.
fn byte_level(piece: Bytes) -> Bytes {
    let mapped = std::str::from_utf8(&piece)
        .ok()
        .and_then(|text| text.chars().map(|c| BYTE_OF.get(c as usize).copied().flatten()).collect::<Option<Bytes>>());
    mapped.unwrap_or(piece)
}

/// `<0xE2>` is the byte 0xE2.
fn byte_fallback(piece: Bytes) -> Bytes {
    let byte = match piece.as_slice() {
        [b'<', b'0', b'x', high, low, b'>'] => hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low),
        _ => None,
    };
    byte.map_or(piece, |byte| vec![byte])
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

fn strip(strip: &Strip, piece: Bytes) -> Bytes {
    let mut buffer = [0u8; 4];
    let content = strip.content.encode_utf8(&mut buffer).as_bytes();
    let mut rest = piece.as_slice();
    for _ in 0..strip.start {
        match rest.strip_prefix(content) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    for _ in 0..strip.stop {
        match rest.strip_suffix(content) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    rest.to_vec()
}
