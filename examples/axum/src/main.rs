//! A small web service that keeps parts in a database, with axum and tokio. For example:
//! `curl -X PUT localhost:3000/parts/bolts/m4 --json '{"price": 0.12, "stock": 1200}'`
//!
//! * Writes are submitted and awaited: handlers that run at the same time share a sync of the disk,
//!   and no thread waits for it.
//! * Reads may wait for the disk, so they run on tokio's threads for blocking work. `Table` is
//!   cheap to clone for it. A `get` of cached data takes microseconds and needs no such thread.
//! * On Ctrl-C the server answers the requests that it has, and then the database is closed.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, StatusCode, header::ETAG};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use rowstone::{Db, Entity, EntityGroup, Filter, Operation, Table, prop};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Part {
    price: f64,
    stock: i64,
}

/// A part of a list: its RowKey, and its properties.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Listed {
    id: String,
    #[serde(flatten)]
    part: Part,
}

#[derive(Deserialize)]
struct Search {
    max_price: Option<f64>,
}

/// An error of the database as a response. Its text is for the client only if the client caused it.
struct Failure(rowstone::Error);

impl From<rowstone::Error> for Failure {
    fn from(error: rowstone::Error) -> Self {
        Failure(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            eprintln!("{}", self.0);
            return status.into_response();
        }
        (status, self.0.to_string()).into_response()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "shop.db".to_owned());
    // Opening may recover a large log.
    let open = move || -> rowstone::Result<_> {
        let db = Db::open(path)?;
        let parts = db.table_or_create("parts")?;
        Ok((db, parts))
    };
    let (db, parts) = spawn_blocking(open).await??;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app(parts)).with_graceful_shutdown(interrupted()).await?;
    // Closing syncs what is not durable yet.
    spawn_blocking(|| db.close()).await??;
    Ok(())
}

/// Waits for Ctrl-C. If it cannot be waited for, the server runs until it is killed.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn app(parts: Table) -> Router {
    Router::new()
        .route("/parts/{kind}", get(list).post(insert))
        .route("/parts/{kind}/{id}", put(upsert).get(find))
        .with_state(parts)
}

/// Writes one part. The response is sent when the part is as durable as the options ask.
async fn upsert(
    State(parts): State<Table>,
    Path((kind, id)): Path<(String, String)>,
    Json(part): Json<Part>,
) -> Result<([(HeaderName, String); 1], StatusCode), Failure> {
    let entity = Entity::from_serde(kind, id, &part)?;
    let etags = parts.write_async(Operation::Upsert(entity))?.await?;
    let etag = etags.into_iter().flatten().next().map(|etag| etag.to_string());
    Ok(([(ETAG, etag.unwrap_or_default())], StatusCode::NO_CONTENT))
}

/// Inserts up to 100 parts of one kind, all or none.
async fn insert(
    State(parts): State<Table>,
    Path(kind): Path<String>,
    Json(list): Json<Vec<Listed>>,
) -> Result<StatusCode, Failure> {
    let mut group = EntityGroup::new(&kind);
    for Listed { id, part } in &list {
        group.insert(Entity::from_serde(&kind, id, part)?)?;
    }
    // An insert reads whether its key exists, which may wait for the disk. So the group is
    // submitted on a thread for blocking work, and its sync is awaited here.
    let ticket = blocking(move || parts.commit_async(group)).await?;
    ticket.await?;
    Ok(StatusCode::CREATED)
}

async fn find(
    State(parts): State<Table>,
    Path((kind, id)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let found = blocking(move || parts.get(&kind, &id)?.map(|part| part.to::<Part>()).transpose());
    Ok(match found.await? {
        Some(part) => Json(part).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    })
}

/// Lists the first 1,000 parts of a kind.
async fn list(
    State(parts): State<Table>,
    Path(kind): Path<String>,
    Query(search): Query<Search>,
) -> Result<Json<Vec<Listed>>, Failure> {
    let mut filter = Filter::partition(kind);
    if let Some(most) = search.max_price {
        filter = filter.and(prop("price").le(most));
    }
    let listed = |entity: &Entity| {
        Ok(Listed { id: entity.row_key().to_owned(), part: entity.to::<Part>()? })
    };
    let read = move || parts.query(filter)?.page(1000)?.entities().iter().map(listed).collect();
    Ok(Json(blocking(read).await?))
}

/// Calls `work` on a thread for blocking work.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> rowstone::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        // The runtime cancels work only when it is shut down; handlers have ended by then.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Method, Request, header::CONTENT_TYPE};
    use tower::ServiceExt;

    use super::*;

    async fn send(app: &Router, method: Method, path: &str, body: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let (status, body) = (response.status(), response.into_body());
        let body = to_bytes(body, usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn parts_are_written_read_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let app = app(db.create_table("parts").unwrap());
        let bolt = r#"{"price":0.12,"stock":1200}"#;
        let (status, _) = send(&app, Method::PUT, "/parts/bolts/m4", bolt).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
        let found = send(&app, Method::GET, "/parts/bolts/m4", "").await;
        assert_eq!(found, (StatusCode::OK, bolt.to_owned()));
        let (status, _) = send(&app, Method::GET, "/parts/bolts/m5", "").await;
        assert_eq!(status, StatusCode::NOT_FOUND);

        let new = r#"[{"id":"m5","price":0.9,"stock":7},{"id":"m6","price":0.2,"stock":0}]"#;
        assert_eq!(send(&app, Method::POST, "/parts/bolts", new).await.0, StatusCode::CREATED);
        let (status, text) = send(&app, Method::POST, "/parts/bolts", new).await;
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(text.contains("m5"), "{text}");
        let (_, text) = send(&app, Method::GET, "/parts/bolts?max_price=0.5", "").await;
        let listed: Vec<Listed> = serde_json::from_str(&text).unwrap();
        assert_eq!(listed.iter().map(|part| &*part.id).collect::<Vec<_>>(), ["m4", "m6"]);

        db.close().unwrap();
        // Requests after the close are refused.
        let (status, _) = send(&app, Method::PUT, "/parts/bolts/m7", bolt).await;
        assert!(!status.is_success());
        let db = Db::open(dir.path()).unwrap();
        assert_eq!(db.table("parts").unwrap().scan(rowstone::KeyRange::all()).count().unwrap(), 3);
    }
}
