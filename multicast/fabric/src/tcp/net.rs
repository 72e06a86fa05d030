//! Who may meet, where they are, and how they know each other.

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

/// Where processes that can be called are: `host:port` by name. Clones share what is in it.
#[derive(Clone, Debug, Default)]
pub struct Book(Arc<RwLock<BTreeMap<String, String>>>);

impl Book {
    /// Puts a name in, or moves it.
    pub fn insert(&self, name: &str, address: &str) {
        let mut book = self.0.write().unwrap_or_else(PoisonError::into_inner);
        book.insert(name.to_owned(), address.to_owned());
    }

    /// The address of a name.
    pub fn find(&self, name: &str) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// How the two sides of a connection know each other.
#[derive(Clone, Debug)]
pub enum Security {
    /// They do not: whoever reaches a port may be anybody and read everything. For one machine, and
    /// for networks that nobody else is on.
    Plain,
    /// By certificates, and nobody else reads what they say.
    Mutual(Arc<Tls>),
}

impl Security {
    /// Takes a caller's connection.
    pub(super) fn accept(&self, socket: TcpStream, deadline: Instant) -> Result<Stream, NotMet> {
        match self {
            Self::Plain => Ok(Stream::plain(socket)?),
            Self::Mutual(tls) => tls.accept(socket, deadline),
        }
    }

    /// Makes sure to have reached `name`, and nobody else.
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

    /// Makes sure that a caller is who it says.
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
    /// What meets there has RDMA cards.
    cards: bool,
}

impl Net {
    /// The processes of `cluster`: a name of at most 64 letters, digits, `-` and `_`.
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

    /// The same, of processes that must have these constants alike. Those of a cluster that have not
    /// refuse each other.
    #[must_use]
    pub fn agreeing(self, constants: Constants) -> Self {
        Self { constants, ..self }
    }

    /// Joins under a name, listening at its address; that is ours until the fabric is dropped.
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
            // Whoever asked for any port has got one.
            self.book.insert(name, &bound.to_string());
        }
        TcpFabric::new(self.clone(), name, Some(socket))
    }

    /// Joins without listening: reaches others, and is reached on the connections it has made.
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

    /// Where its processes are.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// The same, of processes that have RDMA cards: their control channels.
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
