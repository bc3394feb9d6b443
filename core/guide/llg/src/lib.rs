//! The C ABI described in `llg.h`: grammars over a model's tokens, by llguidance.

mod ffi;
mod grammar;
mod vocabulary;

/// Why a call failed; the numbers are `PcLlgStatus` in `llg.h`.
#[derive(Debug)]
pub enum Failure {
    /// The client's schema, regex or grammar is at fault.
    Refused(String),
    Failed(String),
}

/// Messages may quote a whole grammar.
const MAX_MESSAGE_CHARS: usize = 400;

impl Failure {
    /// What llguidance says. It catches its own panics, whose texts are not for clients.
    fn refused(message: String) -> Self {
        if message.starts_with("panic: ") {
            return Failure::Failed("llguidance met a fault of its own".to_owned());
        }
        if message.starts_with("NoExtensionBias") {
            return Failure::Refused("nothing that this model can write matches it".to_owned());
        }
        let message = message.trim_end_matches("<non-verbose/>").trim();
        Failure::Refused(match message.char_indices().nth(MAX_MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message.to_owned(),
        })
    }

    /// The same of a regex, which llguidance wraps in a grammar and quotes: the regex parser's own last word is enough.
    fn refused_regex(message: String) -> Self {
        match message.split("\nerror: ").nth(1).and_then(|rest| rest.lines().next()) {
            Some(fault) => Failure::Refused(format!("no valid regex: {fault}")),
            None => Self::refused(message),
        }
    }
}
