//! A configuration that is not validated yet, with the origin of each entry.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use skein_multicast::config::Conflict;
use skein_multicast::trees::Shape;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::entries::{self, ENTRIES, Entry, Kind, SECTIONS, nearest};
use super::network::{self, Encryption, FabricKind, Network};
use super::{ClusterConfig, Durability, Protocol, StoreKind, machine_memory, order, parse_bytes};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Number(u64),
    Text(String),
    List(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Default,
    /// Line of the file, counted from 1.
    Line(usize),
    Flag,
}

/// Why a configuration was refused: place, cause and remedy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", place(.file.as_deref(), *.line))]
pub struct ConfigError {
    /// `None` if no file is to blame.
    pub file: Option<PathBuf>,
    /// Counted from 1; `None` if no single line is to blame.
    pub line: Option<usize>,
    /// Cause and remedy.
    pub what: String,
}

fn place(file: Option<&Path>, line: Option<usize>) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!("{}:{line}: ", file.display()),
        (Some(file), None) => format!("{}: ", file.display()),
        (None, _) => String::new(),
    }
}

/// A configuration that is not validated yet.
#[derive(Clone, Debug)]
pub struct Draft {
    file: Option<PathBuf>,
    settings: BTreeMap<(&'static str, &'static str), (Setting, Origin)>,
}

impl Default for Draft {
    fn default() -> Self {
        Self::from(&ClusterConfig::default())
    }
}

impl From<&ClusterConfig> for Draft {
    fn from(config: &ClusterConfig) -> Self {
        let number = |name: &str, value: u64| (name.to_owned(), Setting::Number(value));
        let node = vec![
            ("waiting".to_owned(), Setting::Text(config.waiting.to_string())),
            ("durability".to_owned(), Setting::Text(config.durability.name().to_owned())),
            ("store".to_owned(), Setting::Text(config.store.name().to_owned())),
            number("hot_bytes", config.hot_bytes),
            ("data_dir".to_owned(), Setting::Text(shown(config.data_dir.as_deref()))),
            number("disk_bytes_max", config.disk_bytes_max.unwrap_or(0)),
            ("region_root".to_owned(), Setting::Text(config.region_root.display().to_string())),
            number("lag_ms_max", config.lag_ms_max),
            number("stop_within_ms", config.stop_within_ms),
            number("close_within_ms", config.close_within_ms),
        ];
        let text = |name: &str, value: &str| (name.to_owned(), Setting::Text(value.to_owned()));
        let Network { fabric, cluster, addresses, encryption, certificates, .. } = &config.network;
        let Network { device, port, gid_index, mtu, traffic_class, .. } = &config.network;
        let network = vec![
            text("fabric", fabric.name()),
            text("cluster", cluster),
            ("addresses".to_owned(), Setting::List(addresses.clone())),
            text("encryption", encryption.name()),
            text("certificates", &certificates.display().to_string()),
            text("device", device),
            number("port", u64::from(*port)),
            number("gid_index", u64::from(*gid_index)),
            number("mtu", u64::from(*mtu)),
            number("traffic_class", u64::from(*traffic_class)),
        ];
        let mut settings = BTreeMap::new();
        for (section, values) in [
            ("topology", numbers(&config.topology)),
            ("order", order::settings(config)),
            ("network", network),
            ("node", node),
            ("limits", numbers(&config.limits)),
            ("tuning", numbers(&config.tuning)),
        ] {
            for (name, value) in values {
                let entry = entries::find(section, &name).expect("every field has an entry");
                settings.insert((entry.section, entry.name), (value, Origin::Default));
            }
        }
        Self { file: None, settings }
    }
}

impl Draft {
    /// The defaults, overridden by the entries of `file`.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file).map_err(|error| ConfigError {
            file: Some(file.to_owned()),
            line: None,
            what: format!("cannot read the configuration: {error}"),
        })?;
        Self::parse(&text, file)
    }

    /// The defaults, overridden by the entries of `text`. Errors name `file`.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let mut draft = Self { file: Some(file.to_owned()), ..Self::default() };
        let line_at = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
        let refuse = |at: usize, what: String| {
            Err(ConfigError { file: Some(file.to_owned()), line: Some(line_at(at)), what })
        };
        let document = match DeTable::parse(text) {
            Ok(document) => document,
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                return refuse(at, format!("not TOML: {}", error.message().replace('\n', ", ")));
            }
        };
        for (section, content) in document.get_ref() {
            let (name, at) = (section.get_ref().as_ref(), section.span().start);
            let Some((section, _)) = SECTIONS.iter().find(|(known, _)| *known == name) else {
                return refuse(at, unknown_section(name));
            };
            let DeValue::Table(content) = content.get_ref() else {
                return refuse(
                    at,
                    format!("{name} is a section: write [{name}] on a line of its own"),
                );
            };
            for (key, value) in content {
                let (name, at) = (key.get_ref().as_ref(), key.span().start);
                let Some(entry) = entries::find(section, name) else {
                    return refuse(at, unknown_entry(section, name));
                };
                match setting(entry, value) {
                    Ok(setting) => draft.put(entry, setting, Origin::Line(line_at(at))),
                    Err(what) => return refuse(value.span().start, what),
                }
            }
        }
        Ok(draft)
    }

    /// Overrides a number of the topology from the command line.
    pub fn flag(&mut self, name: &str, value: u64) {
        let entry = entries::find("topology", name).expect("flags name entries");
        self.put(entry, Setting::Number(value), Origin::Flag);
    }

    /// Overrides the fabric from the command line.
    pub fn flag_fabric(&mut self, fabric: FabricKind) {
        let entry = entries::find("network", "fabric").expect("flags name entries");
        self.put(entry, Setting::Text(fabric.name().to_owned()), Origin::Flag);
    }

    /// Overrides the durability from the command line.
    pub fn flag_durability(&mut self, durability: Durability) {
        let entry = entries::find("node", "durability").expect("flags name entries");
        self.put(entry, Setting::Text(durability.name().to_owned()), Origin::Flag);
    }

    /// Overrides what orders messages from the command line.
    pub fn flag_protocol(&mut self, protocol: Protocol) {
        let entry = entries::find("order", "protocol").expect("flags name entries");
        self.put(entry, Setting::Text(protocol.name().to_owned()), Origin::Flag);
    }

    /// Overrides the tree along which messages are ordered from the command line.
    pub fn flag_tree(&mut self, shape: &Shape) {
        let entry = entries::find("order", "tree").expect("flags name entries");
        self.put(entry, order::setting(shape), Origin::Flag);
    }

    /// Whether the file or the command line says how durable the cluster is.
    pub fn says_durability(&self) -> bool {
        self.settings[&("node", "durability")].1 != Origin::Default || self.is_about_disk()
    }

    /// Whether an entry is set that has a meaning for durable clusters only.
    fn is_about_disk(&self) -> bool {
        self.settings[&("node", "data_dir")].0 != Setting::Text(String::new())
            || self.settings[&("node", "store")].0 != Setting::Text("memory".to_owned())
            || self.settings[&("node", "disk_bytes_max")].0 != Setting::Number(0)
    }

    /// Whether the file bounds what a node takes on disk.
    pub fn says_disk_bytes_max(&self) -> bool {
        self.settings[&("node", "disk_bytes_max")].1 != Origin::Default
    }

    /// Validates the configuration, also against the memory of this machine.
    pub fn finish(self) -> Result<ClusterConfig, ConfigError> {
        self.finish_for(machine_memory())
    }

    /// Validates the configuration, also against `memory` bytes if these are given.
    fn finish_for(mut self, memory: Option<u64>) -> Result<ClusterConfig, ConfigError> {
        if self.is_about_disk() && self.settings[&("node", "durability")].1 == Origin::Default {
            let entry = entries::find("node", "durability").expect("an entry");
            let sync = Setting::Text(Durability::Sync.name().to_owned());
            self.put(entry, sync, Origin::Default);
        }
        self.config().topology.check().map_err(|conflict| self.blame(&conflict))?;
        let tree = self.tree(self.config().topology.groups)?;
        let of = |draft: &Self| ClusterConfig { tree, ..draft.config() };
        let mut config = of(&self);
        let on_disk = config.store == StoreKind::Rocksdb;
        if on_disk && config.limits.store_bytes_max == 0 {
            let budget = entries::find("limits", "store_bytes_max").expect("an entry");
            self.put(budget, Setting::Number(STORE_BYTES_MAX), Origin::Default);
            config = of(&self);
        }
        config.check().map_err(|conflict| self.blame(&conflict))?;
        let Some(memory) = memory else {
            config.check_disk().map_err(|conflict| self.blame(&conflict))?;
            return Ok(config);
        };
        let ceiling = entries::find("limits", "memory_bytes_max").expect("an entry");
        let unset = self.settings[&(ceiling.section, ceiling.name)].1 == Origin::Default;
        // It bounds nothing if keys and values are on disk.
        if unset && !on_disk {
            if !config.network.is_one_host() {
                // Hosts may differ in memory, and replicas must agree on the limit.
                return Err(ConfigError {
                    file: self.file.clone(),
                    line: None,
                    what: CEILING_MISSING.to_owned(),
                });
            }
            let share = memory / 2 / u64::from(config.topology.nodes);
            let share = share - share % (1 << 20);
            let most = Setting::Number(share.min(config.limits.memory_bytes_max));
            self.put(ceiling, most, Origin::Default);
            config = of(&self);
            config.check().map_err(|conflict| self.blame(&conflict))?;
        }
        config.check_memory(memory).map_err(|conflict| self.blame(&conflict))?;
        config.check_disk().map_err(|conflict| self.blame(&conflict))?;
        Ok(config)
    }

    /// The configuration, but for the tree, which [`tree`](Self::tree) has.
    fn config(&self) -> ClusterConfig {
        let text = |section, name| match &self.settings[&(section, name)].0 {
            Setting::Text(text) => text.as_str(),
            Setting::Number(_) | Setting::List(_) => unreachable!("put in as text"),
        };
        let number = |section, name| match self.settings[&(section, name)].0 {
            Setting::Number(number) => number,
            Setting::Text(_) | Setting::List(_) => unreachable!("put in as a number"),
        };
        let addresses = match &self.settings[&("network", "addresses")].0 {
            Setting::List(addresses) => addresses.clone(),
            Setting::Text(_) | Setting::Number(_) => unreachable!("put in as a list"),
        };
        ClusterConfig {
            topology: self.section("topology"),
            tree: None,
            network: Network {
                fabric: FabricKind::of(text("network", "fabric")),
                cluster: text("network", "cluster").to_owned(),
                addresses,
                encryption: Encryption::of(text("network", "encryption")),
                certificates: PathBuf::from(text("network", "certificates")),
                device: text("network", "device").to_owned(),
                // No value exceeds the maximum of its entry, which fits the field.
                port: number("network", "port") as u8,
                gid_index: number("network", "gid_index") as u8,
                mtu: number("network", "mtu") as u32,
                traffic_class: number("network", "traffic_class") as u8,
            },
            limits: self.section("limits"),
            tuning: self.section("tuning"),
            waiting: text("node", "waiting").parse().expect("one of the words"),
            durability: Durability::of(text("node", "durability")),
            store: StoreKind::of(text("node", "store")),
            hot_bytes: number("node", "hot_bytes"),
            data_dir: Some(PathBuf::from(text("node", "data_dir")))
                .filter(|dir| !dir.as_os_str().is_empty()),
            disk_bytes_max: Some(number("node", "disk_bytes_max")).filter(|most| *most > 0),
            region_root: PathBuf::from(text("node", "region_root")),
            lag_ms_max: number("node", "lag_ms_max"),
            stop_within_ms: number("node", "stop_within_ms"),
            close_within_ms: number("node", "close_within_ms"),
        }
    }

    pub(super) fn get(&self, entry: &Entry) -> &Setting {
        self.value(entry.section, entry.name)
    }

    pub(super) fn value(&self, section: &'static str, name: &'static str) -> &Setting {
        &self.settings[&(section, name)].0
    }

    /// An error of an entry, at its line if the file says it.
    pub(super) fn error_at(
        &self,
        section: &'static str,
        name: &'static str,
        what: String,
    ) -> ConfigError {
        let line = match self.settings[&(section, name)].1 {
            Origin::Line(line) => Some(line),
            Origin::Default | Origin::Flag => None,
        };
        ConfigError { file: line.and(self.file.clone()), line, what }
    }

    fn put(&mut self, entry: &'static Entry, setting: Setting, origin: Origin) {
        self.settings.insert((entry.section, entry.name), (setting, origin));
    }

    /// The entries of one section as the type that holds them. Names and ranges were checked on insertion.
    fn section<T: DeserializeOwned>(&self, section: &str) -> T {
        let entries = self.settings.iter().filter(|((of, _), _)| *of == section);
        let fields: serde_json::Map<String, serde_json::Value> = entries
            .map(|((_, name), (setting, _))| {
                let value = match setting {
                    Setting::Number(number) => (*number).into(),
                    Setting::Text(text) => text.as_str().into(),
                    Setting::List(list) => list.clone().into(),
                };
                ((*name).to_owned(), value)
            })
            .collect();
        serde_json::from_value(fields.into()).expect("entries have the types of their fields")
    }

    /// Adds the origins of the settings that conflict.
    pub(super) fn blame(&self, conflict: &Conflict) -> ConfigError {
        let origin = |said: &str| {
            let name = said.split(' ').next().unwrap_or_default();
            let name = name.rsplit('.').next().unwrap_or_default();
            self.settings
                .iter()
                .find(|((_, known), _)| *known == name)
                .map(|(_, (_, origin))| origin)
        };
        let (first, second) = (origin(&conflict.first), origin(&conflict.second));
        let line = [first, second].into_iter().flatten().find_map(|origin| match origin {
            Origin::Line(line) => Some(*line),
            Origin::Default | Origin::Flag => None,
        });
        let told = |said: &str, origin: Option<&Origin>| match origin {
            Some(Origin::Default) => format!("{said} (the default)"),
            Some(Origin::Flag) => format!("{said} (from the command line)"),
            Some(Origin::Line(_)) | None => said.to_owned(),
        };
        ConfigError {
            file: line.and(self.file.clone()),
            line,
            what: Conflict {
                first: told(&conflict.first, first),
                second: told(&conflict.second, second),
                why: conflict.why,
            }
            .to_string(),
        }
    }
}

/// A path that may be missing, as text.
fn shown(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

/// The fields of a section that holds numbers only.
fn numbers<T: serde::Serialize>(section: &T) -> Vec<(String, Setting)> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(section) else {
        unreachable!("sections are structs")
    };
    let number = |value: serde_json::Value| value.as_u64().expect("their fields are numbers");
    fields.into_iter().map(|(name, value)| (name, Setting::Number(number(value)))).collect()
}

const CEILING_MISSING: &str = "limits.memory_bytes_max is not set, and a cluster on several hosts needs it, \
    because all of them must refuse writes at the same size: add memory_bytes_max to the section [limits] \
    of the file that the hosts share, with what each host has room for, such as memory_bytes_max = \"8GiB\"";

/// The default of `limits.store_bytes_max` for stores on disk. It does not depend on the machine: hosts may differ, and
/// replicas must agree on it.
const STORE_BYTES_MAX: u64 = 64 << 30;

/// Maximum length of a cluster's name.
const NAME_MAX: usize = 40;

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Parses the value of `entry`, or returns what was expected.
fn setting(entry: &Entry, value: &Spanned<DeValue<'_>>) -> Result<Setting, String> {
    let wrong = |got: fmt::Arguments<'_>| {
        format!("{} is {got}; it takes {}", entry.name, entry.kind.expected())
    };
    let number = |number: Option<u64>, got: &str| match number {
        None => Err(wrong(format_args!("{got}"))),
        Some(number) if number > entry.most => {
            Err(format!("{} is {got}; the most it can be is {}", entry.name, entry.most))
        }
        Some(number) => Ok(Setting::Number(number)),
    };
    match (value.get_ref(), entry.kind) {
        (DeValue::Integer(integer), Kind::Count | Kind::Bytes | Kind::Milliseconds) => {
            let value = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
            number(value, integer.as_str())
        }
        (DeValue::String(text), Kind::Bytes) => number(parse_bytes(text), &format!("{text:?}")),
        (DeValue::String(text), Kind::Word(words)) if words.contains(&text.as_ref()) => {
            Ok(Setting::Text(text.to_string()))
        }
        (DeValue::String(text), Kind::Directory) if Path::new(text.as_ref()).is_absolute() => {
            Ok(Setting::Text(text.to_string()))
        }
        (DeValue::String(text), Kind::DirectoryIfAny)
            if text.is_empty() || Path::new(text.as_ref()).is_absolute() =>
        {
            Ok(Setting::Text(text.to_string()))
        }
        (DeValue::String(text), Kind::Name)
            if text.len() <= NAME_MAX && text.chars().all(is_plain) =>
        {
            Ok(Setting::Text(text.to_string()))
        }
        (DeValue::Array(list), Kind::Addresses) => {
            let address = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(text) if network::split(text).is_some() => Ok(text.to_string()),
                DeValue::String(text) => Err(wrong(format_args!("a list with {text:?} in it"))),
                other => Err(wrong(format_args!("a list of type {}", other.type_str()))),
            };
            list.iter().map(address).collect::<Result<_, _>>().map(Setting::List)
        }
        (DeValue::String(text), Kind::Tree)
            if text.is_empty() || Shape::WORDS.contains(&text.as_ref()) =>
        {
            Ok(Setting::Text(text.to_string()))
        }
        (DeValue::Array(list), Kind::Tree) => {
            let parent = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::Integer(integer) => {
                    let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
                    let number = number.filter(|number| Shape::parent(*number).is_some());
                    let wrong = || wrong(format_args!("a list with {} in it", integer.as_str()));
                    number.map(|number| number.to_string()).ok_or_else(wrong)
                }
                other => Err(wrong(format_args!("a list with a {} in it", other.type_str()))),
            };
            list.iter().map(parent).collect::<Result<_, _>>().map(Setting::List)
        }
        (DeValue::String(text), _) => Err(wrong(format_args!("{text:?}"))),
        (other, _) => Err(wrong(format_args!("of type {}", other.type_str()))),
    }
}

fn unknown_section(name: &str) -> String {
    if let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) {
        return format!(
            "unknown section {name:?}: the entry {name} belongs into [{}]",
            entry.section
        );
    }
    let sections = SECTIONS.iter().map(|(section, _)| *section);
    if let Some(section) = nearest(name, sections) {
        return format!("unknown section {name:?}: do you mean [{section}]?");
    }
    let known: Vec<_> = SECTIONS.iter().map(|(section, _)| format!("[{section}]")).collect();
    format!("unknown section {name:?}: there are {}", known.join(", "))
}

fn unknown_entry(section: &str, name: &str) -> String {
    if let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) {
        return format!("{name} is no entry of [{section}]: it belongs into [{}]", entry.section);
    }
    let here = ENTRIES.iter().filter(|entry| entry.section == section).map(|entry| entry.name);
    if let Some(near) = nearest(name, here) {
        return format!("unknown entry {name:?} in [{section}]: do you mean {near}?");
    }
    match nearest(name, ENTRIES.iter().map(|entry| entry.name))
        .and_then(|near| ENTRIES.iter().find(|e| e.name == near))
    {
        Some(entry) => format!(
            "unknown entry {name:?} in [{section}]: do you mean {} in [{}]?",
            entry.name, entry.section
        ),
        None => format!("unknown entry {name:?} in [{section}]: see `skein config print`"),
    }
}
