//! Histories of client operations, and the checks of their correctness.

pub mod chart;
pub mod check;
pub mod history;
pub mod verify;

use std::io::BufRead;

use self::check::Checker;
use self::history::{ReadError, Reader};
use self::verify::{Judgement, Verifier};

/// Reads a history once for both checks. Returns the verdict on single keys, replicas and bank
/// sums, and the [checker](Checker) of all transactions, which has taken all records.
///
/// # Errors
///
/// The history cannot be read, or is too large for the checker.
pub fn judge<R: BufRead>(reader: Reader<R>) -> Result<(Judgement, Checker), ReadError> {
    let header = reader.header.clone();
    let (mut verifier, mut checker) = (Verifier::new(&header), Checker::new(&header));
    for record in reader {
        let record = record?;
        checker.take(&record)?;
        verifier.take(record);
    }
    Ok((verifier.finish(), checker))
}
