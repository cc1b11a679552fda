//! Reducing `Accept-Language` and `Accept-Encoding` to what they choose (RFC 9110 section 12.5).
//!
//! A resource that varies by such a field has as many variants as there are spellings of it. Where it
//! is known what the service has to offer, what a request likes best of that says as much.

use std::cmp::Reverse;

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// A field that is negotiated by, and what there is to choose from, in the service's own order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    field: HeaderName,
    offered: Vec<String>,
}

impl Offer {
    pub(crate) fn languages(languages: impl IntoIterator<Item = String>) -> Self {
        Self {
            field: header::ACCEPT_LANGUAGE,
            offered: lower(languages),
        }
    }

    pub(crate) fn codings(codings: impl IntoIterator<Item = String>) -> Self {
        let identity = String::from("identity");
        Self {
            field: header::ACCEPT_ENCODING,
            offered: lower(codings.into_iter().chain([identity])),
        }
    }

    /// Replaces the field by the offer that it likes best, or puts it in order where nothing is known
    /// of what is offered; leaves it as it is if it likes none or cannot be read.
    pub(crate) fn reduce(&self, request: &mut HeaderMap) {
        let best = {
            let mut lines = request.get_all(&self.field).iter().peekable();
            if lines.peek().is_none() {
                return;
            }
            let Some(text) = lines
                .map(|line| line.to_str().ok())
                .collect::<Option<Vec<_>>>()
            else {
                return;
            };
            let text = text.join(",").to_ascii_lowercase();
            if self.offered.is_empty() {
                in_order(&text).and_then(|text| HeaderValue::try_from(text).ok())
            } else {
                let best = self.best(&text);
                best.and_then(|best| HeaderValue::from_str(best).ok())
            }
        };
        if let Some(best) = best {
            request.insert(&self.field, best);
        }
    }

    fn best(&self, text: &str) -> Option<&str> {
        let wishes: Vec<_> = text.split(',').filter_map(wish).collect();
        let rated = self.offered.iter().rev();
        let rated = rated.map(|offer| (self.quality(offer, &wishes), offer));
        // Of equal ones the last counts: the first that is offered.
        let best = rated.max_by_key(|(quality, _)| *quality)?;
        (best.0 > 0).then_some(best.1.as_str())
    }

    /// How much `offer` is liked, in thousandths.
    fn quality(&self, offer: &str, wishes: &[(&str, u16)]) -> u16 {
        let exact = wishes.iter().find(|(range, _)| *range == offer);
        let close = wishes
            .iter()
            .filter(|(range, _)| self.field == header::ACCEPT_LANGUAGE && is_close(range, offer))
            .max_by_key(|(range, _)| range.len());
        let any = wishes.iter().find(|(range, _)| *range == "*");
        match exact.or(close).or(any) {
            Some((_, quality)) => *quality,
            // RFC 9110 section 12.5.3: acceptable unless it is excluded, and liked least.
            None => u16::from(offer == "identity"),
        }
    }
}

fn lower(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let names = names.into_iter();
    names.map(|name| name.to_ascii_lowercase()).collect()
}

/// Whether one language is a narrower form of the other (RFC 4647 sections 3.3.1 and 3.4).
fn is_close(range: &str, offer: &str) -> bool {
    let narrows = |narrow: &str, wide: &str| {
        narrow
            .strip_prefix(wide)
            .is_some_and(|rest| rest.starts_with('-'))
    };
    narrows(offer, range) || narrows(range, offer)
}

/// A range and its quality; nothing if it cannot be read.
fn wish(member: &str) -> Option<(&str, u16)> {
    let mut parts = member.split(';').map(str::trim);
    let range = parts.next().filter(|range| !range.is_empty())?;
    let mut quality = 1000;
    for part in parts {
        if let Some(value) = part.strip_prefix("q=") {
            quality = thousandths(value)?;
        }
    }
    Some((range, quality))
}

/// The same wishes, best first, and by name where they are equal: among those there is no order
/// (RFC 9110 section 12.5.4).
fn in_order(text: &str) -> Option<String> {
    let members = text.split(',').map(str::trim);
    let members = members.filter(|member| !member.is_empty());
    let mut wishes = members.map(wish).collect::<Option<Vec<_>>>()?;
    wishes.sort_by_key(|(range, quality)| (Reverse(*quality), *range));
    let written = wishes.iter().map(|(range, quality)| match quality {
        1000 => (*range).to_owned(),
        _ => format!("{range};q=0.{quality:03}"),
    });
    Some(written.collect::<Vec<_>>().join(","))
}

/// `0.5` as 500 (RFC 9110 section 12.4.2).
fn thousandths(value: &str) -> Option<u16> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || fraction.len() > 3 || !matches!(whole, "0" | "1") {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    let quality = if whole == "1" {
        1000 + fraction
    } else {
        fraction
    };
    (quality <= 1000).then_some(quality)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(offer: &Offer, lines: &[&str]) -> Vec<String> {
        let mut request = HeaderMap::new();
        for line in lines {
            request.append(&offer.field, HeaderValue::from_str(line).unwrap());
        }
        offer.reduce(&mut request);
        let values = request.get_all(&offer.field).iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_request_is_reduced_to_the_language_it_likes_best() {
        let offer = Offer::languages(["de", "EN", "pt-BR"].map(String::from));
        for (lines, expected) in [
            (&["en, de"][..], "de"),
            (&["de, en"], "de"),
            (&["eN;q=0.9", "De;q=0.1"], "en"),
            (&["fr;q=0.5, de;q=1.0"], "de"),
            (&["fr, en-GB;q=0.8, *;q=0.1"], "en"),
            (&["pt"], "pt-br"),
            (&["fr, *;q=0.1"], "de"),
            (&["de;q=0, *;q=0.5"], "en"),
            (&["de;q=2, en;q=0.1"], "en"),
            (&["fr"], "fr"),
            (&["de;q=0"], "de;q=0"),
            (&[""], ""),
        ] {
            assert_eq!(reduced(&offer, lines), [expected], "{lines:?}");
        }
        assert!(reduced(&offer, &[]).is_empty());
    }

    #[test]
    fn without_an_offer_wishes_are_put_in_order() {
        let offer = Offer::languages([]);
        for (lines, expected) in [
            (&["en, de"][..], "de,en"),
            (&["De", "eN"], "de,en"),
            (
                &["fr;q=0.5 , de;q=1.0,,EN;q=0.75"],
                "de,en;q=0.750,fr;q=0.500",
            ),
            (&["*;q=0, de-CH"], "de-ch,*;q=0.000"),
            (&["en, de;q=2"], "en, de;q=2"),
            (&[""], ""),
        ] {
            assert_eq!(reduced(&offer, lines), [expected], "{lines:?}");
        }
        assert!(reduced(&offer, &[]).is_empty());
    }

    #[test]
    fn a_request_is_reduced_to_the_coding_it_likes_best() {
        let offer = Offer::codings(["br", "gzip"].map(String::from));
        for (line, expected) in [
            ("gzip, deflate, br, zstd", "br"),
            ("gzip, br;q=0.5", "gzip"),
            ("zstd", "identity"),
            ("gzip;q=0.2, identity;q=0.8", "identity"),
            ("zstd, identity;q=0", "zstd, identity;q=0"),
            ("zstd, *;q=0", "zstd, *;q=0"),
            ("*", "br"),
            ("", "identity"),
        ] {
            assert_eq!(reduced(&offer, &[line]), [expected], "{line}");
        }
    }
}
