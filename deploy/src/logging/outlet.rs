//! The queue between the threads that log and the thread that writes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use skein_node::status::LogLosses;

use super::OWN;
use super::file::LogFile;
use super::limit::Limiter;

/// Most lines in the queue, and their bytes.
const LINES_MAX: usize = 1_024;
const BYTES_MAX: usize = 4 << 20;
/// Interval of retries on a full queue by a thread that may wait.
const POLL: Duration = Duration::from_millis(2);

static OUTLET: OnceLock<Outlet> = OnceLock::new();

enum Message {
    Line(Vec<u8>),
    File(PathBuf),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
    /// Lines are being suppressed: log their number later.
    LeftOut,
}

/// The sending side. Sending never blocks and never fails.
pub(super) struct Outlet {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    bytes_queued: AtomicUsize,
    losses: Arc<LogLosses>,
}

/// Starts the writing thread.
pub(super) fn start(limiter: Arc<Limiter>) -> io::Result<()> {
    let (queue, messages) = sync_channel(LINES_MAX);
    let shared = Arc::<Shared>::default();
    let writer = Writer {
        file: None,
        shared: Arc::clone(&shared),
        limiter,
        told_lost: 0,
        why_lost: "the queue of lines was full".to_owned(),
    };
    let _ = OUTLET.set(Outlet { queue, shared });
    thread::Builder::new().name("log".into()).spawn(move || writer.run(&messages)).map(drop)
}

impl Outlet {
    pub(super) fn get() -> Option<&'static Self> {
        OUTLET.get()
    }

    pub(super) fn losses(&self) -> Arc<LogLosses> {
        Arc::clone(&self.shared.losses)
    }

    /// Queues `line`, or counts it as lost.
    pub(super) fn send(&self, line: Vec<u8>) {
        let len = line.len();
        let queued = self.shared.bytes_queued.fetch_add(len, Ordering::Relaxed);
        if queued + len > BYTES_MAX || self.queue.try_send(Message::Line(line)).is_err() {
            self.shared.bytes_queued.fetch_sub(len, Ordering::Relaxed);
            self.shared.losses.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests a summary of suppressed lines.
    pub(super) fn left_out(&self) {
        self.shared.losses.left_out.fetch_add(1, Ordering::Relaxed);
        // If the queue is full, the next suppressed line requests it again.
        let _ = self.queue.try_send(Message::LeftOut);
    }

    pub(super) fn to_file(&self, path: &Path) {
        let _ = self.queue.send(Message::File(path.to_owned()));
    }

    /// Waits until all lines sent before are written, at most `within`.
    pub(super) fn flush(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let (done, flushed) = sync_channel(1);
        let mut message = Message::Flush(done);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(message) {
            if Instant::now() >= deadline {
                return;
            }
            message = back;
            thread::sleep(POLL);
        }
        let _ = flushed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// The writing thread.
struct Writer {
    /// `None` is standard error.
    file: Option<LogFile>,
    shared: Arc<Shared>,
    limiter: Arc<Limiter>,
    /// Lost lines that were already reported. `told_lost <= lost`.
    told_lost: u64,
    why_lost: String,
}

impl Writer {
    fn run(mut self, messages: &Receiver<Message>) {
        let mut summary_due = None::<Instant>;
        loop {
            let message = match summary_due {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => messages.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::Line(line)) => self.line(&line),
                Ok(Message::File(path)) => self.file = Some(LogFile::at(path)),
                Ok(Message::Flush(done)) => _ = done.try_send(()),
                Ok(Message::LeftOut) => {
                    summary_due.get_or_insert_with(|| Instant::now() + Limiter::WINDOW);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if summary_due.is_some_and(|due| due <= Instant::now()) {
                summary_due = None;
                self.limiter.tell_left_out();
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        self.shared.bytes_queued.fetch_sub(line.len(), Ordering::Relaxed);
        let written = match &mut self.file {
            Some(file) => file.write(line),
            None => io::stderr().write_all(line),
        };
        let lost = &self.shared.losses.lost;
        if let Err(error) = written {
            lost.fetch_add(1, Ordering::Relaxed);
            self.why_lost = error.to_string();
            return;
        }
        let lost = lost.load(Ordering::Relaxed);
        if lost > self.told_lost {
            let now = lost - self.told_lost;
            self.told_lost = lost;
            let why = &self.why_lost;
            let lines = if now == 1 { "line" } else { "lines" };
            tracing::warn!(target: OWN, "{now} {lines} of this log could not be written: {why}");
            "the queue of lines was full".clone_into(&mut self.why_lost);
        }
    }
}
