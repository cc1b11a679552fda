use proptest::prelude::*;

use super::*;

const BODY: &[u8] = b"0123456789A";
const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const NEW: &str = "Mon, 07 Nov 1994 08:49:37 GMT";

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, line) in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    headers
}

fn selection(range: &str, length: usize) -> Selection {
    select(&headers(&[(RANGE, range)]), &HeaderMap::new(), length)
}

#[test]
fn one_range_in_each_form() {
    for (range, expected) in [
        ("bytes=0-1", Selection::Partial(0..2)),
        ("Bytes=0-1", Selection::Partial(0..2)),
        ("bytes=1-", Selection::Partial(1..11)),
        ("bytes=-1", Selection::Partial(10..11)),
        ("bytes=-99", Selection::Partial(0..11)),
        ("bytes=5-99", Selection::Partial(5..11)),
        ("bytes=0-99999999999999999999", Selection::Partial(0..11)),
        ("bytes=0-1, 99-", Selection::Partial(0..2)),
        ("bytes=11-", Selection::Unsatisfiable),
        ("bytes=99-100", Selection::Unsatisfiable),
        ("bytes=-0", Selection::Unsatisfiable),
        ("bytes=5-2", Selection::Full),
        ("bytes=", Selection::Full),
        ("bytes", Selection::Full),
        ("bytes=a-b", Selection::Full),
        ("bytes=0-1;x", Selection::Full),
        ("bytes=--1", Selection::Full),
        ("lines=0-1", Selection::Full),
        ("\u{e9}", Selection::Full),
        ("", Selection::Full),
    ] {
        assert_eq!(selection(range, BODY.len()), expected, "{range}");
    }
}

#[test]
fn several_ranges_keep_their_order_and_abuse_gets_the_whole() {
    assert_eq!(
        selection("bytes=5-6, 0-1, -1", BODY.len()),
        Selection::Multipart(vec![5..7, 0..2, 10..11])
    );
    assert_eq!(selection("bytes=0-8, 0-8", BODY.len()), Selection::Full);
    assert_eq!(selection("bytes=0-1, 0-1, 1-2, 2-3", 100), Selection::Full);
    let spread = |count: usize| {
        let ranges: Vec<_> = (0..count).map(|n| format!("{}-{}", n * 3, n * 3)).collect();
        selection(&format!("bytes={}", ranges.join(",")), 1000)
    };
    assert!(matches!(spread(16), Selection::Multipart(parts) if parts.len() == 16));
    assert_eq!(spread(17), Selection::Full);
}

#[test]
fn an_empty_body_has_no_parts() {
    assert_eq!(selection("bytes=0-0", 0), Selection::Unsatisfiable);
    assert_eq!(selection("bytes=-5", 0), Selection::Full);
}

#[test]
fn a_request_without_one_range_field_gets_the_whole() {
    let none = HeaderMap::new();
    let two = headers(&[(RANGE, "bytes=0-1"), (RANGE, "bytes=2-3")]);

    for request in [&none, &two] {
        assert_eq!(select(request, &none, BODY.len()), Selection::Full);
    }
}

#[test]
fn if_range_holds_for_the_same_strong_validator_alone() {
    let stored = [(ETAG, "\"a\""), (LAST_MODIFIED, OLD), (DATE, NEW)];
    let weak = [(ETAG, "W/\"a\"")];
    let just_modified = [(LAST_MODIFIED, OLD), (DATE, OLD)];
    for (condition, stored, expected) in [
        ("\"a\"", &stored[..], true),
        ("\"b\"", &stored, false),
        ("W/\"a\"", &stored, false),
        ("W/\"a\"", &weak, false),
        ("\"a\"", &weak, false),
        (OLD, &stored, true),
        (NEW, &stored, false),
        (OLD, &just_modified, false),
        (OLD, &[], false),
        ("junk", &stored, false),
    ] {
        let request = headers(&[(RANGE, "bytes=0-1"), (IF_RANGE, condition)]);
        let found = select(&request, &headers(stored), BODY.len()) == Selection::Partial(0..2);

        assert_eq!(found, expected, "{condition} against {stored:?}");
    }
}

#[test]
fn a_part_says_where_it_belongs() {
    let mut fields = headers(&[(CONTENT_LENGTH, "11"), (ETAG, "\"a\"")]);
    fields.insert("content-md5", HeaderValue::from_static("x"));
    fields.insert("trailer", HeaderValue::from_static("x-sum"));

    into_partial(&mut fields, &(2..5), 11);

    assert_eq!(fields[CONTENT_RANGE], "bytes 2-4/11");
    assert_eq!(fields[CONTENT_LENGTH], "3");
    assert_eq!(fields[ETAG], "\"a\"");
    assert!(!fields.contains_key("content-md5") && !fields.contains_key("trailer"));
    assert_eq!(unsatisfied(11), "bytes */11");
}

#[test]
fn several_parts_are_a_multipart_body() {
    let mut fields = headers(&[(CONTENT_TYPE, "text/plain")]);

    let body = into_multipart(&mut fields, &Bytes::from_static(BODY), &[0..2, 10..11], "b");

    assert_eq!(
        body,
        "--b\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/11\r\n\r\n01\r\n\
         --b\r\nContent-Type: text/plain\r\nContent-Range: bytes 10-10/11\r\n\r\nA\r\n--b--\r\n"
    );
    assert_eq!(fields[CONTENT_LENGTH], body.len().to_string().as_str());
    assert_eq!(fields[CONTENT_TYPE], "multipart/byteranges; boundary=b");
}

/// What a range specifier asks for, in the plainest way.
fn slice(spec: (Option<usize>, Option<usize>), body: &[u8]) -> Vec<u8> {
    match spec {
        (Some(first), last) => {
            let count = last.map_or(usize::MAX, |last| last - first + 1);
            body.iter().copied().skip(first).take(count).collect()
        }
        (None, last) => {
            let count = last.unwrap_or_default().min(body.len());
            body[body.len() - count..].to_vec()
        }
    }
}

fn spec() -> impl Strategy<Value = (Option<usize>, Option<usize>)> {
    prop_oneof![
        (0..40_usize, 0..40_usize).prop_map(|(a, b)| (Some(a.min(b)), Some(a.max(b)))),
        (0..40_usize).prop_map(|first| (Some(first), None)),
        (0..40_usize).prop_map(|last| (None, Some(last))),
    ]
}

proptest! {
    #[test]
    fn the_parts_equal_the_slices(
        body in proptest::collection::vec(any::<u8>(), 0..40),
        specs in proptest::collection::vec(spec(), 1..5),
    ) {
        let show = |n: &Option<usize>| n.map(|n| n.to_string()).unwrap_or_default();
        let list: Vec<_> = specs.iter().map(|(a, b)| format!("{}-{}", show(a), show(b))).collect();
        let slices: Vec<_> = specs
            .iter()
            .map(|spec| slice(*spec, &body))
            .filter(|slice| !slice.is_empty())
            .collect();

        match selection(&format!("bytes={}", list.join(", ")), body.len()) {
            Selection::Partial(part) => prop_assert_eq!(vec![body[part].to_vec()], slices),
            Selection::Multipart(parts) => {
                let parts: Vec<_> = parts.into_iter().map(|part| body[part].to_vec()).collect();
                prop_assert_eq!(parts, slices);
            }
            Selection::Unsatisfiable => prop_assert!(slices.is_empty()),
            Selection::Full => prop_assert!(specs.len() > 1 || body.is_empty()),
        }
    }

    #[test]
    fn any_range_is_read_without_a_panic(range in "(bytes=)?[0-9,\\- a]{0,30}", length in 0..50_usize) {
        match selection(&range, length) {
            Selection::Partial(part) => prop_assert!(part.start < part.end && part.end <= length),
            Selection::Multipart(parts) => {
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
                prop_assert!(parts.iter().map(Range::len).sum::<usize>() <= length);
            }
            Selection::Full | Selection::Unsatisfiable => {}
        }
    }
}
