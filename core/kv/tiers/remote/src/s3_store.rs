//! S3 and what is compatible with it, through Apache OpenDAL.

use futures_util::TryStreamExt;
use opendal_core::{Buffer, Error, ErrorKind, HttpTransporter, OperationContext, Operator};
use opendal_http_transport_reqwest::ReqwestTransport;
use opendal_service_s3::S3;

use crate::location::S3Location;
use crate::pace::Pace;
use crate::{tls, Failure};

/// What servers of one's own go by, where nobody named a region.
const ANY_REGION: &str = "us-east-1";

pub struct S3Store {
    operator: Operator,
}

impl S3Store {
    pub fn new(location: S3Location) -> Result<Self, Failure> {
        let mut service = S3::default()
            .bucket(&location.bucket)
            .root(&format!("/{}", location.prefix))
            .region(location.region.as_deref().unwrap_or(ANY_REGION));
        if let Some(endpoint) = &location.endpoint {
            service = service.endpoint(endpoint);
        }
        let context = OperationContext::new().with_http_transport(HttpTransporter::new(http_transport()?));
        let operator = Operator::new(service).map_err(failed)?.with_context(context);
        Ok(S3Store { operator })
    }

    pub async fn read(&self, name: &str, pace: Pace) -> Result<Option<Vec<u8>>, Failure> {
        let mut parts = self.operator.reader(name).await.map_err(failed)?.into_stream(..).await.map_err(failed)?;
        let mut value = Vec::new();
        loop {
            // Each part has the time of all before it: a stream that stops is found out where it stops.
            match pace.keep(value.len(), async { Ok(parts.try_next().await) }).await? {
                Ok(Some(part)) => part.for_each(|bytes| value.extend_from_slice(&bytes)),
                Ok(None) => return Ok(Some(value)),
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    pub async fn write(&self, name: &str, value: &[u8], pace: Pace) -> Result<(), Failure> {
        // A copy: the HTTP client may hold on to what it sends after a call that is given up has returned.
        let bytes = Buffer::from(value.to_vec());
        pace.keep(value.len(), async { self.operator.write(name, bytes).await.map_err(failed) }).await?;
        Ok(())
    }

    pub async fn remove(&self, name: &str, pace: Pace) -> Result<(), Failure> {
        pace.keep(0, async { self.operator.delete(name).await.map_err(failed) }).await
    }
}

fn http_transport() -> Result<ReqwestTransport, Failure> {
    let config = tls::client_config().map_err(|error| Failure::Failed(error.to_string()))?;
    let client = reqwest::Client::builder().tls_backend_preconfigured(config).build();
    Ok(ReqwestTransport::new(client.map_err(|error| Failure::Failed(error.to_string()))?))
}

/// A missing bucket is a fault of the configuration, not a value that is not there.
fn is_absent(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && !error.message().contains("NoSuchBucket")
}

/// Without the context that OpenDAL's errors carry: it is long.
fn failed(error: Error) -> Failure {
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    Failure::Failed(format!("{} ({}){source}", error.message(), error.kind()))
}
