//! Full-screen display of a sequence of pictures. Each picture is written over the last in a single
//! write, so that nothing flickers. The terminal is restored at the end.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// q, Ctrl-C, or another request to end.
    End,
}

pub(super) struct Screen {
    before: Termios,
    ended: Arc<AtomicBool>,
    shown: String,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let ended = Arc::<AtomicBool>::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, ended.clone())?;
        }
        let screen = Self { before: before.clone(), ended, shown: String::new() };
        let mut raw = before;
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        io::stdout().write_all(OPEN.as_bytes())?;
        Ok(screen)
    }

    /// Shows as much of `text` as fits.
    pub(super) fn show(&mut self, text: &str) -> io::Result<()> {
        // A terminal may report no size, or a size of zero.
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_row.min(size.ws_col) > 0);
        let (rows, columns) =
            size.map_or((24, 80), |size| (usize::from(size.ws_row), usize::from(size.ws_col)));
        let mut picture = String::from("\x1b[H");
        let hint = "\nq ends";
        for (row, line) in text.lines().chain(hint.lines()).take(rows).enumerate() {
            if row > 0 {
                picture.push_str("\r\n");
            }
            picture.extend(line.chars().take(columns));
            picture.push_str("\x1b[K");
        }
        picture.push_str("\x1b[J");
        if picture == self.shown {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(picture.as_bytes())?;
        out.flush()?;
        self.shown = picture;
        Ok(())
    }

    /// Waits for an input, at most for `longest`.
    pub(super) fn wait(&mut self, longest: Duration) -> io::Result<Option<Key>> {
        let deadline = Instant::now() + longest;
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return Ok(Some(Key::End));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timeout = Timespec::try_from(left).unwrap_or_default();
            let stdin = io::stdin();
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            let mut bytes = [0; 64];
            let len = stdin.lock().read(&mut bytes)?;
            if len == 0 || bytes[..len].iter().any(|byte| [b'q', b'Q', 0x1b].contains(byte)) {
                return Ok(Some(Key::End));
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = io::stdout().write_all(CLOSE.as_bytes()).and_then(|()| io::stdout().flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
