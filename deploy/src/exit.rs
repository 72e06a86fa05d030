//! Exit codes: 0 ok, 1 "no", 2 bad usage or configuration, 3 unavailable or failed, 4 undecided, 5 done in part.

use std::fmt;
use std::process::ExitCode;

use crate::output::tell;

/// The end of a command that completed. A failure is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done.
    Ok,
    /// 1: done, and the answer is "no": a missing key, a failed guard, a check that found
    /// something.
    No,
    /// 4: done within its limits, and the answer is not known.
    Undecided,
    /// 5: the cluster runs, and some of it does not serve.
    Partly,
    /// The code of another process, which did the work and printed the rest.
    Said(u8),
}

impl Exit {
    /// The code with which the process ends.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::No => 1,
            Self::Undecided => 4,
            Self::Partly => 5,
            Self::Said(code) => code,
        }
    }
}

/// The caller must change the request: exit code 2. All other errors are 3.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Bad usage or configuration: `Err(usage("what, and what to do"))`.
pub(crate) fn usage(message: impl fmt::Display) -> anyhow::Error {
    Usage(message.to_string()).into()
}

/// Prints the error, if any, and returns the process's exit code.
pub(crate) fn code(end: anyhow::Result<Exit>) -> ExitCode {
    match end {
        Ok(end) => ExitCode::from(end.code()),
        Err(error) => {
            tell(format_args!("skein: {}", whole(&error)));
            ExitCode::from(if error.is::<Usage>() { 2 } else { 3 })
        }
    }
}

/// An error with its causes, each once: many errors already contain their cause.
fn whole(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow!("no room").context("cannot write: no room").context("not started");
        assert_eq!(whole(&error), "not started: cannot write: no room");
    }

    #[test]
    fn usage_keeps_its_code_in_any_context() {
        assert!(usage("what").context("where").is::<Usage>());
    }
}
