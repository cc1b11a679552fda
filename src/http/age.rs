//! `Age` (RFC 9111 section 5.1), as every hit has it.

use bytes::Bytes;
use http::HeaderValue;

/// The value that says `seconds`.
///
/// Small ones are parts of a constant, so that a hit's copy of the value counts no references.
pub(crate) fn value(seconds: u64) -> HeaderValue {
    constant(seconds).unwrap_or_else(|| seconds.into())
}

fn constant(seconds: u64) -> Option<HeaderValue> {
    let leading_zeros = match seconds {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let start = usize::try_from(seconds).ok()?.checked_mul(3)?;
    let digits = DIGITS.get(start..start.checked_add(3)?)?;
    HeaderValue::from_maybe_shared(Bytes::from_static(digits.get(leading_zeros..)?)).ok()
}

/// All numbers of three digits, in order.
#[expect(clippy::indexing_slicing, reason = "it is the compiler that runs it")]
static DIGITS: [u8; 3000] = {
    let mut digits = [b'0'; 3000];
    let mut at = 0;
    let mut number: u16 = 0;
    while number < 1000 {
        let mut rest = number;
        let mut place = 3;
        while place > 0 {
            place -= 1;
            digits[at + place] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        at += 3;
        number += 1;
    }
    digits
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_age_is_its_number_in_decimal() {
        for seconds in (0..2000).chain([i32::MAX as u64, u64::MAX / 3, u64::MAX]) {
            assert_eq!(value(seconds), seconds.to_string(), "{seconds}");
        }
    }
}
