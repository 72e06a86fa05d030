//! Progress bars on standard error if it is a terminal, and the interrupt that ends a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use skein_checker::chart::grouped;
use skein_workloads::bench::{Phase, Watch};
use skein_workloads::chaos::run::{Observer, SoFar};
use skein_workloads::generator::Progress;

const STOP: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Whether the process was asked to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Records Ctrl-C, SIGTERM and SIGHUP from now on. A second signal ends the process at once.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in STOP {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
        }
        Self(asked).remember()
    }

    /// The same for a process that must clean up, however many signals arrive.
    pub(crate) fn listen_and_stay() -> std::io::Result<Self> {
        Self(Arc::default()).remember()
    }

    fn remember(self) -> std::io::Result<Self> {
        for signal in STOP {
            flag::register(signal, Arc::clone(&self.0))?;
        }
        Ok(self)
    }

    /// Whether a signal has arrived.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A bar with a name. Nothing is drawn if standard error is not a terminal.
pub(crate) fn bar(name: &'static str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:40.cyan/dim} {msg}")
        .expect("the template is a constant")
        .progress_chars("━╸─");
    ProgressBar::new(length).with_style(style).with_prefix(name)
}

/// A bar for each phase of a benchmark. Nothing is drawn if standard error is not a terminal.
pub(crate) struct Bars {
    interrupt: Interrupt,
    bar: ProgressBar,
    phase: Phase,
    last: Progress,
}

const START: Progress = Progress { elapsed: Duration::ZERO, returned: 0, errors: 0 };

impl Bars {
    pub(crate) fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, bar: ProgressBar::hidden(), phase: Phase::Load(0), last: START }
    }

    /// Whether the process was asked to end.
    pub(crate) fn asked(&self) -> bool {
        self.interrupt.asked()
    }

    /// Shows a message without a measure of progress.
    pub(crate) fn message(&mut self, what: &'static str) {
        self.end();
        self.bar = self.line();
        self.bar.set_message(what);
        self.bar.tick();
    }

    /// A spinner on a line of its own, if standard error is a terminal.
    #[expect(clippy::unused_self, reason = "one thing at a time draws on the terminal")]
    pub(crate) fn line(&self) -> ProgressBar {
        let style = ProgressStyle::with_template("{spinner:.cyan} {msg}");
        ProgressBar::new_spinner().with_style(style.expect("the template is a constant"))
    }

    /// Removes the bar.
    pub(crate) fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Bars {
    fn begin(&mut self, phase: Phase) {
        self.end();
        (self.phase, self.last) = (phase, START);
        let (length, name) = match phase {
            Phase::Load(records) => (records, "loading"),
            Phase::Run(duration) => (duration.as_millis() as u64, "running"),
        };
        self.bar = bar(name, length);
    }

    fn progress(&mut self, progress: Progress) -> bool {
        self.bar.set_position(match self.phase {
            Phase::Load(_) => progress.returned,
            Phase::Run(_) => progress.elapsed.as_millis() as u64,
        });
        let since = progress.elapsed.saturating_sub(self.last.elapsed).as_millis().max(1) as u64;
        let per_second = (progress.returned - self.last.returned) * 1_000 / since;
        let errors = match progress.errors {
            0 => String::new(),
            errors => format!(", {} errors", grouped(errors)),
        };
        self.bar.set_message(format!("{}/s{errors}", grouped(per_second)));
        self.last = progress;
        !self.interrupt.asked()
    }
}

impl Observer for Bars {
    fn message(&mut self, what: &'static str) {
        Self::message(self, what);
    }

    fn begin_faults(&mut self) {
        Self::end(self);
        self.bar = self.line();
    }

    fn faults(&mut self, so_far: SoFar) {
        let SoFar { elapsed, answered, unanswered, faults } = so_far;
        let seconds = elapsed.as_secs_f64();
        self.bar.set_message(format!(
            "{seconds:.0} s, {answered} answers, {unanswered} without, {faults} faults"
        ));
        self.bar.tick();
    }

    fn end(&mut self) {
        Self::end(self);
    }

    fn asked(&self) -> bool {
        Self::asked(self)
    }
}
