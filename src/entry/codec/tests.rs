use proptest::prelude::*;

use super::*;
use crate::token::Token;

pub(super) fn label(kind: Kind) -> Label {
    Label {
        kind,
        token: Token::parse("0123456789abcdef0123456789abcdef").unwrap(),
        began: 1_700_000_000_123_456,
        life: Duration::from_secs(90),
        window: Duration::from_secs(30),
        proof: [0xfe; 32],
    }
}

pub(super) fn asked(left: Duration) -> Asked {
    Asked {
        sent: Instant::now(),
        left,
        cut: Duration::ZERO,
        began: Moment::default(),
    }
}

pub(super) fn entry() -> Entry {
    let mut headers = HeaderMap::new();
    headers.append("set-thing", HeaderValue::from_static("one"));
    headers.append("set-thing", HeaderValue::from_static("two"));
    headers.append("x-latin", HeaderValue::from_bytes(b"caf\xe9").unwrap());
    headers.append("x-empty", HeaderValue::from_static(""));
    let mut trailers = HeaderMap::new();
    trailers.append("x-sum", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
    let variant = Variant {
        fields: Fields::from([http::header::ACCEPT_LANGUAGE, http::header::ACCEPT]),
        values: Bytes::from_static(b"\x00de\xff"),
    };
    let head = Head {
        status: StatusCode::from_u16(299).unwrap(),
        headers,
        variant: Some(variant),
        age: 5,
    };
    let seconds = Duration::from_secs;
    let lifetime = Lifetime::starting(Instant::now(), seconds(60), seconds(10), seconds(30));
    let origin = Origin {
        lifetime,
        tags: Box::from([Digest::of(b"one"), Digest::of(b"two")]),
        began: Moment::default(),
        built: Built::here(Instant::now()),
        build_time: Duration::from_millis(5),
    };
    Entry::new(
        head,
        Bytes::from_static(b"\x00body\xff"),
        Some(trailers),
        origin,
    )
}

fn encoded() -> Vec<u8> {
    encode(&entry(), &label(Kind::Entry))
}

fn decoded(value: Vec<u8>, left: Duration) -> Arc<Entry> {
    match decode(&value.into(), asked(left)) {
        Some(Decoded::Entry(entry)) => entry,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_reads_as_it_was_written() {
    let written = entry();

    let read = decoded(encoded(), Duration::from_secs(90));

    assert_eq!(read.head.status, written.head.status);
    assert_eq!(read.head.headers, written.head.headers);
    assert_eq!(read.head.variant, written.head.variant);
    assert_eq!(read.trailers, written.trailers);
    assert_eq!(read.body, written.body);
    assert_eq!(read.tags, written.tags);
    assert_eq!(read.head.age, 5);
    assert_eq!(read.token.get(), Some(&label(Kind::Entry).token));
}

#[tokio::test(start_paused = true)]
async fn what_is_left_decides_lifetime_and_age() {
    let now = Instant::now();

    let fresh = decoded(encoded(), Duration::from_secs(70));
    let stale = decoded(encoded(), Duration::from_secs(20));

    assert_eq!(fresh.lifetime.fresh_until, now + Duration::from_secs(40));
    assert_eq!(
        fresh.lifetime.revalidate_until,
        now + Duration::from_secs(50)
    );
    assert_eq!(fresh.lifetime.error_until, now + Duration::from_secs(70));
    assert_eq!(fresh.age(now), 25);
    assert_eq!(stale.age(now), 75);
    assert_eq!(stale.lifetime.error_until, now + Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_a_resource_read_as_they_were_written() {
    let fields = Fields::from([http::header::ACCEPT_LANGUAGE]);
    let tags = [Digest::of(b"one")];

    let value = encode_variants(&fields, &tags, &label(Kind::Variants));

    let read = decode(&value.into(), asked(Duration::from_secs(1)));
    assert!(matches!(read, Some(Decoded::Variants(read)) if read == fields));
}

#[tokio::test(start_paused = true)]
async fn a_failure_reads_as_it_was_written() {
    let written = entry();

    let read = decode_response(&encode_response(&written).into(), Moment::default()).unwrap();

    assert_eq!(read.head.headers, written.head.headers);
    assert_eq!(read.body, written.body);
}

#[tokio::test(start_paused = true)]
async fn the_scripts_read_the_label_where_it_is() {
    let value = encoded();

    assert_eq!(value[..5], *b"TSE1E");
    assert_eq!(value[5..37], *label(Kind::Entry).token.as_str().as_bytes());
    assert_eq!(value[37..53], *b"1700000000123456");
    assert_eq!(value[66..79], *b"0000000030000");
    assert_eq!(value[79..111], [0xfe; 32]);
    assert_eq!(value[111..114], *b"002");
    assert_eq!(value[114..146], *Digest::of(b"one").to_string().as_bytes());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_cut_short_is_no_entry() {
    let value = encoded();
    let body = value.len() - entry().body.len();

    for length in 0..body {
        let cut = Bytes::copy_from_slice(&value[..length]);
        let read = decode(&cut, asked(Duration::from_secs(1)));
        assert!(read.is_none(), "{length} bytes: {read:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_cut_short_or_too_long_is_no_entry() {
    let value = encoded();
    let short = Bytes::copy_from_slice(&value[..value.len() - 1]);
    let long = Bytes::from([&value[..], b"x"].concat());

    assert!(decode(&short, asked(Duration::from_secs(1))).is_none());
    assert!(decode(&long, asked(Duration::from_secs(1))).is_none());
}

proptest! {
    #[test]
    fn garbage_is_no_entry_and_no_panic(value in prop::collection::vec(any::<u8>(), 0..400)) {
        let value = Bytes::from(value);

        prop_assert!(decode(&value, asked(Duration::from_secs(1))).is_none());
        drop(decode_response(&value, Moment::default()));
    }

    #[test]
    fn one_wrong_byte_never_panics(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        left in any::<u32>(),
    ) {
        let mut value = encoded();
        let at = at.index(value.len());
        value[at] = byte;

        drop(decode(&value.clone().into(), asked(Duration::from_millis(left.into()))));
        drop(decode_response(&value.split_off(146).into(), Moment::default()));
    }

    #[test]
    fn any_body_and_field_comes_back(
        body in prop::collection::vec(any::<u8>(), 0..200),
        field in "[\\x20-\\x7e]{0,40}",
    ) {
        let mut written = entry();
        written.body = body.into();
        let value = HeaderValue::from_str(&field).unwrap();
        written.head.headers.insert("x-any", value);

        let read = decoded(encode(&written, &label(Kind::Entry)), Duration::from_secs(60));

        prop_assert_eq!(&read.body, &written.body);
        prop_assert_eq!(&read.head.headers, &written.head.headers);
    }
}
