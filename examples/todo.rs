//! A list of tasks in a store of tables. The argument names the store:
//!
//! ```sh
//! cargo run --example todo --features remote,serde -- ./tasks                      # a directory
//! cargo run --example todo --features remote,serde -- UseDevelopmentStorage=true   # a service
//! ```

use std::thread;

use rowstone::store::{Condition, PageQuery, TableStore, open_store, update};
use rowstone::{Entity, EntityGroup, ErrorKind, Result};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Task {
    title: String,
    hours: f64,
    done: bool,
}

fn main() -> Result<()> {
    let Some(name) = std::env::args().nth(1) else {
        eprintln!("usage: todo STORE");
        std::process::exit(2);
    };
    let store = &*open_store(&name)?;
    match store.create_table("tasks") {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        done => done?,
    }
    // A group is written as a whole or not at all.
    let mut group = EntityGroup::new("home");
    for (row, title, hours) in [
        ("1", "paint the fence", 0.0),
        ("2", "call the plumber", 0.5),
        ("3", "mow the lawn", 1.5),
        ("4", "repair the bicycle", 3.0),
    ] {
        let task = Task { title: title.to_owned(), hours, done: false };
        group.upsert(Entity::from_serde("home", row, &task)?)?;
    }
    println!("{} tasks", store.commit("tasks", &group)?.len());
    // Two people paint. Neither overwrites the hours of the other.
    thread::scope(|scope| {
        let painters =
            [0; 2].map(|_| scope.spawn(|| (0..5).try_for_each(|_| work(store, "1", 1.0))));
        painters.into_iter().try_for_each(|painter| painter.join().expect("a painter panicked"))
    })?;
    let fence: Task = store.get("tasks", "home", "1", &[])?.expect("it was inserted").to()?;
    println!("painting took {} hours", fence.hours);
    store.merge("tasks", &Entity::new("home", "1").with("done", true), &Condition::Any)?;
    let filter = "PartitionKey eq 'home' and done eq false";
    let mut next = None;
    loop {
        let continuation = next.as_ref();
        let page = PageQuery { filter, top: 2, continuation, ..PageQuery::default() };
        let page = store.query("tasks", &page)?;
        for entity in &page.entities {
            let Task { title, hours, .. } = entity.to()?;
            println!("open: {title} ({hours} hours)");
        }
        next = page.next;
        if next.is_none() {
            return Ok(());
        }
    }
}

/// Adds hours to a task. If another writer was faster, the closure runs again.
fn work(store: &dyn TableStore, row: &str, hours: f64) -> Result<()> {
    update(store, "tasks", "home", row, |entity| {
        let mut task: Task = entity.to()?;
        task.hours += hours;
        *entity = Entity::from_serde("home", row, &task)?;
        Ok(())
    })
    .map(drop)
}
