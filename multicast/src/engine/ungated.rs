//! Engines whose answers do not wait, to measure what that wait costs.

use skein_fabric::Fabric;
use skein_protocol::tram::Tram;

use super::Engine;
use crate::application::Application;

impl<F: Fabric, A: Application> Engine<F, A, Tram> {
    /// Lets the replicas answer at once, as in TRAM's paper. The order of what they answer is [not that of real
    /// time](Tram::ungate). A replica that begins anew waits again.
    pub fn ungate(&mut self) {
        self.replicas.iter_mut().for_each(|replica| replica.core.ungate());
    }
}
