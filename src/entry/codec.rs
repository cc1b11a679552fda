//! The form of a response outside the process.
//!
//! ```text
//! | head, as text of fixed width, for the scripts | tags | length of meta | meta | body |
//! ```
//!
//! The scripts of the shared tier read the head without decoding anything; the body comes last and
//! as it is, so that a reply becomes an entry without copying it. Whatever does not decode is no
//! entry: `None`, never an error.

mod compressed;
mod label;
mod pieces;

use std::{sync::Arc, time::Duration};

use bytes::{BufMut as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::Instant;

pub(crate) use self::{
    compressed::Compression,
    label::{Kind, Label},
};
use self::{
    label::{HEAD, TAG},
    pieces::{Reader, write_block},
};
use super::{Built, Entry, Fields, Head, Lifetime, Origin, Variant};
use crate::{key::Digest, purges::Moment, time::TierTime};

/// The version of this form; it is part of the names of the keys in the shared tier.
pub(crate) const VERSION: &str = "1";

/// A decoded value.
#[derive(Debug)]
pub(crate) enum Decoded {
    Entry(Arc<Entry>),
    Variants(Fields),
}

/// When a reply was asked for, and how long the tier still keeps its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) sent: Instant,
    pub(crate) left: Duration,
    /// How much of that a soft purge has taken away already.
    pub(crate) cut: Duration,
    pub(crate) began: Moment,
}

/// An entry as the shared tier keeps it.
pub(crate) fn encode(entry: &Entry, label: &Label) -> Vec<u8> {
    let mut meta = Vec::with_capacity(512);
    write_meta(entry, &mut meta);
    let mut out =
        Vec::with_capacity(HEAD + entry.tags.len() * TAG + 4 + meta.len() + entry.body.len());
    label.write(&entry.tags, &mut out);
    write_block(&meta, &mut out);
    out.extend_from_slice(&entry.body);
    out
}

/// What a resource varies by, as the shared tier keeps it.
pub(crate) fn encode_variants(fields: &Fields, tags: &[Digest], label: &Label) -> Vec<u8> {
    let mut meta = Vec::new();
    write_fields(fields, &mut meta);
    let mut out = Vec::with_capacity(HEAD + tags.len() * TAG + 4 + meta.len());
    label.write(tags, &mut out);
    write_block(&meta, &mut out);
    out
}

/// A response without a label, for a marker.
pub(crate) fn encode_response(entry: &Entry) -> Vec<u8> {
    let mut meta = Vec::with_capacity(512);
    write_meta(entry, &mut meta);
    let mut out = Vec::with_capacity(4 + meta.len() + entry.body.len());
    write_block(&meta, &mut out);
    out.extend_from_slice(&entry.body);
    out
}

/// Decodes a labelled value. One whose body is compressed is unpacked before, by [`Compression`].
pub(crate) fn decode(value: &Bytes, asked: Asked) -> Option<Decoded> {
    let (label, tags, at) = Label::read(value)?;
    let rest = value.get(at..)?;
    match label.kind {
        Kind::Variants => {
            let mut reader = Reader(rest);
            let mut meta = Reader(reader.block()?);
            Some(Decoded::Variants(read_fields(&mut meta)?))
        }
        Kind::Entry => {
            let (meta, body) = split(value, at)?;
            let meta = read_meta(meta, body.len() as u64)?;
            let entry = meta.into_entry(body, &label, tags.into(), asked);
            entry.set_token(label.token);
            Some(Decoded::Entry(Arc::new(entry)))
        }
        // It has to be unpacked first.
        Kind::Compressed => None,
    }
}

/// Decodes a response without a label.
pub(crate) fn decode_response(value: &Bytes, began: Moment) -> Option<Entry> {
    let (meta, body) = split(value, 0)?;
    let meta = read_meta(meta, body.len() as u64)?;
    let now = Instant::now();
    let lifetime = Lifetime::starting(now, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let origin = Origin {
        lifetime,
        tags: Box::default(),
        began,
        built: Built::here(now),
        build_time: Duration::ZERO,
    };
    Some(Entry::new(meta.head, body, meta.trailers, origin))
}

/// The entry that a caller holds already, with the lifetime that the tier still gives it.
pub(crate) fn renew(held: &Entry, label: &Label, asked: Asked) -> Entry {
    let lifetime = held.lifetime;
    let meta = Meta {
        head: held.head.clone(),
        trailers: held.trailers.clone(),
        stale_while_revalidate: lifetime.revalidate_until - lifetime.fresh_until,
        stale_if_error: lifetime.error_until - lifetime.fresh_until,
        age: held.stored_age(),
        build_time: held.build_time,
    };
    let entry = meta.into_entry(held.body.clone(), label, held.tags.clone(), asked);
    entry.set_token(label.token.clone());
    entry
}

struct Meta {
    head: Head,
    trailers: Option<HeaderMap>,
    stale_while_revalidate: Duration,
    stale_if_error: Duration,
    /// The age when it was stored, in seconds.
    age: u64,
    build_time: Duration,
}

impl Meta {
    fn into_entry(
        mut self,
        body: Bytes,
        label: &Label,
        tags: Box<[Digest]>,
        asked: Asked,
    ) -> Entry {
        let elapsed = label.life.saturating_sub(asked.left + asked.cut);
        self.head.age = self.age.saturating_add(elapsed.as_secs());
        let fresh = asked.left.saturating_sub(label.window);
        let over = label.window.saturating_sub(asked.left);
        let fresh_until = (asked.sent + fresh).checked_sub(over).unwrap_or(asked.sent);
        let lifetime = Lifetime {
            received: asked.sent,
            fresh_until,
            revalidate_until: fresh_until + self.stale_while_revalidate,
            error_until: fresh_until + self.stale_if_error,
            kept_until: asked.sent + asked.left,
        };
        let began = asked.began;
        let mut entry = Entry::new(
            self.head,
            body,
            self.trailers,
            Origin {
                lifetime,
                tags,
                began,
                built: Built::leased(asked.sent, TierTime(label.began)),
                build_time: self.build_time,
            },
        );
        entry.set_stored_age(self.age);
        entry
    }
}

fn split(value: &Bytes, at: usize) -> Option<(&[u8], Bytes)> {
    let mut reader = Reader(value.get(at..)?);
    let meta = reader.block()?;
    let body = value.slice_ref(reader.0);
    Some((meta, body))
}

fn write_meta(entry: &Entry, out: &mut Vec<u8>) {
    let lifetime = &entry.lifetime;
    out.put_u64(entry.body.len() as u64);
    out.put_u16(entry.head.status.as_u16());
    out.put_u64(entry.stored_age());
    let window = |end| end - lifetime.fresh_until;
    let windows = [lifetime.revalidate_until, lifetime.error_until].map(window);
    for period in windows.into_iter().chain([entry.build_time]) {
        out.put_u64(u64::try_from(period.as_millis()).unwrap_or(u64::MAX));
    }
    write_headers(&entry.head.headers, out);
    match &entry.trailers {
        None => out.push(0),
        Some(trailers) => {
            out.push(1);
            write_headers(trailers, out);
        }
    }
    match &entry.head.variant {
        None => out.push(0),
        Some(variant) => {
            out.push(1);
            write_fields(&variant.fields, out);
            write_block(&variant.values, out);
        }
    }
}

/// `body`: the length of the body that came with it.
fn read_meta(meta: &[u8], body: u64) -> Option<Meta> {
    let mut reader = Reader(meta);
    (reader.u64()? == body).then_some(())?;
    let status = StatusCode::from_u16(reader.u16()?).ok()?;
    let age = reader.u64()?;
    let stale_while_revalidate = Duration::from_millis(reader.u64()?);
    let stale_if_error = Duration::from_millis(reader.u64()?);
    let build_time = Duration::from_millis(reader.u64()?);
    let headers = read_headers(&mut reader)?;
    let trailers = if reader.u8()? == 0 {
        None
    } else {
        Some(read_headers(&mut reader)?)
    };
    let variant = if reader.u8()? == 0 {
        None
    } else {
        let fields = read_fields(&mut reader)?;
        let values = Bytes::copy_from_slice(reader.block()?);
        Some(Variant { fields, values })
    };
    let head = Head {
        status,
        headers,
        variant,
        age,
    };
    reader.0.is_empty().then_some(Meta {
        head,
        trailers,
        stale_while_revalidate,
        stale_if_error,
        age,
        build_time,
    })
}

fn write_headers(headers: &HeaderMap, out: &mut Vec<u8>) {
    out.put_u32(u32::try_from(headers.len()).unwrap_or(u32::MAX));
    for (name, value) in headers {
        write_block(name.as_str().as_bytes(), out);
        write_block(value.as_bytes(), out);
    }
}

fn read_headers(reader: &mut Reader<'_>) -> Option<HeaderMap> {
    let count = reader.u32()?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let name = HeaderName::from_bytes(reader.block()?).ok()?;
        let value = HeaderValue::from_bytes(reader.block()?).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

fn write_fields(fields: &Fields, out: &mut Vec<u8>) {
    out.put_u32(u32::try_from(fields.len()).unwrap_or(u32::MAX));
    for field in fields.iter() {
        write_block(field.as_str().as_bytes(), out);
    }
}

fn read_fields(reader: &mut Reader<'_>) -> Option<Fields> {
    let count = reader.u32()?;
    (0..count)
        .map(|_| HeaderName::from_bytes(reader.block()?).ok())
        .collect()
}

#[cfg(test)]
mod tests;
