//! The API over a real socket: statuses, bodies, the peer, and calls that are hung up on.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

use super::*;
use crate::fake::FakeHost;
use crate::wanted::Wanted;

struct Bed {
    host: FakeHost,
    router: Router,
    _state: TempDir,
}

fn bed() -> Bed {
    let host = FakeHost::new();
    for number in 0..4 {
        host.plug(&format!("file:/{number}"), 1 << 30);
    }
    let state = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::open(state.path()).expect("begun");
    let runtime = PathBuf::from("/run/test");
    let control = Arc::new(Control::new(Arc::new(host.engine()), wanted, runtime));
    Bed {
        host,
        router: router(control),
        _state: state,
    }
}

async fn call(bed: &Bed, method: &str, path: &str, body: &str) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path);
    let request = request
        .body(Body::from(body.to_owned()))
        .expect("a request");
    let response = bed
        .router
        .clone()
        .oneshot(request)
        .await
        .expect("an answer");
    let status = response.status();
    let bytes = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let value = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
    (status, value)
}

#[tokio::test]
async fn what_a_start_has_told_is_acknowledged_over_the_api() {
    let bed = bed();
    for number in 0..3 {
        let body = json!({ "spec": format!("file:/{number}") }).to_string();
        call(&bed, "POST", "/v1/drives", &body).await;
    }
    let body = json!({ "name": "a", "level": "5", "drives": ["d0", "d1", "d2"] }).to_string();
    call(&bed, "POST", "/v1/arrays", &body).await;
    let nothing = call(&bed, "POST", "/v1/arrays/a/acknowledge", "").await;
    assert_eq!(nothing.0, StatusCode::NOT_FOUND);
    let (_, array) = call(&bed, "GET", "/v1/arrays/a", "").await;
    let uuid = array["uuid"].as_str().and_then(|uuid| uuid.parse().ok());
    let uuid = uuid.expect("it has one");
    bed.host.tell_of_start(uuid, &["bytes may be wrong"]);
    let known = call(&bed, "POST", "/v1/arrays/a/acknowledge", "").await;
    assert_eq!(
        (known.0, &known.1["start_warnings"]),
        (StatusCode::OK, &json!(["bytes may be wrong"]))
    );
    let (_, array) = call(&bed, "GET", "/v1/arrays/a", "").await;
    assert_eq!(array["start_warnings"], json!([]));
}

#[test]
fn who_only_looks_waits_for_no_change_however_many_there_are() {
    let few = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(3)
        .enable_all()
        .build();
    let bed = Arc::new(bed());
    let looked = few.expect("threads").block_on(async {
        bed.host.hold("add_drive");
        let adds = (0..4).map(|number| {
            let bed = Arc::clone(&bed);
            let body = json!({ "spec": format!("file:/{number}"), "name": format!("d{number}") });
            tokio::spawn(async move { call(&bed, "POST", "/v1/drives", &body.to_string()).await })
        });
        let mut adds: Vec<_> = adds.collect();
        // One hangs up: its call goes on, and takes room until it has ended.
        while bed.host.calls().is_empty() {
            tokio::task::yield_now().await;
        }
        adds.remove(0).abort();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let limit = std::time::Duration::from_secs(20);
        let looked = tokio::time::timeout(limit, call(&bed, "GET", "/v1/drives", "")).await;
        bed.host.let_go();
        for add in adds {
            let (status, told) = add.await.expect("no panic");
            assert_eq!(status, StatusCode::CREATED, "{told}");
        }
        looked
    });
    let (status, drives) = looked.expect("it waits for no change");
    assert_eq!((status, &drives), (StatusCode::OK, &json!([])));
}

#[tokio::test]
async fn a_call_of_which_half_is_sent_keeps_no_other_waiting() {
    let bed = bed();
    let halves: Vec<_> = (0..4)
        .map(|_| {
            let (sender, body) = Channel::<Bytes, Infallible>::new(1);
            let request = Request::builder().method("POST").uri("/v1/drives");
            let request = request.body(Body::new(body)).expect("a request");
            let answer = tokio::spawn(bed.router.clone().oneshot(request));
            (sender, answer)
        })
        .collect();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let body = json!({ "spec": "file:/0", "name": "d" }).to_string();
    let whole = call(&bed, "POST", "/v1/drives", &body);
    let limit = std::time::Duration::from_secs(20);
    let (status, told) = tokio::time::timeout(limit, whole).await.expect("at once");
    assert_eq!(status, StatusCode::CREATED, "{told}");
    drop(halves);
}

#[test]
fn what_may_zero_for_hours_has_room_of_its_own() {
    let zeroes = |method: &Method, path| exchange::may_zero(method, path);
    assert!(zeroes(&Method::POST, "/v1/volumes"), "a create");
    assert!(zeroes(&Method::PATCH, "/v1/volumes/v"), "a new size");
    for (method, path) in [
        (Method::DELETE, "/v1/volumes/v"),
        (Method::PUT, "/v1/volumes/v/limit"),
        (Method::PATCH, "/v1/arrays/a"),
        (Method::POST, "/v1/exports"),
    ] {
        assert!(!zeroes(&method, path), "{method} {path}");
    }
}

#[tokio::test]
async fn an_array_a_volume_and_an_export_over_the_api() {
    let bed = bed();
    for number in 0..4 {
        let body = json!({ "spec": format!("file:/{number}") }).to_string();
        let (status, drive) = call(&bed, "POST", "/v1/drives", &body).await;
        assert_eq!(
            (status, &drive["name"]),
            (StatusCode::CREATED, &json!(format!("d{number}")))
        );
    }
    let body = json!({ "name": "a", "level": "5", "drives": ["d0", "d1", "d2"] }).to_string();
    let (status, array) = call(&bed, "POST", "/v1/arrays", &body).await;
    assert_eq!(
        (status, &array["state"]),
        (StatusCode::CREATED, &json!("optimal"))
    );
    let body = json!({ "name": "v", "array": "a", "size_bytes": 1 << 20 }).to_string();
    let (status, volume) = call(&bed, "POST", "/v1/volumes", &body).await;
    assert_eq!(
        (status, &volume["size_bytes"]),
        (StatusCode::CREATED, &json!(1 << 20))
    );
    let (status, export) = call(&bed, "POST", "/v1/exports", r#"{"volume":"v","queues":2}"#).await;
    assert_eq!(
        (status, &export["profile"]["queues"]),
        (StatusCode::CREATED, &json!(2))
    );
    let moved = call(&bed, "PUT", "/v1/exports/v/queues/1", r#"{"core":3}"#).await;
    assert_eq!(
        (moved.0, &moved.1["queues"][1]["core"]),
        (StatusCode::OK, &json!(3))
    );
    let limited = call(&bed, "PUT", "/v1/volumes/v/limit", r#"{"iops":10}"#).await;
    assert_eq!(
        (limited.0, &limited.1["limit"]["iops"]),
        (StatusCode::OK, &json!(10))
    );
    let (_, failed) = call(&bed, "POST", "/v1/arrays/a/members/1/fail", "").await;
    assert_eq!(failed["state"], "degraded");
    let replace = call(
        &bed,
        "POST",
        "/v1/arrays/a/members/1/replace",
        r#"{"drive":"d3"}"#,
    )
    .await;
    assert_eq!(replace.1["members"][1]["state"], "rebuilding");
    let (_, jobs) = call(&bed, "GET", "/v1/arrays/a/rebuild", "").await;
    assert_eq!(jobs.as_array().map(Vec::len), Some(1));
    let (_, status) = call(&bed, "GET", "/v1/status", "").await;
    assert_eq!(status["arrays"], json!({ "total": 1, "attention": 1 }));
    assert_eq!(
        status["attention"],
        json!(["array a is degraded: member 1 (being filled)"])
    );
    assert_eq!(
        call(&bed, "DELETE", "/v1/exports/v", "").await.0,
        StatusCode::OK
    );
    assert_eq!(
        call(&bed, "DELETE", "/v1/arrays/a?force=true", "").await.0,
        StatusCode::OK
    );
    assert_eq!(call(&bed, "GET", "/v1/arrays", "").await.1, json!([]));
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
#[tokio::test]
async fn every_foreign_request_gets_a_json_error_and_reaches_no_engine() {
    let bed = bed();
    let cases = [
        ("GET", "/", "", 404, "not_found"),
        ("GET", "/v1/nothing", "", 404, "not_found"),
        ("PUT", "/v1/drives", "{}", 404, "not_found"),
        ("GET", "/v1/drives/x", "", 404, "not_found"),
        ("GET", "/v1/drives/%00%ff", "", 400, "invalid"),
        ("GET", "/v1/drives/..", "", 404, "not_found"),
        ("POST", "/v1/drives", "", 400, "invalid"),
        ("POST", "/v1/drives", "{", 400, "invalid"),
        ("POST", "/v1/drives", "[1]", 400, "invalid"),
        ("POST", "/v1/drives", r#"{"spec":"file:x"}"#, 400, "invalid"),
        ("POST", "/v1/drives", r#"{"spec":"mem:0"}"#, 400, "invalid"),
        (
            "POST",
            "/v1/drives",
            r#"{"spec":"/dev/a\u0000b"}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/drives",
            r#"{"spec":"file:/0","nmae":"a"}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/drives",
            r#"{"spec":"file:/0","name":"a/b"}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/drives",
            r#"{"spec":"file:/0","name":".."}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/drives",
            r#"{"spec":"file:/0","uuid":"7"}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/arrays",
            r#"{"name":"a","level":"4","drives":[]}"#,
            400,
            "invalid",
        ),
        ("DELETE", "/v1/drives/x?force=maybe", "", 400, "invalid"),
        ("DELETE", "/v1/drives/x?fource=true", "", 400, "invalid"),
        ("POST", "/v1/arrays/a/members/-1/fail", "", 400, "invalid"),
        (
            "POST",
            "/v1/arrays/a/members/70000/fail",
            "",
            400,
            "invalid",
        ),
        ("GET", "/v1/jobs/x", "", 400, "invalid"),
        (
            "POST",
            "/v1/volumes",
            r#"{"name":"v","array":"a","size_bytes":-1}"#,
            400,
            "invalid",
        ),
    ];
    for (method, path, body, status, code) in cases {
        let (got, error) = call(&bed, method, path, body).await;
        assert_eq!(got.as_u16(), status, "{method} {path} {body}: {error}");
        assert_eq!(error["code"], code, "{method} {path} {body}: {error}");
        for field in ["object", "message", "next"] {
            assert!(error[field].is_string(), "{method} {path} {body}: {error}");
        }
    }
    assert_eq!(bed.host.calls(), [""; 0], "nothing came through");
}

#[tokio::test]
async fn an_endless_body_is_cut_off() {
    let bed = bed();
    let body = format!("{{\"spec\":\"{}\"}}", "x".repeat(3 << 20));
    let (status, error) = call(&bed, "POST", "/v1/drives", &body).await;
    assert_eq!(
        (status, &error["code"]),
        (StatusCode::BAD_REQUEST, &json!("invalid"))
    );
}

#[tokio::test]
async fn metrics_are_text_and_the_port_for_them_serves_nothing_else() {
    let bed = bed();
    let (status, text) = call(&bed, "GET", "/metrics", "").await;
    let text = text.as_str().expect("text").to_owned();
    assert_eq!(status, StatusCode::OK);
    assert!(
        text.contains("garboard_drives_open 2.0") && text.ends_with("# EOF\n"),
        "{text}"
    );

    let state = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::open(state.path()).expect("begun");
    let control = Control::new(Arc::new(bed.host.engine()), wanted, "/run/test".into());
    let public = Bed {
        router: metrics_router(Arc::new(control)),
        ..bed
    };
    assert_eq!(call(&public, "GET", "/metrics", "").await.0, StatusCode::OK);
    assert_eq!(
        call(&public, "GET", "/v1/drives", "").await.0,
        StatusCode::NOT_FOUND
    );
}
