//! Advice in words.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use skein_multicast::trees::Shape;

use super::choice::{Basis, Choice, NOISE};
use super::{Advice, Kind, Load, Verdict, Weight};

/// The advice as text for a terminal.
pub fn words(advice: &Advice) -> String {
    let mut text = String::new();
    for load in &advice.loads {
        if !text.is_empty() {
            text.push('\n');
        }
        of_load(&mut text, load, advice);
    }
    text
}

fn of_load(text: &mut String, load: &Load, advice: &Advice) {
    let numbers: Vec<_> = load.reports.iter().map(usize::to_string).collect();
    let (plural, numbers) = (if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "));
    let _ = writeln!(text, "{}\n  report{plural} {numbers} of {}", load.load, advice.file);
    let Some(main) = load.main() else { return };
    let _ = writeln!(text, "\n  use {}", answer(&main.choice));
    for kind in &load.kinds {
        of_kind(text, kind, load);
    }
    if load.kinds.iter().any(|kind| kind.choice.basis == Basis::Table) {
        let column = match load.weight {
            Weight::Light => "one message in flight",
            Weight::Heavy => "128 messages in flight",
        };
        let _ = writeln!(
            text,
            "\n  the table: groups of 3 replicas, {column}, simulated RDMA hardware, in {}\n  your hardware may \
             differ; both orderings in turn there: {}",
            advice.table, load.measure
        );
    }
    if load.kinds.iter().any(|kind| kind.choice.verdict == Verdict::Unknown) {
        let _ = writeln!(
            text,
            "\n  not known: measure it. Count the groups that your operations address, and take that for --dst:\n  {}",
            load.measure
        );
    }
    for note in &load.notes {
        let _ = writeln!(text, "\n  {note}");
    }
    costs(text, load);
}

/// The choice, in the words of a configuration.
fn answer(choice: &Choice) -> String {
    let tree = choice.tree.as_deref().unwrap_or("breadth");
    match choice.verdict {
        Verdict::Tree => format!("tram along {tree}"),
        Verdict::Ramcast => "ramcast".to_owned(),
        Verdict::Either if choice.basis == Basis::Definition => {
            "ramcast: a tree makes no difference".to_owned()
        }
        Verdict::Either => format!("ramcast: no tree is better by {:.0} % or more", NOISE * 100.0),
        Verdict::Mixed => format!(
            "tram along {tree} for {}, ramcast for {}",
            if choice.ratios[0].throughput > 1.0 { "throughput" } else { "latency" },
            if choice.ratios[0].throughput > 1.0 { "latency" } else { "throughput" },
        ),
        Verdict::Unknown => "ramcast until both are measured".to_owned(),
    }
}

fn of_kind(text: &mut String, kind: &Kind, load: &Load) {
    let Kind { kind: name, share, addressed, choice } = kind;
    let groups =
        |number: u16| if number == 1 { "1 group".to_owned() } else { format!("{number} groups") };
    let to = match addressed {
        Some(addressed) => format!("{} of {}", addressed, groups(load.groups)),
        None if choice.basis == Basis::Definition => "not ordered in this read mode".to_owned(),
        None => "the report does not say how many groups".to_owned(),
    };
    let _ = writeln!(text, "\n  {name}: {:.0} % of operations, {to}", share * 100.0);
    let rests = match (choice.basis, choice.row) {
        (Basis::File, _) => "measured in this file".to_owned(),
        (Basis::Table, Some([row, of])) => format!("the table's row of {row} of {of} groups"),
        (Basis::Table, None) => "the table".to_owned(),
        (Basis::Definition, _) => {
            "no difference: only messages to several groups are ordered along a tree".to_owned()
        }
        (Basis::None, _) => "nothing was measured".to_owned(),
    };
    let _ = writeln!(text, "    {rests}{}", judged(choice));
    for ratio in &choice.ratios {
        let overlap = if ratio.overlap { "  the runs' ranges overlap" } else { "" };
        let _ = writeln!(
            text,
            "      tram along {:<8} throughput × {:.2}  median latency × {:.2}{overlap}",
            ratio.tree, ratio.throughput, ratio.latency
        );
    }
}

/// What the ratios of the best tree mean.
fn judged(choice: &Choice) -> String {
    let Some(tree) = &choice.tree else { return String::new() };
    let mut text = match choice.verdict {
        Verdict::Tree => format!(": {tree} wins"),
        Verdict::Ramcast => format!(": ramcast wins, {tree} comes next"),
        Verdict::Either => {
            format!(": {tree} is within noise (under {:.0} %) of ramcast", NOISE * 100.0)
        }
        Verdict::Mixed => format!(": {tree} is better in one and worse in the other"),
        Verdict::Unknown => String::new(),
    };
    if !choice.equals.is_empty() {
        let _ = write!(text, "; within noise of {tree}: {}", choice.equals.join(", "));
    }
    text
}

/// What a tree costs, if one is in question.
fn costs(text: &mut String, load: &Load) {
    let asked = |kind: &&Kind| matches!(kind.choice.verdict, Verdict::Tree | Verdict::Mixed);
    let Some(kind) = load.kinds.iter().find(asked) else { return };
    let tree = kind.choice.tree.as_deref().unwrap_or("breadth");
    let inner = inner_groups(tree, load.groups);
    let inner = if inner.is_empty() { String::new() } else { format!(" ({})", inner.join(", ")) };
    let _ = writeln!(
        text,
        "\n  what a tree costs:\n  \
         - an inner group{inner} without a quorum stops messages to several groups in its subtree; RamCast goes on \
         without groups that a message does not address\n  \
         - the root orders every message to groups in several of its subtrees, and is busy first\n  \
         - a lost group is recreated as with RamCast, but messages under way through it may stay half \
         done: docs/protocols/tram.md\n  \
         - the ordering is chosen when a cluster is made, and never changes: skein up --order tram --tree {}",
        tree.replace(' ', "")
    );
}

/// The groups of a tree that have children.
fn inner_groups(tree: &str, groups: u16) -> Vec<String> {
    let tree = tree.parse().ok().and_then(|shape: Shape| shape.tree(groups).ok());
    let parents = tree.map(|tree| tree.parents().iter().flatten().collect::<BTreeSet<_>>());
    parents.into_iter().flatten().map(|group| format!("g{group}")).collect()
}
