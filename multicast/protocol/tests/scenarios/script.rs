//! Transcripts: schedules that are worth an argument, written down.
//!
//! A scenario is a file of blocks: commands, a line `----`, and their consequences in the words of the protocol.
//! `UPDATE_TRANSCRIPTS=1 cargo test -p skein-protocol --test scenarios` rewrites the consequences; review the
//! difference.
//!
//! | command | what happens |
//! |---|---|
//! | `groups N replicas R` | a new cluster, in which slot 0 of each group leads |
//! | `write M to G …` | the session's message lands at every replica of the groups |
//! | `write M to G … at R …` | it lands at these replicas only |
//! | `turn R …` | the replica handles everything that has arrived at it, and ends its turn |
//! | `complete R …` | the leader receives the completions of its writes into its followers' logs |
//! | `lose words R -> R` | the first replica's acceptance words to the second are held back |
//! | `lose writes R -> R` | the first replica's writes into the second's log do not arrive |
//! | `heal` | from here on everything arrives, and words are sent again |
//! | `silence R` | the others of its group see no heartbeats of the replica |
//! | `R runs, asking R …` | the replica sets out to lead, and asks the others for votes |
//! | `R asks R …` | the candidate, or leader, asks these replicas too |
//! | `pass N ms` | time passes; every replica reports to its leader how far it has applied messages |
//! | `restart R` | the replica's process is started again, without its memory |
//! | `R teaches R` | the leader transfers its state to the other, and writes its log from there on |
//! | `R lets R in` | the leader logs that the other's present incarnation counts |
//! | `R evicts R` | the leader logs that the log does not wait for the other any more |

use std::fmt::Write;
use std::path::{Path, PathBuf};

use skein_protocol::group::Cause;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ramcast::Ramcast;
use skein_protocol::single::Single;

use crate::played::Played;
use crate::stage::{self, Stage};

fn command<O: Played>(stage: &mut Stage<O>, line: &str) {
    let mut words = line.split([' ', ',']).filter(|word| !word.is_empty());
    let first = words.next().expect("no empty commands");
    if first.contains('.') {
        return act(stage, replica(first), words);
    }
    match first {
        "write" => {
            let message = stage::message(number(words.next().expect("a message"), "m"));
            assert_eq!(words.next(), Some("to"));
            let (groups, at): (Vec<_>, Vec<_>) =
                words.filter(|word| *word != "at").partition(|word| !word.contains('.'));
            let groups: GroupSet = groups.into_iter().map(group).collect();
            let at: Vec<_> = if at.is_empty() {
                groups.iter().flat_map(|group| stage.members(group)).collect()
            } else {
                at.into_iter().map(replica).collect()
            };
            for id in at {
                stage.land(id, message, groups);
            }
        }
        "turn" => words.map(replica).for_each(|id| stage.turn(id)),
        "complete" => words.map(replica).for_each(|id| stage.complete(id)),
        "lose" => {
            let what = words.next().expect("words or writes");
            let from = replica(words.next().expect("whose"));
            assert_eq!(words.next(), Some("->"));
            let to = replica(words.next().expect("to whom"));
            match what {
                "words" => stage.lose_words(from, to),
                "writes" => stage.lose_writes(from, to),
                other => panic!("how can {other} be lost?"),
            }
        }
        "heal" => stage.heal(),
        "silence" => words.map(replica).for_each(|id| stage.silence(id)),
        "pass" => stage.pass(words.next().and_then(|ms| ms.parse().ok()).expect("a time"), &[]),
        "restart" => words.map(replica).for_each(|id| stage.restart(id)),
        other => panic!("what is {other}?"),
    }
}

/// An action that a replica takes by itself.
fn act<'a, O: Played>(
    stage: &mut Stage<O>,
    id: ReplicaId,
    mut words: impl Iterator<Item = &'a str>,
) {
    match words.next().expect("what it does") {
        "runs" => {
            stage.campaign(id, Cause::Silence);
            words.filter(|word| *word != "asking").for_each(|whom| stage.ask(id, replica(whom)));
        }
        "asks" => words.for_each(|whom| stage.ask(id, replica(whom))),
        "teaches" => words.for_each(|whom| stage.transfer_state(id, replica(whom))),
        "lets" => {
            words.filter(|word| *word != "in").for_each(|whom| stage.admitted(id, replica(whom)));
        }
        "evicts" => words.for_each(|whom| assert!(stage.evict(id, replica(whom).slot))),
        other => panic!("how does {id} do {other}?"),
    }
}

fn number(word: &str, prefix: &str) -> u64 {
    word.strip_prefix(prefix).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{word}?"))
}

fn group(word: &str) -> GroupId {
    GroupId(number(word, "g") as u16)
}

fn replica(word: &str) -> ReplicaId {
    let (of, slot) = word.split_once('.').unwrap_or_else(|| panic!("{word} is no replica"));
    ReplicaId::new(group(of), slot.parse().expect("a slot"))
}

/// The file as it should be: its commands, with their present consequences.
fn play<O: Played>(script: &str) -> String {
    let mut stage = None;
    let mut written = String::new();
    let mut commands = Vec::new();
    let mut expected = false;
    for line in script.lines() {
        if line == "----" {
            expected = true;
            writeln!(written, "----").expect("memory");
            for line in commands.drain(..) {
                let line: &str = line;
                if let Some(shape) = line.strip_prefix("groups ") {
                    let (groups, replicas) = shape.split_once(" replicas ").expect("a shape");
                    let shape = (groups.parse().expect("a number"), replicas.parse().expect("one"));
                    stage = Some(Stage::<O>::new(shape.0, shape.1));
                } else {
                    command(stage.as_mut().expect("a cluster first"), line);
                }
            }
            written += &stage.as_mut().expect("a cluster first").told();
        } else if line.is_empty() {
            expected = false;
            writeln!(written).expect("memory");
        } else if !expected {
            writeln!(written, "{line}").expect("memory");
            if !line.starts_with('#') {
                commands.push(line);
            }
        }
    }
    written
}

/// The transcripts: path and text of each.
fn transcripts() -> Vec<(PathBuf, String)> {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let files = std::fs::read_dir(scenarios).expect("a folder");
    let paths = files.map(|entry| entry.expect("a file").path());
    let texts = paths.filter(|path| path.extension().is_some_and(|extension| extension == "txt"));
    texts.map(|path| (path.clone(), std::fs::read_to_string(path).expect("text"))).collect()
}

#[test]
fn transcripts_are_as_written() {
    let transcripts = transcripts();
    assert!(transcripts.len() >= 8, "the scenarios are not where they were");
    for (path, script) in transcripts {
        let result = play::<Ramcast>(&script);
        if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
            std::fs::write(&path, &result).expect("a file that can be written");
        } else {
            assert!(script == result, "{}\n\nis now\n\n{result}", path.display());
        }
    }
}

/// Only ranks depend on the ordering. Everything else is the group log's.
#[test]
fn a_transcript_of_one_group_differs_by_nothing_but_ranks_under_another_ordering() {
    let without_ranks = |text: &str| -> String {
        let words = text.split_inclusive([' ', '\n']).map(|word| match word.trim_end() {
            rank if rank.contains('@') => &word[rank.len()..],
            _ => word,
        });
        words.collect::<String>().replace(" \n", "\n")
    };
    let of_one = |script: &str| {
        let mut shapes = script.lines().filter(|line| line.starts_with("groups "));
        shapes.all(|shape| shape.starts_with("groups 1 "))
    };
    let mut played = 0;
    for (path, script) in transcripts().into_iter().filter(|(_, script)| of_one(script)) {
        let result = play::<Single>(&script);
        let (written, is) = (without_ranks(&script), without_ranks(&result));
        assert!(written == is, "{}\n\nreads\n\n{result}", path.display());
        played += 1;
    }
    assert!(played >= 4, "{played} transcripts are of one group");
}
