//! TLS without OpenSSL: rustls, with ring for its arithmetic and the system's authorities.

use rustls::crypto::{ring, CryptoProvider};
use rustls::{ClientConfig, RootCertStore};

/// For the Redis client, which takes whatever the process has installed.
pub fn install_provider() {
    // An error only says that there is one already.
    let _ = CryptoProvider::install_default(ring::default_provider());
}

/// For the HTTP client. Authorities: the system's, or those in the file that SSL_CERT_FILE names.
pub fn client_config() -> Result<ClientConfig, rustls::Error> {
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Ok(ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities)
        .with_no_client_auth())
}
