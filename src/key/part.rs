//! How the parts of a key are kept apart: each has a tag and its length before it.

/// What a part is.
#[derive(Clone, Copy)]
pub(super) enum Tag {
    Authority = b'a' as isize,
    Path = b'p' as isize,
    Query = b'q' as isize,
    Header = b'h' as isize,
    HeaderValue = b'i' as isize,
    Cookie = b'c' as isize,
    CookieValue = b'd' as isize,
    Own = b'o' as isize,
    Variant = b'v' as isize,
    /// One element of `Forwarded`; its pairs follow.
    Forwarded = b'f' as isize,
    ForwardedPair = b'g' as isize,
    ForwardedHost = b'j' as isize,
    ForwardedScheme = b'k' as isize,
}

/// Turns the key of a resource into the key of one of its variants.
pub(crate) fn push_variant(key: &mut Vec<u8>, values: &[u8]) {
    part(key, Tag::Variant, values);
}

pub(super) fn part(bytes: &mut Vec<u8>, tag: Tag, value: &[u8]) {
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let [a, b, c, d] = length.to_be_bytes();
    bytes.extend_from_slice(&[tag as u8, a, b, c, d]);
    bytes.extend_from_slice(value);
}
