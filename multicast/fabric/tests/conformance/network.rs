//! Processes on a network, driven by one thread, for the tests of `promises`.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::thread;
use std::time::Duration;

#[cfg(feature = "verbs")]
use skein_fabric::any::AnyFabric;
use skein_fabric::tcp::{Book, Net, Security, TcpFabric};
#[cfg(feature = "verbs")]
use skein_fabric::verbs::VerbsFabric;
use skein_fabric::{
    Completion, Fabric, FabricError, Peer, Permission, Region, RegionKey, Remote, Source,
};

use crate::certificates::Authority;
use crate::promises::Stage;

/// Number of looks without any event, and the pause between them, after which nothing counts as under way.
const QUIET_LOOKS: u32 = 5;
const QUIET_NAP: Duration = Duration::from_micros(300);

/// A fabric whose processes connect by calling each other.
pub(crate) trait Calling: Fabric + Sized {
    /// The process that only calls, and has no address.
    const GUEST: &str = "";
    fn join(net: &Net, name: &str) -> Result<Self, FabricError>;
    fn is_calling(&self, name: &str) -> bool;
    /// Changes whenever something has passed through the fabric.
    fn passed(&self) -> [u64; 4];
}

impl Calling for TcpFabric {
    fn join(net: &Net, name: &str) -> Result<Self, FabricError> {
        net.join(name)
    }
    fn is_calling(&self, name: &str) -> bool {
        TcpFabric::is_calling(self, name)
    }
    fn passed(&self) -> [u64; 4] {
        let traffic = self.traffic();
        [traffic.sent, traffic.received, traffic.sends, 0]
    }
}

#[cfg(feature = "verbs")]
impl Calling for VerbsFabric {
    fn join(net: &Net, name: &str) -> Result<Self, FabricError> {
        Self::join(net, name, &skein_fabric::verbs::Config::default())
    }
    fn is_calling(&self, name: &str) -> bool {
        Self::is_calling(self, name)
    }
    fn passed(&self) -> [u64; 4] {
        let traffic = self.traffic();
        [traffic.control.sent, traffic.control.received, traffic.ends, traffic.refused]
    }
}

/// Processes with cards, and a client without one.
#[cfg(feature = "verbs")]
impl Calling for AnyFabric {
    const GUEST: &str = "a";
    fn join(net: &Net, name: &str) -> Result<Self, FabricError> {
        if name == Self::GUEST {
            return Ok(net.visit(name)?.into());
        }
        Ok(<VerbsFabric as Calling>::join(net, name)?.into())
    }
    fn is_calling(&self, name: &str) -> bool {
        match self {
            Self::Tcp(fabric) => fabric.is_calling(name),
            Self::Verbs(fabric) => fabric.is_calling(name),
            Self::Shm(_) => false,
        }
    }
    fn passed(&self) -> [u64; 4] {
        match self {
            Self::Tcp(fabric) => Calling::passed(&**fabric),
            Self::Verbs(fabric) => Calling::passed(&**fabric),
            Self::Shm(_) => [0; 4],
        }
    }
}

type Fabrics<F> = Rc<RefCell<Vec<Weak<RefCell<F>>>>>;

/// A network on one machine, and all its processes.
pub(crate) struct Network<F = TcpFabric> {
    book: Book,
    /// Issues certificates, if they are used.
    authority: Option<Authority>,
    fabrics: Fabrics<F>,
}

impl<F> Network<F> {
    pub(crate) fn plain() -> Self {
        Self { book: Book::default(), authority: None, fabrics: Fabrics::default() }
    }

    pub(crate) fn encrypted() -> Self {
        Self { authority: Some(Authority::new()), ..Self::plain() }
    }
}

impl<F: Calling> Stage for Network<F> {
    type F = Joined<F>;

    fn join(&self, name: &str) -> Result<Joined<F>, FabricError> {
        if name != F::GUEST && self.book.find(name).is_none() {
            self.book.insert(name, "127.0.0.1:0");
        }
        let security = match &self.authority {
            Some(authority) => authority.security(&authority.certify(name)),
            None => Security::Plain,
        };
        let net = Net::new("conformance", self.book.clone(), security);
        let fabric = Rc::new(RefCell::new(F::join(&net, name)?));
        self.fabrics.borrow_mut().push(Rc::downgrade(&fabric));
        Ok(Joined { fabric, fabrics: Rc::clone(&self.fabrics) })
    }

    fn step(&self) -> bool {
        // The state before the first look, in which something may happen that the caller has not seen.
        let before = passed(&self.fabrics);
        for _ in 0..QUIET_LOOKS {
            look(&self.fabrics);
            if passed(&self.fabrics) != before {
                return true;
            }
            thread::sleep(QUIET_NAP);
        }
        false
    }
}

/// Polls all processes.
fn look<F: Calling>(fabrics: &Fabrics<F>) {
    for_each(fabrics, |fabric| fabric.park(Duration::ZERO, &mut |_| true));
}

/// Changes whenever something has passed through any of them.
fn passed<F: Calling>(fabrics: &Fabrics<F>) -> Vec<[u64; 4]> {
    let mut all = Vec::new();
    for_each(fabrics, |fabric| all.push(fabric.passed()));
    all
}

fn for_each<F>(fabrics: &Fabrics<F>, mut act: impl FnMut(&mut F)) {
    let living: Vec<_> = fabrics.borrow().iter().filter_map(Weak::upgrade).collect();
    // A fabric from within which this is called is borrowed already.
    for mut fabric in living.iter().filter_map(|fabric| fabric.try_borrow_mut().ok()) {
        act(&mut fabric);
    }
}

/// A process on the network. While it dials, the others answer.
pub(crate) struct Joined<F> {
    fabric: Rc<RefCell<F>>,
    fabrics: Fabrics<F>,
}

impl<F: Calling> Fabric for Joined<F> {
    fn now(&self) -> Duration {
        self.fabric.borrow().now()
    }
    fn dial(&mut self, name: &str) -> Result<Peer, FabricError> {
        loop {
            let found = self.fabric.borrow_mut().dial(name);
            if found.is_ok() || !self.fabric.borrow().is_calling(name) {
                return found;
            }
            look(&self.fabrics);
        }
    }
    fn is_gone(&mut self, peer: Peer) -> bool {
        self.fabric.borrow_mut().is_gone(peer)
    }
    fn name_of(&self, peer: Peer) -> Option<String> {
        self.fabric.borrow().name_of(peer)
    }

    fn hang_up(&mut self, peer: Peer) {
        self.fabric.borrow_mut().hang_up(peer);
    }
    fn create(&mut self, len: usize, permission: Permission) -> Result<Region, FabricError> {
        self.fabric.borrow_mut().create(len, permission)
    }
    fn destroy(&mut self, region: Region) {
        self.fabric.borrow_mut().destroy(region);
    }
    fn key(&self, region: Region) -> RegionKey {
        self.fabric.borrow().key(region)
    }
    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError> {
        self.fabric.borrow_mut().grant(region, writer)
    }
    fn revoke(&mut self, region: Region) -> Result<(), FabricError> {
        self.fabric.borrow_mut().revoke(region)
    }
    fn attach(&mut self, peer: Peer, key: &RegionKey) -> Result<Remote, FabricError> {
        self.fabric.borrow_mut().attach(peer, key)
    }
    fn detach(&mut self, remote: Remote) {
        self.fabric.borrow_mut().detach(remote);
    }
    fn write(
        &mut self,
        to: Remote,
        at: usize,
        from: Source<'_>,
        tag: Option<u64>,
    ) -> Result<(), FabricError> {
        self.fabric.borrow_mut().write(to, at, from, tag)
    }
    fn read(
        &mut self,
        from: Remote,
        at: usize,
        len: usize,
        into: (Region, usize),
        tag: u64,
    ) -> Result<(), FabricError> {
        self.fabric.borrow_mut().read(from, at, len, into, tag)
    }
    fn flush(&mut self) {
        self.fabric.borrow_mut().flush();
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.fabric.borrow_mut().poll(completions);
    }
    fn wake(&mut self, peer: Peer) {
        self.fabric.borrow_mut().wake(peer);
    }
    fn park(&mut self, longest: Duration, idle: &mut dyn FnMut(&Self) -> bool) {
        // `idle` takes the outer fabric, which is borrowed inside, so it is called first. `waiting` tests how parking
        // races with writing.
        let idle = idle(self);
        self.fabric.borrow_mut().park(longest, &mut |_| idle);
    }
    fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<(), FabricError> {
        self.fabric.borrow_mut().send(to, bytes)
    }
    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer> {
        self.fabric.borrow_mut().recv(into)
    }
    fn load(&self, region: Region, at: usize) -> u64 {
        self.fabric.borrow().load(region, at)
    }
    fn changed(&self, region: Region, seen: &[u64], from: usize) -> Option<usize> {
        self.fabric.borrow().changed(region, seen, from)
    }
    fn store(&mut self, region: Region, at: usize, word: u64) {
        self.fabric.borrow_mut().store(region, at, word);
    }
    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        self.fabric.borrow().copy_out(region, at, into);
    }
    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.fabric.borrow_mut().copy_in(region, at, bytes);
    }
}
