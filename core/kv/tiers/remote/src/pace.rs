//! How long an operation may take.

use std::future::Future;
use std::time::Duration;

use tokio::time::{timeout_at, Instant};

use crate::Failure;

/// What a store must deliver to be of use. A value that comes slower than this is sooner computed anew.
const SLOWEST_BYTES_PER_SECOND: f64 = 16.0 * 1024.0 * 1024.0;

/// A store has `timeout` to answer, and then the time that the bytes take at SLOWEST_BYTES_PER_SECOND.
#[derive(Clone, Copy)]
pub struct Pace {
    start: Instant,
    timeout: Duration,
}

impl Pace {
    pub fn start(timeout: Duration) -> Self {
        Pace { start: Instant::now(), timeout }
    }

    /// What `work` gives, unless it is not done by the time that `bytes` may take since the start.
    pub async fn keep<T>(&self, bytes: usize, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let allowed = self.timeout + Duration::from_secs_f64(bytes as f64 / SLOWEST_BYTES_PER_SECOND);
        match timeout_at(self.start + allowed, work).await {
            Ok(result) => result,
            Err(_) => Err(Failure::Timeout(format!("no answer in {} ms", allowed.as_millis()))),
        }
    }
}
