//! [`Telling`]: what an answer says of itself, where a layer wants more than the default.

use std::{future::Future, pin::Pin};

use http::Response;

use crate::{key::Digest, policy::Exposure, status};

/// What an answer says of itself beyond the default.
#[derive(Clone, Copy)]
pub(crate) struct Telling {
    /// The key, where `Cache-Status` shows it.
    pub(crate) key: Option<Digest>,
    pub(crate) exposure: Exposure,
}

impl Telling {
    pub(crate) fn on<B>(self, mut response: Response<B>) -> Response<B> {
        if let Some(key) = self.key {
            status::show_key(response.headers_mut(), key);
        }
        self.exposure.expose(&mut response);
        response
    }

    /// The same, of an answer to come.
    pub(crate) fn on_all<B, E>(
        self,
        answering: impl Future<Output = Result<Response<B>, E>> + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>>
    where
        B: 'static,
        E: 'static,
    {
        if self.key.is_none() && self.exposure == Exposure::Field {
            return Box::pin(answering);
        }
        Box::pin(async move { Ok(self.on(answering.await?)) })
    }
}
