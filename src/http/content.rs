//! What the content of a response says against storing it.

use http::{
    HeaderMap, HeaderName,
    header::{
        CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY, CONTENT_TYPE,
    },
};

/// Whether the body is a stream whose reader waits for each part: server-sent events,
/// `multipart/x-mixed-replace`, gRPC, and lines of JSON of unknown length.
pub(crate) fn is_streaming(headers: &HeaderMap) -> bool {
    let Some(essence) = headers.get(CONTENT_TYPE).and_then(|value| {
        let essence = value.as_bytes().split(|byte| *byte == b';').next()?;
        Some(essence.trim_ascii())
    }) else {
        return false;
    };
    let is = |media: &str| essence.eq_ignore_ascii_case(media.as_bytes());
    let begins = |media: &str| {
        essence
            .get(..media.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(media.as_bytes()))
    };
    let endless = !headers.contains_key(CONTENT_LENGTH);
    is("text/event-stream")
        || is("multipart/x-mixed-replace")
        || begins("application/grpc")
        || (endless && (is("application/x-ndjson") || is("application/jsonl")))
}

/// Whether a Content-Security-Policy carries a nonce, which a stored page would make guessable.
pub(crate) fn has_nonce(headers: &HeaderMap) -> bool {
    const NONCE: &[u8] = b"'nonce-";
    let carries = |name: HeaderName| {
        headers.get_all(name).iter().any(|policy| {
            policy
                .as_bytes()
                .windows(NONCE.len())
                .any(|part| part.eq_ignore_ascii_case(NONCE))
        })
    };
    carries(CONTENT_SECURITY_POLICY) || carries(CONTENT_SECURITY_POLICY_REPORT_ONLY)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn streams_are_known_by_their_type() {
        for (media, expected) in [
            ("text/event-stream", true),
            ("Text/Event-Stream; charset=utf-8", true),
            ("multipart/x-mixed-replace; boundary=x", true),
            ("application/grpc", true),
            ("application/grpc-web+proto", true),
            ("application/x-ndjson", true),
            ("text/event-streams", false),
            ("text/html", false),
            ("", false),
        ] {
            assert_eq!(
                is_streaming(&headers(&[(CONTENT_TYPE, media)])),
                expected,
                "{media}"
            );
        }
        assert!(!is_streaming(&HeaderMap::new()));
    }

    #[test]
    fn lines_of_json_with_a_length_are_a_document() {
        let known = headers(&[
            (CONTENT_TYPE, "application/x-ndjson"),
            (CONTENT_LENGTH, "5"),
        ]);

        assert!(!is_streaming(&known));
    }

    #[test]
    fn a_nonce_is_found_in_either_policy() {
        for name in [CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY] {
            assert!(has_nonce(&headers(&[(
                name.clone(),
                "script-src 'Nonce-abc' 'self'"
            )])));
            assert!(!has_nonce(&headers(&[(
                name,
                "script-src 'self'; report-uri /nonce-x"
            )])));
        }
    }
}
