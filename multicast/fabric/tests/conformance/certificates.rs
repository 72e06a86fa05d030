//! Which processes may connect on an encrypted network.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use skein_fabric::tcp::{Book, Net, Security, TcpFabric, Tls};
use skein_fabric::{Fabric, FabricError};

use crate::harness::WATCHDOG;

const DAY: Duration = Duration::from_hours(24);

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate and its key.
pub(crate) struct Certificate {
    pem: String,
    key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub(crate) fn certify(&self, name: &str) -> Certificate {
        let now = SystemTime::now();
        self.certify_for(name, now - DAY, now + DAY)
    }

    fn certify_for(&self, name: &str, from: SystemTime, to: SystemTime) -> Certificate {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (from.into(), to.into());
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Certificate { pem, key: key.serialize_pem() }
    }

    /// The security of a process that has this certificate and trusts this authority.
    pub(crate) fn security(&self, own: &Certificate) -> Security {
        let authority = self.certificate.as_bytes();
        let tls = Tls::new(authority, own.pem.as_bytes(), own.key.as_bytes(), str::to_owned);
        Security::Mutual(Arc::new(tls.unwrap()))
    }
}

/// The outcome when a process with the first security calls one with the second.
fn call(caller: Security, called: Security) -> Result<(), String> {
    let book = Book::default();
    book.insert("b", "127.0.0.1:0");
    let mut b = Net::new("cluster", book.clone(), called).join("b").unwrap();
    let mut a = Net::new("cluster", book, caller).visit("a").unwrap();
    let end = Instant::now() + WATCHDOG;
    let look = |fabric: &mut TcpFabric| fabric.park(Duration::ZERO, &mut |_| true);
    loop {
        match a.dial("b") {
            Ok(_) => return Ok(()),
            Err(FabricError::Refused { name, why }) => {
                assert_eq!(name, "b");
                return Err(why);
            }
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        look(&mut a);
        look(&mut b);
    }
}

#[test]
fn only_who_has_a_valid_certificate_of_the_cluster_is_admitted() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let now = SystemTime::now();
    let good = |name: &str| ours.security(&ours.certify(name));
    let expired = |name: &str| ours.security(&ours.certify_for(name, now - 2 * DAY, now - DAY));
    let early = |name: &str| ours.security(&ours.certify_for(name, now + DAY, now + 2 * DAY));
    // A foreign certificate is of another authority, and its holder trusts ours. A mistaken process has a certificate
    // of ours and trusts another authority.
    let foreign = |name: &str| ours.security(&theirs.certify(name));
    let mistaken = |name: &str| theirs.security(&ours.certify(name));
    assert_eq!(call(good("a"), good("b")), Ok(()));
    #[rustfmt::skip]
    let cases = [
        (expired("a"),     good("b"),       "our certificate has expired"),
        (good("a"),        expired("b"),    "its certificate has expired"),
        (good("a"),        early("b"),      "is not valid yet: the clock"),
        (early("a"),       good("b"),       "our certificate has expired or is not valid yet"),
        (foreign("a"),     good("b"),       "our certificate is of another authority"),
        (good("a"),        foreign("b"),    "its certificate is of another authority"),
        (mistaken("a"),    good("b"),       "its certificate is of another authority"),
        (good("a"),        mistaken("b"),   "our certificate is of another authority"),
        (good("c"),        good("b"),       "the name given is a, and the certificate shown is not for a"),
        (good("a"),        good("c"),       "another process's"),
        (Security::Plain,  good("b"),       "speaks TLS"),
        (good("a"),        Security::Plain, "it does not speak TLS"),
    ];
    for (caller, called, why) in cases {
        let refused = call(caller, called).expect_err(why);
        assert!(refused.contains(why), "{why}: {refused}");
    }
}

/// A caller that shows no certificate is refused, even if it speaks the protocol correctly.
#[test]
fn a_caller_without_a_certificate_is_not_admitted() {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use std::io::{Read, Write};

    let ours = Authority::new();
    let book = Book::default();
    book.insert("b", "127.0.0.1:0");
    let security = ours.security(&ours.certify("b"));
    let b = Net::new("cluster", book.clone(), security).join("b").unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ours.certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("b").unwrap();
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = std::net::TcpStream::connect(book.find("b").unwrap()).unwrap();
    socket.set_read_timeout(Some(WATCHDOG)).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    let said = stream.write_all(b"skeintcp").and_then(|()| stream.read(&mut [0; 16]));
    assert!(said.unwrap_err().to_string().contains("CertificateRequired"));
    drop(b);
}

#[test]
fn certificates_that_are_none_are_an_error_that_says_which() {
    let ours = Authority::new();
    let own = ours.certify("a");
    let (good, pem, key) = (ours.certificate.as_str(), own.pem.as_str(), own.key.as_str());
    let other = ours.certify("a").key;
    #[rustfmt::skip]
    let cases = [
        ("",        pem,     key,     "authority's certificate cannot be used: it contains no certificate"),
        ("garbage", pem,     key,     "authority's certificate cannot be used"),
        (good,      key,     key,     "the certificate cannot be used"),
        (good,      pem,     pem,     "the certificate's key cannot be used"),
        (good,      pem,     &other,  "the certificate's key cannot be used"),
    ];
    for (authority, certificate, key, why) in cases {
        let made =
            Tls::new(authority.as_bytes(), certificate.as_bytes(), key.as_bytes(), str::to_owned);
        let error = made.expect_err(why).to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}
