//! Power is lost, or the process ends, at any operation: what was durable comes back, and nothing else.

use crate::harness::{Log, SHORT_FIRST, VALUE};
use proptest::prelude::*;
use skein_wal::{Group, Lsn};

#[derive(Clone, Debug)]
enum Step {
    Append {
        group: u16,
        bytes: usize,
        fill: u8,
    },
    Promise {
        group: u16,
    },
    Flush,
    Finish {
        which: usize,
    },
    Task,
    Turn,
    Seal,
    Keep {
        group: u16,
        back: u64,
    },
    Begin {
        group: u16,
    },
    /// The process ends here.
    Crash,
    /// Power goes so many operations from here, whatever they are.
    PowerIn {
        operations: u64,
    },
    PowerLoss,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..4_u16, 0..6000_usize, any::<u8>())
            .prop_map(|(group, bytes, fill)| Step::Append { group, bytes, fill }),
        4 => (0..4_u16).prop_map(|group| Step::Promise { group }),
        1 => (0..4_u16, 20_000..40_000_usize, any::<u8>())
            .prop_map(|(group, bytes, fill)| Step::Append { group, bytes, fill }),
        8 => Just(Step::Flush),
        8 => (0..4_usize).prop_map(|which| Step::Finish { which }),
        3 => Just(Step::Task),
        2 => Just(Step::Turn),
        1 => Just(Step::Seal),
        2 => (0..4_u16, 0..60_000_u64).prop_map(|(group, back)| Step::Keep { group, back }),
        1 => (0..4_u16).prop_map(|group| Step::Begin { group }),
        1 => Just(Step::Crash),
        1 => (1..40_u64).prop_map(|operations| Step::PowerIn { operations }),
        1 => Just(Step::PowerLoss),
    ]
}

/// Restarts until the power lasts, and expects that everything owed is there.
fn restart(log: &mut Log) {
    loop {
        match log.reopen() {
            Ok(found) => {
                assert_eq!(found.damaged, [], "nothing was damaged");
                return;
            }
            Err(skein_wal::RecoverError::File(_)) => log.medium.power_loss(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn run(log: &mut Log, steps: &[Step]) {
    for step in steps {
        match *step {
            Step::Append { group, bytes, fill } => {
                log.append(Group(group), VALUE, &vec![fill; bytes]);
            }
            Step::Promise { group } => log.promise(Group(group)),
            Step::Flush => _ = log.flush(),
            Step::Finish { which } => log.finish(which),
            Step::Task => _ = log.task(),
            Step::Turn => log.turn(),
            Step::Seal => _ = log.writer.seal(),
            Step::Keep { group, back } => {
                log.keep_from(Group(group), Lsn(log.durable.0.saturating_sub(back)));
            }
            Step::Begin { group } => log.begin(Group(group)),
            Step::Crash => {
                log.medium.crash();
                restart(log);
            }
            Step::PowerIn { operations } => {
                let at = log.medium.operations() + operations;
                log.medium.faults(|faults| faults.power_at = Some(at));
            }
            Step::PowerLoss => {
                log.medium.power_loss();
                restart(log);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn what_was_durable_comes_back(seed in any::<u64>(), steps in prop::collection::vec(step(), 1..250)) {
        let mut log = Log::new(seed, SHORT_FIRST);
        run(&mut log, &steps);
        log.medium.power_loss();
        restart(&mut log);
        // And the log goes on.
        log.turn();
        log.append(Group(0), VALUE, b"after").expect("room after a restart");
        log.turn();
        log.medium.power_loss();
        restart(&mut log);
    }
}

/// One long run, and the power goes once at each of its operations; then again while it restarts.
#[test]
fn power_may_go_at_every_operation() {
    let steps: Vec<Step> = (0..90_usize)
        .flat_map(|i| {
            let group = (i % 3) as u16;
            let bytes = [10, 3000, 5000, 700][i % 4];
            let append = Step::Append { group, bytes, fill: i as u8 };
            let rest = match i % 9 {
                0 => Step::Promise { group },
                2 | 5 => Step::Task,
                4 => Step::Keep { group: (i / 9 % 3) as u16, back: 9000 },
                7 => Step::Turn,
                8 => Step::Seal,
                _ => Step::Finish { which: i },
            };
            [append, Step::Flush, rest]
        })
        .collect();
    let mut whole = Log::new(0, SHORT_FIRST);
    run(&mut whole, &steps);
    let (operations, recycled) = (whole.medium.operations(), whole.writer.sizes().recycled);
    assert!(operations > 150 && recycled > 1, "{operations} operations, {recycled} recycled");
    for at in 1..=operations {
        let mut log = Log::new(at, SHORT_FIRST);
        log.medium.faults(|faults| faults.power_at = Some(at));
        run(&mut log, &steps);
        log.medium.power_loss();
        let again = log.medium.operations() + 1 + at % 23;
        log.medium.faults(|faults| faults.power_at = Some(again));
        restart(&mut log);
        run(&mut log, &steps[..30]);
        log.medium.power_loss();
        restart(&mut log);
    }
}
