//! Pages of each size, and continuations.

use rowstone::store::{Condition, Continuation, EntityPage, PageQuery, TableStore};
use rowstone::{Db, Entity, EntityGroup, Result};

use super::{Contract, outcome};

const PAGES: &str = "Pages";

impl Contract<'_> {
    pub(super) fn pages(&mut self) {
        self.fresh(PAGES);
        for partition in ["a", "b", "é"] {
            let mut group = EntityGroup::new(partition);
            for row in 0..30 {
                let entity = Entity::new(partition, format!("{row:02}")).with("N", row);
                group.insert(entity.with("Even", row % 2 == 0)).unwrap();
            }
            self.store.commit(PAGES, &group).unwrap();
        }
        for (filter, expected) in [
            ("", 90),
            ("PartitionKey eq 'b'", 30),
            ("N lt 5", 15),
            ("Even eq true and N ge 20", 15),
            ("PartitionKey eq 'é' and RowKey gt '27'", 2),
            ("not (Even eq true)", 45),
            ("N eq 99", 0),
        ] {
            for top in [1, 7, 30, 1_000, 0] {
                self.follow(filter, top, expected);
            }
        }
        self.continuations();
        self.changes_between_pages();
        self.a_thousand();
        self.store.delete_table(PAGES).unwrap();
    }

    fn page(&self, filter: &str, top: usize, from: Option<&Continuation>) -> Result<EntityPage> {
        let page = PageQuery { filter, top, continuation: from, ..PageQuery::default() };
        self.store.query(PAGES, &page)
    }

    /// Follows the pages to the end.
    fn follow(&mut self, filter: &str, top: usize, expected: usize) {
        let (mut found, mut next, mut largest) = (Vec::new(), None::<Continuation>, 0);
        loop {
            let page = self.page(filter, top, next.as_ref()).unwrap();
            let keys = page.entities.iter().map(|e| [e.partition_key(), e.row_key()].join("/"));
            largest = largest.max(page.entities.len());
            found.extend(keys);
            // A continuation survives its text.
            next = page.next.map(|next| next.to_string().parse().unwrap());
            if next.is_none() {
                break;
            }
        }
        let is_ordered = found.windows(2).all(|pair| pair[0] < pair[1]);
        let is_bounded = top == 0 || largest <= top;
        let found = format!("{} {is_ordered} {is_bounded}", found.len());
        let name = format!("pages of {top} of '{filter}'");
        self.case(name, format!("{expected} true true"), found);
    }

    fn continuations(&mut self) {
        let first = self.page("", 10, None).unwrap();
        let next = first.next.unwrap();
        let text = next.to_string();
        self.case("a continuation has no spaces", false, text.contains(char::is_whitespace));
        self.case(
            "a continuation parses back",
            true,
            text.parse::<Continuation>().unwrap() == next,
        );
        let twice = [self.page("", 5, Some(&next)), self.page("", 5, Some(&next))];
        let rows = twice.map(|page| first_rows(page.unwrap()));
        self.case("a continuation can be used twice", rows[0].clone(), rows[1].clone());
        self.case("the page after ten rows", "a/10 a/11 a/12 a/13 a/14", &rows[0]);
        let other = Db::open_in_memory().unwrap();
        other.create_table(PAGES).unwrap();
        let page = PageQuery { continuation: Some(&next), ..PageQuery::default() };
        let refused = TableStore::query(&other, PAGES, &page);
        let expected = "InvalidInput InvalidInput";
        self.case("a continuation of this store at another", expected, outcome(&refused));
        for row in ["1", "2"] {
            other.table(PAGES).unwrap().insert(Entity::new("a", row)).unwrap();
        }
        let page = TableStore::query(&other, PAGES, &PageQuery { top: 1, ..PageQuery::default() });
        let refused = self.page("", 10, page.unwrap().next.as_ref());
        self.case("a continuation of another store", expected, outcome(&refused));
        for text in
            ["", ".", "...", "zz.61.62", "61.62", "61.62.63.64", "6.61.62", "+1.61.62", "61.ff.62"]
        {
            let parsed = text.parse::<Continuation>();
            self.case(format!("the continuation '{text}'"), expected, outcome(&parsed));
        }
        let last = self.page("PartitionKey eq 'b'", 30, None).unwrap();
        self.case("a page that ends with the last row", "30 None", {
            format!("{} {:?}", last.entities.len(), last.next.map(drop))
        });
        let point = self.page("PartitionKey eq 'b' and RowKey eq '07'", 1, None).unwrap();
        self.case("a point query", "b/07, end", ended(point));
        let none = self.page("PartitionKey eq 'no'", 1, None).unwrap();
        self.case("no entity matches", ", end", ended(none));
    }

    /// A continuation is a position: rows that are deleted or inserted behind it show.
    fn changes_between_pages(&mut self) {
        let filter = "PartitionKey eq 'c'";
        let put = |row: &str| {
            self.store.upsert(PAGES, &Entity::new("c", row)).unwrap();
        };
        let remove = |row: &str| self.store.delete(PAGES, "c", row, &Condition::Any).unwrap();
        ["1", "2", "3", "4", "5"].into_iter().for_each(put);
        let next = self.page(filter, 2, None).unwrap().next;
        remove("1");
        remove("3");
        put("45");
        put("0");
        let rest = self.page(filter, 10, next.as_ref()).unwrap();
        self.case("rows changed between pages", "c/4 c/45 c/5, end", ended(rest));
        ["4", "45", "5"].into_iter().for_each(remove);
        let rest = self.page(filter, 10, next.as_ref()).unwrap();
        self.case("all rows after a continuation were deleted", ", end", ended(rest));
        ["0", "2"].into_iter().for_each(remove);
    }

    /// A page has at most 1,000 entities.
    fn a_thousand(&mut self) {
        for hundred in 0..11 {
            let mut group = EntityGroup::new("many");
            for row in 0..100 {
                group.insert(Entity::new("many", format!("{:04}", hundred * 100 + row))).unwrap();
            }
            self.store.commit(PAGES, &group).unwrap();
        }
        let filter = "PartitionKey eq 'many'";
        for top in [0, 1_000, 999] {
            let (mut lengths, mut next) = (Vec::new(), None);
            loop {
                let page = self.page(filter, top, next.as_ref()).unwrap();
                lengths.push(page.entities.len());
                next = page.next;
                if next.is_none() {
                    break;
                }
            }
            let expected = if top == 999 { [999, 101] } else { [1_000, 100] };
            let name = format!("1,100 entities in pages of {top}");
            self.case(name, format!("{expected:?}"), format!("{lengths:?}"));
        }
        let next = self.page(filter, 5, None).unwrap().next;
        self.store.delete_table(PAGES).unwrap();
        let refused = self.page(filter, 5, next.as_ref());
        self.case("the next page of a deleted table", "NotFound TableNotFound", outcome(&refused));
        self.store.create_table(PAGES).unwrap();
        let rest = self.page(filter, 5, next.as_ref()).unwrap();
        self.case("the next page of a table that was created again", ", end", ended(rest));
    }
}

fn first_rows(page: EntityPage) -> String {
    let keys = page.entities.iter().map(|e| [e.partition_key(), e.row_key()].join("/"));
    keys.collect::<Vec<_>>().join(" ")
}

/// Describes a page, and whether it is the last one.
fn ended(page: EntityPage) -> String {
    let end = if page.next.is_none() { "end" } else { "more" };
    format!("{}, {end}", first_rows(page))
}
