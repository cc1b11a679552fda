//! Values whose body takes less room.
//!
//! Only the body is compressed, as one LZ4 block, and the value's kind says so. The scripts read such a head
//! as any other; a process that cannot read the body (an older one, or one without the feature
//! `compression`) has a miss there, and its own build overwrites it with what all can read. The local tier
//! has bodies as they are.

use bytes::Bytes;
use http::header;
use tokio::task::spawn_blocking;

use super::{Kind, Label, pieces::Reader};
use crate::entry::Entry;

/// What takes so little time that it is done at once, in bytes as they are. More has a thread of its own.
const AT_ONCE: usize = 256 * 1024;

/// Which bodies are compressed, and which can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compression {
    /// Bodies longer than this.
    over: usize,
    /// A body that says it is longer than this is not decompressed.
    limit: usize,
}

impl Compression {
    /// Compresses none, and reads none.
    #[cfg(any(test, not(feature = "compression")))]
    pub(crate) const NONE: Self = Self {
        over: usize::MAX,
        limit: 0,
    };

    #[cfg(feature = "compression")]
    pub(crate) fn new(over: Option<usize>, limit: usize) -> Self {
        let over = over.unwrap_or(usize::MAX);
        Self { over, limit }
    }

    /// A value as it is to be stored: with its body compressed, if that is wanted and worth it.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, nothing has happened.
    pub(crate) async fn pack(self, entry: &Entry, value: Vec<u8>) -> Bytes {
        let value = Bytes::from(value);
        let length = entry.body.len();
        if length <= self.over || entry.head.headers.contains_key(header::CONTENT_ENCODING) {
            return value;
        }
        let plain = value.clone();
        let packed = aside(length, move || pack(&plain)).await;
        packed.map_or(value, Bytes::from)
    }

    /// A value as it was before it was packed; `None` if it cannot be.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, nothing has happened.
    pub(crate) async fn unpack(self, value: Bytes) -> Option<Bytes> {
        if value.get(Kind::AT) != Some(&Kind::Compressed.letter()) {
            return Some(value);
        }
        let body = Body::of(&value)?;
        if body.length > self.limit {
            return None;
        }
        let plain = aside(body.length, move || unpack(&value, body)).await;
        plain.map(Bytes::from)
    }
}

/// Does what takes long where nobody waits for the processor.
async fn aside<T: Send + 'static>(
    length: usize,
    work: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    if length <= AT_ONCE {
        return work();
    }
    spawn_blocking(work).await.ok().flatten()
}

/// The body of a value.
#[derive(Clone, Copy)]
struct Body {
    /// Where it begins.
    #[cfg_attr(
        not(feature = "compression"),
        expect(dead_code, reason = "nothing is taken apart without the feature")
    )]
    at: usize,
    /// Its length as it is, in bytes, if the value is to be believed.
    length: usize,
}

impl Body {
    fn of(value: &[u8]) -> Option<Self> {
        let (_, _, end) = Label::read(value)?;
        let mut reader = Reader(value.get(end..)?);
        let mut meta = Reader(reader.block()?);
        let length = usize::try_from(meta.u64()?).ok()?;
        let at = value.len() - reader.0.len();
        Some(Self { at, length })
    }
}

#[cfg(feature = "compression")]
use self::lz4::{pack, unpack};

#[cfg(not(feature = "compression"))]
fn pack(_value: &[u8]) -> Option<Vec<u8>> {
    None
}

#[cfg(not(feature = "compression"))]
fn unpack(_value: &[u8], _body: Body) -> Option<Vec<u8>> {
    None
}

#[cfg(feature = "compression")]
mod lz4 {
    use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

    use super::{Body, Kind};

    /// No block becomes longer than its own length times this: what claims to is garbage.
    const LARGEST_RATIO: usize = 255;

    /// `None` where less than a tenth would be saved.
    pub(super) fn pack(value: &[u8]) -> Option<Vec<u8>> {
        let Body { at, .. } = Body::of(value)?;
        let (head, body) = value.split_at_checked(at)?;
        let mut packed = vec![0; at + get_maximum_output_size(body.len())];
        let (new_head, block) = packed.split_at_mut_checked(at)?;
        let length = compress_into(body, block).ok()?;
        copy_head(head, new_head, Kind::Compressed)?;
        packed.truncate(at + length);
        (length <= body.len() - body.len().div_ceil(10)).then_some(packed)
    }

    pub(super) fn unpack(value: &[u8], Body { at, length }: Body) -> Option<Vec<u8>> {
        let (head, block) = value.split_at_checked(at)?;
        if length > block.len().saturating_mul(LARGEST_RATIO) {
            return None;
        }
        let mut plain = vec![0; at + length];
        let (new_head, body) = plain.split_at_mut_checked(at)?;
        let written = decompress_into(block, body).ok()?;
        copy_head(head, new_head, Kind::Entry)?;
        (written == length).then_some(plain)
    }

    fn copy_head(from: &[u8], to: &mut [u8], kind: Kind) -> Option<()> {
        to.copy_from_slice(from);
        *to.get_mut(Kind::AT)? = kind.letter();
        Some(())
    }
}

#[cfg(test)]
#[cfg(feature = "compression")]
mod tests;
