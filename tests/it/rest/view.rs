//! A view of a table of a server.

use rowstone::store::{Remote, TableStore};
use rowstone::view::{Source, View};
use rowstone::{Db, Entity, KeyRange, Result};

use super::Place;

fn fold(row: &Entity) -> Result<Vec<Entity>> {
    let n: i32 = row.get("N")?;
    let group = format!("group{}", n % 2);
    Ok(vec![Entity::new("all", "sum").with("N", n), Entity::new(group, "sum").with("N", n)])
}

#[test]
fn a_view_follows_a_served_table() {
    let place = Place::new();
    let server = place.serve("--extensions --log off");
    let connect = || Remote::open(&server.connection()).unwrap();
    let (source, target) = (connect(), Db::open_in_memory().unwrap());
    source.create_table("Tab").unwrap();
    let put = |pk: &str, rk: i32, n: i32| {
        source.upsert("Tab", &Entity::new(pk, rk.to_string()).with("N", n)).unwrap();
    };
    let sum = |pk: &str| {
        let row = target.get("sums", pk, "sum", &[]).unwrap().unwrap();
        (row.get::<i64>("Rows").unwrap(), row.get::<i64>("N").unwrap())
    };
    (0..10).for_each(|n| put(["a", "b"][n as usize / 5], n, n));
    let mut view = View::new(Source::Remote(connect()), "Tab", &target, "sums", fold);
    view.catch_up().unwrap();
    assert_eq!([sum("all"), sum("group0"), sum("group1")], [(10, 45), (5, 20), (5, 25)]);
    put("a", 1, 2);
    source.delete_if_exists("Tab", "a", "0").unwrap();
    assert!(source.delete_range("Tab", &KeyRange::partition("b")).unwrap());
    put("b", 7, 7);
    let reached = view.catch_up().unwrap();
    assert_eq!([sum("all"), sum("group0"), sum("group1")], [(5, 18), (3, 8), (2, 10)]);
    // Another runner has nothing to do, and a rebuild finds no difference.
    let mut other = View::new(Source::Remote(connect()), "Tab", &target, "sums", fold);
    assert_eq!(other.catch_up().unwrap(), reached);
    other.rebuild();
    other.catch_up().unwrap();
    assert_eq!([sum("all"), sum("group0"), sum("group1")], [(5, 18), (3, 8), (2, 10)]);
    server.stop();
}
