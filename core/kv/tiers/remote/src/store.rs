//! One remote store, whatever its kind: a small runtime, a bound on what runs at once, and how long it may take.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::location::Location;
use crate::pace::Pace;
use crate::redis_store::RedisStore;
use crate::s3_store::S3Store;
use crate::Failure;

pub struct Store {
    runtime: Runtime,
    permits: Semaphore,
    timeout: Duration,
    client: Client,
    shown: String,
}

enum Client {
    Redis(RedisStore),
    S3(S3Store),
}

impl Store {
    pub fn open(uri: &str, timeout: Duration, max_concurrent: usize) -> Result<Self, Failure> {
        let location = Location::parse(uri).map_err(Failure::BadUri)?;
        let shown = location.describe();
        // Calls wait on their own threads; these two move bytes, and sleep when there are none.
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("remote-tier")
            .enable_all()
            .build()
            .map_err(|error| Failure::Failed(format!("no threads for the remote store: {error}")))?;
        let client = match location {
            Location::Redis(location) => Client::Redis(RedisStore::new(location, timeout)?),
            Location::S3(location) => Client::S3(S3Store::new(location)?),
        };
        Ok(Store { runtime, permits: Semaphore::new(max_concurrent), timeout, client, shown })
    }

    pub fn describe(&self) -> &str {
        &self.shown
    }

    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.run(|pace| async move {
            match &self.client {
                Client::Redis(redis) => redis.read(name, pace).await,
                Client::S3(s3) => s3.read(name, pace).await,
            }
        })
    }

    pub fn write(&self, name: &str, value: &[u8]) -> Result<(), Failure> {
        self.run(|pace| async move {
            match &self.client {
                Client::Redis(redis) => redis.write(name, value, pace).await,
                Client::S3(s3) => s3.write(name, value, pace).await,
            }
        })
    }

    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        self.run(|pace| async move {
            match &self.client {
                Client::Redis(redis) => redis.remove(name, pace).await,
                Client::S3(s3) => s3.remove(name, pace).await,
            }
        })
    }

    fn run<T, F: Future<Output = Result<T, Failure>>>(&self, work: impl FnOnce(Pace) -> F) -> Result<T, Failure> {
        let result = self.runtime.block_on(async {
            let turn = tokio::time::timeout(self.timeout, self.permits.acquire()).await;
            let _permit = turn.map_err(|_| Failure::Timeout("too many operations at once".into()))?;
            work(Pace::start(self.timeout)).await
        });
        result.map_err(|failure| failure.of(&self.shown))
    }
}
