//! Tests shared access signatures: published test vectors, every field, every operation, refusals.

use std::net::IpAddr;

use super::*;
use crate::model::Entity;
use crate::rest::protocol::address::Parameters;
use crate::rest::protocol::headers::Version;
use crate::rest::protocol::settings::{Access, Policy};
use crate::rest::protocol::sign::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};

fn key() -> AccountKey {
    AccountKey::read(DEVELOPMENT_KEY).unwrap()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn terms(version: &str, permissions: &str) -> Terms {
    Terms {
        version: Version::known(version),
        permissions: some(permissions),
        expiry: some("2030-01-01T00:00:00Z"),
        ..Terms::default()
    }
}

fn service(version: &str, permissions: &str) -> ServiceSas {
    ServiceSas {
        terms: terms(version, permissions),
        table: "people".into(),
        ..ServiceSas::default()
    }
}

fn account(resource_types: &str, permissions: &str) -> AccountSas {
    AccountSas {
        terms: terms("2019-02-02", permissions),
        services: "t".into(),
        resource_types: resource_types.into(),
        encryption_scope: None,
    }
}

fn query(text: &str) -> Parameters {
    Parameters::read(text).unwrap()
}

fn read(text: &str) -> Result<Option<Sas>, String> {
    Sas::read(&query(text)).map_err(|fault| format!("{} {}", fault.status, fault.code))
}

/// Asserts that `token` reads back as `sas`, and that its signature is valid only for its account.
#[track_caller]
fn check_round_trip(token: &str, sas: Sas) {
    assert_eq!(read(token), Ok(Some(sas.clone())), "{token}");
    assert_eq!(sas.verify(DEVELOPMENT_ACCOUNT, &[key()]), Ok(()));
    assert_eq!(sas.verify("other", &[key()]).unwrap_err().code, "AuthenticationFailed");
    assert_eq!(sas.verify(DEVELOPMENT_ACCOUNT, &[]).unwrap_err().code, "AuthenticationFailed");
}

#[test]
fn vectors_of_services() {
    let bounds = KeyBounds {
        start_partition: some("a"),
        start_row: some("0"),
        end_partition: some("m"),
        end_row: some("9"),
    };
    let mut sas = ServiceSas { bounds, ..service("2019-02-02", "raud") };
    sas.terms.protocols = some("https,http");
    let sas = sas.sign(DEVELOPMENT_ACCOUNT, &key());
    assert_eq!(sas.terms.signature, "gTcSe+NjSpqyZTR+34QG0JARJTFgtbpZepO1ZkP4pHM=");
    assert_eq!(
        sas.token(),
        "tn=people&spk=a&srk=0&epk=m&erk=9&sv=2019-02-02&se=2030-01-01T00%3A00%3A00Z&sp=raud\
         &spr=https%2Chttp&sig=gTcSe%2BNjSpqyZTR%2B34QG0JARJTFgtbpZepO1ZkP4pHM%3D"
    );
    let plain = sas.token().replace("%2B", "+");
    check_round_trip(&plain, Sas::Service(sas.clone()));
    check_round_trip(&sas.token(), Sas::Service(sas));

    let sas = service("2012-02-12", "r").sign(DEVELOPMENT_ACCOUNT, &key());
    assert_eq!(sas.terms.signature, "PMVwKW69AFylIG5R3OJRe3LvVLxHqz61jLlab+YtXc8=");
    check_round_trip(&sas.token(), Sas::Service(sas));
}

#[test]
fn vectors_of_accounts() {
    let mut sas = account("sco", "rwdlacu");
    sas.terms.protocols = some("https,http");
    let old = sas.clone().sign(DEVELOPMENT_ACCOUNT, &key());
    assert_eq!(old.terms.signature, "dKEa4zPUq/dWdOLrCYusn1Jnz45OJCCdBPi+hMWeijk=");
    check_round_trip(&old.token(), Sas::Account(old));
    sas.terms.version = Version::known("2020-12-06");
    let new = sas.sign(DEVELOPMENT_ACCOUNT, &key());
    assert_eq!(new.terms.signature, "aQbb1uM9CNZPJhjuzMWpvrja5t6VW2FlvCUFVvjctAk=");
    check_round_trip(&new.token(), Sas::Account(new.clone()));
    let scoped = AccountSas { encryption_scope: some("x"), ..new };
    check_round_trip(
        &scoped.clone().sign(DEVELOPMENT_ACCOUNT, &key()).token(),
        Sas::Account(scoped.sign(DEVELOPMENT_ACCOUNT, &key())),
    );
}

#[test]
fn lines_of_each_version() {
    let text = |version| service(version, "r").string_to_sign("acme");
    assert_eq!(
        text("2019-02-02"),
        "r\n\n2030-01-01T00:00:00Z\n/table/acme/people\n\n\n\n2019-02-02\n\n\n\n"
    );
    assert_eq!(
        text("2015-02-21"),
        "r\n\n2030-01-01T00:00:00Z\n/table/acme/people\n\n2015-02-21\n\n\n\n"
    );
    assert_eq!(text("2014-02-14"), "r\n\n2030-01-01T00:00:00Z\n/acme/people\n\n2014-02-14\n\n\n\n");
    assert_eq!(text(""), "r\n\n2030-01-01T00:00:00Z\n/acme/people\n");
    let upper = ServiceSas { table: "PeoPle".into(), ..service("2019-02-02", "r") };
    assert_eq!(upper.string_to_sign("acme"), text("2019-02-02"));
}

#[test]
fn any_change_breaks_the_signature() {
    let sas = ServiceSas { policy: some("p"), ..service("2019-02-02", "raud") };
    let token = sas.sign(DEVELOPMENT_ACCOUNT, &key()).token();
    assert!(read(&token).is_ok());
    for (from, to) in [
        ("tn=people", "tn=robots"),
        ("sp=raud", "sp=rau"),
        ("si=p", "si=q"),
        ("2030", "2031"),
        ("sv=2019-02-02", "sv=2018-11-09"),
        ("tn=", "spk=a&tn="),
        ("tn=", "sip=1.2.3.4&tn="),
        ("tn=", "st=2020-01-01&tn="),
        ("sig=", "sig=AAAA"),
        ("sig=", "x="),
    ] {
        let changed = token.replacen(from, to, 1);
        assert_ne!(changed, token);
        if let Some(sas) = read(&changed).unwrap() {
            let fault = sas.verify(DEVELOPMENT_ACCOUNT, &[key()]).unwrap_err();
            assert_eq!((&*fault.code, fault.status), ("AuthenticationFailed", 403), "{changed}");
        }
    }
}

#[test]
fn tokens_that_are_malformed() {
    assert_eq!(read("sv=2019-02-02&tn=people"), Ok(None));
    let failed = Err("403 AuthenticationFailed".to_owned());
    for token in [
        "sig=x",
        "sig=x&sv=2019-02-02",
        "sig=x&sv=nonsense&tn=people",
        "sig=x&sv=&tn=people",
        "sig=x&ss=t",
        "sig=x&srt=o&sv=2019-02-02",
        "sig=x&ss=t&srt=o",
        "sig=x&ss=t&srt=o&sv=2014-02-14",
    ] {
        assert_eq!(read(token), failed, "{token}");
    }
    let mismatch = Err("409 FeatureVersionMismatch".to_owned());
    for token in [
        "sig=x&sv=2014-02-14&tn=people&sip=1.2.3.4",
        "sig=x&sv=2014-02-14&tn=people&spr=https",
        "sig=x&tn=people&spk=a",
        "sig=x&ss=t&srt=o&sv=2019-02-02&ses=x",
    ] {
        assert_eq!(read(token), mismatch, "{token}");
    }
}

#[test]
fn an_empty_bound_of_a_token_is_ignored() {
    // An empty bound and a missing bound result in the same signature. If an empty bound granted
    // more, a client could add it to its token to widen the grant.
    let sas = service("2019-02-02", "r").sign(DEVELOPMENT_ACCOUNT, &key());
    let bare = sas.token();
    for empty in ["&epk=", "&epk=&erk=", "&spk=&srk=&epk=&erk=", "&si="] {
        let token = format!("{bare}{empty}");
        assert_eq!(read(&token), read(&bare), "{token}");
        let read = read(&token).unwrap().unwrap();
        assert_eq!(read.verify(DEVELOPMENT_ACCOUNT, &[key()]), Ok(()));
        let grant = granted(read, None, &now()).unwrap();
        assert_eq!(grant.bounds, KeyBounds::default());
    }
    // A bound with a RowKey but no PartitionKey is refused, even if an empty PartitionKey is given.
    let bounds = KeyBounds { end_row: some("9"), ..KeyBounds::default() };
    let sas = ServiceSas { bounds, ..service("2019-02-02", "r") };
    let token = sas.sign(DEVELOPMENT_ACCOUNT, &key()).token();
    for token in [token.clone(), format!("{token}&epk=")] {
        let grant = granted(read(&token).unwrap().unwrap(), None, &now());
        assert_eq!(grant.unwrap_err(), "403 AuthenticationFailed", "{token}");
    }
}

fn now() -> Circumstances {
    let address = IpAddr::from([10, 1, 2, 3]);
    Circumstances { now: "2025-01-01T00:00:00Z".parse().unwrap(), address, is_https: false }
}

fn granted(
    sas: Sas,
    policy: Option<&Policy>,
    circumstances: &Circumstances,
) -> Result<Grant, String> {
    sas.grant(policy, circumstances).map_err(|fault| format!("{} {}", fault.status, fault.code))
}

/// Returns the grant of a valid token for reads, or the error, after `change` modified its terms.
fn with(change: impl FnOnce(&mut Terms)) -> Result<Grant, String> {
    let mut sas = service("2019-02-02", "r");
    change(&mut sas.terms);
    granted(Sas::Service(sas), None, &now())
}

#[test]
fn times() {
    let at = |start: &str, expiry: &str| {
        with(|terms| (terms.start, terms.expiry) = (some(start), some(expiry))).map(|_| ())
    };
    assert_eq!(at("2025-01-01", "2025-01-01T00:01Z"), Ok(()));
    assert_eq!(at("", "2025-01-02"), Ok(()));
    for (start, expiry) in [
        ("2025-01-01T00:00:01Z", "2026-01-01"),
        ("2024-01-01", "2025-01-01"),
        ("2024-01-01", "2024-06-01"),
        ("soon", "2026-01-01"),
        ("2024-01-01", "later"),
        ("2024-01-01", ""),
    ] {
        assert_eq!(at(start, expiry), Err("403 AuthenticationFailed".into()), "{start} {expiry}");
    }
    assert_eq!(with(|terms| terms.expiry = None).unwrap_err(), "403 AuthenticationFailed");
    let expired = account("sco", "r");
    let late = Circumstances { now: "2030-01-01T00:00:00Z".parse().unwrap(), ..now() };
    assert_eq!(
        granted(Sas::Account(expired), None, &late).unwrap_err(),
        "403 AuthenticationFailed"
    );
}

#[test]
fn tokens_without_a_version_are_valid_for_an_hour() {
    let grant = |start: &str, expiry: &str| {
        let mut sas = service("", "r");
        (sas.terms.start, sas.terms.expiry) = (some(start), some(expiry));
        granted(Sas::Service(sas), None, &now()).map(|_| ())
    };
    assert_eq!(grant("2024-12-31T23:30Z", "2025-01-01T00:30Z"), Ok(()));
    assert_eq!(grant("", "2025-01-01T01:00Z"), Ok(()));
    assert_eq!(grant("", "2025-01-01T01:01Z"), Err("403 AuthenticationFailed".into()));
}

#[test]
fn addresses_and_protocols() {
    let from = |addresses: &str, address: &str| {
        let mut sas = service("2019-02-02", "r");
        sas.terms.addresses = some(addresses);
        let circumstances = Circumstances { address: address.parse().unwrap(), ..now() };
        granted(Sas::Service(sas), None, &circumstances).map(|_| ())
    };
    assert_eq!(from("10.1.2.3", "10.1.2.3"), Ok(()));
    assert_eq!(from("10.1.2.3-10.1.2.5", "10.1.2.5"), Ok(()));
    assert_eq!(from("10.1.2.3-10.1.2.5", "::ffff:10.1.2.4"), Ok(()));
    assert_eq!(from("", "::1"), Ok(()));
    for address in ["10.1.2.2", "10.1.2.6", "::1", "9.255.255.255"] {
        let mismatch = Err("403 AuthorizationSourceIPMismatch".into());
        assert_eq!(from("10.1.2.3-10.1.2.5", address), mismatch, "{address}");
    }
    for addresses in ["x", "10.1.2", "10.1.2.3-", "10.1.2.3/24"] {
        assert_eq!(
            from(addresses, "10.1.2.3"),
            Err("403 AuthenticationFailed".into()),
            "{addresses}"
        );
    }
    let over = |protocols: &str, is_https| {
        let mut sas = account("o", "r");
        sas.terms.protocols = some(protocols);
        granted(Sas::Account(sas), None, &Circumstances { is_https, ..now() }).map(|_| ())
    };
    assert_eq!(
        (over("https", true), over("https,http", false), over("", false)),
        (Ok(()), Ok(()), Ok(()))
    );
    assert_eq!(over("https", false), Err("403 AuthorizationProtocolMismatch".into()));
    assert_eq!(over("http", false), Err("403 AuthenticationFailed".into()));
}

#[test]
fn permissions_are_in_the_prescribed_order() {
    for permissions in ["r", "raud", "rd", "au"] {
        assert!(with(|terms| terms.permissions = some(permissions)).is_ok(), "{permissions}");
    }
    for permissions in ["", "ar", "rr", "x", "rl", "R", "dr"] {
        let grant = with(|terms| terms.permissions = some(permissions));
        assert_eq!(grant.unwrap_err(), "403 AuthenticationFailed", "{permissions}");
    }
    assert_eq!(with(|terms| terms.permissions = None).unwrap_err(), "403 AuthenticationFailed");
}

#[test]
fn stored_policies() {
    let access = Access {
        start: None,
        expiry: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        permissions: some("da"),
    };
    let with = |access| Policy { id: "p".into(), access };
    let policy = with(Some(access.clone()));
    let named = |change: fn(&mut ServiceSas), policy: Option<&Policy>| {
        let mut sas = ServiceSas { policy: some("p"), ..service("2019-02-02", "") };
        (sas.terms.permissions, sas.terms.expiry) = (None, None);
        change(&mut sas);
        granted(Sas::Service(sas), policy, &now())
    };
    let grant = named(|_| (), Some(&policy)).unwrap();
    assert_eq!(grant.check(Action::Insert, Some("People")), Ok(()));
    assert_eq!(
        grant.check(Action::Query, Some("people")).unwrap_err().code,
        "AuthorizationPermissionMismatch"
    );
    assert!(named(|sas| sas.terms.start = some("2024-01-01"), Some(&policy)).is_ok());
    let empty: fn(&mut ServiceSas) = |sas| {
        (sas.terms.permissions, sas.terms.expiry) = (some(""), some(""));
    };
    assert!(named(empty, Some(&policy)).is_ok(), "some clients send empty fields");
    let failed = "403 AuthenticationFailed";
    assert_eq!(named(|_| (), None).unwrap_err(), failed, "revoked");
    let other = Policy { id: "q".into(), ..policy.clone() };
    assert_eq!(named(|_| (), Some(&other)).unwrap_err(), failed);
    let twice = "400 InvalidQueryParameterValue";
    assert_eq!(named(|sas| sas.terms.permissions = some("r"), Some(&policy)).unwrap_err(), twice);
    assert_eq!(
        named(|sas| sas.terms.expiry = some("2027-01-01"), Some(&policy)).unwrap_err(),
        twice
    );
    for bare in [None, Some(Access::default())] {
        assert_eq!(
            named(|_| (), Some(&with(bare))).unwrap_err(),
            failed,
            "neither token nor policy has an expiry"
        );
    }
    let start = Some("2025-06-01T00:00:00Z".parse().unwrap());
    let late = with(Some(Access { start, ..access }));
    assert_eq!(named(|_| (), Some(&late)).unwrap_err(), failed);
}

const ACTIONS: [Action; 13] = [
    Action::GetProperties,
    Action::SetProperties,
    Action::GetStats,
    Action::QueryTables,
    Action::CreateTable,
    Action::DeleteTable,
    Action::Policies,
    Action::Query,
    Action::Get,
    Action::Insert,
    Action::Update,
    Action::Upsert,
    Action::Delete,
];

#[test]
fn a_service_token_is_for_entities_of_its_table() {
    let grant = granted(Sas::Service(service("2019-02-02", "raud")), None, &now()).unwrap();
    for action in ACTIONS {
        let is_of_entities = ACTIONS[7..].contains(&action);
        assert_eq!(grant.check(action, Some("PEOPLE")).is_ok(), is_of_entities, "{action:?}");
        for table in [Some("robots"), None] {
            assert_eq!(grant.check(action, table).unwrap_err().code, "AuthorizationFailure");
        }
    }
    for (permissions, allowed) in [
        ("r", &[Action::Query, Action::Get][..]),
        ("a", &[Action::Insert]),
        ("u", &[Action::Update]),
        ("d", &[Action::Delete]),
        ("au", &[Action::Insert, Action::Update, Action::Upsert]),
    ] {
        for (version, code) in
            [("2019-02-02", "AuthorizationPermissionMismatch"), ("2014-02-14", "ResourceNotFound")]
        {
            let grant = granted(Sas::Service(service(version, permissions)), None, &now()).unwrap();
            for action in &ACTIONS[7..] {
                let result = grant.check(*action, Some("people"));
                match allowed.contains(action) {
                    true => assert_eq!(result, Ok(()), "{permissions} {action:?}"),
                    false => assert_eq!(result.unwrap_err().code, code, "{permissions} {action:?}"),
                }
            }
        }
    }
}

#[test]
fn the_matrix_of_account_tokens() {
    for (action, resource_type, permissions) in [
        (Action::GetProperties, "s", "r"),
        (Action::SetProperties, "s", "w"),
        (Action::GetStats, "s", "r"),
        (Action::QueryTables, "c", "l"),
        (Action::CreateTable, "c", "c"),
        (Action::CreateTable, "c", "w"),
        (Action::DeleteTable, "c", "d"),
        (Action::Query, "o", "r"),
        (Action::Query, "c", "r"),
        (Action::Get, "o", "r"),
        (Action::Insert, "o", "a"),
        (Action::Update, "o", "u"),
        (Action::Upsert, "o", "au"),
        (Action::Delete, "o", "d"),
    ] {
        let check = |types: &str, permissions: &str| {
            let grant = granted(Sas::Account(account(types, permissions)), None, &now()).unwrap();
            grant.check(action, Some("people")).map_err(|fault| fault.code.into_owned())
        };
        assert_eq!(check(resource_type, permissions), Ok(()), "{action:?}");
        for letter in permissions.chars() {
            let less: String =
                "rwdlacu".chars().filter(|c| *c != letter && *c != 'w' && *c != 'c').collect();
            let mismatch = Err("AuthorizationPermissionMismatch".to_owned());
            assert_eq!(check(resource_type, &less), mismatch, "{action:?} without {letter}");
        }
        let others: String = "sco"
            .chars()
            .filter(|c| {
                !(resource_type.contains(*c) || action == Action::Query && "oc".contains(*c))
            })
            .collect();
        let mismatch = Err("AuthorizationResourceTypeMismatch".to_owned());
        assert_eq!(check(&others, "rwdlacu"), mismatch, "{action:?}");
    }
    let all = granted(Sas::Account(account("sco", "rwdlacu")), None, &now()).unwrap();
    assert_eq!(
        all.check(Action::Policies, Some("people")).unwrap_err().code,
        "AuthorizationFailure"
    );
    let blobs = AccountSas { services: "bfq".into(), ..account("sco", "r") };
    assert_eq!(
        granted(Sas::Account(blobs), None, &now()).unwrap_err(),
        "403 AuthorizationServiceMismatch"
    );
}

#[test]
fn bounds_are_inclusive_and_agree_with_their_filter() {
    let keys = ["", "a", "m", "z", "😀", "\u{ff5e}"];
    let ends = [None, some("a"), some("m"), some("\u{ff5e}")];
    let mut counts = [0, 0];
    for start_partition in &ends {
        for start_row in &ends {
            for end_partition in &ends {
                for end_row in &ends {
                    let bounds = KeyBounds {
                        start_partition: start_partition.clone(),
                        start_row: start_row.clone().filter(|_| start_partition.is_some()),
                        end_partition: end_partition.clone(),
                        end_row: end_row.clone().filter(|_| end_partition.is_some()),
                    };
                    for partition in keys {
                        for row in keys {
                            let contains = bounds.contain(partition, row);
                            let filter = bounds.filter();
                            let entity = Entity::new(partition, row);
                            let says = filter.is_none_or(|filter| filter.matches(&entity));
                            assert_eq!(contains, says, "{bounds:?} {partition} {row}");
                            counts[usize::from(contains)] += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(counts[0] > 1000 && counts[1] > 1000, "{counts:?}");
    let bounds = KeyBounds {
        start_partition: some("b"),
        start_row: some("2"),
        end_partition: some("d"),
        end_row: some("4"),
    };
    for (partition, row, expected) in [
        ("b", "1", false),
        ("b", "2", true),
        ("b", "9", true),
        ("c", "", true),
        ("d", "4", true),
        ("d", "5", false),
        ("a", "9", false),
        ("e", "0", false),
    ] {
        assert_eq!(bounds.contain(partition, row), expected, "{partition} {row}");
    }
}

#[test]
fn keys_outside_are_refused() {
    let bounds = KeyBounds { start_partition: some("b"), ..KeyBounds::default() };
    let sas = ServiceSas { bounds: bounds.clone(), ..service("2019-02-02", "r") };
    let grant = granted(Sas::Service(sas), None, &now()).unwrap();
    assert_eq!((grant.check_keys("b", ""), &grant.bounds), (Ok(()), &bounds));
    let fault = grant.check_keys("a", "x").unwrap_err();
    assert_eq!((&*fault.code, fault.status), ("AuthorizationFailure", 403));
    let row_only = KeyBounds { end_row: some("b"), ..KeyBounds::default() };
    let sas = ServiceSas { bounds: row_only, ..service("2019-02-02", "r") };
    assert_eq!(granted(Sas::Service(sas), None, &now()).unwrap_err(), "403 AuthenticationFailed");
}
