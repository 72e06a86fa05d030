//! Why a command ends before it has taken effect: a refusal or a store failure, which must never be confused.

/// A refusal follows from the state and the command, and is the same at all replicas. A failure is of
/// this replica's store: it ends the replica and is reported to no client.
pub(crate) enum Stop<R, E> {
    Refused(R),
    Failed(E),
}

impl<R, E> From<R> for Stop<R, E> {
    fn from(refused: R) -> Self {
        Self::Refused(refused)
    }
}

/// Separates the two: a failure stays an error, and a refusal becomes an ordinary result.
pub(crate) fn settle<T, R, E>(result: Result<T, Stop<R, E>>) -> Result<Result<T, R>, E> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(Stop::Refused(refused)) => Ok(Err(refused)),
        Err(Stop::Failed(failed)) => Err(failed),
    }
}
