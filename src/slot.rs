//! Cluster slots: which keys one node of a Redis Cluster holds together.

/// How many slots a Cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: of its hash tag, if it has one.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// What a Cluster hashes instead of the whole key: the text between the first brace and the next
/// closing one, unless there is none.
pub(crate) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = key.get(open + 1..)?;
    let close = rest.iter().position(|byte| *byte == b'}')?;
    rest.get(..close).filter(|tag| !tag.is_empty())
}

/// CRC-16/XMODEM, the checksum that a Cluster takes of keys.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_a_cluster() {
        assert_eq!(slot(b"123456789"), 12_739);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
    }

    #[test]
    fn a_hash_tag_is_between_the_first_brace_and_the_next_closing_one() {
        for (key, tag) in [
            ("a{b}c", Some("b")),
            ("a{b}{c}", Some("b")),
            ("{{b}}", Some("{b")),
            ("a{}b{c}", None),
            ("a{b", None),
            ("a}b{", None),
            ("ab", None),
        ] {
            assert_eq!(hash_tag(key.as_bytes()), tag.map(str::as_bytes), "{key}");
        }
    }
}
