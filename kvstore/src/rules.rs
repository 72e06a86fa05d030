//! What a command's bytes alone decide: the same for its sender and for every group it reaches.

use skein_protocol::ids::{GroupId, GroupSet};

use crate::command::{Operation, Transaction};
use crate::limits::Limits;
use crate::reply::Refusal;
use crate::wire::Bytes;

/// Whether the command can be executed at all, whatever the groups hold. Looks at both branches:
/// one that could never be taken makes the command wrong.
pub(crate) fn check(transaction: &Transaction<Bytes<'_>>, limits: &Limits) -> Result<(), Refusal> {
    let mentions = transaction.guards.len() + transaction.then.len() + transaction.otherwise.len();
    if mentions > limits.transaction_keys_max {
        let max = limits.transaction_keys_max as u64;
        return Err(Refusal::TooManyKeys { keys: mentions as u64, max });
    }
    for guard in &transaction.guards {
        check_key(guard.key, limits)?;
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
    }
    Ok(())
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
                return Err(Refusal::Malformed("a scan of at most 0 pairs".to_owned()));
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

/// Whether a value of `len` bytes may stand at `key`.
pub(crate) fn check_value(key: Bytes<'_>, len: usize, limits: &Limits) -> Result<(), Refusal> {
    if len <= limits.value_bytes_max {
        return Ok(());
    }
    let max = limits.value_bytes_max as u64;
    Err(Refusal::ValueTooLarge { key: key.0.to_vec(), len: len as u64, max })
}

/// Those to whom a command goes whose keys are `owners`': one that mentions nothing goes to one group.
pub(crate) fn somebody(owners: GroupSet) -> GroupSet {
    if owners.is_empty() { GroupSet::single(GroupId(0)) } else { owners }
}

/// Whether groups must hear each other before any of them applies: one's guards decide what the
/// others do, or one could refuse what the others would have done.
///
/// Reads and deletes are never refused by what a group holds, with one exception: reads may make
/// too large a reply. That alone needs no exchange, for if only reads are at stake, the reply of
/// one group's reads can be thrown away; with a delete among them it needs one.
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
