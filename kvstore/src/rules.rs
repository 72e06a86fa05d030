//! Rules that depend only on a command's bytes, so that its sender and all of its groups decide alike.

use skein_protocol::ids::{GroupId, GroupSet};

use crate::command::{Guard, Operation, Test, Transaction};
use crate::limits::Limits;
use crate::reply::Refusal;
use crate::wire::Bytes;

/// Checks whether the command can be executed at all, whatever the groups hold. Both branches must be valid, even if
/// one of them is never executed.
pub(crate) fn check(transaction: &Transaction<Bytes<'_>>, limits: &Limits) -> Result<(), Refusal> {
    check_keys(transaction, limits)?;
    let mut ranges = (0_u64, 0_u64);
    for guard in &transaction.guards {
        check_guard(guard, &mut ranges, limits)?;
    }
    for branch in [&transaction.then, &transaction.otherwise] {
        let mut scans = 0;
        for operation in branch {
            check_operation(operation, limits)?;
            scans += usize::from(matches!(operation, Operation::Scan { .. }));
        }
        if scans > 1 {
            return Err(Refusal::Malformed("more than one scan in a branch".to_owned()));
        }
        check_patches(branch, limits)?;
    }
    Ok(())
}

/// Maximum number of mentions per key, on average: guarded, read, and written in either branch.
const MENTIONS: usize = 4;

/// Checks the number of keys. A key counts once, however often it is mentioned. Each scan and each guarded range counts
/// once.
fn check_keys(transaction: &Transaction<Bytes<'_>>, limits: &Limits) -> Result<(), Refusal> {
    let Transaction { guards, then, otherwise } = transaction;
    let (mentions, max) =
        (guards.len() + then.len() + otherwise.len(), limits.transaction_keys_max);
    if mentions <= max {
        return Ok(());
    }
    let mut counted = mentions;
    if mentions <= MENTIONS * max {
        let guarded = guards.iter().filter_map(Guard::only_key);
        let operated = then.iter().chain(otherwise).filter_map(Operation::key);
        let mut keys: Vec<_> = guarded.chain(operated).collect();
        let ranges = mentions - keys.len();
        keys.sort_unstable();
        keys.dedup();
        counted = keys.len() + ranges;
    }
    if counted <= max {
        return Ok(());
    }
    Err(Refusal::TooManyKeys { keys: counted as u64, max: max as u64 })
}

/// Checks a guard, and adds the pairs and bytes of its range to `ranges`. One command compares no more of them than it
/// may scan, so that evaluating guards does not occupy an engine for longer than a scan.
fn check_guard(
    guard: &Guard<Bytes<'_>>,
    (pairs, bytes): &mut (u64, u64),
    limits: &Limits,
) -> Result<(), Refusal> {
    check_key(guard.key, limits)?;
    let Test::Unchanged { end, held } = &guard.test else { return Ok(()) };
    for group in held {
        *pairs = pairs.saturating_add(u64::from(group.pairs));
        *bytes = bytes.saturating_add(group.bytes);
    }
    let (pairs_max, bytes_max) = (limits.scan_pairs_max as u64, limits.reply_bytes_max as u64);
    if *pairs > pairs_max || *bytes > bytes_max {
        let (pairs, bytes) = (*pairs, *bytes);
        return Err(Refusal::RangesTooLarge { pairs, bytes, pairs_max, bytes_max });
    }
    end.map_or(Ok(()), |end| check_key(end, limits))
}

/// Checks the total length of the values that a branch's patches write, whatever the groups hold: a value is at least
/// as long as its patches reach.
fn check_patches(branch: &[Operation<Bytes<'_>>], limits: &Limits) -> Result<(), Refusal> {
    let patches = || {
        branch.iter().filter_map(|operation| match operation {
            Operation::Patch { key, offset, bytes } => {
                Some((*key, *offset as usize + bytes.0.len()))
            }
            _ => None,
        })
    };
    let max = limits.transaction_bytes_max;
    if patches().map(|(_, end)| end).sum::<usize>() <= max {
        return Ok(());
    }
    let mut reach: Vec<_> = patches().collect();
    reach.sort_unstable();
    // For each key, the last patch reaches furthest.
    let last = reach.chunk_by(|one, other| one.0 == other.0).filter_map(<[_]>::last);
    check_made(last.map(|(_, end)| end).sum(), limits)
}

/// Checks the total length of the values that a branch writes by append and patch.
pub(crate) fn check_made(len: usize, limits: &Limits) -> Result<(), Refusal> {
    let max = limits.transaction_bytes_max;
    if len <= max {
        return Ok(());
    }
    Err(Refusal::WritesTooLarge { len: len as u64, max: max as u64 })
}

fn check_operation(operation: &Operation<Bytes<'_>>, limits: &Limits) -> Result<(), Refusal> {
    if let Some(key) = operation.key() {
        check_key(*key, limits)?;
    }
    match operation {
        Operation::Put { key, value } | Operation::Append { key, value } => {
            check_value(*key, value.0.len(), limits)
        }
        Operation::Patch { key, offset, bytes } => {
            check_value(*key, *offset as usize + bytes.0.len(), limits)
        }
        Operation::Scan { start, end, limit } => {
            if *limit == 0 {
                return Err(Refusal::Malformed("a scan with limit 0".to_owned()));
            }
            check_key(*start, limits)?;
            end.map_or(Ok(()), |end| check_key(end, limits))
        }
        Operation::Get { .. }
        | Operation::Exists { .. }
        | Operation::Delete { .. }
        | Operation::Increment { .. } => Ok(()),
    }
}

fn check_key(key: Bytes<'_>, limits: &Limits) -> Result<(), Refusal> {
    if key.0.len() <= limits.key_bytes_max {
        return Ok(());
    }
    Err(Refusal::KeyTooLarge { len: key.0.len() as u64, max: limits.key_bytes_max as u64 })
}

/// Checks the length of a value to be stored at `key`.
pub(crate) fn check_value(key: Bytes<'_>, len: usize, limits: &Limits) -> Result<(), Refusal> {
    if len <= limits.value_bytes_max {
        return Ok(());
    }
    let max = limits.value_bytes_max as u64;
    Err(Refusal::ValueTooLarge { key: key.0.to_vec(), len: len as u64, max })
}

/// The destinations of a command whose keys have these owners. A command without keys goes to one group.
pub(crate) fn somebody(owners: GroupSet) -> GroupSet {
    if owners.is_empty() { GroupSet::single(GroupId(0)) } else { owners }
}

/// Whether groups must exchange verdicts before any of them applies the transaction. They must if a guard in one group
/// decides what others do, or if one group could refuse what others would already have applied.
///
/// Reads and deletes are not refused because of a group's state, with one exception: reads can make a reply too long.
/// If the command only reads, this needs no exchange, because the replies of the other groups can be discarded. If it
/// also deletes, it needs one.
pub(crate) fn needs_exchange(transaction: &Transaction<Bytes<'_>>) -> bool {
    if !transaction.guards.is_empty() {
        return true;
    }
    let branch = &transaction.then;
    let effects = branch.iter().any(|operation| !operation.is_read());
    let refusable = |operation: &Operation<Bytes<'_>>| {
        !matches!(operation, Operation::Delete { .. } | Operation::Exists { .. })
    };
    effects && branch.iter().any(refusable)
}
