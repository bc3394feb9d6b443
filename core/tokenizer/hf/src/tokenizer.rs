//! One `tokenizer.json`, ready to encode in the four ways `hf.h` offers.

use std::collections::HashSet;

use serde::Deserialize;
use tokenizers::{
    AddedToken, AddedVocabulary, Model, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizer, Token,
};

use crate::decode::decode_bytes;
use crate::Failure;

/// Put in front of a text that continues another, then dropped again, so that `Metaspace` with the scheme `first` does
/// not take the text for the start of the input. A noncharacter: no real text holds it.
const CONTINUATION_MARK: &str = "\u{FDD0}";

pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens, once with the control tokens among them and once without: for text at the start of the input.
    start: (AddedVocabulary, AddedVocabulary),
    /// The same two with CONTINUATION_MARK added; none where a continuation is encoded like any text.
    continuation: Option<(AddedVocabulary, AddedVocabulary)>,
    /// Ids of the control tokens.
    special: HashSet<u32>,
    bos_id: Option<u32>,
    unk_id: Option<u32>,
    unk_spelling: Option<String>,
    vocab_size: i64,
}

pub struct Piece {
    pub id: Option<u32>,
    pub begin: usize,
    pub end: usize,
}

/// The part of tokenizer.json that names the unknown token: the crate does not give it out for every model.
#[derive(Deserialize)]
struct Head {
    model: ModelHead,
}

#[derive(Deserialize)]
struct ModelHead {
    unk_token: Option<String>,
    unk_id: Option<u32>,
}

impl Tokenizer {
    pub fn from_json(json: &[u8]) -> Result<Self, Failure> {
        let inner = tokenizers::Tokenizer::from_bytes(json).map_err(Failure::failed)?;
        let head: Head = serde_json::from_slice(json).map_err(Failure::failed)?;
        let unk_id = head.model.unk_token.and_then(|token| inner.token_to_id(&token)).or(head.model.unk_id);
        let special: HashSet<u32> =
            inner.get_added_tokens_decoder().iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
        let added = inner.get_added_vocabulary().clone();
        let continuation = prepends_first(&inner).then(|| both_ways(with_mark(&inner, &added)));
        let highest_id = inner.get_vocab(true).into_values().max();
        Ok(Tokenizer {
            start: both_ways(added),
            continuation,
            special,
            bos_id: leading_special(&inner)?,
            unk_spelling: unk_id.and_then(|id| inner.id_to_token(id)),
            unk_id,
            vocab_size: highest_id.map_or(0, |id| i64::from(id) + 1),
            inner,
        })
    }

    pub fn encode(&self, text: &str, allow_special: bool, continuation: bool) -> Result<Vec<u32>, Failure> {
        let normalizer = self.inner.get_normalizer();
        let marked = if continuation && !text.contains(CONTINUATION_MARK) { self.continuation.as_ref() } else { None };
        let (with, without) = marked.unwrap_or(&self.start);
        let vocabulary = if allow_special { with } else { without };
        let mut text = match marked {
            Some(_) => vocabulary.extract_and_normalize(normalizer, &format!("{CONTINUATION_MARK}{text}")),
            None => vocabulary.extract_and_normalize(normalizer, text),
        };
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut text).map_err(Failure::failed)?;
        }
        text.tokenize(|word| self.tokenize_word(word.get())).map_err(|e| Failure::InvalidText(e.to_string()))?;
        let encoding = text.into_encoding(None, 0, OffsetType::None).map_err(Failure::failed)?;
        let mark_tokens = usize::from(marked.is_some());
        Ok(encoding.get_ids().iter().skip(mark_tokens).copied().collect())
    }

    /// Tokens of one word. A vocabulary may hold its control tokens as ordinary entries too (Unigram always does), so
    /// that text spelling `</s>` would become the control token by itself: such a word is cut up and tokenised again.
    fn tokenize_word(&self, word: &str) -> tokenizers::Result<Vec<Token>> {
        let tokens = self.inner.get_model().tokenize(word)?;
        let cuts: Vec<usize> = tokens
            .iter()
            .filter(|token| self.is_spelled_control_token(token, word))
            .map(|token| token.offsets.0 + word.get(token.offsets.0..).map_or(1, first_char_len))
            .collect();
        if cuts.is_empty() {
            return Ok(tokens);
        }
        let mut parts = Vec::new();
        let mut begin = 0;
        for end in cuts.into_iter().chain([word.len()]) {
            let part = word.get(begin..end).ok_or("a control token within a character")?;
            if part.len() == word.len() {
                return Err(format!("the text {word:?} is a control token of this vocabulary and nothing else").into());
            }
            if !part.is_empty() {
                parts.extend(self.tokenize_word(part)?);
            }
            begin = end;
        }
        Ok(parts)
    }

    /// The unknown token also stands for text that does not spell it.
    fn is_spelled_control_token(&self, token: &Token, word: &str) -> bool {
        let spelling = || word.get(token.offsets.0..token.offsets.1);
        self.special.contains(&token.id)
            && (Some(token.id) != self.unk_id || spelling() == self.unk_spelling.as_deref())
    }

    pub fn decode(&self, ids: impl Iterator<Item = u32>, skip_special: bool) -> Result<Vec<u8>, Failure> {
        let tokens = ids
            .filter(|id| !(skip_special && self.special.contains(id)))
            .filter_map(|id| self.inner.id_to_token(id))
            .collect();
        decode_bytes(self.inner.get_decoder(), tokens).map_err(Failure::failed)
    }

    /// Finds the control tokens as the encoder does (longest match; `lstrip` and `rstrip` take the spaces beside them).
    pub fn split(&self, text: &str) -> Vec<Piece> {
        let extracted = self.start.0.extract_and_normalize(None::<&NormalizerWrapper>, text);
        let mut pieces: Vec<Piece> = Vec::new();
        for (_, (begin, end), tokens) in extracted.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            let id = tokens.as_ref().and_then(|t| t.first()).map(|t| t.id).filter(|id| self.special.contains(id));
            match pieces.last_mut() {
                Some(last) if last.id.is_none() && id.is_none() => last.end = end,
                _ => pieces.push(Piece { id, begin, end }),
            }
        }
        pieces
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub fn bos_id(&self) -> Option<u32> {
        self.bos_id
    }

    pub fn unk_id(&self) -> Option<u32> {
        self.unk_id
    }

    pub fn vocab_size(&self) -> i64 {
        self.vocab_size
    }
}

fn first_char_len(text: &str) -> usize {
    text.chars().next().map_or(1, char::len_utf8)
}

/// The vocabulary that finds control tokens in a text, and the one that leaves them as text.
fn both_ways(vocabulary: AddedVocabulary) -> (AddedVocabulary, AddedVocabulary) {
    let mut without_special = vocabulary.clone();
    without_special.set_encode_special_tokens(true);
    (vocabulary, without_special)
}

/// Whether the pre-tokenizer treats the start of the input differently from the text behind a control token.
fn prepends_first(tokenizer: &tokenizers::Tokenizer) -> bool {
    let json = serde_json::to_string(&tokenizer.get_pre_tokenizer()).unwrap_or_default();
    json.contains(r#""prepend_scheme":"first""#)
}

fn with_mark(tokenizer: &tokenizers::Tokenizer, vocabulary: &AddedVocabulary) -> AddedVocabulary {
    let mut vocabulary = vocabulary.clone();
    let mark = AddedToken::from(CONTINUATION_MARK, false).normalized(false);
    vocabulary.add_tokens(&[mark], tokenizer.get_model(), tokenizer.get_normalizer());
    vocabulary
}

/// The token that the post-processor puts in front of a text.
fn leading_special(tokenizer: &tokenizers::Tokenizer) -> Result<Option<u32>, Failure> {
    let encoding = tokenizer.encode_fast("a", true).map_err(Failure::failed)?;
    let leads = encoding.get_special_tokens_mask().first() == Some(&1);
    Ok(encoding.get_ids().first().copied().filter(|_| leads))
}
