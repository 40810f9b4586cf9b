//! One handler per call. They only hand over: decisions are in `service`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::exchange::{Body, Failure, Force, Key, Reply, reply};
use crate::body::{
    ArrayCreateBody, DriveAddBody, ExportCreateBody, FindBody, ForceBody, ImportBody, LocateBody,
    QueueMoveBody, ReplaceBody, ResizeBody, VolumeCreateBody,
};
use crate::request::{ArrayModify, BackgroundKind, QueueMove, VolumeLimit};
use crate::scrub::{ScrubBody, ScrubView};
use crate::service::Control;
use crate::view::{ArrayView, DriveView, ExportView, FoundArray, JobView, StatusView, VolumeView};

type Shared = State<Arc<Control>>;
type Made<T> = Result<(StatusCode, Json<T>), Failure>;

fn made<T>(reply: Reply<T>) -> Made<T> {
    reply.map(|body| (StatusCode::CREATED, body))
}

pub(super) async fn status(control: Shared) -> Reply<StatusView> {
    reply(control, |control| Ok(control.status())).await
}

pub(super) async fn drives(control: Shared) -> Reply<Vec<DriveView>> {
    reply(control, |control| Ok(control.drives())).await
}

pub(super) async fn add_drive(control: Shared, Body(body): Body<DriveAddBody>) -> Made<DriveView> {
    made(reply(control, |control| control.add_drive(body)).await)
}

pub(super) async fn drive(control: Shared, Key(key): Key<String>) -> Reply<DriveView> {
    reply(control, move |control| control.drive(&key)).await
}

pub(super) async fn remove_drive(
    control: Shared,
    Key(key): Key<String>,
    Force(force): Force,
) -> Reply<DriveView> {
    reply(control, move |control| control.remove_drive(&key, force)).await
}

pub(super) async fn wipe_drive(
    control: Shared,
    Key(key): Key<String>,
    Body(body): Body<ForceBody>,
) -> Reply<DriveView> {
    reply(control, move |control| control.wipe_drive(&key, body.force)).await
}

pub(super) async fn locate_drive(
    control: Shared,
    Key(key): Key<String>,
    Body(body): Body<LocateBody>,
) -> Reply<DriveView> {
    reply(control, move |control| {
        control.locate_drive(&key, body.lamp)
    })
    .await
}

pub(super) async fn arrays(control: Shared) -> Reply<Vec<ArrayView>> {
    reply(control, |control| Ok(control.arrays())).await
}

pub(super) async fn create_array(
    control: Shared,
    Body(body): Body<ArrayCreateBody>,
) -> Made<ArrayView> {
    made(reply(control, |control| control.create_array(body)).await)
}

pub(super) async fn array(control: Shared, Key(key): Key<String>) -> Reply<ArrayView> {
    reply(control, move |control| control.array(&key)).await
}

pub(super) async fn modify_array(
    control: Shared,
    Key(key): Key<String>,
    Body(modify): Body<ArrayModify>,
) -> Reply<ArrayView> {
    reply(control, move |control| control.modify_array(&key, &modify)).await
}

pub(super) async fn destroy_array(
    control: Shared,
    Key(key): Key<String>,
    Force(force): Force,
) -> Reply<ArrayView> {
    reply(control, move |control| control.destroy_array(&key, force)).await
}

pub(super) async fn start_array(
    control: Shared,
    Key(key): Key<String>,
    Body(body): Body<ForceBody>,
) -> Reply<ArrayView> {
    reply(control, move |control| {
        control.start_array(&key, body.force)
    })
    .await
}

pub(super) async fn stop_array(control: Shared, Key(key): Key<String>) -> Reply<ArrayView> {
    reply(control, move |control| control.stop_array(&key)).await
}

pub(super) async fn acknowledge_array(control: Shared, Key(key): Key<String>) -> Reply<ArrayView> {
    reply(control, move |control| control.acknowledge_array(&key)).await
}

pub(super) async fn fail_member(
    control: Shared,
    Key((key, member)): Key<(String, u16)>,
) -> Reply<ArrayView> {
    reply(control, move |control| control.fail_member(&key, member)).await
}

pub(super) async fn replace_member(
    control: Shared,
    Key((key, member)): Key<(String, u16)>,
    Body(body): Body<ReplaceBody>,
) -> Reply<ArrayView> {
    reply(control, move |control| {
        control.replace_member(&key, member, &body)
    })
    .await
}

pub(super) async fn background(
    control: Shared,
    Key(key): Key<String>,
    kind: BackgroundKind,
) -> Reply<Vec<JobView>> {
    reply(control, move |control| control.background(&key, kind)).await
}

pub(super) async fn start_background(
    control: Shared,
    Key(key): Key<String>,
    kind: BackgroundKind,
) -> Reply<JobView> {
    reply(control, move |control| control.start_background(&key, kind)).await
}

pub(super) async fn stop_background(
    control: Shared,
    Key(key): Key<String>,
    kind: BackgroundKind,
) -> Reply<JobView> {
    reply(control, move |control| control.stop_background(&key, kind)).await
}

pub(super) async fn scrub(control: Shared, Key(key): Key<String>) -> Reply<ScrubView> {
    reply(control, move |control| control.scrub(&key)).await
}

pub(super) async fn start_scrub(
    control: Shared,
    Key(key): Key<String>,
    Body(body): Body<ScrubBody>,
) -> Reply<JobView> {
    reply(control, move |control| control.start_scrub(&key, body)).await
}

pub(super) async fn stop_scrub(control: Shared, Key(key): Key<String>) -> Reply<JobView> {
    reply(control, move |control| control.stop_scrub(&key)).await
}

pub(super) async fn find_arrays(
    control: Shared,
    Body(body): Body<FindBody>,
) -> Reply<Vec<FoundArray>> {
    reply(control, move |control| control.find_arrays(&body.specs)).await
}

pub(super) async fn import_array(control: Shared, Body(body): Body<ImportBody>) -> Made<ArrayView> {
    made(reply(control, |control| control.import_array(body)).await)
}

pub(super) async fn volumes(control: Shared) -> Reply<Vec<VolumeView>> {
    reply(control, |control| Ok(control.volumes())).await
}

pub(super) async fn create_volume(
    control: Shared,
    Body(body): Body<VolumeCreateBody>,
) -> Made<VolumeView> {
    made(reply(control, |control| control.create_volume(body)).await)
}

pub(super) async fn volume(control: Shared, Key(key): Key<String>) -> Reply<VolumeView> {
    reply(control, move |control| control.volume(&key)).await
}

pub(super) async fn resize_volume(
    control: Shared,
    Key(key): Key<String>,
    Body(body): Body<ResizeBody>,
) -> Reply<VolumeView> {
    reply(control, move |control| {
        control.resize_volume(&key, body.size_bytes)
    })
    .await
}

pub(super) async fn delete_volume(control: Shared, Key(key): Key<String>) -> Reply<VolumeView> {
    reply(control, move |control| control.delete_volume(&key)).await
}

pub(super) async fn limit_volume(
    control: Shared,
    Key(key): Key<String>,
    Body(limit): Body<VolumeLimit>,
) -> Reply<VolumeView> {
    reply(control, move |control| control.limit_volume(&key, &limit)).await
}

pub(super) async fn exports(control: Shared) -> Reply<Vec<ExportView>> {
    reply(control, |control| Ok(control.exports())).await
}

pub(super) async fn create_export(
    control: Shared,
    Body(body): Body<ExportCreateBody>,
) -> Made<ExportView> {
    made(reply(control, |control| control.create_export(body)).await)
}

pub(super) async fn export(control: Shared, Key(key): Key<String>) -> Reply<ExportView> {
    reply(control, move |control| control.export(&key)).await
}

pub(super) async fn remove_export(control: Shared, Key(key): Key<String>) -> Reply<ExportView> {
    reply(control, move |control| control.remove_export(&key)).await
}

pub(super) async fn resume_export(control: Shared, Key(key): Key<String>) -> Reply<ExportView> {
    reply(control, move |control| control.resume_export(&key)).await
}

pub(super) async fn move_queue(
    control: Shared,
    Key((key, queue)): Key<(String, u16)>,
    Body(body): Body<QueueMoveBody>,
) -> Reply<ExportView> {
    let to = QueueMove {
        queue,
        core: body.core,
    };
    reply(control, move |control| control.move_queue(&key, to)).await
}

pub(super) async fn jobs(control: Shared) -> Reply<Vec<JobView>> {
    reply(control, |control| Ok(control.jobs())).await
}

pub(super) async fn job(control: Shared, Key(id): Key<u64>) -> Reply<JobView> {
    reply(control, move |control| control.job(id)).await
}

pub(super) async fn cancel_job(control: Shared, Key(id): Key<u64>) -> Reply<JobView> {
    reply(control, move |control| control.cancel_job(id)).await
}
