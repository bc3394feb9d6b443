//! The C ABI described in `remote.h`: values by name in Redis, Valkey or S3-compatible storage, for promptcached.

mod ffi;
mod location;
mod pace;
mod redis_store;
mod s3_store;
mod store;
mod tls;

/// Why a call failed. No message holds a password or a key.
#[derive(Debug)]
pub enum Failure {
    BadUri(String),
    Timeout(String),
    Failed(String),
}

impl Failure {
    /// The same failure, told of the store it happened in.
    fn of(self, store: &str) -> Self {
        match self {
            Failure::BadUri(message) => Failure::BadUri(message),
            Failure::Timeout(message) => Failure::Timeout(format!("{store}: {message}")),
            Failure::Failed(message) => Failure::Failed(format!("{store}: {}", one_line(&message))),
        }
    }
}

/// What a server answers may be a page of HTML.
fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    words.join(" ").chars().take(300).collect()
}
