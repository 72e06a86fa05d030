use std::path::Path;

use skein_checker::history::{Digest, End, Header, Op};
use skein_checker::verify::{Judgement, verify};
use skein_client::GroupSet;
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::Topology;

use super::*;
use crate::chaos::objects::TOKEN_BYTES;
use crate::chaos::state::Survey;
use crate::generator::{Settings, once};
use crate::model::Model;

const PLAN: Plan = Plan {
    clients: 4,
    rate: None,
    mix: Mix::Everything,
    read_modes: Vec::new(),
    probe: true,
    window: 8,
    seed: 1,
    writer: 3,
};

#[derive(Default)]
struct Kept(Vec<Record>);

impl Sink for Kept {
    fn invoked(&mut self, record: Record) {
        self.0.push(record);
    }

    fn ended(&mut self, record: Record) {
        self.0.push(record);
    }
}

/// Runs for a moment on a model that may be wrong. Returns the verdict on the history.
fn history_of(prepare: impl Fn(&mut Model)) -> (Judgement, Loaded) {
    let topology = Topology { nodes: 1, groups: 2, replicas: 1, engines: 1 };
    let objects = Objects::new("test", &SlotMap::even(2), 2, now());
    let mut kept = Kept::default();
    let gauge = Gauge::default();
    let mut model = Model::over(SlotMap::even(2));
    once(&mut model, &objects.opening()).unwrap();
    prepare(&mut model);
    let loaded = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(150));
            gauge.stop.store(true, Ordering::Relaxed);
        });
        let mut lent = Some(&mut model);
        run(&mut || lent.take(), &objects, &PLAN, &mut kept, &gauge)
    });
    let header = Header {
        format: skein_checker::history::FORMAT,
        workload: "chaos".into(),
        skein: "test".into(),
        cluster: topology,
        seed: 1,
        t: 0,
        unix_ms: 0,
        token_bytes: TOKEN_BYTES,
        bank: Some(objects.bank()),
        record: None,
        before: false,
    };
    let mut records = kept.0;
    let keys = records.iter().filter_map(|record| match record {
        Record::Invoke(invoke) => Some(invoke.ops.iter().map(Op::key).map(str::to_owned)),
        _ => None,
    });
    let keys: BTreeSet<String> = keys.flatten().collect();
    let mut survey = Survey::new(keys.into_iter().collect(), 1, None);
    let settings = Settings::to_the_end(1, 1);
    (model.before, model.fails) = (None, None);
    crate::generator::run(&mut model, &mut survey, settings, &mut |_| true);
    records.extend(survey.found.into_iter().map(Record::Final));
    let digest = |group| {
        Record::Digest(Digest { t: 0, group, slot: 0, node: 0, position: 1, digest: "0".into() })
    };
    records.extend([digest(0), digest(1), Record::End(End { t: 0 })]);
    let records: Vec<u8> = records
        .iter()
        .flat_map(|record| {
            serde_json::to_string(record).unwrap().into_bytes().into_iter().chain([b'\n'])
        })
        .collect();
    let mut lines = serde_json::to_string(&Record::Header(Box::new(header))).unwrap().into_bytes();
    lines.push(b'\n');
    lines.extend(records);
    let reader = skein_checker::history::Reader::over(&lines[..], Path::new("test")).unwrap();
    let header = reader.header.clone();
    (verify(&header, reader).unwrap(), loaded)
}

#[test]
fn the_history_of_a_right_store_is_right() {
    let (verdict, loaded) = history_of(|_| ());
    assert!(verdict.is_good(), "{verdict:#?}");
    assert!(verdict.acknowledged > 100 && verdict.keys > 20, "{verdict:?}");
    assert!(loaded.samples.iter().any(|sample| sample.many));
    for probes in loaded.probes {
        // At most one a millisecond, however late the thread was.
        let [first, .., last] = &probes[..] else { panic!("a group is not probed") };
        let most = (last.invoked - first.invoked) / PROBE_EVERY + 2;
        assert!(probes.len() as u64 <= most, "{} of {most}", probes.len());
    }
}

#[test]
fn the_history_of_a_store_that_forgets_or_repeats_is_wrong() {
    let (verdict, _) = history_of(|model| {
        model.before = Some(|transaction| {
            let forget = |operation: &Operation| matches!(operation, Operation::Append { value, .. } if value.ends_with(b"0"));
            transaction.then.iter_mut().filter(|operation| forget(operation)).for_each(
                |operation| {
                    let Operation::Append { key, .. } = operation else { unreachable!() };
                    *operation = Operation::Append { key: key.clone(), value: Vec::new() };
                },
            );
        });
    });
    assert!(verdict.wrong.contains_key("lost"), "{verdict:?}");
    let (verdict, _) = history_of(|model| {
        model.before = Some(|transaction| {
            if let [Operation::Append { value, .. }] = &mut transaction.then[..] {
                let twice = value.repeat(2);
                *value = twice;
            }
        });
    });
    assert!(verdict.wrong.contains_key("twice"), "{verdict:?}");
}

#[test]
fn who_does_not_know_goes_on_under_another_name() {
    let (verdict, loaded) = history_of(|model| {
        let (after, silent) = (Duration::from_secs(1), GroupSet::EMPTY);
        model.fails = Some((200, Error::UnknownOutcome { after, silent }));
    });
    assert!(verdict.unknown > 0 && verdict.is_good(), "{verdict:#?}");
    assert!(loaded.first_error.unwrap().contains("no reply"));
}
