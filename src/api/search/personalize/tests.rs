//! Which hits the service is told of, and where they go.

use super::*;

fn places(hits: &str) -> Option<Vec<usize>> {
    Told::of(hits.as_bytes(), "Search: x").unwrap().map(|told| told.places)
}

fn page(count: usize, bytes: usize) -> String {
    let hits = (0..count).map(|id| format!(r#"{{"id":{id},"t":"{}"}}"#, "t".repeat(bytes)));
    format!("[{}]", hits.collect::<Vec<_>>().join(","))
}

#[test]
fn those_that_are_named_come_first() {
    let ordered = |first: &[usize]| order(4, first.iter().copied());
    assert_eq!(ordered(&[2, 0]), [2, 0, 1, 3]);
    assert_eq!(ordered(&[3, 2, 1, 0]), [3, 2, 1, 0]);
    assert_eq!(ordered(&[]), [0, 1, 2, 3]);
    assert_eq!(ordered(&[9, 1, 1, 4, usize::MAX]), [1, 0, 2, 3]);
    assert_eq!(order(0, [0].into_iter()), [0; 0]);
}

/// Numbers that no program reads without loss are not to change on their way.
#[test]
fn hits_are_moved_as_they_are() {
    let hits = b" [ {\"n\":1.10, \"a\":\"],{\"} ,{\"n\":123456789012345678901234567890},{}]";
    let moved = in_this_order(hits, &[2, 0, 1]).unwrap();
    let wanted = r#"[{},{"n":1.10, "a":"],{"},{"n":123456789012345678901234567890}]"#;
    assert_eq!(String::from_utf8(moved).unwrap(), wanted);
    assert_eq!(in_this_order(hits, &[]).unwrap(), b"[]");
    assert!(in_this_order(b"[{}", &[0]).is_err());
}

#[test]
fn hits_that_show_nothing_are_not_told_of() {
    assert_eq!(places(r#"[{"a":1},{},{"_rankingScore":1},{"a":2}]"#), Some(vec![0, 3]));
    for few in ["[]", "[{}]", "[{},{}]", r#"[{},{"a":1}]"#] {
        assert_eq!(places(few), None, "{few}");
    }
    assert!(Told::of(b"[3]", "Search: x").is_err() && Told::of(b"{}", "Search: x").is_err());
}

#[test]
fn what_is_told_is_bounded() {
    assert_eq!(places(&page(HITS_MAX + 20, 1)), Some((0..HITS_MAX).collect()));
    let bytes = |hits: String| Told::of(hits.as_bytes(), "Search: x").unwrap().unwrap().question.bytes();
    let room = 1 << 10;
    assert!(bytes(page(2, 10 * TEXT_BYTES_MAX)) <= 2 * TEXT_BYTES_MAX + room);
    let full = bytes(page(HITS_MAX, 2 * TEXTS_BYTES_MAX / HITS_MAX));
    assert!((TEXTS_BYTES_MAX * 9 / 10..TEXTS_BYTES_MAX * 11 / 10).contains(&full), "{full}");
}
