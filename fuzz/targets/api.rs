//! A user of the API who sends anything: any method, any path, any body, to the real router with an
//! engine of plain data behind it.
#![no_main]

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use control::Control;
use control::fake::FakeHost;
use control::request::DriveSpec;
use control::wanted::Wanted;
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use tower::ServiceExt;

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

struct Bed {
    runtime: tokio::runtime::Runtime,
    router: Router,
    _state: tempfile::TempDir,
}

thread_local! {
    static BED: RefCell<Bed> = RefCell::new(bed());
}

fn bed() -> Bed {
    let host = FakeHost::new();
    for number in 0..8 {
        host.plug(&format!("file:/{number}"), 1 << 30);
    }
    let state = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::open(state.path()).expect("begun");
    let control = Control::new(Arc::new(host.engine()), wanted, PathBuf::from("/run/test"));
    let runtime = tokio::runtime::Builder::new_current_thread();
    Bed {
        runtime: { runtime }.build().expect("a runtime"),
        router: control::api::router(Arc::new(control)),
        _state: state,
    }
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    // Each line is a call: method, path, body.
    for line in text.lines().take(16) {
        let mut words = line.splitn(3, ' ');
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            continue;
        };
        let body = words.next().unwrap_or_default();
        if let Ok(spec) = body.parse::<DriveSpec>() {
            assert_eq!(spec.to_string().parse::<DriveSpec>(), Ok(spec));
        }
        let method = METHODS.iter().find(|known| **known == method);
        let request = Request::builder()
            .method(*method.unwrap_or(&"POST"))
            .uri(path)
            .body(Body::from(body.to_owned()));
        let Ok(request) = request else {
            continue;
        };
        BED.with_borrow(|bed| {
            bed.runtime.block_on(async {
                let answer = bed
                    .router
                    .clone()
                    .oneshot(request)
                    .await
                    .expect("an answer");
                let status = answer.status().as_u16();
                let body = answer
                    .into_body()
                    .collect()
                    .await
                    .expect("a body")
                    .to_bytes();
                // A mistake of the user is never called a mistake of ours.
                assert_ne!(status, 500, "{}", String::from_utf8_lossy(&body));
            });
        });
    }
});
