//! What may be asked for: the limits on times, names, tokens and metadata.

use std::{fmt, time::Duration};

/// The longest name of a lock in bytes.
pub const MAX_NAME: usize = 8 * 1024;
/// The longest token in bytes.
pub const MAX_TOKEN: usize = 256;
/// The longest metadata in bytes.
pub const MAX_METADATA: usize = 4 * 1024;
/// The most locks that one request may take together.
pub const MAX_KEYS: usize = 1000;
/// The longest time to live and the longest wait: the most microseconds that fit 63 bits of
/// nanoseconds, some 292 years.
pub const MAX_DURATION: Duration = Duration::from_micros(9_223_372_036_854_775);

/// What a time to live loses to the drift of two clocks and to the last reply's way back.
const DRIFT: Duration = Duration::from_millis(2);

/// An argument that was refused before anything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    TtlZero,
    TtlTooLong,
    TtlBelowTimeout,
    TtlTooShortToRenew,
    WaitTooLong,
    PersistentRenewal,
    PersistentAddition,
    NamespaceEmpty,
    Braces,
    KeyEmpty,
    KeyReserved,
    NameTooLong,
    NoKeys,
    TooManyKeys,
    TokenEmpty,
    TokenReserved,
    TokenTooLong,
    MetadataTooLong,
    FixedTokenNeeded,
    TimeoutZero,
    #[cfg(feature = "redis")]
    Redis(crate::link::ConfigFault),
    TwoBackends,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TtlZero => "ttl must be longer than nothing",
            Self::TtlTooLong => "ttl must not exceed 9223372036854775 microseconds",
            Self::TtlBelowTimeout => "ttl must be longer than the command timeout",
            Self::TtlTooShortToRenew => "ttl is too short to be renewed at a third of it",
            Self::WaitTooLong => "wait must not exceed 9223372036854775 microseconds",
            Self::PersistentRenewal => "auto_extend needs a ttl, and a persistent lock has none",
            Self::PersistentAddition => "a persistent lock has no remaining time to add to",
            Self::NamespaceEmpty => "namespace must not be empty",
            Self::Braces => "braces in a key must enclose a hash tag, and nothing else",
            Self::KeyEmpty => "the key function made an empty key",
            Self::KeyReserved => "a key must not contain `:~`",
            Self::NameTooLong => "a name must not exceed 8192 bytes",
            Self::NoKeys => "at least one name is needed",
            Self::TooManyKeys => "at most 1000 names are locked together",
            Self::TokenEmpty => "token must not be empty",
            Self::TokenReserved => "the token `*` is reserved",
            Self::TokenTooLong => "a token must not exceed 256 bytes",
            Self::MetadataTooLong => "metadata must not exceed 4096 bytes",
            Self::FixedTokenNeeded => "this call needs a request for one name",
            Self::TimeoutZero => "timeouts must be longer than nothing",
            #[cfg(feature = "redis")]
            Self::Redis(fault) => fault.text(),
            Self::TwoBackends => "only one backend can be set",
        })
    }
}

/// A time to live in whole milliseconds, at least one.
pub(crate) fn whole_millis(ttl: Duration) -> Result<u64, Fault> {
    if ttl.is_zero() {
        return Err(Fault::TtlZero);
    }
    if ttl > MAX_DURATION {
        return Err(Fault::TtlTooLong);
    }
    Ok(u64::try_from(ttl.as_millis()).map_or(u64::MAX, |millis| millis.max(1)))
}

/// `wait`, if a deadline that far away can be told.
pub(crate) fn wait(wait: Duration) -> Result<Duration, Fault> {
    if wait > MAX_DURATION {
        return Err(Fault::WaitTooLong);
    }
    Ok(wait)
}

/// How long a holder may trust a lock of `ttl`, counted from the moment it asked.
pub(crate) fn validity(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100 + DRIFT)
}

/// How often a lock of `ttl` is renewed.
pub(crate) fn renewal(ttl: Duration) -> Result<Duration, Fault> {
    let every = ttl / 3;
    if every >= validity(ttl) {
        return Err(Fault::TtlTooShortToRenew);
    }
    Ok(every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_become_whole_milliseconds_and_never_less_than_one() {
        assert_eq!(whole_millis(Duration::from_secs_f64(0.5)), Ok(500));
        assert_eq!(whole_millis(Duration::from_micros(1_999)), Ok(1));
        assert_eq!(whole_millis(Duration::from_secs_f64(0.0001)), Ok(1));
        assert_eq!(whole_millis(Duration::from_nanos(1)), Ok(1));
    }

    #[test]
    fn a_ttl_of_nothing_or_past_the_limit_is_refused_and_the_limit_is_accepted() {
        assert_eq!(whole_millis(Duration::ZERO), Err(Fault::TtlZero));
        assert_eq!(whole_millis(MAX_DURATION), Ok(9_223_372_036_854));
        assert_eq!(
            whole_millis(MAX_DURATION + Duration::from_micros(1)),
            Err(Fault::TtlTooLong)
        );
        assert_eq!(whole_millis(Duration::MAX), Err(Fault::TtlTooLong));
    }

    #[test]
    fn a_wait_may_be_nothing_and_has_the_same_limit() {
        assert_eq!(wait(Duration::ZERO), Ok(Duration::ZERO));
        assert_eq!(wait(MAX_DURATION), Ok(MAX_DURATION));
        assert_eq!(
            wait(MAX_DURATION + Duration::from_micros(1)),
            Err(Fault::WaitTooLong)
        );
    }

    #[test]
    fn validity_is_the_ttl_less_one_percent_and_two_milliseconds() {
        assert_eq!(
            validity(Duration::from_secs(10)),
            Duration::from_millis(9_898)
        );
        assert_eq!(validity(Duration::from_millis(1)), Duration::ZERO);
    }

    #[test]
    fn a_renewal_must_come_before_the_end_of_the_validity() {
        assert_eq!(renewal(Duration::from_secs(3)), Ok(Duration::from_secs(1)));
        assert_eq!(
            renewal(Duration::from_millis(3)),
            Err(Fault::TtlTooShortToRenew)
        );
    }
}
