//! What the URI of a remote store says.
//!
//! Messages quote no more of a URI than names from the lists below: whatever stands in the wrong place may be a password.

use percent_encoding::percent_decode_str;

const KNOWN: &str = "redis://[user:password@]host[:port][/database], rediss:// (TLS), \
    redis-cluster://host:port,host:port, rediss-cluster:// and s3://bucket[/prefix]";
const REDIS_PORT: u16 = 6379;
const REDIS_PREFIX: &str = "promptcached:";

pub enum Location {
    Redis(RedisLocation),
    S3(S3Location),
}

pub struct RedisLocation {
    pub tls: bool,
    pub cluster: bool,
    pub hosts: Vec<(String, u16)>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub database: i64,
    pub prefix: String,
}

pub struct S3Location {
    pub bucket: String,
    pub prefix: String,
    pub endpoint: Option<String>,
    pub region: Option<String>,
}

impl Location {
    pub fn parse(uri: &str) -> Result<Self, String> {
        let (scheme, rest) = uri.split_once("://").ok_or(format!("a remote store is a URI: {KNOWN}"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let parts = Parts { authority, path, options: options(query)? };
        match scheme {
            "redis" => redis(parts, false, false),
            "rediss" => redis(parts, true, false),
            "redis-cluster" => redis(parts, false, true),
            "rediss-cluster" => redis(parts, true, true),
            "s3" => s3(parts),
            _ => Err(format!("the URI's scheme is none of a remote store: {KNOWN}")),
        }
    }

    /// The URI again, without what is secret in it.
    pub fn describe(&self) -> String {
        match self {
            Location::Redis(redis) => redis.describe(),
            Location::S3(s3) => s3.describe(),
        }
    }
}

impl RedisLocation {
    fn describe(&self) -> String {
        let hosts: Vec<String> =
            self.hosts.iter().map(|(host, port)| format!("{}:{port}", in_brackets(host))).collect();
        let scheme = format!("redis{}{}", if self.tls { "s" } else { "" }, if self.cluster { "-cluster" } else { "" });
        let database = if self.cluster { String::new() } else { format!("/{}", self.database) };
        format!("{scheme}://{}{database}?prefix={}", hosts.join(","), self.prefix)
    }
}

impl S3Location {
    fn describe(&self) -> String {
        let endpoint = self.endpoint.as_ref().map(|endpoint| format!("?endpoint={endpoint}")).unwrap_or_default();
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        format!("s3://{}{slash}{}{endpoint}", self.bucket, self.prefix)
    }
}

struct Parts<'a> {
    authority: &'a str,
    path: &'a str,
    options: Vec<(&'a str, String)>,
}

impl Parts<'_> {
    /// Takes the options named, in that order; refuses any other.
    fn take<const N: usize>(&self, names: [&str; N]) -> Result<[Option<String>; N], String> {
        if self.options.iter().any(|(name, _)| !names.contains(name)) {
            return Err(format!("the URI has an option that is not known; it takes {}", names.join(" and ")));
        }
        Ok(names.map(|wanted| self.options.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone())))
    }
}

fn options(query: &str) -> Result<Vec<(&str, String)>, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or("an option of the URI is not name=value")?;
            Ok((name, decoded(value)?))
        })
        .collect()
}

fn redis(parts: Parts, tls: bool, cluster: bool) -> Result<Location, String> {
    let [prefix] = parts.take(["prefix"])?;
    let (user, hosts) = parts.authority.rsplit_once('@').unwrap_or(("", parts.authority));
    let (username, password) = user.split_once(':').unwrap_or((user, ""));
    let hosts: Vec<_> = hosts.split(',').map(host_and_port).collect::<Result<_, _>>()?;
    if hosts.len() > 1 && !cluster {
        return Err("several hosts are a cluster: write redis-cluster:// or rediss-cluster://".into());
    }
    if cluster && !parts.path.is_empty() {
        return Err("a cluster has one database: the URI ends after the hosts".into());
    }
    let database = match parts.path {
        "" => 0,
        path => path.parse::<u16>().map_err(|_| {
            "what follows the host is no database number (in a password, write : as %3A, @ as %40, / as %2F, ? as %3F)"
        })?,
    };
    Ok(Location::Redis(RedisLocation {
        tls,
        cluster,
        hosts,
        username: decoded_if_any(username)?.or_else(|| from_environment("REDIS_USERNAME")),
        password: decoded_if_any(password)?.or_else(|| from_environment("REDIS_PASSWORD")),
        database: database.into(),
        prefix: prefix.unwrap_or_else(|| REDIS_PREFIX.to_string()),
    }))
}

fn s3(parts: Parts) -> Result<Location, String> {
    let [endpoint, region] = parts.take(["endpoint", "region"])?;
    if parts.authority.is_empty() {
        return Err("the URI names no bucket: s3://bucket/prefix".into());
    }
    if parts.authority.contains([':', '@']) {
        return Err(
            "keys have no place in an s3:// URI, nor has a host: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY \
                    in the environment, and ?endpoint=http://host:port"
                .into(),
        );
    }
    let endpoint =
        endpoint.or_else(|| from_environment("AWS_ENDPOINT_URL_S3").or_else(|| from_environment("AWS_ENDPOINT_URL")));
    if let Some(endpoint) = &endpoint {
        let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
        if !host.is_some_and(|host| !host.is_empty() && !host.contains('@')) {
            return Err("the endpoint is not http://host:port or https://host:port".into());
        }
    }
    let region = region.or_else(|| from_environment("AWS_REGION").or_else(|| from_environment("AWS_DEFAULT_REGION")));
    if endpoint.is_none() && region.is_none() {
        return Err("the bucket's region is not known: give ?region=, or AWS_REGION in the environment".into());
    }
    let prefix = decoded(parts.path.trim_matches('/'))?;
    Ok(Location::S3(S3Location { bucket: parts.authority.to_string(), prefix, endpoint, region }))
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("a host in [ ] is followed by :port")?)),
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(format!("the URI names no host: {KNOWN}"));
    }
    let port = match port {
        None => REDIS_PORT,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or(
            "a port of the URI is no number from 1 to 65535 (in a password, write : as %3A, @ as %40, / as %2F, ? as %3F)",
        )?,
    };
    Ok((host.to_string(), port))
}

fn in_brackets(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_string()
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| "a %-sequence of the URI is not UTF-8")?;
    Ok(text.into_owned())
}

fn decoded_if_any(text: &str) -> Result<Option<String>, String> {
    Ok(Some(decoded(text)?).filter(|text| !text.is_empty()))
}

fn from_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
