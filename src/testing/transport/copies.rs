//! Copies from and to a service whose requests are counted.

use std::sync::Arc;
use std::time::Duration;

use super::network::{ACCOUNT, Site, open_remote};
use crate::clock::Clock;
use crate::db::prometheus::Exposition;
use crate::db::{CopySummary, Db};
use crate::model::Entity;
use crate::rng::Rng;
use crate::store::copy::{StoreCopy, tests};
use crate::store::pages::PAGE_MAX;
use crate::store::remote::transport::{NoAnswer, Request, Response, Transport};
use crate::store::{PageQuery, Remote, RemoteOptions, TableStore};
use crate::sync::Mutex;

/// A connection to a service in the same process. All requests are answered.
struct Direct {
    site: Site,
    /// The methods of the requests.
    methods: Mutex<Vec<&'static str>>,
    /// Whether entities have `odata.etag` only with all metadata, as documented for Azure Table
    /// storage.
    hides_etags: bool,
}

impl Transport for Direct {
    fn send(&self, request: &Request, _time: Duration) -> Result<Response, NoAnswer> {
        self.methods.lock().push(request.method);
        let received = self.site.received(request, self.site.clock.now());
        let mut response = self.site.answer(&received);
        let is_full = request.headers.iter().any(|(_, value)| value.ends_with("fullmetadata"));
        if self.hides_etags && !is_full {
            let body = String::from_utf8(response.body).unwrap();
            response.body = body.replace("\"odata.etag\"", "\"odata.hide\"").into_bytes();
        }
        Ok(response)
    }

    fn wait(&self, time: Duration) {
        panic!("no request is repeated after {time:?}");
    }
}

impl Direct {
    /// Returns the numbers of reads and of other requests since the last call.
    fn take(&self) -> (usize, usize) {
        let methods = std::mem::take(&mut *self.methods.lock());
        let reads = methods.iter().filter(|method| **method == "GET").count();
        (reads, methods.len() - reads)
    }
}

fn open(hides_etags: bool) -> (Remote, Arc<Direct>) {
    let (site, methods) = (Site::new(), Mutex::default());
    let direct = Arc::new(Direct { site, methods, hides_etags });
    let (transport, clock) = (Arc::<Direct>::clone(&direct), Arc::clone(&direct.site.clock));
    (open_remote(transport, clock, Rng::from_seed(1), RemoteOptions::new()), direct)
}

/// Makes a table of 10 partitions with 100 entities.
fn fill(db: &Db, value: i32) {
    let table = db.create_table("Tab").unwrap();
    for i in 0..1_000 {
        let entity = Entity::new(format!("p{}", i / 100), format!("{:02}", i % 100));
        table.insert(entity.with("N", value)).unwrap();
    }
}

/// Runs a copy by one worker.
fn copy(
    source: &dyn TableStore,
    target: &dyn TableStore,
    set: impl FnOnce(&mut StoreCopy<'_>),
) -> CopySummary {
    let with_one = |job: &mut StoreCopy<'_>| {
        (job.workers, job.page_rows) = (1, PAGE_MAX);
        set(job);
    };
    tests::copy(source, target, None, with_one).unwrap().0
}

/// ETags of pages are enough: no entity is read alone.
#[test]
fn a_copy_takes_a_request_for_each_page_and_group() {
    for hides_etags in [false, true] {
        // The first page is requested twice if it lacks ETags.
        let again = usize::from(hides_etags);
        let (remote, direct) = open(hides_etags);
        fill(&direct.site.db, 1);
        let db = Db::open_in_memory().unwrap();
        db.create_table("Tab").unwrap();
        let moved = copy(&remote, &db, |job| job.then_delete = true);
        assert_eq!((moved.copied, moved.deleted, moved.problem_count()), (1_000, 1_000, 0));
        // Pages of 100 and of 900 entities, and a group of deletes for each partition.
        assert_eq!(direct.take(), (2 + again, 10));

        // Each group is refused, its range is read, and it replaces the entities.
        let (remote, direct) = open(hides_etags);
        fill(&direct.site.db, 2);
        let replaced = copy(&db, &remote, |job| job.replace = true);
        assert_eq!((replaced.replaced, replaced.problem_count()), (1_000, 0));
        assert_eq!(direct.take(), (10 + again, 20));
    }
}

/// The bill of a client is that of the service: also for requests that search slices, are refused
/// or fail.
#[test]
fn clients_and_the_service_count_the_same_bill() {
    let (remote, direct) = open(false);
    fill(&direct.site.db, 1);
    let db = Db::open_in_memory().unwrap();
    db.create_table("Tab").unwrap();
    copy(&remote, &db, |job| (job.workers, job.page_rows) = (4, 40));
    copy(&db, &remote, |_| ());
    remote.get("None", "p", "r", &[]).unwrap_err();
    let mut text = Exposition::new();
    direct.site.service.metrics().put(&mut text);
    let text = text.into_text();
    let counted = |name: &str| -> u64 {
        let start = format!("rowstone_billable_{name}_total{{account=\"{ACCOUNT}\"}} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&start));
        found.unwrap().parse().unwrap()
    };
    let bill = remote.bill();
    let (reads, writes) = direct.take();
    assert_eq!(bill.transactions, (reads + writes) as u64);
    assert_eq!(bill.transactions, counted("transactions"));
    assert_eq!(bill.bytes_out, counted("response_bytes"));
}

/// Entities of a page have ETags although the service sends them only with all metadata.
#[test]
fn pages_have_etags() {
    let (remote, direct) = open(true);
    fill(&direct.site.db, 1);
    for (top, requests) in [(1, 2), (1_000, 1)] {
        let page = PageQuery { top, ..PageQuery::default() };
        for found in remote.query("Tab", &page).unwrap().entities {
            let read = direct.site.db.get("Tab", found.partition_key(), found.row_key(), &[]);
            let read = read.unwrap().unwrap();
            assert_eq!((found.etag(), found.timestamp()), (read.etag(), read.timestamp()));
            assert!(found.has_properties_of(&read));
        }
        assert_eq!(direct.take(), (requests, 0));
    }
}
