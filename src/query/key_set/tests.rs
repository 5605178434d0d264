//! Checks which texts a set of texts contains, after each operation. The tests of `plan` cover sets
//! of keys.

use super::*;
use crate::rng::Rng;

const LITERALS: [&str; 7] = ["", "a", "a\0", "a\0b", "b", "😀", "～"];
/// The literals that can be keys, and texts between them.
const TEXTS: [&str; 10] = ["", " ", "a", "a ", "b", "b ", "😀", "😀 ", "～", "～ "];

const OPS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

/// A set, and for each of [`TEXTS`] whether the set must contain it, computed by comparing texts.
type Example = (Texts<'static>, Vec<bool>);

fn compared(op: CompareOp, literal: &'static str) -> Example {
    let is_in = |text: &&str| {
        let order = text.encode_utf16().cmp(literal.encode_utf16());
        match op {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Ne => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Le => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Ge => order.is_ge(),
        }
    };
    (Texts::compared(op, literal), TEXTS.iter().map(is_in).collect())
}

fn combined(a: &Example, b: &Example, op: Op) -> Example {
    let is_in = a.1.iter().zip(&b.1).map(|(a, b)| op.decide(*a, *b)).collect();
    (a.0.combine_at_once(&b.0, op).unwrap_or_else(|| a.0.combine(&b.0, op)), is_in)
}

fn random(rng: &mut Rng) -> Example {
    let mut set = compared(*rng.pick(&OPS), LITERALS[rng.index(LITERALS.len())]);
    for _ in 0..rng.index(5) {
        let other = compared(*rng.pick(&OPS), LITERALS[rng.index(LITERALS.len())]);
        set = combined(&set, &other, if rng.chance(1, 2) { Op::And } else { Op::Or });
    }
    if rng.chance(1, 4) {
        set = (set.0.complement(), set.1.iter().map(|is_in| !is_in).collect());
    }
    set
}

fn holds(segment: (Cut<'_>, Option<Cut<'_>>), text: &str) -> bool {
    let at = Cut { text, after: true };
    segment.0 < at && segment.1.is_none_or(|high| at <= high)
}

fn check((set, is_in): &Example) {
    for (text, is_in) in TEXTS.iter().zip(is_in) {
        let held = set.segments().filter(|segment| holds(*segment, text)).count();
        assert_eq!(held, usize::from(*is_in), "{text:?} in {set:?}");
        let hull = set.hull().is_some_and(|hull| holds(hull, text));
        assert!(hull || !is_in, "{text:?} in the hull of {set:?}");
    }
    assert!(set.flips().is_sorted_by(|a, b| a < b), "{set:?}");
    assert!(!set.flips().contains(&Cut::START), "{set:?}");
    assert_eq!(set.is_none(), !is_in.contains(&true), "{set:?}");
    assert_eq!(set.is_all(), !is_in.contains(&false), "{set:?}");
    let first = set.segments().next().map(|segment| segment.0);
    let last = set.segments().last().map(|segment| segment.1);
    assert_eq!(set.hull(), first.zip(last), "{set:?}");
}

#[test]
fn sets_of_comparisons_agree_with_their_texts() {
    for op in OPS {
        LITERALS.iter().for_each(|literal| check(&compared(op, literal)));
    }
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let (a, b) = (random(&mut rng), random(&mut rng));
        for op in [Op::And, Op::Or] {
            check(&combined(&a, &b, op));
        }
        let both = combined(&a, &b, Op::And);
        assert_eq!(a.0.meets(&b.0), both.1.contains(&true), "{:?} {:?}", a.0, b.0);
        assert_eq!(a.0 == b.0, a.1 == b.1, "{:?} {:?}", a.0, b.0);
    }
}
