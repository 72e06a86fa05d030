//! What clients asked and were told, and what groups delivered: the check of a schedule.

/// How a schedule ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Fine,
    /// The orders of the groups have a cycle.
    OrderCycle,
    /// They have one together with real time.
    TimeCycle,
    /// A client waits for ever.
    Stuck,
    /// A group delivered a message twice.
    Twice,
}

/// One operation of a client: a message, or a read of one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) asked: f64,
    pub(crate) answered: Option<f64>,
    /// A read saw this many deliveries of this group.
    pub(crate) read: Option<(usize, usize)>,
}

/// Judges a schedule. `orders` has the operations that each group delivered.
pub(crate) fn judge(operations: &[Operation], orders: &[Vec<usize>], ended: bool) -> Outcome {
    let (mut after, mut before) = (vec![Vec::new(); operations.len()], vec![0; operations.len()]);
    let mut edge = |from: usize, to: usize| {
        after[from].push(to);
        before[to] += 1;
    };
    for order in orders {
        let mut seen = vec![false; operations.len()];
        if order.iter().any(|it| std::mem::replace(&mut seen[*it], true)) {
            return Outcome::Twice;
        }
        order.windows(2).for_each(|pair| edge(pair[0], pair[1]));
    }
    for (name, operation) in operations.iter().enumerate() {
        let Some((group, position)) = operation.read else { continue };
        if position > 0 {
            edge(orders[group][position - 1], name);
        }
        if let Some(next) = orders[group].get(position) {
            edge(name, *next);
        }
    }
    // The latest request among all that is ordered before an operation, itself included, must precede its answer.
    let mut latest: Vec<f64> = operations.iter().map(|it| it.asked).collect();
    let mut free: Vec<_> = (0..operations.len()).filter(|it| before[*it] == 0).collect();
    let (mut done, mut late) = (0, false);
    while let Some(name) = free.pop() {
        done += 1;
        late |= operations[name].answered.is_some_and(|answered| latest[name] > answered);
        for next in after[name].clone() {
            latest[next] = latest[next].max(latest[name]);
            before[next] -= 1;
            if before[next] == 0 {
                free.push(next);
            }
        }
    }
    match () {
        () if done < operations.len() => Outcome::OrderCycle,
        () if late => Outcome::TimeCycle,
        () if !ended || operations.iter().any(|it| it.answered.is_none()) => Outcome::Stuck,
        () => Outcome::Fine,
    }
}
