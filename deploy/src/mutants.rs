//! Disables one guard in this process and all processes that it starts, to test whether tests and
//! checks notice. Only in binaries built for that; see `docs/testing.md`.

use std::fmt::Write as _;

use skein_multicast::protocol::mutants::{self, Mutant};

use crate::exit::usage;
use crate::output::tell;

/// Environment variable that names the guard.
const CHOICE: &str = "SKEIN_MUTANT";

/// Disables the guard that the environment names, if any.
pub(crate) fn plant() -> anyhow::Result<()> {
    let Some(name) = std::env::var_os(CHOICE) else { return Ok(()) };
    let name = name.to_string_lossy();
    let Some(mutant) = Mutant::named(&name) else {
        let mut text = format!("{CHOICE}={name}: there is no such mutant; there are");
        for mutant in Mutant::ALL {
            let _ = write!(text, "\n  {:<28}{}", mutant.name(), mutant.about());
        }
        return Err(usage(text));
    };
    mutants::plant(Some(mutant));
    tell(format_args!("skein: {CHOICE}={name}, for tests: {}", mutant.about()));
    Ok(())
}
