//! Strong entity tags made from what they stand for (RFC 9110 section 8.8.3).

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE},
};
use sha2::{Digest as _, Sha256};

use crate::token::hex;

/// What our own tags begin with: the origin knows nothing of them, and is not asked about them.
const MARK: &str = "\"stampede-";

/// Hashing more than this at once would hold up others.
const PIECE: usize = 128 * 1024;

/// The tag of a representation, in the making.
///
/// Representations of one resource that differ in coding, type or language have different tags even
/// where their bytes are the same (RFC 9110 section 8.8.1).
#[derive(Debug)]
pub(crate) struct Tagging {
    hash: Sha256,
    left: Bytes,
}

/// How far a tag has got.
#[derive(Debug)]
pub(crate) enum Step {
    /// Let others have their turn.
    More(Tagging),
    Done(HeaderValue),
}

impl Tagging {
    pub(crate) fn new(headers: &HeaderMap, body: &Bytes) -> Self {
        let mut hash = Sha256::new();
        for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE] {
            for line in headers.get_all(&name) {
                hash.update((line.len() as u64).to_be_bytes());
                hash.update(line.as_bytes());
            }
            hash.update([0xff]);
        }
        let left = body.clone();
        Self { hash, left }
    }

    /// Hashes one piece more.
    pub(crate) fn step(mut self) -> Step {
        let piece = self.left.split_to(self.left.len().min(PIECE));
        self.hash.update(&piece);
        if self.left.is_empty() {
            Step::Done(tag(&self.hash.finalize()))
        } else {
            Step::More(self)
        }
    }
}

/// Half of the hash is enough to tell representations apart.
fn tag(hash: &[u8]) -> HeaderValue {
    let (half, _) = hash.split_at(hash.len() / 2);
    HeaderValue::try_from(format!("{MARK}{}\"", hex(half))).expect("hex is a field value")
}

/// Whether a tag was made here.
pub(crate) fn is_own(tag: &HeaderValue) -> bool {
    tag.as_bytes().starts_with(MARK.as_bytes())
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn of(headers: &[(HeaderName, &'static str)], body: &[u8]) -> HeaderValue {
        let lines = headers.iter();
        let lines = lines.map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let mut tagging = Tagging::new(&lines.collect(), &Bytes::copy_from_slice(body));
        loop {
            match tagging.step() {
                Step::More(more) => tagging = more,
                Step::Done(tag) => return tag,
            }
        }
    }

    #[test]
    fn a_tag_is_a_strong_one_of_its_own_kind() {
        let tag = of(&[], b"page");

        let text = tag.to_str().unwrap();
        assert_eq!((text.len(), text.matches('"').count()), (43, 2), "{text}");
        assert!(is_own(&tag));
        assert!(!is_own(&HeaderValue::from_static("\"a\"")));
        assert!(!is_own(&HeaderValue::from_static("W/\"stampede-a\"")));
    }

    #[test]
    fn what_is_represented_otherwise_has_another_tag() {
        let tags = [
            of(&[], b"page"),
            of(&[], b"page2"),
            of(&[], b""),
            of(&[(CONTENT_TYPE, "text/html")], b"page"),
            of(&[(CONTENT_ENCODING, "text/html")], b"page"),
            of(&[(CONTENT_ENCODING, "gzip")], b"page"),
            of(&[(CONTENT_LANGUAGE, "gzip")], b"page"),
        ];

        for (at, tag) in tags.iter().enumerate() {
            assert!(tags.iter().skip(at + 1).all(|other| other != tag), "{at}");
        }
        let dated = [(http::header::DATE, "Sun, 06 Nov 1994 08:49:37 GMT")];
        assert_eq!(of(&dated, b"page"), of(&[], b"page"));
    }

    #[test]
    fn the_pieces_do_not_show() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE] {
            let body = vec![7; length];
            let mut hash = Sha256::new();
            hash.update([0xff; 3]);
            hash.update(&body);

            assert_eq!(of(&[], &body), tag(&hash.finalize()), "{length}");
        }
    }
}
