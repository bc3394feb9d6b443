//! The tokens of one model, arranged for masks: a trie of their bytes.

use std::sync::Arc;

use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, INVALID_TOKEN};
use llguidance::ParserFactory;

use crate::Failure;

pub struct Vocabulary {
    pub factory: ParserFactory,
}

/// What one request's grammar may cost: some 20 ms for a mask, 1 to 2 kB a state of its lexer, and a compilation of a few
/// seconds where it is hostile. A chain of nothing but optional parts takes the square of its length to compile.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 50_000,
        max_lexer_states: 8_000,
        max_grammar_size: 200_000,
        // It would run large regexes against the whole vocabulary, within no limit.
        precompute_large_lexemes: false,
        verbose_errors: false, // they would hold the text that was generated
        ..ParserLimits::default()
    }
}

impl Vocabulary {
    /// `words`: what each token stands for, by id; control tokens begin with `TokTrie::SPECIAL_TOKEN_MARKER`, tokens
    /// that stand for nothing are empty and never allowed.
    pub fn new(words: &[Vec<u8>], end_tokens: &[u32]) -> Result<Self, Failure> {
        let size = u32::try_from(words.len()).map_err(|e| Failure::Failed(e.to_string()))?;
        let mut trie = TokTrie::from(&TokRxInfo::new(size, INVALID_TOKEN), words);
        if !end_tokens.is_empty() {
            trie = trie.with_eos_tokens(end_tokens);
        }
        // Not canonical: what a grammar forces is left to the model to cut into tokens.
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
            .map_err(|e| Failure::Failed(e.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Vocabulary { factory })
    }
}
