use super::*;

fn draft() -> Draft {
    Draft::within(Limits::default(), ReadMode::Confirmed)
}

fn slots() -> SlotMap {
    SlotMap::even(2)
}

#[expect(clippy::unnecessary_wraps, reason = "a draft takes what the cluster says, errors too")]
fn reply(outcome: Outcome) -> Result<Reply, Error> {
    Ok(Reply { held: true, outcomes: vec![outcome] })
}

fn value(of: Option<(&str, Version)>) -> Result<Reply, Error> {
    reply(Outcome::Value(of.map(|(value, version)| (value.into(), version))))
}

fn page(pairs: &[(&str, &str)], next: Option<&str>) -> Result<Reply, Error> {
    let pairs = pairs.iter().map(|(key, value)| (Key::from(*key), Value::from(*value)));
    reply(Outcome::Page(Page { pairs: pairs.collect(), next: next.map(Key::from) }))
}

fn text(seen: &Seen) -> Option<&str> {
    seen.as_ref().map(|(value, _)| str::from_utf8(value).unwrap())
}

fn texts(page: &Page) -> Vec<(&str, &str)> {
    let text = |bytes| str::from_utf8(bytes).unwrap();
    page.pairs.iter().map(|(key, value)| (text(key), text(value))).collect()
}

fn range(start: &str, end: &str) -> KeyRange {
    KeyRange::of(start..end)
}

#[test]
fn a_commit_guards_what_was_read_and_nothing_else() {
    let mut draft = draft();
    draft.saw("a", value(Some(("1", 7)))).unwrap();
    draft.saw("b", value(None)).unwrap();
    draft.put("b", "2").unwrap();
    draft.delete("c").unwrap();
    let commit = draft.commit_by(&slots()).unwrap();
    let guards: Vec<_> = commit.guards.iter().map(|it| (&it.key[..], &it.test)).collect();
    assert_eq!(guards, [(&b"a"[..], &Test::Version(7)), (&b"b"[..], &Test::Version(0))]);
    let keys: Vec<_> = commit.then.iter().filter_map(|it| it.key()).collect();
    assert_eq!(keys, [b"b", b"c"]);
    assert_eq!(commit.otherwise.len(), 2, "a look at what has changed");
}

#[test]
fn what_one_moment_showed_needs_no_commit_unless_it_may_be_of_any_age() {
    let (mut one, stale) = (draft(), Draft::within(Limits::default(), ReadMode::Stale));
    assert_eq!((one.commit_by(&slots()), stale.commit_by(&slots())), (None, None));
    one.saw("a", value(None)).unwrap();
    assert_eq!(one.commit_by(&slots()), None, "it was so when it was read");
    let mut stale = stale;
    stale.saw("a", value(None)).unwrap();
    assert!(stale.commit_by(&slots()).is_some(), "it may have been so long before");
    one.saw_page(&range("b", "c"), 9, page(&[], None)).unwrap();
    assert!(one.commit_by(&slots()).is_some(), "two looks are of two moments");
    assert!(one.verification_by(&slots()).is_some());
}

#[test]
fn who_was_overtaken_goes_on_from_what_is_there() {
    let mut draft = draft();
    draft.saw("a", value(Some(("1", 7)))).unwrap();
    draft.saw("b", value(None)).unwrap();
    let outcomes = vec![Outcome::Value(Some(("9".into(), 12))), Outcome::Value(None)];
    let (commit, mut draft) = draft.conclude(Some(Ok(Reply { held: false, outcomes }))).unwrap();
    assert_eq!(commit, Commit::Overtaken);
    assert_eq!(draft.get("a"), Ok(Some(Some((b"9".to_vec(), Some(12))))));
    assert_eq!(draft.get("c"), Ok(None), "of this it knows nothing");
    assert_eq!(draft.read.len(), 1, "only what is asked for is guarded");
    assert_eq!(draft.get("b"), Ok(Some(None)));
    assert_eq!(draft.commit_by(&slots()), None, "both were found at one moment");
    draft.saw("c", value(None)).unwrap();
    assert!(draft.commit_by(&slots()).is_some(), "this was read at another");
}

#[test]
fn what_is_not_read_is_changed_without_a_guard() {
    let mut draft = draft();
    draft.increment("count", 2).unwrap();
    draft.increment("count", 3).unwrap();
    draft.append("log", "a").unwrap();
    draft.append("log", "b").unwrap();
    let commit = draft.commit_by(&slots()).unwrap();
    assert!(commit.guards.is_empty() && commit.otherwise.is_empty());
    let increment = Operation::Increment { key: b"count".to_vec(), by: 5 };
    let append = Operation::Append { key: b"log".to_vec(), value: b"ab".to_vec() };
    assert_eq!(commit.then, [increment, append]);

    // Once the key is read, it is guarded, and the transaction sees its own changes.
    assert_eq!(draft.get("count"), Ok(None), "the cluster is to be asked");
    assert_eq!(text(&draft.saw("count", value(Some(("10", 4)))).unwrap()), Some("15"));
    draft.increment("count", 1).unwrap();
    assert_eq!(text(&draft.get("count").unwrap().unwrap()), Some("16"));
    let commit = draft.commit_by(&slots()).unwrap();
    assert_eq!(commit.guards.len(), 1);
    draft.put("log", "new").unwrap();
    draft.append("log", "er").unwrap();
    assert_eq!(text(&draft.get("log").unwrap().unwrap()), Some("newer"));
    draft.delete("log").unwrap();
    draft.increment("log", 7).unwrap();
    assert_eq!(text(&draft.get("log").unwrap().unwrap()), Some("7"), "absent counts as 0");
}

#[test]
fn changes_that_cannot_be_made_say_so_when_the_value_is_known() {
    let mut draft = draft();
    draft.increment("word", 1).unwrap();
    let error = draft.saw("word", value(Some(("hello", 4)))).unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::NotANumber { .. })), "{error}");
    draft.put("number", i64::MAX.to_string()).unwrap();
    let error = draft.increment("number", 1).unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::Overflow { .. })), "{error}");
    draft.put("long", vec![7; 1 << 20]).unwrap();
    let error = draft.append("long", "x").unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::ValueTooLarge { .. })), "{error}");
    assert!(!draft.has_failed(), "they rest on what is there");
    draft.saw("gone", Err(Error::Closed)).unwrap_err();
    assert!(draft.has_failed(), "this one does not");
}

#[test]
fn a_scan_shows_the_transaction_s_own_writes_and_guards_what_was_there() {
    let mut draft = draft();
    draft.put("b", "put").unwrap();
    draft.delete("c").unwrap();
    draft.increment("d", 1).unwrap();
    draft.append("e", "new").unwrap();
    draft.put("z", "beyond the page").unwrap();
    let there = [("a", "1"), ("c", "3"), ("d", "4"), ("f", "6")];
    let seen = draft.saw_page(&range("a", "z"), 9, page(&there, Some("g"))).unwrap();
    let expected = [("a", "1"), ("b", "put"), ("d", "5"), ("e", "new"), ("f", "6")];
    assert_eq!((texts(&seen), seen.next.as_deref()), (expected.to_vec(), Some(&b"g"[..])));
    assert_eq!(text(&draft.get("f").unwrap().unwrap()), Some("6"), "it was in the page");
    assert_eq!(draft.get("bb"), Ok(Some(None)), "and this was not");
    assert_eq!(draft.get("g"), Ok(None), "this is behind it");

    let commit = draft.commit_by(&slots()).unwrap();
    let [Guard { key, test: Test::Unchanged { end, held } }] = &commit.guards[..] else {
        panic!("{:?}", commit.guards);
    };
    assert_eq!((&key[..], end.as_deref()), (&b"a"[..], Some(&b"g"[..])), "as far as the page");
    assert_eq!(held.iter().map(|held| held.pairs).sum::<u32>(), 4, "without its own writes");

    // Pairs that find no room in the page belong to the next page.
    let seen = draft.saw_page(&range("a", "z"), 2, page(&there[..2], Some("d"))).unwrap();
    assert_eq!((texts(&seen), seen.next.as_deref()), (expected[..2].to_vec(), Some(&b"d"[..])));
    let seen = draft.saw_page(&range("a", "c"), 1, page(&there[..1], None)).unwrap();
    assert_eq!((texts(&seen), seen.next.as_deref()), (vec![("a", "1")], Some(&b"b"[..])));
}

#[test]
fn pages_that_follow_each_other_are_one_range() {
    let mut draft = draft();
    draft.saw_page(&range("a", "z"), 1, page(&[("a", "1")], Some("m"))).unwrap();
    draft.saw_page(&range("m", "z"), 1, page(&[("m", "2")], None)).unwrap();
    draft.saw_page(&range("z", "a"), 1, page(&[], None)).unwrap();
    assert_eq!(draft.commit_by(&slots()).unwrap().guards.len(), 1);
    let pairs = draft.scanned[0].pairs.len();
    assert_eq!((pairs, draft.scanned[0].end.as_deref()), (2, Some(&b"z"[..])));
}

#[test]
fn a_key_counts_once_and_the_call_that_goes_beyond_says_so() {
    let limits = Limits { transaction_keys_max: 3, ..Limits::default() };
    let mut draft = Draft::within(limits, ReadMode::Confirmed);
    draft.saw("a", value(None)).unwrap();
    draft.put("a", "1").unwrap();
    draft.increment("b", 1).unwrap();
    draft.saw_page(&range("x", "z"), 9, page(&[], None)).unwrap();
    draft.delete("b").unwrap();
    draft.put("a", "2").unwrap();
    assert!(draft.get("a").is_ok() && draft.get("b").is_ok());
    let commit = draft.commit_by(&slots()).unwrap();
    assert!(skein_kvstore::plan::Plan::of(&commit, &slots(), &limits).is_ok());
    let is_full =
        |error: Error| matches!(error, Error::TooLarge { unit: "keys", len: 4, max: 3, .. });
    assert!(is_full(draft.put("c", "1").unwrap_err()));
    assert!(is_full(draft.get("c").unwrap_err()));
    assert!(is_full(draft.scan(&range("c", "d"), 1).unwrap_err()));
    assert!(is_full(draft.append("c", "1").unwrap_err()));
    let long = draft.put(vec![b'k'; 5_000], "").unwrap_err();
    assert!(matches!(long, Error::TooLarge { what: "a key", .. }), "{long}");
}

#[test]
fn what_writes_nothing_has_no_unknown_outcome() {
    let unknown = || {
        let silent = skein_protocol::ids::GroupSet::single(GroupId(1));
        Some(Err(Error::UnknownOutcome { after: std::time::Duration::ZERO, silent }))
    };
    let error = draft().conclude(unknown()).unwrap_err();
    assert!(error.had_no_effect(), "{error}");
    let mut writes = draft();
    writes.put("a", "1").unwrap();
    assert!(!writes.clone().conclude(unknown()).unwrap_err().had_no_effect());
    writes.forget_writes();
    assert!(writes.conclude(unknown()).unwrap_err().had_no_effect());
    let held_up = || {
        let (by, groups) = [1, 2].map(skein_protocol::ids::GroupSet::first).into();
        let why = Unavailability::HeldUp { by, groups, after: std::time::Duration::ZERO };
        Some(Err(Error::Unavailable { why, sent: true }))
    };
    let error = draft().conclude(held_up()).unwrap_err();
    assert!(error.had_no_effect() && error.to_string().contains("{g0}"), "{error}");
}
