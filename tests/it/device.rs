//! Simulates an unattended device, with power cuts every few seconds, clocks that start in 1970 and
//! jump, and unreadable blocks. `DEVICE=n` simulates n hours instead of three.

use std::time::Duration;

use rowstone::sim::activate;
use rowstone::sim::device::{Life, Report};
use rowstone::sim::program::quietly;

use crate::say;

/// Returns a device to simulate for some hours. Its rows have a time to live of 45 minutes.
fn life(seed: u64) -> Life {
    let hours = crate::cases("DEVICE", 3);
    Life::new(seed, Duration::from_secs(hours * 3_600))
}

fn check(report: &Report) {
    assert!(report.failure.is_none(), "{report}");
    let never: Vec<_> = report.figures.all().into_iter().filter(|figure| figure.2 == 0).collect();
    // These counts may be 0: it depends on the clocks whether any row expires, and how late.
    let may_be = |name: &str| name.starts_with("late_") || name == "expired";
    let missing: Vec<_> = never.iter().filter(|figure| !may_be(figure.0)).collect();
    assert!(missing.is_empty(), "never met: {missing:?}\n{report}");
}

#[test]
fn trap_18_trap_35_trap_56_an_unattended_device_keeps_its_data() {
    for seed in [1, 2] {
        let report = life(seed).run();
        check(&report);
        say(&report);
    }
}

#[test]
fn the_life_of_a_device_replays_bit_for_bit() {
    let life = |seed| Life::new(seed, Duration::from_secs(1_800));
    let first = life(3).run();
    assert_eq!(first, life(3).run());
    assert_ne!(first.digest, life(4).run().digest);
    assert!(first.failure.is_none(), "{first}");
}

/// The device simulation must detect these mutants (deliberate bugs) in protocols that a power cut
/// can interrupt.
#[test]
fn the_life_of_a_device_detects_mutants() {
    for name in ["unsynced-log", "forget-ceiling", "half-group"] {
        let active = activate(name);
        let found = quietly(|| (0..4).find_map(|seed| life(seed).run().failure));
        assert!(found.is_some(), "{name} was not detected");
        drop(active);
    }
}

/// A device that trusts a clock that is decades ahead loses readings of the last minutes. The
/// simulation must detect that.
#[test]
fn trap_56_expiry_that_trusts_every_clock_jump_is_detected() {
    let trusting = |seed| Life { trusts_clock_jumps: true, begins_in_1970: false, ..life(seed) };
    let failure = (0..4).find_map(|seed| trusting(seed).run().failure).expect("noticed");
    assert!(failure.what.contains("is gone after"), "{failure}");
}
