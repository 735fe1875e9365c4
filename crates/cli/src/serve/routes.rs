//! The routes of the server.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::ApiError;
use super::metrics::CONTENT_TYPE;
use super::reply::{Kind, Reply};
use super::request::ApiRequest;
use super::server::{Answer, Prepared, Server};
use super::worker::{Event, Usage};

type Body = Result<Bytes, BytesRejection>;

/// The path of a model. Names may contain slashes.
const MODEL: &str = "/v1/models/{*name}";

/// Returns the router.
pub(super) fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/v1/models", get(models))
        .route(MODEL, get(model))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/metrics", get(metrics))
        .route("/health", get(async || Json(json!({ "status": "ok" }))))
        .method_not_allowed_fallback(async || ApiError::method())
        .fallback(async |uri: Uri| ApiError::route(uri.path()))
        .layer(DefaultBodyLimit::max(server.max_body))
        .layer(from_fn_with_state(server.clone(), watched))
        .with_state(server)
}

/// Checks the key, and counts responses by path.
async fn watched(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let path = match request.uri().path() {
        known @ ("/v1/models"
        | "/v1/completions"
        | "/v1/chat/completions"
        | "/metrics"
        | "/health") => known.to_owned(),
        model if model.starts_with("/v1/models/") => MODEL.to_owned(),
        // Counters for arbitrary paths would fill the memory.
        _ => "other".to_owned(),
    };
    let key = request.headers().get(header::AUTHORIZATION).and_then(|key| key.to_str().ok());
    let response = match path == "/health" || server.admits(key) {
        true => next.run(request).await,
        false => ApiError::key().into_response(),
    };
    server.metrics.response(&path, response.status().as_u16());
    response
}

async fn models(State(server): State<Arc<Server>>) -> Json<Value> {
    let data: Vec<Value> = server.names.iter().map(|name| described(&server, name)).collect();
    Json(json!({ "object": "list", "data": data }))
}

async fn model(
    State(server): State<Arc<Server>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::invalid(error.body_text()))?;
    let index = server.model(Some(&name))?;
    Ok(Json(described(&server, &server.names[index])))
}

/// Returns the JSON object of a model.
fn described(server: &Server, name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": server.started, "owned_by": "retrograph" })
}

async fn metrics(State(server): State<Arc<Server>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], server.metrics())
}

async fn completions(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    answered(server, Kind::Completion, headers, body, Server::completion).await
}

async fn chat(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    answered(server, Kind::Chat, headers, body, Server::chat).await
}

/// Answers a request, which `prepare` checks.
async fn answered<T: DeserializeOwned + Send + 'static>(
    server: Arc<Server>,
    kind: Kind,
    headers: HeaderMap,
    body: Body,
    prepare: fn(&Server, &ApiRequest<T>) -> Result<Prepared, ApiError>,
) -> Result<Response, ApiError> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    // Browsers let pages of other sites send any other type without a CORS preflight.
    if !media.is_some_and(is_json) {
        return Err(ApiError::media());
    }
    let body = body.map_err(|error| ApiError::not_received(&error, server.max_body))?;
    // Rendering and encoding take time and memory, so the slot is acquired first. The task holds
    // it, because the task continues if the client disconnects.
    let (slot, unsent, checked) = (server.slot()?, server.unsent(), server.clone());
    let prepared = tokio::task::spawn_blocking(move || {
        let request = ApiRequest::parse(&body)?;
        Ok((slot, prepare(&checked, &request)?))
    });
    let prepared = prepared.await.map_err(|_| ApiError::failed("a check of the request failed"))?;
    let (slot, prepared) = prepared?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (id, model) = (server.id(kind.prefix()), server.names[prepared.model].clone());
    let reply = Reply { kind, id, created, model };
    let streams = prepared.streams;
    let answer = server.submit(prepared, slot, unsent)?;
    match streams {
        Some(usage) => Ok(streamed(reply, answer, usage)),
        None => Ok(Json(whole(&reply, answer).await?).into_response()),
    }
}

/// Whether a content type is JSON.
fn is_json(media: &str) -> bool {
    let kind = media.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// Waits for the whole answer.
async fn whole(reply: &Reply, mut answer: Answer) -> Result<Value, ApiError> {
    let mut text = String::new();
    loop {
        match answer.events.recv().await {
            Some(Event::Piece(piece)) => text.push_str(&piece),
            Some(Event::Done(usage)) => return Ok(reply.whole(&text, usage)),
            Some(Event::Failed(error)) => return Err(error),
            None => return Err(ApiError::stopping()),
        }
    }
}

/// The next chunk of a streamed answer.
enum Part {
    Start,
    Pieces,
    Usage(Usage),
    End,
    Over,
}

/// Sends the answer as server-sent events.
fn streamed(reply: Reply, answer: Answer, usage: bool) -> Response {
    let events = stream::unfold((Part::Start, answer), move |(part, mut answer)| {
        let reply = reply.clone();
        async move {
            let (value, next) = match part {
                Part::Start if reply.kind == Kind::Chat => (Some(reply.start()), Part::Pieces),
                Part::Start | Part::Pieces => next_piece(&reply, &mut answer, usage).await,
                Part::Usage(found) => (Some(reply.usage(found)), Part::End),
                Part::End => (None, Part::Over),
                Part::Over => return None,
            };
            let data = value.map_or("[DONE]".to_owned(), |value| value.to_string());
            Some((Ok::<_, Infallible>(SseEvent::default().data(data)), (next, answer)))
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

async fn next_piece(reply: &Reply, answer: &mut Answer, usage: bool) -> (Option<Value>, Part) {
    loop {
        return match answer.events.recv().await {
            Some(Event::Piece(piece)) if piece.is_empty() => continue,
            Some(Event::Piece(piece)) => (Some(reply.piece(&piece)), Part::Pieces),
            Some(Event::Done(found)) => {
                let next = if usage { Part::Usage(found) } else { Part::End };
                (Some(reply.end(found.reason)), next)
            }
            Some(Event::Failed(error)) => (Some(error.json()), Part::Over),
            None => (Some(ApiError::stopping().json()), Part::Over),
        };
    }
}
