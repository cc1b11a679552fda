use bytes::BufMut as _;
use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::entry::codec::{
    Decoded, decode, encode,
    tests::{asked, entry, label},
};

const LIMIT: usize = 1024 * 1024;

/// With a limit for what is read.
fn over(bytes: usize) -> Compression {
    Compression::new(Some(bytes), LIMIT)
}

fn with_body(body: impl Into<Bytes>) -> Entry {
    let mut entry = entry();
    entry.body = body.into();
    entry
}

fn report(length: usize) -> Vec<u8> {
    let line = b"{\"product\": 17, \"price\": 4.99, \"in_stock\": true}\n";
    line.iter().copied().cycle().take(length).collect()
}

fn noise(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.u8(..))
        .take(length)
        .collect()
}

fn value(entry: &Entry) -> Vec<u8> {
    encode(entry, &label(Kind::Entry))
}

/// A value whose body is compressed, without regard to what it is worth.
fn packed(entry: &Entry) -> Vec<u8> {
    pack(&value(entry)).expect("the body compresses well")
}

async fn kind_of(compression: Compression, entry: &Entry) -> Kind {
    let packed = compression.pack(entry, value(entry)).await;
    Label::read(&packed).unwrap().0.kind
}

fn unpacked(value: &[u8]) -> Option<Vec<u8>> {
    unpack(value, Body::of(value)?)
}

fn body_of(value: &[u8]) -> Option<Bytes> {
    let value = Bytes::copy_from_slice(value);
    match decode(&value, asked(std::time::Duration::from_secs(1)))? {
        Decoded::Entry(entry) => Some(entry.body.clone()),
        Decoded::Variants(_) => None,
    }
}

/// A compressed value whose meta says that its body is so long.
fn claiming(length: u64) -> Vec<u8> {
    let mut value = packed(&with_body(report(4096)));
    let (_, _, end) = Label::read(&value).unwrap();
    (&mut value[end + 4..end + 12]).put_u64(length);
    value
}

#[tokio::test]
async fn what_is_packed_is_smaller_and_is_as_it_was_when_it_is_unpacked() {
    for length in [2 * 1024, AT_ONCE, AT_ONCE + 1] {
        let entry = with_body(report(length));

        let packed = over(1024).pack(&entry, value(&entry)).await;

        assert!(packed.len() < length / 2, "{} bytes", packed.len());
        let unpacked = over(1024).unpack(packed).await.unwrap();
        assert_eq!(unpacked, value(&entry), "{length} bytes");
    }
}

#[tokio::test]
async fn only_long_bodies_that_become_smaller_and_are_not_coded_are_packed() {
    let long = with_body(report(2048));
    let mut coded = with_body(report(2048));
    coded
        .head
        .headers
        .insert(header::CONTENT_ENCODING, HeaderValue::from_static("br"));

    assert_eq!(kind_of(over(2047), &long).await, Kind::Compressed);
    assert_eq!(kind_of(over(2048), &long).await, Kind::Entry);
    assert_eq!(kind_of(over(0), &coded).await, Kind::Entry);
    assert_eq!(kind_of(over(0), &with_body(noise(2048))).await, Kind::Entry);
    assert_eq!(kind_of(over(0), &with_body("")).await, Kind::Entry);
    let reads_only = Compression::new(None, LIMIT);
    assert_eq!(kind_of(reads_only, &long).await, Kind::Entry);
    assert_eq!(kind_of(Compression::NONE, &long).await, Kind::Entry);
}

#[tokio::test]
async fn a_tenth_is_what_packing_has_to_save() {
    let part = |of: usize| [noise(10_000 - of), vec![b'.'; of]].concat();

    let little = kind_of(over(0), &with_body(part(900))).await;
    let enough = kind_of(over(0), &with_body(part(1200))).await;

    assert_eq!((little, enough), (Kind::Entry, Kind::Compressed));
}

#[test]
fn the_scripts_read_the_same_label_but_for_the_kind() {
    let entry = with_body(report(4096));
    let (plain, packed) = (value(&entry), packed(&entry));
    let (_, _, end) = Label::read(&plain).unwrap();

    assert_eq!(packed[..4], plain[..4]);
    assert_eq!((plain[4], packed[4]), (b'E', b'Z'));
    assert_eq!(packed[5..end], plain[5..end]);
}

#[tokio::test]
async fn what_is_packed_is_no_entry_to_whoever_does_not_unpack_it() {
    let packed = Bytes::from(packed(&with_body(report(4096))));

    assert_eq!(body_of(&packed), None);
    assert_eq!(Compression::NONE.unpack(packed).await, None);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_not_unpacked() {
    let at_limit = Bytes::from(packed(&with_body(report(LIMIT))));
    let beyond = Bytes::from(packed(&with_body(report(LIMIT + 1))));

    assert!(over(0).unpack(at_limit).await.is_some());
    assert_eq!(over(0).unpack(beyond).await, None);
}

#[tokio::test]
async fn a_length_that_no_block_can_have_takes_no_memory() {
    let boundless = Compression::new(None, usize::MAX);
    for length in [0, 4095, 4097, 1 << 46, u64::MAX / 2, u64::MAX] {
        let bomb = Bytes::from(claiming(length));

        assert_eq!(boundless.unpack(bomb).await, None, "{length}");
    }
}

proptest! {
    #[test]
    fn whatever_is_packed_is_as_it_was_when_it_is_unpacked(
        piece in prop::collection::vec(any::<u8>(), 1..100),
        times in 1..200_usize,
    ) {
        let entry = with_body(piece.repeat(times));
        if let Some(packed) = pack(&value(&entry)) {
            prop_assert_eq!(unpacked(&packed), Some(value(&entry)));
        }
    }

    #[test]
    fn wrong_bytes_make_another_body_of_the_same_length_or_none_and_no_panic(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut value = packed(&with_body(report(4096)));
        for (at, byte) in places {
            let at = at.index(value.len());
            value[at] = byte;
        }

        let said = Body::of(&value).map(|body| body.length);
        if let Some(unpacked) = unpacked(&value) {
            let body = Body::of(&unpacked).unwrap();
            prop_assert_eq!(Some(body.length), said);
            prop_assert_eq!(unpacked.len() - body.at, body.length);
            drop(body_of(&unpacked));
        }
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_none(
        kept in any::<prop::sample::Index>(),
        more in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let value = packed(&with_body(report(4096)));
        let cut = kept.index(value.len());

        prop_assert_eq!(unpacked(&value[..cut]), None);
        if let Some(unpacked) = unpacked(&[&value[..], &more].concat()) {
            prop_assert!(body_of(&unpacked).is_some_and(|body| body.len() == 4096));
        }
    }

    #[test]
    fn a_block_of_garbage_never_panics(block in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut value = packed(&with_body(report(4096)));
        let at = Body::of(&value).unwrap().at;
        value.truncate(at);
        value.extend(block);

        drop(unpacked(&value));
    }
}
