//! Tests decisions and the errors of malformed rules.

use super::*;
use crate::clock::ManualClock;

fn behaviour(rules: &str, seed: u64) -> Behaviour {
    Behaviour::read(rules, seed).unwrap().with_clock(Arc::new(ManualClock::new(0)))
}

fn timed(rules: &str) -> (Behaviour, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(0));
    let shared = Arc::clone(&clock) as Arc<dyn Clock>;
    (Behaviour::read(rules, 1).unwrap().with_clock(shared), clock)
}

fn asked<'a>(operation: Operation, partition: &'a str, rest: &'a [&'a str]) -> Asked<'a> {
    Asked { account: "", operation, table: "Tab", partition: Some(partition), rest }
}

/// Inserts ten rows four times each, in this order of rows; returns the decisions by row.
fn decisions(behaviour: &Behaviour, rows: impl Iterator<Item = u64> + Clone) -> Vec<Vec<Decision>> {
    let mut all = vec![Vec::new(); 10];
    for _ in 0..4 {
        for row in rows.clone() {
            let text = row.to_string();
            let decision = behaviour.decide(&asked(Operation::Insert, "p", &[&*text]));
            all[row as usize].push(decision);
        }
    }
    all
}

#[test]
fn decisions_do_not_depend_on_the_order_of_other_requests() {
    let rules = r#"[
        {"do":"delay","percent":30,"ms":[1,900]},
        {"do":"cut","percent":20},
        {"do":"busy","percent":25},
        {"do":"lost","every":3}
    ]"#;
    let first = decisions(&behaviour(rules, 7), 0..10);
    let noisy = behaviour(rules, 7);
    for row in 0..50 {
        noisy.decide(&asked(Operation::Get, "q", &[&*row.to_string()]));
    }
    assert_eq!(first, decisions(&noisy, (0..10).rev()));
    assert_ne!(first, decisions(&behaviour(rules, 8), 0..10));
    assert!(first.iter().all(|row| row[2].fate.is_some()), "each third one is lost or worse");
    assert!(first.iter().flatten().any(|decision| decision.fate.is_none()));
}

#[test]
fn a_rule_applies_to_its_requests_only() {
    let rules = r#"[
        {"do":"busy","table":"tab","prefix":"2024-","operations":["insert","commit"]},
        {"do":"timeout","partition":"q","first":2}
    ]"#;
    let behaviour = behaviour(rules, 1);
    let fate = |asked: Asked<'_>| behaviour.decide(&asked).fate;
    let busy = Some(Fate::Refused(Code::ServerBusy));
    assert_eq!(fate(asked(Operation::Insert, "2024-05", &["r"])), busy);
    assert_eq!(fate(asked(Operation::Commit, "2024-", &["r", "s"])), busy);
    assert_eq!(fate(asked(Operation::Merge, "2024-05", &["r"])), None);
    assert_eq!(fate(asked(Operation::Insert, "2023-05", &["r"])), None);
    let of_table = |table| Asked { table, ..asked(Operation::Insert, "2024-05", &["r"]) };
    assert_eq!(fate(of_table("Other")), None);
    let late = Some(Fate::Refused(Code::OperationTimedOut));
    let times = [(); 3].map(|()| fate(asked(Operation::Get, "q", &["r"])));
    assert_eq!(times, [late, late, None]);
    assert_eq!(fate(asked(Operation::Get, "q", &["s"])), late, "another request");
    let done: Vec<_> = behaviour.done().collect();
    assert_eq!(done, [("busy 1", "busy", 2), ("timeout 2", "timeout", 3)]);
}

#[test]
fn rates_are_of_partitions_and_accounts() {
    let (behaviour, clock) = timed(r#"[{"do":"busy","rate":{"partition":5,"account":8}}]"#);
    let passed = |asked: Asked<'_>| behaviour.decide(&asked).fate.is_none();
    let many = |partition, account| {
        let inserted = (0..20).filter(|row| {
            let row = row.to_string();
            passed(Asked { account, ..asked(Operation::Insert, partition, &[&*row]) })
        });
        inserted.count()
    };
    assert_eq!((many("p", "a"), many("q", "a"), many("p", "b")), (5, 3, 5));
    clock.advance(Duration::from_secs(1));
    assert_eq!(many("p", "a"), 5);
    clock.advance(Duration::from_secs(2));
    let group = asked(Operation::Commit, "p", &["1", "2", "3"]);
    assert!(passed(group) && !passed(group), "a group costs its entities");
}

#[test]
fn rules_have_times_and_partitions_are_offline_once_in_a_period() {
    let (behaviour, clock) = timed(
        r#"[{"do":"timeout","from":10,"until":12,"operations":["get"]},
            {"do":"move","period":100,"offline":[10,20],"operations":["insert"]}]"#,
    );
    let fate = |asked: Asked<'_>| behaviour.decide(&asked).fate.is_some();
    let (mut late, mut offline) = (Vec::new(), Vec::new());
    let scan = Asked { partition: None, ..asked(Operation::Insert, "", &[]) };
    for second in 0..200 {
        late.extend(fate(asked(Operation::Get, "p", &["r"])).then_some(second));
        offline.extend(fate(asked(Operation::Insert, "p", &["r"])).then_some(second));
        assert!(!fate(scan), "it names no partition");
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(late, [10, 11]);
    for period in [0..100, 100..200] {
        let times: Vec<_> = offline.iter().filter(|second| period.contains(*second)).collect();
        assert!((10..=21).contains(&times.len()), "{offline:?}");
        assert_eq!(*times[times.len() - 1] - times[0] + 1, times.len() as i32, "it is one move");
    }
}

#[test]
fn profiles_are_rules_and_flaky_has_all_kinds() {
    for (name, rules) in PROFILES {
        let behaviour = behaviour(rules, 1);
        for row in 0..3_000 {
            let row = row.to_string();
            behaviour.decide(&asked(Operation::Query, "p", &[&*row]));
        }
        // Nothing is deleted, and no partition is offline at the start.
        let idle = behaviour.done().filter(|(_, _, count)| *count == 0).count();
        assert_eq!(idle, if name == "rebalancing" { 2 } else { 0 }, "{name}");
    }
}

#[test]
fn delays_have_their_distribution_and_cap() {
    let rules = r#"[{"do":"delay","mean_ms":100,"cap_ms":300,"partition":"e"},
                    {"do":"delay","ms":[20,40],"partition":"u"}]"#;
    let behaviour = behaviour(rules, 1);
    let delays = |partition| {
        let rows = (0..2_000).map(|row| {
            let row = row.to_string();
            behaviour.decide(&asked(Operation::Get, partition, &[&*row])).delay.as_micros() as u64
        });
        rows.collect::<Vec<_>>()
    };
    let exponential = delays("e");
    assert_eq!(exponential.iter().max(), Some(&300_000));
    let mean = exponential.iter().sum::<u64>() / 2_000;
    assert!((85_000..105_000).contains(&mean), "{mean}");
    assert!(delays("u").iter().all(|delay| (20_000..=40_000).contains(delay)));
}

#[test]
fn a_clock_is_fast_for_a_time() {
    let (behaviour, clock) = timed(r#"[{"do":"skew","seconds":-1200,"from":5}]"#);
    assert_eq!(behaviour.skew(), 0);
    clock.advance(Duration::from_secs(5));
    assert_eq!(behaviour.skew(), -1200 * TICKS_PER_SECOND.cast_signed());
}

#[test]
fn the_partition_of_a_filter() {
    for (filter, partition) in [
        ("PartitionKey eq 'p'", Some("p")),
        ("A gt 1 and (PartitionKey eq 'p' and RowKey lt 'x')", Some("p")),
        ("PartitionKey eq 'p' or A gt 1", None),
        ("PartitionKey ge 'p'", None),
    ] {
        let filter: Filter = filter.parse().unwrap();
        assert_eq!(partition_of(&filter), partition);
    }
}

#[test]
fn errors_name_the_rule_and_the_field() {
    for (rules, problem) in [
        ("{}", "the rules are not a list in JSON: "),
        ("[1]", "rule 1 is not an object"),
        ("[{}]", "rule 1: \"do\" is missing"),
        (r#"[{"do":"sleep"}]"#, "rule 1 (sleep): \"do\" is not an action"),
        (
            r#"[{"do":"busy"},{"do":"busy","pecent":1}]"#,
            "rule 2 (busy): \"pecent\" is not a field of such a rule",
        ),
        (r#"[{"do":"busy","ms":1}]"#, "rule 1 (busy): \"ms\" is not a field of such a rule"),
        (
            r#"[{"do":"busy","percent":101}]"#,
            "rule 1 (busy): \"percent\" is not a number from 0 to 100",
        ),
        (
            r#"[{"do":"busy","percent":1,"every":2}]"#,
            "rule 1 (busy): only one of \"percent\", \"every\", \"first\" and \"rate\"",
        ),
        (r#"[{"do":"busy","every":0}]"#, "rule 1 (busy): \"every\" is not a whole number from 1"),
        (
            r#"[{"do":"busy","operations":["put"]}]"#,
            "rule 1 (busy): \"operations\" has another than create_table, ",
        ),
        (r#"[{"do":"busy","table":1}]"#, "rule 1 (busy): \"table\" is not a text"),
        (
            r#"[{"do":"busy","rate":"2011"}]"#,
            "rule 1 (busy): \"rate\" is not \"2010\", \"service\" or an object",
        ),
        (
            r#"[{"do":"busy","rate":{"second":1}}]"#,
            "rule 1 (busy): \"rate\" has other fields than \"partition\" and \"account\"",
        ),
        (r#"[{"do":"busy","from":2,"until":2}]"#, "rule 1 (busy): \"until\" is not after \"from\""),
        (
            r#"[{"do":"busy"},{"do":"lost","name":"busy 1"}]"#,
            "rule 2: \"name\" is \"busy 1\", as of rule 1",
        ),
        (r#"[{"do":"delay"}]"#, "rule 1 (delay): \"ms\" is missing, and so is \"mean_ms\""),
        (r#"[{"do":"delay","ms":[2,1]}]"#, "rule 1 (delay): \"ms\" has its least number second"),
        (
            r#"[{"do":"empty_page"}]"#,
            "rule 1 (empty_page): \"percent\" must be below 100, or \"first\" given",
        ),
        (r#"[{"do":"skew"}]"#, "rule 1 (skew): \"seconds\" is missing"),
        (
            r#"[{"do":"skew","seconds":1,"percent":1}]"#,
            "rule 1 (skew): \"percent\" is not a field of such a rule",
        ),
        (
            r#"[{"do":"move","period":5}]"#,
            "rule 1 (move): \"period\" is shorter than the time offline",
        ),
    ] {
        let error = Behaviour::read(rules, 1).unwrap_err();
        assert!(error.message().starts_with(problem), "{}", error.message());
    }
}
