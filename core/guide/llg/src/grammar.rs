//! A compiled grammar, and the state of one sequence in it.

use std::sync::Mutex;
use std::thread;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::SimpleVob;
use llguidance::JsonCompileOptions;
use serde_json::Value;

use crate::vocabulary::Vocabulary;
use crate::Failure;

/// How a client writes what it wants; the numbers are `PcLlgSyntax` in `llg.h`.
pub enum Syntax {
    JsonSchema,
    Regex,
    Lark,
}

/// Recursive calls of the compilers are as deep as the texts nest, so they run where there is room.
const COMPILER_STACK_BYTES: usize = 256 << 20;

pub struct Grammar {
    /// At the beginning. A lock, because llguidance's parser may be shared by one thread at a time only.
    start: Mutex<llguidance::Matcher>,
    first_mask: SimpleVob,
}

pub struct Matcher {
    inner: llguidance::Matcher,
    /// The mask of the beginning, which the grammar knows already.
    first_mask: Option<SimpleVob>,
}

impl Grammar {
    pub fn compile(vocabulary: &Vocabulary, syntax: Syntax, text: &str) -> Result<Self, Failure> {
        thread::scope(|scope| {
            thread::Builder::new()
                .stack_size(COMPILER_STACK_BYTES)
                .spawn_scoped(scope, || Self::compile_here(vocabulary, syntax, text))
                .map_err(|e| Failure::Failed(format!("no thread to compile a grammar on: {e}")))?
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn compile_here(vocabulary: &Vocabulary, syntax: Syntax, text: &str) -> Result<Self, Failure> {
        let refusal: fn(String) -> Failure = match syntax {
            Syntax::Regex => Failure::refused_regex,
            _ => Failure::refused,
        };
        let grammar = match syntax {
            Syntax::JsonSchema => TopLevelGrammar::from_json_schema(json_schema(text)?),
            Syntax::Regex => TopLevelGrammar::from_regex(text),
            Syntax::Lark => TopLevelGrammar::from_lark(text.to_owned()),
        };
        let parser = vocabulary.factory.create_parser(grammar).map_err(|e| refusal(format!("{e:#}")))?;
        let mut start = llguidance::Matcher::new(Ok(parser));
        // Also proves that some token can begin what the grammar describes.
        let first_mask = start.compute_mask().map_err(|e| refusal(e.to_string()))?;
        Ok(Grammar { start: Mutex::new(start), first_mask })
    }

    pub fn start(&self) -> Result<Matcher, Failure> {
        let start = self.start.lock().map_err(|e| Failure::Failed(e.to_string()))?;
        // Deep: the states that a lexer finds are limited, and the limit is each sequence's own.
        Ok(Matcher { inner: start.deep_clone(), first_mask: Some(self.first_mask.clone()) })
    }
}

/// A schema with our choice of blanks, unless it makes its own (`x-guidance`): at most one space where JSON allows any
/// number of blanks. Small models, once they have begun, go on writing blanks to the end.
fn json_schema(text: &str) -> Result<Value, Failure> {
    let mut schema: Value = serde_json::from_str(text).map_err(|e| Failure::Refused(format!("no valid JSON: {e}")))?;
    match &mut schema {
        Value::Object(object) => {
            let given = object.remove("x-guidance");
            let mut options = serde_json::to_value(JsonCompileOptions {
                whitespace_pattern: Some(" ".to_owned()),
                ..JsonCompileOptions::default()
            })
            .map_err(|e| Failure::Failed(e.to_string()))?;
            if let (Some(all), Some(Value::Object(given))) = (options.as_object_mut(), given) {
                if given.contains_key("whitespace_flexible") {
                    all.remove("whitespace_pattern");
                }
                all.extend(given);
            }
            object.insert("x-guidance".to_owned(), options);
            Ok(schema)
        }
        Value::Bool(_) => Ok(schema),
        _ => Err(Failure::Refused("a JSON schema is an object".to_owned())),
    }
}

impl Matcher {
    /// Writes the tokens that may come next, a bit each, the lowest of a word first; words beyond the vocabulary are 0.
    pub fn write_mask(&mut self, words: &mut [u32]) -> Result<(), Failure> {
        let mask = match self.first_mask.take() {
            Some(mask) => mask,
            None => self.inner.compute_mask().map_err(|e| Failure::refused(e.to_string()))?,
        };
        let known = mask.as_slice();
        let count = known.len().min(words.len());
        words[..count].copy_from_slice(&known[..count]);
        words[count..].fill(0);
        Ok(())
    }

    /// Goes on behind `token`; true when nothing can follow it.
    pub fn accept(&mut self, token: u32) -> Result<bool, Failure> {
        self.first_mask = None;
        self.inner.consume_token(token).map_err(|e| Failure::refused(e.to_string()))?;
        Ok(self.inner.is_stopped())
    }
}
