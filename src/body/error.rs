//! Why a response body ended early.

use std::{error::Error, fmt};

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The error of a response body.
///
/// Either the inner service's body failed ([`source`](Error::source) is its error, for the request
/// that started the build), or the build that this request followed ended before its body was
/// complete.
#[derive(Debug)]
pub struct BodyError {
    source: Option<BoxError>,
}

impl BodyError {
    pub(crate) fn inner(source: BoxError) -> Self {
        Self {
            source: Some(source),
        }
    }

    pub(crate) fn cut() -> Self {
        Self { source: None }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Some(_) => "the inner service's response body failed",
            None => "the response body that was being shared ended early",
        })
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}
