//! Authentication between hosts: TLS 1.3, with certificates on both sides, all of one authority.
//!
//! A cluster has its own authority, and a process with a certificate of that authority belongs to the cluster. A
//! certificate is valid for a name. A function maps a process's name to the name that its certificate needs, so that
//! the engines of one node, or clients, can share a certificate.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, RootCertStore,
    ServerConfig, ServerConnection,
};

use super::hello::NotMet;
use super::stream::{Stream, left};

/// Most bytes that are encrypted at once: a few records, and one system call.
const PLAIN_MAX: usize = 256 << 10;

/// Our certificate, and the authority of the others'.
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name_of: fn(&str) -> String,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A certificate or key is malformed or cannot be used.
    #[error("the {what} cannot be used: {why}")]
    Unusable {
        /// The authority's certificate, our own, or its key.
        what: &'static str,
        why: String,
    },
}

fn unusable(what: &'static str) -> impl Fn(&dyn fmt::Display) -> TlsError {
    move |why| TlsError::Unusable { what, why: why.to_string() }
}

impl Tls {
    /// `certificate` and `key` are ours. Certificates of others must be of `authority`, and valid for the name that
    /// `name_of` returns for their process's name. All are PEM.
    pub fn new(
        authority: &[u8],
        certificate: &[u8],
        key: &[u8],
        name_of: fn(&str) -> String,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        let bad = unusable("authority's certificate");
        for root in chain(authority, &bad)? {
            roots.add(root).map_err(|e| bad(&e))?;
        }
        let roots = Arc::new(roots);
        let chain = chain(certificate, &unusable("certificate"))?;
        let bad = unusable("certificate's key");
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| bad(&e))?;
        let (client, server) = configure(&provider, &roots, chain, key).map_err(|e| bad(&e))?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), name_of })
    }

    /// Accepts a caller's connection, and ensures that the caller belongs to the cluster.
    pub(super) fn accept(&self, socket: TcpStream, deadline: Instant) -> Result<Stream, NotMet> {
        let tls = ServerConnection::new(Arc::clone(&self.server)).map_err(|e| explain(&e))?;
        shake_hands(socket, tls.into(), deadline)
    }

    /// Connects to `name`, and ensures that this process answers.
    pub(super) fn connect(
        &self,
        socket: TcpStream,
        name: &str,
        deadline: Instant,
    ) -> Result<Stream, NotMet> {
        let tls = ClientConnection::new(Arc::clone(&self.client), self.expected(name)?);
        shake_hands(socket, tls.map_err(|e| explain(&e))?.into(), deadline)
    }

    /// Ensures that a caller's certificate is valid for the name it claims.
    pub(super) fn check_name(&self, stream: &Stream, name: &str) -> Result<(), NotMet> {
        let expected = self.expected(name)?;
        let certificate =
            stream.certificate().and_then(|c| webpki::EndEntityCert::try_from(c).ok());
        match certificate.map(|c| c.verify_is_valid_for_subject_name(&expected)) {
            Some(Ok(())) => Ok(()),
            _ => Err(NotMet::Refused(format!(
                "the name given is {name}, and the certificate shown is not for {}",
                (self.name_of)(name)
            ))),
        }
    }

    fn expected(&self, name: &str) -> Result<ServerName<'static>, NotMet> {
        let expected = (self.name_of)(name);
        let invalid = |_| NotMet::Refused(format!("{expected} is not a valid certificate name"));
        ServerName::try_from(expected.clone()).map_err(invalid)
    }
}

fn chain(
    pem: &[u8],
    bad: &dyn Fn(&dyn fmt::Display) -> TlsError,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|e| bad(&e))?;
    if chain.is_empty() { Err(bad(&"it contains no certificate")) } else { Ok(chain) }
}

fn configure(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<(ClientConfig, ServerConfig), Box<dyn std::error::Error>> {
    let mut client = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(Arc::clone(roots))
        .with_client_auth_cert(chain.clone(), key.clone_key())?;
    client.resumption = Resumption::disabled();
    let callers =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
            .build()?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(callers)
        .with_single_cert(chain, key)?;
    server.send_tls13_tickets = 0;
    Ok((client, server))
}

fn shake_hands(
    mut socket: TcpStream,
    mut tls: Connection,
    deadline: Instant,
) -> Result<Stream, NotMet> {
    tls.set_buffer_limit(Some(PLAIN_MAX));
    while tls.is_handshaking() || tls.wants_write() {
        if tls.wants_write() {
            socket.set_write_timeout(Some(left(deadline)?))?;
            tls.write_tls(&mut socket)?;
            continue;
        }
        socket.set_read_timeout(Some(left(deadline)?))?;
        if tls.read_tls(&mut socket)? == 0 {
            return Err(NotMet::Absent(io::ErrorKind::UnexpectedEof.into()));
        }
        if let Err(error) = tls.process_new_packets() {
            // Sends the other side the reason, if it still reads.
            let _ = tls.write_tls(&mut socket);
            return Err(explain(&error));
        }
    }
    Ok(Stream::encrypted(socket, tls)?)
}

/// A TLS error, in words that say what to do.
pub(super) fn explain(error: &rustls::Error) -> NotMet {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    use rustls::Error;
    let foreign = "of another authority: of another cluster, or of this one before `skein pki init` was run again";
    NotMet::Refused(match error {
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "its certificate has expired: give it another with `skein pki`; or the clock of one of the two hosts is wrong".into()
        }
        Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "its certificate is not valid yet: the clock of one of the two hosts is wrong".into()
        }
        Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            format!("its certificate is {foreign}")
        }
        Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            format!("its certificate is another process's ({error})")
        }
        Error::NoCertificatesPresented => "it shows no certificate".into(),
        Error::InvalidMessage(_) => {
            "it does not speak TLS, and here the network is encrypted".into()
        }
        Error::AlertReceived(Alert::CertificateExpired) => {
            "it says that our certificate has expired or is not valid yet: make another with `skein pki`; or the clock of one of the two hosts is wrong".into()
        }
        Error::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            format!("it says that our certificate is {foreign}")
        }
        Error::AlertReceived(Alert::CertificateRequired) => {
            "it requires a certificate, and we have none".into()
        }
        Error::AlertReceived(alert) => format!("it ends the connection: {alert:?}"),
        error => error.to_string(),
    })
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
