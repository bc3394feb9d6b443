//! The C ABI described in `hf.h`: Hugging Face tokenizers and Jinja chat templates for promptcached.

mod decode;
mod ffi;
mod python;
mod template;
mod tokenizer;

/// Why a call failed; the numbers are `PcHfStatus` in `hf.h`.
#[derive(Debug)]
pub enum Failure {
    InvalidText(String),
    Raised(String),
    Failed(String),
}

impl Failure {
    fn failed(error: impl std::fmt::Display) -> Self {
        Failure::Failed(error.to_string())
    }
}
