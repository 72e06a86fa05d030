//! Commands that leave a process in the background: the command starts itself again in a session of
//! its own, and the new process reports when it is ready. Until then the first process forwards
//! signals to it and relays its output and exit code.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdout};

use crate::exit::Exit;
use crate::{logging, signals};

/// Flag of the background process.
pub(crate) const FLAG: &str = "--background";

enum Event {
    Signal(i32),
    /// The child's exit code so far and its output, until it was ready; nothing if it has ended.
    Said(io::Result<Vec<u8>>),
}

/// Runs this command again in the background. Returns when the child is ready or has ended.
pub(crate) fn start() -> anyhow::Result<Exit> {
    let us = std::env::current_exe().context("cannot find this program")?;
    let (sender, events) = channel();
    signals::to_channel(sender.clone(), Event::Signal).context("cannot catch signals")?;
    let mut command = Command::new(us);
    command.args(std::env::args_os().skip(1)).arg(FLAG);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start a process in the background")?;
    let mut out = child.stdout.take().expect("piped");
    thread::spawn(move || {
        let mut said = Vec::new();
        let said = out.read_to_end(&mut said).map(|_| said);
        let _ = sender.send(Event::Said(said));
    });
    let said = loop {
        match events.recv() {
            Ok(Event::Signal(signal)) => {
                // The child has not been waited for yet, so its number is still its own.
                let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                if let (Some(child), Some(signal)) = (child, Signal::from_named_raw(signal)) {
                    let _ = kill_process(child, signal);
                }
            }
            Ok(Event::Said(said)) => break said?,
            Err(_) => unreachable!("we hold a sender ourselves"),
        }
    };
    let Some((code, said)) = said.split_first() else {
        // The child has reported the reason.
        let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok());
        return Ok(Exit::Said(code.unwrap_or(3)));
    };
    crate::output::say(said)?;
    Ok(Exit::Said(*code))
}

/// In the background process: leaves the terminal.
pub(crate) fn enter() -> anyhow::Result<()> {
    setsid().context("cannot leave the terminal")?;
    Ok(())
}

/// In the background process: prints `text`, at which the first process ends with the code of `exit`. Later output goes to
/// the file at `log`, or is dropped if that cannot be written: the cluster runs whether its log can
/// be written or not.
pub(crate) fn ready(text: &str, exit: Exit, log: &Path) {
    let said = [&[exit.code()], text.as_bytes()].concat();
    if let Err(error) = crate::output::say(said) {
        tracing::warn!(%error, "cannot write to standard output");
    }
    logging::flush();
    logging::to_file(log);
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = dup2_stdout(&null).and_then(|()| dup2_stderr(&null));
    }
}
