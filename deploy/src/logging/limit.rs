//! Rate limits of log lines, per call site and in total.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::OWN;
use super::outlet::Outlet;

/// Most lines per call site, and in total, in a window of time.
const LINES_MAX: u32 = 20;
const LINES_MAX_OF_ALL: u32 = 200;

/// Counts lines. Debug and trace lines, requested with `-vv`, are neither counted nor limited.
#[derive(Default)]
pub(super) struct Limiter(Mutex<State>);

#[derive(Default)]
struct State {
    since: Option<Instant>,
    lines: u32,
    /// By call site, of which there are few.
    places: HashMap<Identifier, CallSite>,
}

struct CallSite {
    metadata: &'static Metadata<'static>,
    lines: u32,
    left_out: u64,
    /// Message of the first suppressed line.
    says: String,
}

impl Limiter {
    /// Window of the counts.
    pub(super) const WINDOW: Duration = Duration::from_secs(10);

    /// A panic under this lock leaves no inconsistent state.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another line of `metadata`'s call site may be logged at `now`.
    fn admits(
        &self,
        metadata: &'static Metadata<'static>,
        now: Instant,
        says: impl FnOnce() -> String,
    ) -> bool {
        let mut state = self.state();
        let state = &mut *state;
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= Self::WINDOW) {
            (state.since, state.lines) = (Some(now), 0);
            state.places.values_mut().for_each(|place| place.lines = 0);
        }
        let new = || CallSite { metadata, lines: 0, left_out: 0, says: String::new() };
        let place = state.places.entry(metadata.callsite()).or_insert_with(new);
        if place.lines < LINES_MAX && state.lines < LINES_MAX_OF_ALL {
            (place.lines, state.lines) = (place.lines + 1, state.lines + 1);
            return true;
        }
        if place.left_out == 0 {
            place.says = says();
        }
        place.left_out += 1;
        false
    }

    /// Takes the suppressed lines since the last call: number, call site, and message of the first.
    fn take_left_out(&self) -> Vec<(u64, &'static Metadata<'static>, String)> {
        let mut state = self.state();
        let places = state.places.values_mut().filter(|place| place.left_out > 0);
        let take = |place: &mut CallSite| {
            let left_out = std::mem::take(&mut place.left_out);
            (left_out, place.metadata, std::mem::take(&mut place.says))
        };
        places.map(take).collect()
    }

    /// Logs one line for each call site with suppressed lines.
    pub(super) fn tell_left_out(&self) {
        for (lines, metadata, like) in self.take_left_out() {
            let (place, level) = (metadata.target(), metadata.level().as_str());
            tracing::warn!(target: OWN, like, place, level, "{lines} lines like this were left out");
        }
    }
}

/// The limiter as a layer.
pub(super) struct Limits(pub(super) Arc<Limiter>);

impl<S: Subscriber> Layer<S> for Limits {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == OWN {
            return true;
        }
        let says = || {
            let mut message = Message(String::new());
            event.record(&mut message);
            message.0
        };
        let admitted = self.0.admits(metadata, Instant::now(), says);
        if !admitted && let Some(outlet) = Outlet::get() {
            outlet.left_out();
        }
        admitted
    }
}

/// Reads the message of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Callsite;
    use tracing::field::FieldSet;
    use tracing::metadata::Kind;
    use tracing::subscriber::Interest;

    use super::*;

    struct Here(&'static Metadata<'static>);

    impl Callsite for Here {
        fn set_interest(&self, _: Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            self.0
        }
    }

    macro_rules! place {
        ($name:ident) => {{
            static $name: Metadata<'static> = Metadata::new(
                "event",
                "target",
                Level::WARN,
                None,
                None,
                None,
                FieldSet::new(&[], Identifier(&HERE)),
                Kind::EVENT,
            );
            static HERE: Here = Here(&$name);
            &$name
        }};
    }

    #[test]
    fn one_place_cannot_fill_the_log_and_does_not_silence_another() {
        let (noisy, quiet) = (place!(NOISY), place!(QUIET));
        let limiter = Limiter::default();
        let begin = Instant::now();
        let mut said = 0;
        for _ in 0..100_000 {
            said += u32::from(limiter.admits(noisy, begin, || "noise".to_owned()));
        }
        assert_eq!(said, LINES_MAX);
        assert!(limiter.admits(quiet, begin, String::new));
        let left_out = limiter.take_left_out();
        assert_eq!(left_out.len(), 1);
        let (lines, _, like) = &left_out[0];
        assert_eq!((*lines, like.as_str()), (100_000 - u64::from(LINES_MAX), "noise"));
        assert!(limiter.take_left_out().is_empty(), "told once");
        let later = begin + Limiter::WINDOW;
        assert!(limiter.admits(noisy, later, String::new), "and counted anew");
    }
}
