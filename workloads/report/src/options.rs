//! The options of a command that have no field of their own in a report.

/// Options that have a field in reports, and whether a value follows.
const TOLD: [(&str, bool); 39] = [
    ("-w", true),
    ("--workload", true),
    ("--records", true),
    ("--customers", true),
    ("--accounts", true),
    ("--clients", true),
    ("--sessions", true),
    ("--rate", true),
    ("--open-loop", true),
    ("--kill", true),
    ("--read-mode", true),
    ("--duration", true),
    ("--warmup", true),
    ("--neighbours", true),
    ("--groups", true),
    ("--dst", true),
    ("--order", true),
    ("--tree", true),
    ("--adjacent", false),
    ("--ungated", false),
    ("--payload", true),
    ("--idle", true),
    ("--window", true),
    ("--fabric", true),
    ("--replicas", true),
    ("--nodes", true),
    ("--engines", true),
    ("--waiting", true),
    ("--threads", false),
    ("--processes", false),
    ("--simulated", false),
    ("--hardware", true),
    // Options that do not change what is measured.
    ("--compare", false),
    ("--no-load", false),
    ("--seed", true),
    ("--runs", true),
    ("--dir", true),
    ("--json", false),
    ("--csv", false),
];

/// The options of a command that have no field in a report, sorted by name. The file of `--history`
/// counts without its name.
pub(crate) fn options(command: &str) -> String {
    let mut rest = Vec::new();
    let words: Vec<&str> = command.split_whitespace().collect();
    let mut at = words.iter().position(|word| word.starts_with('-')).unwrap_or(words.len());
    while at < words.len() {
        let (name, mut value) = match words[at].split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (words[at], None),
        };
        at += 1;
        let takes = TOLD.iter().find(|(told, _)| *told == name).map(|(_, takes)| *takes);
        let number = |word: &str| word[1..].starts_with(|c: char| c.is_ascii_digit());
        let follows = words.get(at).filter(|next| !next.starts_with('-') || number(next));
        if value.is_none() && takes != Some(false) && follows.is_some() {
            value = follows.copied();
            at += 1;
        }
        // `-v` only prints more.
        if takes.is_some() || name.starts_with("-v") || name == "--verbose" {
            continue;
        }
        rest.push(match value {
            Some(value) if name != "--history" => format!("{name} {value}"),
            _ => name.to_owned(),
        });
    }
    rest.sort_unstable();
    rest.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_that_the_report_does_not_tell() {
        #[rustfmt::skip]
        let cases = [
            ("skein bench ycsb -w a --clients 4 --json", "", "the report has both"),
            ("skein bench ycsb --workload=a --distribution uniform", "--distribution uniform", "it has not"),
            ("skein bench ycsb -w c --distribution=uniform --no-load", "--distribution uniform", "either form"),
            ("skein bench ycsb --history /a/b --seed 7", "--history", "wherever it is recorded"),
            ("skein bench bank --hot 3 --accounts 10 --alike", "--alike --hot 3", "in order"),
            ("skein bench multicast --simulated --csv -vv", "", "none sets anything else"),
            ("skein bench multicast --tree -1,0,0 --adjacent --compare", "", "a number is no option"),
            ("workloads/peers/run", "", "nothing is said"),
        ];
        for (command, wanted, because) in cases {
            assert_eq!(options(command), wanted, "{because}: {command}");
        }
    }
}
