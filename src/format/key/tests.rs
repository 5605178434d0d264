//! Tests of user keys: order, bounds and hostile bytes.

use super::*;
use crate::rng::Rng;

const T: TableId = TableId(1);

/// Valid key texts, with characters around every boundary of UTF-8 and UTF-16. Some texts are
/// prefixes of others.
const TEXTS: [&str; 20] = [
    "",
    " ",
    "a",
    "a ",
    "aa",
    "ab",
    "b",
    "~",
    "\u{a0}",
    "é",
    "\u{7ff}",
    "\u{800}",
    "\u{d7ff}",
    "\u{e000}",
    "\u{efff}",
    "\u{f000}",
    "\u{ffff}",
    "\u{10000}",
    "😀",
    "\u{10ffff}",
];

fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

#[test]
fn trap_21_keys_sort_by_partition_then_row_in_utf16_units() {
    for (pk1, rk1) in pairs(&TEXTS) {
        for (pk2, rk2) in pairs(&TEXTS) {
            let encoded = user_key(T, pk1, rk1).cmp(&user_key(T, pk2, rk2));
            let expected = (units(pk1), units(rk1)).cmp(&(units(pk2), units(rk2)));
            assert_eq!(encoded, expected, "{pk1:?}/{rk1:?} {pk2:?}/{rk2:?}");
        }
    }
}

#[test]
fn trap_21_partition_and_row_do_not_run_together() {
    assert!(user_key(T, "a", "bc") < user_key(T, "ab", "c"));
    assert_ne!(user_key(T, "a", "bc"), user_key(T, "ab", "c"));
    assert!(user_key(T, "\u{10000}", "") < user_key(T, "\u{e000}", ""));
}

#[test]
fn random_keys_round_trip_and_sort() {
    let mut rng = Rng::from_seed(7);
    let mut text = || (0..rng.below(6)).map(|_| *rng.pick(&TEXTS)).collect::<String>();
    for _ in 0..20_000 {
        let [a, b, c, d] = [text(), text(), text(), text()];
        let (left, right) = (user_key(T, &a, &b), user_key(T, &c, &d));
        let expected = (units(&a), units(&b)).cmp(&(units(&c), units(&d)));
        assert_eq!(left.cmp(&right), expected);
        let (table, pk, rk) = decode_user_key(&left).unwrap();
        assert_eq!((table, &*decode_part(pk).unwrap(), &*decode_part(rk).unwrap()), (T, &*a, &*b));
        assert_eq!(partition_of(&left), Some(&*before_partition(T, &a)));
    }
}

#[test]
fn keys_of_tables_do_not_run_together() {
    for table in [0, 1, 255, 256, 65_535, u32::MAX - 1].map(TableId) {
        let key = user_key(table, "\u{10ffff}", "\u{ffff}");
        assert!(table_start(table) <= user_key(table, "", ""));
        assert!(key < table_end(table));
        assert!(table_end(table) <= user_key(TableId(table.0 + 1), "", ""));
        assert_eq!(table_of(&key), Some(table));
    }
    assert!(user_key(TableId(u32::MAX), "\u{ffff}", "") < table_end(TableId(u32::MAX)));
}

/// Returns texts as they may occur in filter literals, including characters that keys must not
/// contain.
fn literals() -> Vec<String> {
    let mut all: Vec<String> = TEXTS.iter().map(|text| (*text).to_owned()).collect();
    for text in ["", "a", "\u{e000}"] {
        all.extend(
            ["\0", "\0\0", "\0a", "\u{1}", "\u{1f}", "/"].map(|tail| format!("{text}{tail}")),
        );
    }
    all
}

#[test]
fn bounds_of_partitions_divide_keys_like_comparisons() {
    for literal in literals() {
        let (before, after) = (before_partition(T, &literal), after_partition(T, &literal));
        assert!(before <= after);
        for (pk, rk) in pairs(&TEXTS) {
            let key = user_key(T, pk, rk);
            assert_eq!(key >= before, units(pk) >= units(&literal), "{pk:?} ge {literal:?}");
            assert_eq!(key >= after, units(pk) > units(&literal), "{pk:?} gt {literal:?}");
        }
    }
}

#[test]
fn bounds_of_rows_divide_keys_like_comparisons() {
    for literal_pk in literals() {
        for literal_rk in literals() {
            let before = before_row(T, &literal_pk, &literal_rk);
            let after = after_row(T, &literal_pk, &literal_rk);
            assert!(before <= after);
            let literal = (units(&literal_pk), units(&literal_rk));
            for (pk, rk) in pairs(&["", "a", "a ", "aa", "\u{e000}", "\u{10000}"]) {
                let (key, texts) = (user_key(T, pk, rk), (units(pk), units(rk)));
                assert_eq!(
                    key >= before,
                    texts >= literal,
                    "{pk:?}/{rk:?} ge {literal_pk:?}/{literal_rk:?}"
                );
                assert_eq!(
                    key >= after,
                    texts > literal,
                    "{pk:?}/{rk:?} gt {literal_pk:?}/{literal_rk:?}"
                );
            }
        }
    }
}

#[test]
fn hostile_keys_never_panic() {
    let mut rng = Rng::from_seed(8);
    for _ in 0..20_000 {
        let (pk, rk): (&&str, &&str) = (rng.pick(&TEXTS[..]), rng.pick(&TEXTS[..]));
        let mut key = user_key(T, pk, rk);
        for _ in 0..=rng.below(3) {
            let at = rng.below(key.len() as u64) as usize;
            key[at] = rng.next_u64() as u8;
        }
        key.truncate(rng.below(key.len() as u64 + 4) as usize);
        let _ = (partition_of(&key), table_of(&key), DisplayKey(&key).to_string());
        if let Ok((table, pk, rk)) = decode_user_key(&key)
            && let (Ok(pk), Ok(rk)) = (decode_part(pk), decode_part(rk))
            && !rk.contains('\0')
        {
            assert_eq!(user_key(table, &pk, &rk), key);
        }
    }
}

/// A point read builds the same key as a write, for keys of any length.
#[test]
fn keys_built_without_allocation_are_the_same() {
    let long: Vec<String> = (0..140).map(|len| "k".repeat(len)).collect();
    let texts: Vec<&str> = TEXTS.iter().copied().chain(long.iter().map(|text| &**text)).collect();
    for (pk, rk) in pairs(&texts) {
        let found = with_possible_key(T, pk, rk, <[u8]>::to_vec);
        assert_eq!(found, Some(user_key(T, pk, rk)));
    }
    for (pk, rk) in [("\0", ""), ("", "a\0"), ("aé\0", "b"), ("a", "é\0"), ("a\0", "é")] {
        assert_eq!(with_possible_key(T, pk, rk, |_| ()), None);
        assert!(!put_possible_key(T, pk, rk, &mut Vec::new()));
    }
}

#[test]
fn a_malformed_key_is_reported() {
    let problem = |key: &[u8]| decode_user_key(key).unwrap_err().to_string();
    assert_eq!(problem(&[0, 0]), "user key at byte 0: 4 bytes wanted, 2 left");
    assert_eq!(problem(&[0, 0, 0, 1, b'a']), "user key at byte 5: nothing ends the PartitionKey");
    assert_eq!(decode_part(b"ab\xee\x80\x80").unwrap_err().at, 2);
}

#[test]
fn text_forms() {
    let key = user_key(T, "bolts", "m4x20");
    let entry = DisplayEntry { key: &key, seq: Seq(17), kind: Kind::Put };
    assert_eq!(entry.to_string(), "t1/bolts/m4x20#17,PUT");
    let key = user_key(TableId(7), "", "名");
    let entry = DisplayEntry { key: &key, seq: Seq(18), kind: Kind::Delete };
    assert_eq!(entry.to_string(), "t7//名#18,DELETE");
    assert_eq!(DisplayKey(&table_start(T)).to_string(), "0x00000001");
}

fn pairs<'t>(texts: &'t [&'t str]) -> impl Iterator<Item = (&'t str, &'t str)> {
    texts.iter().flat_map(move |a| texts.iter().map(move |b| (*a, *b)))
}
