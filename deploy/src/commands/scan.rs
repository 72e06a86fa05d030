//! `skein scan`: prints keys and values in order.

use std::ffi::OsString;

use serde_json::json;
use skein_client::KeyRange;

use super::admin::group;
use crate::args::Global;
use crate::data::{Form, Reading, failed};
use crate::exit::{Exit, usage};
use crate::output::say_if_heard;

/// Pairs per request.
const PAGE: u32 = 1_000;

/// Prints keys and values in the order of the keys' bytes, over all shards
///
/// One pair a line: key, tab, value, with \n, \t, \r, \", \\ and \x00 for bytes that are not text. With
/// --json, one object {"key": …, "value": …} a line. The pairs are read page by page; each page is
/// one atomic read of the store, and a long scan is not.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only keys with this prefix
    #[arg(long, value_name = "KEY", conflicts_with_all = ["start", "end"])]
    prefix: Option<OsString>,
    /// The first key
    #[arg(long, value_name = "KEY")]
    start: Option<OsString>,
    /// The first key that is no longer printed
    #[arg(long, value_name = "KEY")]
    end: Option<OsString>,
    /// Only keys of this group, as `skein status` names it: g0
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Option<u16>,
    /// At most this many pairs
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Prints keys only
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    form: Form,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let mut rest = Some(self.range()?);
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut client = self.reading.connect(&self.form, global)?;
        let groups = client.shape().layout.topology().groups;
        if let Some(group) = self.group.filter(|group| *group >= groups) {
            return Err(usage(format_args!(
                "no group {group}: this cluster has {groups}, numbered from 0"
            )));
        }
        while let Some(range) = rest.take().filter(|_| left > 0) {
            // A page holds keys of all groups, so whole pages are read to find those of one group.
            let limit = if self.group.is_some() { PAGE } else { left.min(PAGE.into()) as u32 };
            let page = client.scan(&range, limit).map_err(failed(global))?;
            let slots = &client.shape().slots;
            let wanted = |key: &[u8]| self.group.is_none_or(|group| slots.owner(key).0 == group);
            let mut lines = String::new();
            for (key, value) in page.pairs.iter().filter(|(key, _)| wanted(key)) {
                if left == 0 {
                    break;
                }
                left -= 1;
                lines += &(self.line(key, value) + "\n");
            }
            if !say_if_heard(lines)? {
                break;
            }
            rest = page.next.map(|start| KeyRange { start, end: range.end });
        }
        Ok(Exit::Ok)
    }

    fn range(&self) -> anyhow::Result<KeyRange> {
        let key = |what: &str, text: &OsString| self.form.bytes(what, text);
        if let Some(prefix) = &self.prefix {
            return Ok(KeyRange::prefix(key("the prefix", prefix)?));
        }
        let start = self.start.as_ref().map(|text| key("the start", text)).transpose()?;
        let end = self.end.as_ref().map(|text| key("the end", text)).transpose()?;
        Ok(KeyRange { start: start.unwrap_or_default(), end })
    }

    fn line(&self, key: &[u8], value: &[u8]) -> String {
        let form = &self.form;
        let text = |bytes: &[u8]| {
            let quoted = form.quoted(bytes);
            // Tabs and line ends separate the output, so both are escaped in keys and values.
            if form.hex { quoted } else { quoted[1..quoted.len() - 1].to_owned() }
        };
        match (form.json, self.keys_only) {
            (true, false) => {
                json!({ "key": form.to_json(key), "value": form.to_json(value) }).to_string()
            }
            (true, true) => json!({ "key": form.to_json(key) }).to_string(),
            (false, false) => format!("{}\t{}", text(key), text(value)),
            (false, true) => text(key),
        }
    }
}
