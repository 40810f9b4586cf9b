//! One handler per call about spares and pools. They only hand over.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::exchange::{Body, Failure, Key, Reply, reply};
use crate::body::{PoolArrayBody, PoolCreateBody, SpareBody};
use crate::service::Control;
use crate::spares::Freed;
use crate::view::{ArrayView, PoolView};

type Shared = State<Arc<Control>>;

pub(super) async fn add_spare(
    control: Shared,
    Key(key): Key<String>,
    Body(body): Body<SpareBody>,
) -> Reply<ArrayView> {
    reply(control, move |control| control.add_spare(&key, &body)).await
}

pub(super) async fn remove_spare(
    control: Shared,
    Key((key, drive)): Key<(String, String)>,
) -> Reply<Freed> {
    reply(control, move |control| control.remove_spare(&key, &drive)).await
}

pub(super) async fn pools(control: Shared) -> Reply<Vec<PoolView>> {
    reply(control, |control| Ok(control.pools())).await
}

pub(super) async fn create_pool(
    control: Shared,
    Body(body): Body<PoolCreateBody>,
) -> Result<(StatusCode, Json<PoolView>), Failure> {
    let made = reply(control, move |control| control.create_pool(&body)).await?;
    Ok((StatusCode::CREATED, made))
}

pub(super) async fn pool(control: Shared, Key(key): Key<String>) -> Reply<PoolView> {
    reply(control, move |control| control.pool(&key)).await
}

pub(super) async fn delete_pool(control: Shared, Key(key): Key<String>) -> Reply<PoolView> {
    reply(control, move |control| control.delete_pool(&key)).await
}

pub(super) async fn add_pool_drive(
    control: Shared,
    Key(key): Key<String>,
    Body(body): Body<SpareBody>,
) -> Reply<PoolView> {
    reply(control, move |control| control.add_pool_drive(&key, &body)).await
}

pub(super) async fn remove_pool_drive(
    control: Shared,
    Key((key, drive)): Key<(String, String)>,
) -> Reply<PoolView> {
    reply(control, move |control| {
        control.remove_pool_drive(&key, &drive)
    })
    .await
}

pub(super) async fn attach_pool(
    control: Shared,
    Key(key): Key<String>,
    Body(body): Body<PoolArrayBody>,
) -> Reply<PoolView> {
    reply(control, move |control| control.attach_pool(&key, &body)).await
}

pub(super) async fn detach_pool(
    control: Shared,
    Key((key, array)): Key<(String, String)>,
) -> Reply<PoolView> {
    reply(control, move |control| control.detach_pool(&key, &array)).await
}
