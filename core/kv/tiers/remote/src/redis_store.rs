//! Redis and Valkey, a single server or a cluster.
//!
//! An operation has a connection to itself: values are large, and one that is late or given up would hold up all that
//! share its connection. Connections are kept for the next operation, and dropped with anything but an answer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult,
};

use crate::location::RedisLocation;
use crate::pace::Pace;
use crate::{tls, Failure};

/// Redirections to another node of a cluster; nothing is tried again beyond that.
const CLUSTER_RETRIES: u32 = 3;
/// The library's own limit for an answer is for small values. Ours is a Pace's.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

pub struct RedisStore {
    server: Server,
    timeout: Duration,
    prefix: String,
    /// Connections that nobody uses now. Locked only to take or leave one.
    idle: Mutex<Vec<Connection>>,
}

enum Server {
    Single(Client),
    Cluster(ClusterClient),
}

enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Connection::Single(connection) => command.query_async(connection).await,
            Connection::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

impl RedisStore {
    pub fn new(location: RedisLocation, timeout: Duration) -> Result<Self, Failure> {
        tls::install_provider();
        let infos: Vec<ConnectionInfo> = location
            .hosts
            .iter()
            .map(|host| connection_info(&location, host))
            .collect::<RedisResult<_>>()
            .map_err(bad_uri)?;
        let server = if location.cluster {
            Server::Cluster(cluster_client(infos, &location, timeout).map_err(bad_uri)?)
        } else {
            Server::Single(Client::open(infos[0].clone()).map_err(bad_uri)?)
        };
        Ok(RedisStore { server, timeout, prefix: location.prefix, idle: Mutex::new(Vec::new()) })
    }

    pub async fn read(&self, name: &str, pace: Pace) -> Result<Option<Vec<u8>>, Failure> {
        let key = self.key(name);
        // The length first: it says how long the value itself may take, and a server that is not there is found out soon.
        let length: usize = pace.keep(0, self.ask(Cmd::new().arg("STRLEN").arg(&key))).await?;
        pace.keep(length, self.ask(Cmd::new().arg("GET").arg(&key))).await
    }

    pub async fn write(&self, name: &str, value: &[u8], pace: Pace) -> Result<(), Failure> {
        pace.keep(value.len(), self.ask(Cmd::new().arg("SET").arg(self.key(name)).arg(value))).await
    }

    pub async fn remove(&self, name: &str, pace: Pace) -> Result<(), Failure> {
        pace.keep(0, self.ask(Cmd::new().arg("UNLINK").arg(self.key(name)))).await
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        if let Some(mut connection) = self.take_idle() {
            match connection.ask(command).await {
                Ok(answer) => return Ok(self.keep(connection, answer)),
                // The server may have closed it, and those beside it, long ago: that says nothing about now.
                Err(error) if is_broken(&error) => self.drop_idle(),
                Err(error) => return Err(failed(error)),
            }
        }
        let mut connection = self.connect().await.map_err(failed)?;
        let answer = connection.ask(command).await.map_err(failed)?;
        Ok(self.keep(connection, answer))
    }
}

// Where connections come from and go to.
impl RedisStore {
    async fn connect(&self) -> RedisResult<Connection> {
        match &self.server {
            Server::Single(client) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(self.timeout))
                    .set_response_timeout(Some(NO_LIMIT));
                client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::Single)
            }
            Server::Cluster(client) => client.get_async_connection().await.map(Connection::Cluster),
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn drop_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn keep<T>(&self, connection: Connection, answer: T) -> T {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        answer
    }
}

fn connection_info(location: &RedisLocation, (host, port): &(String, u16)) -> RedisResult<ConnectionInfo> {
    let (host, port) = (host.clone(), *port);
    let address = if location.tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let mut settings = RedisConnectionInfo::default().set_db(location.database);
    if let Some(username) = &location.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = &location.password {
        settings = settings.set_password(password);
    }
    Ok(address.into_connection_info()?.set_redis_settings(settings))
}

fn cluster_client(
    hosts: Vec<ConnectionInfo>,
    location: &RedisLocation,
    timeout: Duration,
) -> RedisResult<ClusterClient> {
    let mut builder = ClusterClientBuilder::new(hosts)
        .connection_timeout(timeout)
        .response_timeout(NO_LIMIT)
        .overall_response_timeout(None)
        .retries(CLUSTER_RETRIES);
    if let Some(username) = &location.username {
        builder = builder.username(username.clone());
    }
    if let Some(password) = &location.password {
        builder = builder.password(password.clone());
    }
    builder.build()
}

/// Whether the connection failed, and not the server's will.
fn is_broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_unrecoverable_error()
}

fn failed(error: RedisError) -> Failure {
    if error.is_timeout() {
        return Failure::Timeout("no connection in time".into());
    }
    Failure::Failed(error.to_string())
}

fn bad_uri(error: RedisError) -> Failure {
    Failure::BadUri(error.to_string())
}
