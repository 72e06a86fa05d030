//! Randomly corrupted histories: the checker reports what is wrong and never panics.

use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use skein_checker::check::ElleModel;
use skein_checker::history::{ReadError, Reader};

/// Checks a history as `skein check` does. Returns whether it is correct.
fn look(bytes: &[u8]) -> Result<bool, ReadError> {
    let (verdict, mut checker) = skein_checker::judge(Reader::over(bytes, Path::new("spoilt"))?)?;
    for model in [ElleModel::ListAppend, ElleModel::RwRegister] {
        checker.write_edn(model, &mut std::io::sink()).expect("it goes nowhere");
    }
    Ok(verdict.is_good() & checker.finish().strictly_serializable)
}

fn catalogue() -> Vec<String> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/catalogue");
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// A value of any JSON type, including the ends of ranges.
fn anything(random: &mut SmallRng) -> Value {
    let values = [
        Value::Null,
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(7),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1.5),
        json!(1e300),
        json!(""),
        json!("x"),
        json!("t1"),
        json!("ü\u{0}"),
        json!([]),
        json!(["x", 1]),
        json!({}),
        json!({"get": "x"}),
    ];
    values[random.random_range(0..values.len())].clone()
}

/// Replaces, removes or renames something inside `value`.
fn spoil(value: &mut Value, random: &mut SmallRng) {
    let inside = match value {
        Value::Array(all) => all.len(),
        Value::Object(all) => all.len(),
        _ => 0,
    };
    if inside == 0 || random.random_bool(0.1) {
        *value = match value.as_str() {
            Some(text) if !text.is_empty() && random.random_bool(0.5) => {
                json!(text[..text.floor_char_boundary(text.len() - 1)])
            }
            _ => anything(random),
        };
        return;
    }
    let at = random.random_range(0..inside);
    match value {
        Value::Array(all) if random.random_bool(0.1) => _ = all.remove(at),
        Value::Array(all) => spoil(&mut all[at], random),
        Value::Object(all) if random.random_bool(0.1) => {
            let name = all.keys().nth(at).expect("counted").clone();
            let was = all.remove(&name).expect("it is there");
            // Removed or renamed.
            if random.random_bool(0.5) {
                all.insert(name + "s", was);
            }
        }
        Value::Object(all) => spoil(all.values_mut().nth(at).expect("counted"), random),
        _ => unreachable!("nothing is inside"),
    }
}

/// Lines are corrupted, duplicated, removed and swapped, then the whole is truncated or corrupted
/// bytewise.
fn spoilt(history: &str, random: &mut SmallRng) -> Vec<u8> {
    let mut lines: Vec<String> = history.lines().map(str::to_owned).collect();
    for _ in 0..random.random_range(1..4) {
        let (at, other) =
            (random.random_range(0..lines.len()), random.random_range(0..lines.len()));
        match random.random_range(0..8) {
            0 => lines.insert(other, lines[at].clone()),
            1 => lines.swap(at, other),
            2 if lines.len() > 1 => _ = lines.remove(at),
            _ => {
                let Ok(mut value) = serde_json::from_str(&lines[at]) else { continue };
                spoil(&mut value, random);
                lines[at] = value.to_string();
            }
        }
    }
    let mut bytes = (lines.join("\n") + "\n").into_bytes();
    match random.random_range(0..6) {
        0 => bytes.truncate(random.random_range(0..bytes.len())),
        1 => {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        _ => {}
    }
    bytes
}

#[test]
fn whatever_is_wrong_with_a_history_is_said() {
    let (catalogue, mut random) = (catalogue(), SmallRng::seed_from_u64(7));
    let (mut refused, mut wrong, mut right) = (0, 0, 0);
    for _ in 0..30_000 {
        let history = &catalogue[random.random_range(0..catalogue.len())];
        match look(&spoilt(history, &mut random)) {
            Err(error) => {
                assert!(error.to_string().len() > 20, "{error:?}");
                refused += 1;
            }
            Ok(false) => wrong += 1,
            Ok(true) => right += 1,
        }
    }
    println!("{refused} refused, {wrong} wrong, {right} right all the same");
    // Otherwise nothing was tried, or the corruption was never reached.
    assert!(refused > 3_000 && wrong > 3_000, "{refused} refused, {wrong} wrong, {right} right");
}
