//! Every entry of the configuration: its section, name, type and meaning.

use skein_multicast::trees::Shape;

use super::network::{Encryption, FabricKind};
use super::{Durability, Protocol, StoreKind};

/// Type of an entry's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Count,
    /// An integer, or text such as "4MiB".
    Bytes,
    Milliseconds,
    Word(&'static [&'static str]),
    /// An absolute path.
    Directory,
    /// An absolute path, or nothing.
    DirectoryIfAny,
    /// Letters, digits, `-` and `_`; may be empty.
    Name,
    /// A list of `host:port`.
    Addresses,
    /// A tree of groups, or nothing.
    Tree,
}

impl Kind {
    /// Description of the expected value, for error messages.
    pub(super) fn expected(self) -> String {
        match self {
            Self::Count => "a whole number".into(),
            Self::Bytes => "a number of bytes, such as 65536 or \"64KiB\"".into(),
            Self::Milliseconds => "a whole number of milliseconds".into(),
            Self::Word(words) => format!("one of \"{}\"", words.join("\", \"")),
            Self::Directory => "the absolute path of a directory".into(),
            Self::DirectoryIfAny => "the absolute path of a directory, or \"\"".into(),
            Self::Name => "a name of at most 40 letters, digits, \"-\" and \"_\"".into(),
            Self::Tree => Shape::EXPECTED.into(),
            Self::Addresses => "a list of texts such as \"10.0.0.1:7400\"".into(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Largest value, at most what the field holds. `check` may refuse smaller ones.
    pub(super) most: u64,
    pub(super) about: &'static str,
}

/// Above any size of memory, and low enough that sums do not overflow.
const BYTES_MAX: u64 = 1 << 50;

const fn count(section: &'static str, name: &'static str, most: u64, about: &'static str) -> Entry {
    Entry { section, name, kind: Kind::Count, most, about }
}

const fn bytes(section: &'static str, name: &'static str, about: &'static str) -> Entry {
    Entry { section, name, kind: Kind::Bytes, most: BYTES_MAX, about }
}

const fn millis(section: &'static str, name: &'static str, about: &'static str) -> Entry {
    Entry { section, name, kind: Kind::Milliseconds, most: 3_600_000, about }
}

/// The sections, in the order they are printed.
pub(super) const SECTIONS: [(&str, &str); 6] = [
    (
        "topology",
        "The shape of the cluster. `skein up` also takes --nodes, --groups and --replicas.",
    ),
    (
        "order",
        "How messages to several groups are ordered. It cannot be changed for a cluster that exists. `skein up` also takes --order and --tree.",
    ),
    (
        "network",
        "How the nodes reach each other. `skein up` also takes --fabric. On several hosts all nodes and clients have the same file.",
    ),
    ("node", "How each node process behaves."),
    ("limits", "What the store accepts. Anything beyond is refused with an error, never cut."),
    ("tuning", "Sizes of shared memory and bounds of queues."),
];

/// The entries, in the order they are printed.
#[rustfmt::skip]
pub(super) const ENTRIES: &[Entry] = &[
    count("topology", "nodes", u16::MAX as u64, "Node processes, 1 to 64."),
    count("topology", "groups", u16::MAX as u64, "Shards, 1 to 64. Each is replicated by a group of its own."),
    count("topology", "replicas", u8::MAX as u64, "Replicas of each group: 1, 3, 5 … 15, at most the number of nodes. 2f+1 of them tolerate f failures."),
    count("topology", "engines", u16::MAX as u64, "Engine threads of each node, at most the number of groups."),

    Entry { section: "order", name: "protocol", kind: Kind::Word(Protocol::WORDS), most: 0,
        about: "\"ramcast\": the groups of each message agree on its place; \"tram\": along a tree of the groups." },
    Entry { section: "order", name: "tree", kind: Kind::Tree, most: 0,
        about: "With \"tram\", the tree: \"base\" (two children a group, below group 1, below group 0), \"breadth\" (all below group 0), \"depth\" (a chain), or the parent of each group, -1 for the root: [-1, 0, 0]. \"\" is \"breadth\" with \"tram\", and none with \"ramcast\"." },

    Entry { section: "network", name: "fabric", kind: Kind::Word(FabricKind::WORDS), most: 0,
        about: "\"shm\": shared memory, for a cluster on one host; \"tcp\": connections, on one host or several; \"verbs\": RDMA network cards, where this program was built with them." },
    Entry { section: "network", name: "cluster", kind: Kind::Name, most: 0,
        about: "Name of the cluster. Needed on several hosts; `skein up` draws a name if there is none." },
    Entry { section: "network", name: "addresses", kind: Kind::Addresses, most: 0,
        about: "With \"tcp\" and \"verbs\", where each node listens, in the order of their numbers: [\"10.0.0.1:7400\", \"10.0.0.2:7400\", …]. Engine e of a node listens e ports further. `skein up` finds ports on this machine if there are none." },
    Entry { section: "network", name: "encryption", kind: Kind::Word(Encryption::WORDS), most: 0,
        about: "\"between-hosts\": connections are encrypted, and both sides show certificates, unless all addresses are loopback ones; \"always\"; \"never\": whoever reaches a port can read and change everything." },
    Entry { section: "network", name: "certificates", kind: Kind::Directory, most: 0,
        about: "The directory with authority.pem, and each host's own nodeN.pem and nodeN.key, or client.pem and client.key; `skein pki` makes them." },
    Entry { section: "network", name: "device", kind: Kind::Name, most: 0,
        about: "With \"verbs\", the RDMA device to use, such as \"mlx5_0\"; if not set, the first with an active port. `skein doctor` lists them. This and what follows may differ between hosts." },
    count("network", "port", u8::MAX as u64, "Its port; 0 for the first that is active."),
    count("network", "gid_index", u8::MAX as u64, "Which of the port's addresses (GIDs); 255 for the one that fits best, RoCE v2 over IPv4 if there is one."),
    count("network", "mtu", 4096, "The longest RDMA packet, in bytes: 256, 512 … 4096; 0 for what the port can."),
    count("network", "traffic_class", u8::MAX as u64, "Traffic class of RDMA packets, for switches that distinguish traffic."),

    Entry { section: "node", name: "waiting", kind: Kind::Word(&["adaptive", "busy", "park"]), most: 0,
        about: "What an engine thread does when there is nothing to do: \"adaptive\" polls, yields, then sleeps; \"busy\" always polls and wants a core for each engine; \"park\" sleeps at once." },
    Entry { section: "node", name: "region_root", kind: Kind::Directory, most: 0,
        about: "Where the directory with the cluster's shared memory is made. Should be a file system in memory." },
    Entry { section: "node", name: "durability", kind: Kind::Word(Durability::WORDS), most: 0,
        about: "What survives when all nodes lose their power: \"memory\": nothing; \"async\": the state of the whole cluster at one place in the order, at most lag_ms_max old; \"sync\": all that was acknowledged. With \"async\", all nodes run on one host. With \"async\" and \"sync\", each node writes a log beside its other files, which needs a file system with direct I/O. It cannot be changed for a cluster that exists. If it is not set, `skein up` chooses \"sync\" where its directory is on a disk that can do it." },
    millis("node", "lag_ms_max", "With durability \"async\", the age, in milliseconds, of the state that survives when all nodes lose their power: at most this. It cannot be changed for a cluster that exists."),
    Entry { section: "node", name: "store", kind: Kind::Word(StoreKind::WORDS), most: 0,
        about: "Where replicas hold keys and values: \"memory\", or \"rocksdb\", in files beside the node's log, with node.hot_bytes of them in memory: for data larger than memory, where this program was built with it. It makes a cluster durable for which durability is not set, and cannot be changed for a cluster that exists." },
    bytes("node", "hot_bytes", "With the store \"rocksdb\", the keys and values that a node has in memory, in bytes, all of its replicas together."),
    Entry { section: "node", name: "data_dir", kind: Kind::DirectoryIfAny, most: 0,
        about: "Where nodes write their logs if the cluster is durable: each to a directory of its own in this one, which must exist; \"\" for the cluster's directory. It makes a cluster durable for which durability is not set, and cannot be changed either." },
    bytes("node", "disk_bytes_max", "The most that the log of a node may take on disk, with the states in it, in bytes; 0 for as much as there is room. A node whose log would take more waits as if its disk were full. It must be enough for nodes that hold all that limits.memory_bytes_max allows: about four times that, and 1.3 GiB at least. It makes a cluster durable for which durability is not set; `skein up --config` changes it for a cluster that is stopped."),
    millis("node", "stop_within_ms", "How long a node that stops may take to finish operations in flight, in milliseconds."),
    millis("node", "close_within_ms", "With durability \"async\", how long disks may take to hold the last restore point when the cluster is stopped, in milliseconds."),

    bytes("limits", "key_bytes_max", "The longest key, in bytes."),
    bytes("limits", "value_bytes_max", "The longest value, in bytes."),
    count("limits", "transaction_keys_max", 1 << 20, "Keys in one transaction, guards and both branches together, each counted once."),
    bytes("limits", "transaction_bytes_max", "The largest transaction, as sent, in bytes."),
    bytes("limits", "reply_bytes_max", "The most that one group answers to one transaction, in bytes."),
    count("limits", "scan_pairs_max", 1 << 30, "Pairs in one page of a scan."),
    bytes("limits", "scan_page_bytes_max", "Keys and values in one page of a scan, in bytes; a page always holds one pair."),
    bytes("limits", "memory_bytes_max", "What the replicas of one node may hold together, in bytes: keys, values, what is owed to sessions, and an overhead for each. Each group may hold this divided by the most replicas that any node hosts; writes beyond that are refused. If it is not set, it is at most half of this machine's memory, divided by the nodes."),
    bytes("limits", "store_bytes_max", "With the store \"rocksdb\", what the replicas of one node may hold together, in bytes, in place of memory_bytes_max, which then bounds nothing. The disk needs up to three times that while RocksDB merges its files, and node.hot_bytes says what of it is in memory. If it is not set, or 0, that is 64GiB; with the store \"memory\" it is 0."),

    bytes("tuning", "log_bytes", "Each replica's log, in bytes; a power of two."),
    bytes("tuning", "inline_bytes_max", "Commands up to this many bytes travel in the log; larger ones beside it."),
    bytes("tuning", "ring_bytes", "A session's ring at a replica, and a replica's reply ring at a session, in bytes when first opened; a power of two."),
    bytes("tuning", "ring_bytes_max", "What such a ring may grow to, in bytes; a power of two."),
    bytes("tuning", "rings_bytes_max", "All session rings of one engine thread together, in bytes. Beyond it rings do not grow."),
    bytes("tuning", "peer_ring_bytes", "The ring between two replicas, in bytes; a power of two."),
    count("tuning", "window", 1 << 20, "Commands that one session may have in flight."),
    bytes("tuning", "payload_bytes_max", "The largest command, encoded, in bytes."),
    bytes("tuning", "held_bytes_max", "Commands too large for the log that one replica holds before it makes sessions wait, in bytes."),
    millis("tuning", "fetch_after_ms", "How long a command's bytes may be missing before they are fetched from another replica, in milliseconds."),
    millis("tuning", "heartbeat_ms", "How often a node shows that it is alive, and looks at whether the others are, in milliseconds."),
    count("tuning", "heartbeats_missed_max", 1000, "Heartbeats in a row that another node may miss before it is suspected."),
    millis("tuning", "evict_after_ms", "How long a replica may keep a full log from going on before it is evicted, in milliseconds."),
    millis("tuning", "lease_ms", "For how long replicas promise a leader that is asked for reads under a lease to let no other lead, in milliseconds. After a pause, and over a network after a death, the next leader waits for it."),
    count("tuning", "clock_skew_percent", 99, "By how much the rate of any clock may be off, in hundredths: leases are counted on for so much less."),
    millis("tuning", "spread_after_ms", "How long a leader and the replica in its group's slot 0 must have been well before leadership goes back to slot 0, in milliseconds: so leaders spread over the nodes again after failures. 0 leaves leaders where they are."),
];

/// The entry of that name.
pub(super) fn find(section: &str, name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.section == section && entry.name == name)
}

/// The name most similar to `word`, if one is similar enough.
pub(super) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}
