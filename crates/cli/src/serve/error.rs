//! Errors of requests, as JSON of the OpenAI API.

use std::fmt;

use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A refused or failed request.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    /// A field with an invalid value.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message)
    }

    pub(super) fn context(tokens: usize, capacity: usize) -> Self {
        let message = format!(
            "the prompt has {tokens} tokens, but prompt and answer together may have {capacity}"
        );
        Self::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message)
    }

    pub(super) fn model(name: &str, known: &str) -> Self {
        let message = format!("there is no model `{name}`; this server has {known}");
        Self::new(StatusCode::NOT_FOUND, "model_not_found", message)
    }

    pub(super) fn route(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("there is no resource at {path}"))
    }

    pub(super) fn method() -> Self {
        let message = "this path does not support this method";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    pub(super) fn key() -> Self {
        let message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY`";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
    }

    pub(super) fn media() -> Self {
        let message = "the request must have the content type application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
    }

    /// A body that is not a valid request, because of `why`.
    pub(super) fn body(reason: impl fmt::Display) -> Self {
        let message = format!("the request cannot be used: {reason}");
        Self::new(StatusCode::BAD_REQUEST, "invalid_body", message)
    }

    /// A body that was not received; the limit is `max` bytes.
    pub(super) fn not_received(error: &BytesRejection, max: usize) -> Self {
        let status = error.status();
        let message = match status {
            StatusCode::PAYLOAD_TOO_LARGE => {
                format!("the request has more than {max} bytes, the limit of this server")
            }
            _ => error.body_text(),
        };
        Self::new(status, "invalid_body", message)
    }

    pub(super) fn busy(waiting: usize) -> Self {
        let message = format!("{waiting} requests are already waiting; try again later");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_busy", message)
    }

    pub(super) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_stopping", "the server is stopping")
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    pub(super) fn json(&self) -> Value {
        let kind = match self.status.is_server_error() {
            true => "server_error",
            false => "invalid_request_error",
        };
        json!({
            "error": { "message": self.message, "type": kind, "param": null, "code": self.code },
        })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.json())).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
