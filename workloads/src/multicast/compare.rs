//! Two orderings that were measured in turn, beside each other.

use std::fmt::Write as _;

use skein_checker::chart;

use super::report::{Report, Spread};

/// Length of the longest bar.
const WIDTH: f64 = 40.0;

/// Medians of both as bars, and how many times as much the second one is. `colour` is for terminals.
pub fn compared([first, second]: [&Report; 2], colour: bool) -> String {
    let paint = chart::Paint(colour);
    let names = [first, second].map(|report| report.setting.order_words());
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let runs = match first.runs.len() {
        1 => "one run each".to_owned(),
        runs => format!("medians of {runs} runs each"),
    };
    let mut text =
        format!("{}   {} against {}, {runs}\n\n", paint.strong("compared"), names[1], names[0]);
    type Measure = fn(&Report) -> Spread;
    let measures: [(&str, usize, Measure); 4] = [
        ("messages/s", 0, |report| report.messages_per_s),
        ("p50 µs", 2, |report| report.p50_us),
        ("p95 µs", 2, |report| report.p95_us),
        ("p99 µs", 2, |report| report.p99_us),
    ];
    for (what, digits, of) in measures {
        let medians = [first, second].map(|report| of(report).median);
        let longest = medians[0].max(medians[1]);
        for (number, median) in medians.into_iter().enumerate() {
            let share = if longest > 0.0 { median / longest } else { 0.0 };
            let bar = "█".repeat(chart::whole(share * WIDTH) as usize);
            let what = if number == 0 { what } else { "" };
            let shown = match digits {
                0 => chart::grouped(chart::whole(median)),
                _ => format!("{median:.digits$}"),
            };
            let name = &names[number];
            let _ = write!(text, "  {what:<12}{name:<width$}  {bar} {shown}");
            if number == 1 && medians[0] > 0.0 {
                let _ =
                    write!(text, "  {}", paint.strong(&format!("× {:.2}", median / medians[0])));
            }
            text.push('\n');
        }
    }
    if second.setting.ungated {
        let _ = writeln!(
            text,
            "\n  {} is ungated: its order is not strictly real-time, and no cluster runs it so",
            names[1]
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skein_multicast::batches::Batches;
    use skein_multicast::config::Topology;
    use skein_multicast::layout::Layout;
    use skein_protocol::tram::tree::Tree;

    use super::*;
    use crate::generator::{Errors, histogram};
    use crate::multicast::load::{Measured, Plan};
    use crate::multicast::report::Setting;

    fn report(tree: Option<&Tree>, micros: u64, messages: u64) -> Report {
        let plan = Plan {
            groups: 4,
            destinations: 2,
            adjacent: None,
            payload_bytes: 64,
            clients: 1,
            idle: 0,
            depth: 1,
            window: 64,
            rate: None,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
            seed: 1,
        };
        let topology = Topology { nodes: 3, groups: 4, replicas: 3, engines: 1 };
        let layout = Layout::propose(topology).unwrap();
        let layout = tree.map_or(layout.clone(), |tree| layout.along(tree).unwrap());
        let words = ["processes", "shm"];
        let setting =
            Setting::new(&plan, &layout, words, "adaptive".into(), String::new(), String::new());
        let setting = Setting { ungated: tree.is_some(), ..setting };
        let mut latency_ns = histogram();
        latency_ns.record_n(micros * 1_000, messages).unwrap();
        let one = Measured {
            measured_for: plan.duration,
            latency_ns,
            errors: Errors::default(),
            ended_early: None,
            batches: Batches::default(),
            utilisation: None,
        };
        Report::new(setting, &[(None, one)])
    }

    #[test]
    fn the_larger_has_the_longest_bar_and_the_ratio_is_of_the_second() {
        let reports = [report(None, 8, 1_000), report(Some(&Tree::depth(4)), 4, 2_000)];
        let text = compared([&reports[0], &reports[1]], false);
        let bars: Vec<_> = text.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!(bars[2..6], [20, 40, 40, 20], "{text}");
        assert!(text.contains("tram along depth against ramcast"), "{text}");
        assert!(text.contains("2,000  × 2.00") && text.contains("× 0.50"), "{text}");
        assert!(text.contains("not strictly real-time"), "{text}");
    }
}
