//! REST/JSON under `/v1` and the text of `/metrics`.
//!
//! | call | does |
//! | --- | --- |
//! | `GET /v1/status` | everything at a glance |
//! | `GET`, `POST /v1/drives` | list, add |
//! | `GET`, `DELETE /v1/drives/NAME[?force=true]` | show, remove |
//! | `POST /v1/drives/NAME/wipe`, `…/locate` | wipe, lamp |
//! | `GET`, `POST /v1/arrays` | list, create |
//! | `GET`, `PATCH`, `DELETE /v1/arrays/NAME[?force=true]` | show, modify, destroy |
//! | `POST /v1/arrays/NAME/start`, `…/stop` | start, stop |
//! | `POST /v1/arrays/NAME/members/INDEX/fail`, `…/replace` | members |
//! | `GET`, `POST`, `DELETE /v1/arrays/NAME/rebuild`, `…/resync` | show, start, stop background work |
//! | `GET`, `POST`, `DELETE /v1/arrays/NAME/scrub` | show, start, pause the scrub |
//! | `POST /v1/arrays/NAME/spares`, `DELETE …/spares/DRIVE` | add, remove a spare |
//! | `GET`, `POST /v1/pools`, `GET`, `DELETE /v1/pools/NAME` | pools of spares: list, create, show, delete |
//! | `POST /v1/pools/NAME/drives`, `DELETE …/drives/DRIVE` | add, remove a spare of a pool |
//! | `POST /v1/pools/NAME/arrays`, `DELETE …/arrays/ARRAY` | let an array take spares from it, or not |
//! | `POST /v1/import/find`, `POST /v1/import` | look for arrays, take one over |
//! | `GET`, `POST /v1/volumes` | list, create |
//! | `GET`, `PATCH`, `DELETE /v1/volumes/NAME` | show, resize, delete |
//! | `PUT /v1/volumes/NAME/limit` | set all limits |
//! | `GET`, `POST /v1/exports` | list, create (vhost-user-blk) |
//! | `GET`, `DELETE /v1/exports/NAME` | show, remove |
//! | `PUT /v1/exports/NAME/queues/QUEUE` | move a queue |
//! | `GET /v1/jobs`, `GET`, `DELETE /v1/jobs/ID` | list, show, cancel |
//!
//! NAME is a name or a uuid. A create answers 201 and the object; every other call 200 and what
//! it touched. An error is `{"code", "object", "message", "next"}` under the status of its code.

mod audit;
mod exchange;
mod objects;
mod spares;

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};

pub use audit::Peer;
use exchange::{Failure, run};

use crate::service::Control;
use crate::{EngineError, ErrorKind, metrics};

/// The whole API; serve it where [`Peer`] is known.
pub fn router(control: Arc<Control>) -> Router {
    let looking = Router::new().route("/v1/status", get(objects::status));
    let changing = Router::new()
        .merge(drives())
        .merge(arrays())
        .merge(pools())
        .merge(volumes_and_exports())
        .layer(middleware::from_fn_with_state(
            exchange::changes(),
            exchange::wait_for_room,
        ))
        .layer(middleware::from_fn(audit::audit));
    looking
        .merge(changing)
        .with_state(Arc::clone(&control))
        .merge(metrics_router(control))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
}

/// `/metrics` and nothing else, for a port that anybody can reach.
pub fn metrics_router(control: Arc<Control>) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .with_state(control)
}

fn drives() -> Router<Arc<Control>> {
    Router::new()
        .route("/v1/drives", get(objects::drives).post(objects::add_drive))
        .route(
            "/v1/drives/{key}",
            get(objects::drive).delete(objects::remove_drive),
        )
        .route("/v1/drives/{key}/wipe", post(objects::wipe_drive))
        .route("/v1/drives/{key}/locate", post(objects::locate_drive))
}

fn arrays() -> Router<Arc<Control>> {
    let background = |kind| {
        get(move |control, key| objects::background(control, key, kind))
            .post(move |control, key| objects::start_background(control, key, kind))
            .delete(move |control, key| objects::stop_background(control, key, kind))
    };
    Router::new()
        .route(
            "/v1/arrays",
            get(objects::arrays).post(objects::create_array),
        )
        .route(
            "/v1/arrays/{key}",
            get(objects::array)
                .patch(objects::modify_array)
                .delete(objects::destroy_array),
        )
        .route("/v1/arrays/{key}/start", post(objects::start_array))
        .route("/v1/arrays/{key}/stop", post(objects::stop_array))
        .route(
            "/v1/arrays/{key}/acknowledge",
            post(objects::acknowledge_array),
        )
        .route(
            "/v1/arrays/{key}/members/{member}/fail",
            post(objects::fail_member),
        )
        .route(
            "/v1/arrays/{key}/members/{member}/replace",
            post(objects::replace_member),
        )
        .route(
            "/v1/arrays/{key}/rebuild",
            background(crate::request::BackgroundKind::Rebuild),
        )
        .route(
            "/v1/arrays/{key}/resync",
            background(crate::request::BackgroundKind::Resync),
        )
        .route(
            "/v1/arrays/{key}/scrub",
            get(objects::scrub)
                .post(objects::start_scrub)
                .delete(objects::stop_scrub),
        )
        .route("/v1/arrays/{key}/spares", post(spares::add_spare))
        .route(
            "/v1/arrays/{key}/spares/{drive}",
            delete(spares::remove_spare),
        )
        .route("/v1/import/find", post(objects::find_arrays))
        .route("/v1/import", post(objects::import_array))
}

fn pools() -> Router<Arc<Control>> {
    Router::new()
        .route("/v1/pools", get(spares::pools).post(spares::create_pool))
        .route(
            "/v1/pools/{key}",
            get(spares::pool).delete(spares::delete_pool),
        )
        .route("/v1/pools/{key}/drives", post(spares::add_pool_drive))
        .route(
            "/v1/pools/{key}/drives/{drive}",
            delete(spares::remove_pool_drive),
        )
        .route("/v1/pools/{key}/arrays", post(spares::attach_pool))
        .route(
            "/v1/pools/{key}/arrays/{array}",
            delete(spares::detach_pool),
        )
}

fn volumes_and_exports() -> Router<Arc<Control>> {
    Router::new()
        .route(
            "/v1/volumes",
            get(objects::volumes).post(objects::create_volume),
        )
        .route(
            "/v1/volumes/{key}",
            get(objects::volume)
                .patch(objects::resize_volume)
                .delete(objects::delete_volume),
        )
        .route("/v1/volumes/{key}/limit", put(objects::limit_volume))
        .route(
            "/v1/exports",
            get(objects::exports).post(objects::create_export),
        )
        .route(
            "/v1/exports/{key}",
            get(objects::export).delete(objects::remove_export),
        )
        .route("/v1/exports/{key}/resume", post(objects::resume_export))
        .route("/v1/exports/{key}/queues/{queue}", put(objects::move_queue))
        .route("/v1/jobs", get(objects::jobs))
        .route(
            "/v1/jobs/{id}",
            get(objects::job).delete(objects::cancel_job),
        )
}

async fn unknown(method: axum::http::Method, uri: axum::http::Uri) -> Failure {
    let message = format!("there is no call {method} {}", uri.path());
    Failure(EngineError::new(ErrorKind::NotFound, "API", message))
}

async fn scrape(control: axum::extract::State<Arc<Control>>) -> Response {
    match run(control, |control| Ok(metrics::text(&control.metrics()))).await {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(failure) => failure.into_response(),
    }
}

#[cfg(test)]
mod tests;
