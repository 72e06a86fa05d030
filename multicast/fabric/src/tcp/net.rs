//! Which processes may connect, where they are, and how they authenticate.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use super::TcpFabric;
use super::hello::NotMet;
use super::stream::Stream;
use super::tls::Tls;
use crate::{Constants, FabricError, is_name};

/// The addresses, `host:port` by name, of processes that can be called. Clones share their content.
#[derive(Clone, Debug, Default)]
pub struct Book(Arc<RwLock<BTreeMap<String, String>>>);

impl Book {
    /// Adds or moves a name.
    pub fn insert(&self, name: &str, address: &str) {
        let mut book = self.0.write().unwrap_or_else(PoisonError::into_inner);
        book.insert(name.to_owned(), address.to_owned());
    }

    /// The address of a name.
    pub fn find(&self, name: &str) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// How the two sides of a connection authenticate.
#[derive(Clone, Debug)]
pub enum Security {
    /// Not at all: a process that reaches a port may be anyone and read everything. For one machine, and for networks
    /// that nobody else uses.
    Plain,
    /// By certificates, on an encrypted connection.
    Mutual(Arc<Tls>),
}

impl Security {
    /// Accepts a caller's connection.
    pub(super) fn accept(&self, socket: TcpStream, deadline: Instant) -> Result<Stream, NotMet> {
        match self {
            Self::Plain => Ok(Stream::plain(socket)?),
            Self::Mutual(tls) => tls.accept(socket, deadline),
        }
    }

    /// Ensures that `name`, and no other process, was reached.
    pub(super) fn connect(
        &self,
        socket: TcpStream,
        name: &str,
        deadline: Instant,
    ) -> Result<Stream, NotMet> {
        match self {
            Self::Plain => Ok(Stream::plain(socket)?),
            Self::Mutual(tls) => tls.connect(socket, name, deadline),
        }
    }

    /// Ensures that a caller has the name that it claims.
    pub(super) fn check_name(&self, stream: &Stream, name: &str) -> Result<(), NotMet> {
        match self {
            Self::Plain => Ok(()),
            Self::Mutual(tls) => tls.check_name(stream, name),
        }
    }
}

/// The processes of one cluster, as each of them sees them.
#[derive(Clone, Debug)]
pub struct Net {
    cluster: String,
    constants: Constants,
    book: Book,
    security: Security,
    /// Whether this is the control channel of a fabric of RDMA cards.
    cards: bool,
}

impl Net {
    /// The processes of `cluster`: a name of at most 64 messages, digits, `-` and `_`.
    pub fn new(cluster: &str, book: Book, security: Security) -> Self {
        assert!(is_name(cluster), "{cluster:?} is not a cluster's name");
        Self {
            cluster: cluster.to_owned(),
            constants: Constants::default(),
            book,
            security,
            cards: false,
        }
    }

    /// Requires these constants of the processes. Processes whose constants differ refuse each other.
    #[must_use]
    pub fn agreeing(self, constants: Constants) -> Self {
        Self { constants, ..self }
    }

    /// Joins under a name, and listens at its address. Both are ours until the fabric is dropped.
    pub fn join(&self, name: &str) -> Result<TcpFabric, FabricError> {
        let address = self.book.find(name);
        let address = address.ok_or_else(|| FabricError::Unreachable { name: name.to_owned() })?;
        let place = PathBuf::from(&address);
        let socket = TcpListener::bind(&address).map_err(|source| match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                FabricError::NameTaken { name: name.to_owned(), dir: place.clone() }
            }
            _ => FabricError::System { call: "bind", path: place.clone(), source },
        })?;
        if let Ok(bound) = socket.local_addr() {
            // If any port was asked for, this is the one that was assigned.
            self.book.insert(name, &bound.to_string());
        }
        TcpFabric::new(self.clone(), name, Some(socket))
    }

    /// Joins without listening: it can call others, and is reached on the connections that it has made.
    pub fn visit(&self, name: &str) -> Result<TcpFabric, FabricError> {
        TcpFabric::new(self.clone(), name, None)
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    pub(super) fn constants(&self) -> &Constants {
        &self.constants
    }

    /// The addresses of the processes.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// The same cluster as a control channel, of processes that have RDMA cards.
    #[cfg(feature = "verbs")]
    pub(crate) fn of_cards(&self) -> Self {
        Self { cards: true, ..self.clone() }
    }

    pub(super) fn has_cards(&self) -> bool {
        self.cards
    }

    pub(super) fn security(&self) -> &Security {
        &self.security
    }
}
