//! Tables: their names, their order, and what becomes of their entities.

use rowstone::Entity;
use rowstone::store::PageQuery;

use super::{Contract, TABLE, content, outcome};

/// More tables than a page of names has.
const MANY: usize = 1_003;

impl Contract<'_> {
    pub(super) fn tables(&mut self) {
        let store = self.store;
        store.delete_table(TABLE).unwrap();
        self.names_of_tables();
        let done = [store.create_table("Made"), store.create_table("Made")];
        self.case("create a table", "done", outcome(&done[0]));
        let exists = "AlreadyExists TableAlreadyExists";
        self.case("create a table twice", exists, outcome(&done[1]));
        let done = store.create_table("mADE");
        self.case("create a table in other case", exists, outcome(&done));
        let entity = Entity::new("p", "r").with("A", 1);
        let done = store.insert("MADE", &entity);
        self.case("insert by the table's name in other case", "done", outcome(&done));
        let found = store.get("made", "p", "r", &[]);
        self.case("get by the table's name in other case", "[A=Int32(1)]", content(&found));
        let page = store.query("maDe", &PageQuery::default());
        let count = page.as_ref().map(|page| page.entities.len().to_string());
        let count = count.unwrap_or_else(|_| outcome(&page));
        self.case("query by the table's name in other case", "1", count);
        let done = [store.delete_table("made"), store.delete_table("Made")];
        self.case("delete a table by its name in other case", "done", outcome(&done[0]));
        let missing = "NotFound ResourceNotFound";
        self.case("delete a table twice", missing, outcome(&done[1]));
        let found = store.get("Made", "p", "r", &[]);
        self.case("get from a deleted table", "NotFound TableNotFound", outcome(&found));
        self.case("create a deleted table", "done", outcome(&store.create_table("Made")));
        self.case("its entities are gone", "none", content(&store.get("Made", "p", "r", &[])));
        drop(store.delete_table("Made"));
        self.order_of_tables();
        self.many_tables();
    }

    /// Lists the tables, without those of the example `todo` and of `referee` at the same service.
    fn listed(&self) -> rowstone::Result<Vec<String>> {
        let mut listed = self.store.tables()?;
        listed.retain(|name| !["tasks", "Referee"].contains(&&**name));
        Ok(listed)
    }

    fn names_of_tables(&mut self) {
        let store = self.store;
        let (longest, too_long) = ("t".repeat(63), "t".repeat(64));
        for name in ["abc", "A12", &longest] {
            let done = store.create_table(name);
            self.case(format!("create a table named {name}"), "done", outcome(&done));
            let done = store.delete_table(name);
            self.case(format!("delete a table named {name}"), "done", outcome(&done));
        }
        let entity = Entity::new("p", "r").with("A", 1);
        for (name, code) in [
            ("", "OutOfRangeInput"),
            ("ab", "OutOfRangeInput"),
            (&*too_long, "OutOfRangeInput"),
            ("1abc", "InvalidResourceName"),
            ("a-b-c", "InvalidResourceName"),
            ("a_b", "InvalidResourceName"),
            ("a b c", "InvalidResourceName"),
            ("tablé", "InvalidResourceName"),
            ("a/b/c", "InvalidResourceName"),
            ("a?b#c", "InvalidResourceName"),
            ("abc()", "InvalidResourceName"),
            ("abc'", "InvalidResourceName"),
            ("$batch", "InvalidResourceName"),
            ("Tables", "InvalidInput"),
            ("tables", "InvalidInput"),
        ] {
            let done = store.create_table(name);
            let refused = format!("InvalidInput {code}");
            self.case(format!("create a table named {name:?}"), refused, outcome(&done));
            let done = store.delete_table(name);
            let missing = "NotFound ResourceNotFound";
            self.case(format!("delete a table named {name:?}"), missing, outcome(&done));
            let missing = "NotFound TableNotFound";
            let done = store.insert(name, &entity);
            self.case(format!("insert into a table named {name:?}"), missing, outcome(&done));
            let done = store.upsert(name, &entity);
            self.case(format!("upsert into a table named {name:?}"), missing, outcome(&done));
            let found = store.get(name, "p", "r", &[]);
            self.case(format!("get from a table named {name:?}"), missing, outcome(&found));
            let found = store.query(name, &PageQuery::default());
            self.case(format!("query a table named {name:?}"), missing, outcome(&found));
        }
        let left = self.listed().map_or_else(|error| error.to_string(), |left| left.concat());
        self.case("no table is left", "", left);
    }

    fn order_of_tables(&mut self) {
        let names = ["beta", "Alpha", "a10", "a91", "Zeta", "aaa", "AAAB"];
        names.iter().for_each(|name| self.store.create_table(name).unwrap());
        let listed = self.listed().unwrap();
        let mut expected = names;
        expected.sort_by_key(|name| name.to_lowercase());
        self.case("the order of tables", format!("{expected:?}"), format!("{listed:?}"));
        names.iter().for_each(|name| self.store.delete_table(name).unwrap());
    }

    fn many_tables(&mut self) {
        let name = |number: usize| format!("many{number:04}");
        (0..MANY).for_each(|number| self.store.create_table(&name(number)).unwrap());
        let expected: Vec<_> = (0..MANY).map(name).collect();
        let is_same = self.listed().map(|listed| listed == expected);
        self.case("more than a page of tables", "Ok(true)", format!("{is_same:?}"));
        (0..MANY).for_each(|number| self.store.delete_table(&name(number)).unwrap());
        let left = self.listed().map(|left| left.len());
        self.case("no table", "Ok(0)", format!("{left:?}"));
    }
}
