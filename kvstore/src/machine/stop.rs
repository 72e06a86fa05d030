//! What ends a command before it has taken effect: two things that must never be taken for each other.

/// A refusal, which follows from the state and the command and is the same at all replicas, or a failure of this
/// replica's store, which ends the replica and is told to no client.
pub(crate) enum Stop<R, E> {
    Refused(R),
    Failed(E),
}

impl<R, E> From<R> for Stop<R, E> {
    fn from(refused: R) -> Self {
        Self::Refused(refused)
    }
}

/// Tells the two apart: a failure goes on its way up, a refusal is a result like another.
pub(crate) fn settle<T, R, E>(result: Result<T, Stop<R, E>>) -> Result<Result<T, R>, E> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(Stop::Refused(refused)) => Ok(Err(refused)),
        Err(Stop::Failed(failed)) => Err(failed),
    }
}
