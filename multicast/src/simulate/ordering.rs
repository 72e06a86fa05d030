//! What a simulation asks of an ordering beside what its driver does.

use skein_protocol::ramcast::log::Remote;
use skein_protocol::ramcast::{Ramcast, Record};

use super::Coverage;
use crate::ordering::Links;

/// An ordering that can be simulated.
pub(crate) trait Driven: Links {
    /// Another group's proposal, if that is what a record says.
    fn proposal(record: &Self::Record) -> Option<Remote>;

    /// Adds how often each path was taken that is not the common one.
    fn cover(&self, coverage: &mut Coverage);
}

impl Driven for Ramcast {
    fn proposal(record: &Record) -> Option<Remote> {
        if let Record::Remote(remote) = record { Some(*remote) } else { None }
    }

    fn cover(&self, coverage: &mut Coverage) {
        coverage.protocol.add(self.paths());
    }
}
