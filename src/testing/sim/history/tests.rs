//! Tests [`check`] with hand-written histories that are linearizable or not, and compares small
//! random histories with a search of all orders.

use super::*;
use crate::rng::Rng;

use Answer::{Found, Refused, Written};

const ONE: Pair = Pair(1, 1);
const TWO: Pair = Pair(2, 2);

/// Returns a call of thread `thread` from `invoked` to `returned`, on key 7.
fn call(thread: usize, (invoked, returned): (u64, u64), op: Op, answer: Answer) -> Call {
    Call { thread, key: 7, op, answer, invoked, returned }
}

#[track_caller]
fn good(calls: &[Call]) {
    assert_eq!(check(calls), Ok(()));
    assert_eq!(check_tags(calls), Ok(()));
}

/// Expects that no order is found, and that the explanation lists exactly the calls of these
/// threads.
#[track_caller]
fn bad(calls: &[Call], threads: &[usize]) {
    let Err(Fault::NotLinearizable(text)) = check(calls) else { panic!("accepted: {calls:#?}") };
    let threads: Vec<String> = threads.iter().map(|thread| format!("thread {thread}:")).collect();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("thread")).collect();
    let core: Vec<&str> = lines.into_iter().filter(|line| !line.ends_with("(context)")).collect();
    assert_eq!(core.len(), threads.len(), "{text}");
    assert!(core.iter().zip(&threads).all(|(line, thread)| line.contains(thread)), "{text}");
}

#[test]
fn sequential_calls_must_take_effect_in_order() {
    good(&[]);
    good(&[
        call(0, (0, 1), Op::Get, Found(None)),
        call(0, (2, 3), Op::Merge(3, None), Refused(Refusal::Missing)),
        call(0, (4, 5), Op::Insert(ONE), Written(Some(10))),
        call(0, (6, 7), Op::Insert(TWO), Refused(Refusal::Exists)),
        call(0, (8, 9), Op::Replace(TWO, Some(10)), Written(Some(11))),
        call(0, (10, 11), Op::Delete(Some(10)), Refused(Refusal::Condition)),
        call(0, (12, 13), Op::Merge(3, Some(11)), Written(Some(12))),
        call(0, (14, 15), Op::Get, Found(Some((12, Pair(2, 3))))),
        call(0, (16, 17), Op::Delete(Some(12)), Written(None)),
        call(0, (18, 19), Op::Get, Found(None)),
    ]);
}

#[test]
fn calls_that_overlap_may_take_effect_in_any_order() {
    // The write that is invoked second takes effect first. A read between the effects of the two
    // writes sees only `TWO`.
    good(&[
        call(0, (0, 5), Op::Upsert(ONE), Written(Some(11))),
        call(1, (1, 6), Op::Upsert(TWO), Written(Some(10))),
        call(2, (2, 3), Op::Get, Found(Some((10, TWO)))),
        call(2, (7, 8), Op::Get, Found(Some((11, ONE)))),
    ]);
}

#[test]
fn a_stale_read_is_rejected() {
    bad(
        &[
            call(0, (0, 1), Op::Upsert(ONE), Written(Some(10))),
            call(0, (2, 3), Op::Upsert(TWO), Written(Some(11))),
            call(1, (4, 5), Op::Get, Found(Some((10, ONE)))),
        ],
        &[1],
    );
    // The same read is linearizable if it began before the second write was answered.
    good(&[
        call(0, (0, 1), Op::Upsert(ONE), Written(Some(10))),
        call(0, (2, 4), Op::Upsert(TWO), Written(Some(11))),
        call(1, (3, 5), Op::Get, Found(Some((10, ONE)))),
    ]);
}

#[test]
fn a_lost_update_is_rejected() {
    bad(
        &[
            call(0, (0, 1), Op::Upsert(ONE), Written(Some(10))),
            call(0, (2, 3), Op::Replace(TWO, Some(10)), Written(Some(11))),
            call(1, (4, 5), Op::Get, Found(Some((10, ONE)))),
            call(1, (6, 7), Op::Get, Found(Some((10, ONE)))),
        ],
        &[1],
    );
}

#[test]
fn two_winners_are_rejected() {
    bad(
        &[
            call(0, (0, 3), Op::Insert(ONE), Written(Some(10))),
            call(2, (1, 4), Op::Get, Found(None)),
            call(1, (2, 5), Op::Insert(TWO), Written(Some(11))),
        ],
        &[0, 1],
    );
    bad(
        &[
            call(0, (0, 1), Op::Insert(ONE), Written(Some(10))),
            call(1, (2, 5), Op::Replace(TWO, Some(10)), Written(Some(11))),
            call(2, (3, 4), Op::Delete(Some(10)), Written(None)),
        ],
        &[1, 2],
    );
}

#[test]
fn a_read_of_an_unwritten_value_is_rejected() {
    // The read returned the value of an insert that was refused, as if the insert had taken effect
    // and been rolled back.
    bad(
        &[
            call(0, (0, 1), Op::Insert(ONE), Written(Some(10))),
            call(1, (2, 5), Op::Insert(TWO), Refused(Refusal::Exists)),
            call(2, (3, 4), Op::Get, Found(Some((11, TWO)))),
        ],
        &[2],
    );
}

#[test]
fn reads_that_go_back_in_time_are_rejected() {
    // The second write is open during both reads. Each read may return the old or the new row, but
    // a later read must not return the old row after an earlier read returned the new one.
    bad(
        &[
            call(0, (0, 1), Op::Upsert(ONE), Written(Some(10))),
            call(1, (2, 9), Op::Replace(TWO, Some(10)), Written(Some(11))),
            call(2, (3, 4), Op::Get, Found(Some((11, TWO)))),
            call(3, (5, 6), Op::Get, Found(Some((10, ONE)))),
        ],
        &[1, 2, 3],
    );
}

#[test]
fn an_unjustified_refusal_is_rejected() {
    bad(&[call(0, (0, 1), Op::Insert(ONE), Refused(Refusal::Exists))], &[0]);
    bad(
        &[
            call(0, (0, 1), Op::Insert(ONE), Written(Some(10))),
            call(1, (2, 3), Op::Merge(5, Some(10)), Refused(Refusal::Condition)),
        ],
        &[1],
    );
    // The second insert was refused because the row existed, but a later read does not find the
    // row. So the refusal depended on unpublished data.
    bad(
        &[
            call(0, (0, 7), Op::Insert(ONE), Written(Some(10))),
            call(1, (1, 2), Op::Insert(TWO), Refused(Refusal::Exists)),
            call(1, (3, 4), Op::Get, Found(None)),
        ],
        &[0, 1, 1],
    );
}

#[test]
fn a_merge_keeps_the_properties_that_it_does_not_name() {
    bad(
        &[
            call(0, (0, 1), Op::Insert(ONE), Written(Some(10))),
            call(0, (2, 3), Op::Merge(5, None), Written(Some(11))),
            call(0, (4, 5), Op::Get, Found(Some((11, Pair(0, 5))))),
        ],
        &[0],
    );
}

#[test]
fn an_unanswered_call_may_or_may_not_have_taken_effect() {
    let write = call(0, (0, NEVER), Op::Insert(ONE), Written(None));
    let seen = Found(Some((10, ONE)));
    good(&[write, call(1, (1, 2), Op::Get, Found(None))]);
    good(&[write, call(1, (1, 2), Op::Get, Found(None)), call(1, (3, 4), Op::Get, seen)]);
    bad(
        &[write, call(1, (1, 2), Op::Get, seen), call(1, (3, 4), Op::Get, Found(None))],
        &[0, 1, 1],
    );
    // The tag of the write is unknown. The first read that returns the row determines the tag, and
    // the second read returns another tag.
    let other = Found(Some((11, ONE)));
    bad(&[write, call(1, (1, 2), Op::Get, seen), call(1, (3, 4), Op::Get, other)], &[0, 1, 1]);
}

#[test]
fn etags_that_do_not_grow_are_rejected() {
    let first = call(0, (0, 1), Op::Upsert(ONE), Written(Some(11)));
    let second = Call { key: 8, ..call(1, (2, 3), Op::Upsert(TWO), Written(Some(10))) };
    // `check` accepts the history, because it looks at each key separately. `check_tags` rejects
    // it, because the later write, to another key, has the smaller tag.
    assert_eq!(check(&[first, second]), Ok(()));
    assert!(check_tags(&[first, second]).is_err());
    let same = Call { invoked: 0, answer: Written(Some(11)), ..second };
    assert_eq!(check_tags(&[first, same]), Ok(()), "calls with one tag may be one commit");
    assert!(check_tags(&[Call { returned: 4, ..first }, Call { invoked: 1, ..same }]).is_err());
}

#[test]
fn too_many_concurrent_calls_are_undecided() {
    let calls: Vec<Call> = (0..65)
        .map(|n| call(n, (n as u64, 100 + n as u64), Op::Upsert(ONE), Written(Some(n as u64))))
        .collect();
    assert!(matches!(check(&calls), Err(Fault::Undecided(_))));
    // 24 unconditional writes have 24! orders, and 2^23 configurations when the last of them is
    // answered.
    assert!(matches!(check(&calls[..24]), Err(Fault::Undecided(_))));
    good(&calls[..8]);
}

#[test]
fn logs_of_threads_are_put_together() {
    let moments = Moments::new();
    let (mut a, mut b) = (moments.log(0), moments.log(1));
    let insert = a.invoke(1, Op::Insert(ONE));
    let get = b.invoke(1, Op::Get);
    b.answer(get, Found(None));
    a.answer(insert, Written(Some(10)));
    b.invoke(1, Op::Delete(None));
    let calls = [a.into_calls(), b.into_calls()].concat();
    assert_eq!(calls.iter().map(|c| c.invoked).collect::<Vec<_>>(), [0, 1, 4]);
    assert_eq!(calls.iter().map(|c| c.returned).collect::<Vec<_>>(), [3, 2, NEVER]);
    good(&calls);
}

/// Whether some order explains all calls. In such an order, each call precedes all calls that began
/// after its answer.
fn naive(state: State, left: &[Call]) -> bool {
    // A call that was never answered need not have taken effect.
    if left.iter().all(|call| call.returned == NEVER) {
        return true;
    }
    let first_answer = left.iter().map(|call| call.returned).min().unwrap_or(NEVER);
    (0..left.len()).any(|index| {
        let mut rest = left.to_vec();
        let call = rest.remove(index);
        call.invoked < first_answer && apply(state, &call).is_some_and(|state| naive(state, &rest))
    })
}

/// Returns random calls. Most answers are right for a store that executes the calls in some order,
/// which may differ from the listed order.
fn random_history(rng: &mut Rng) -> Vec<Call> {
    let mut moments: Vec<u64> = (0..12).collect();
    for at in (1..moments.len()).rev() {
        moments.swap(at, rng.index(at + 1));
    }
    let mut state: State = None;
    let mut calls: Vec<Call> = Vec::new();
    for (n, pair) in moments.chunks(2).enumerate() {
        let row = Pair(n as i64, n as i64);
        let demand = rng.chance(1, 2).then(|| 10 + rng.below(6));
        let op = match rng.below(8) {
            0..3 => Op::Get,
            3 => Op::Insert(row),
            4 => Op::Upsert(row),
            5 => Op::Replace(row, demand),
            6 => Op::Merge(n as i64, demand),
            _ => Op::Delete(demand),
        };
        let tag = if op == Op::Delete(demand) { None } else { Some(10 + n as u64) };
        let found = Found(state.map(|(tag, row)| (tag.unwrap_or(0), row)));
        let refused = [Refusal::Exists, Refusal::Missing, Refusal::Condition].map(Refused);
        let fits = [found, Written(tag)].into_iter().chain(refused).find_map(|answer| {
            let call = call(n, (0, 0), op, answer);
            apply(state, &call).map(|state| (state, answer))
        });
        let (next, answer) = fits.expect("a store has an answer to everything");
        state = next;
        let (invoked, mut returned) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
        if answer == Written(tag) && rng.chance(1, 8) {
            returned = NEVER;
        }
        calls.push(call(n, (invoked, returned), op, answer));
    }
    calls
}

#[test]
fn small_histories_agree_with_a_search_of_all_orders() {
    let mut rng = Rng::from_seed(1990);
    let mut accepted = 0;
    for n in 0..20_000 {
        let calls = random_history(&mut rng);
        let expected = naive(None, &calls);
        let found = check(&calls);
        assert_eq!(found.is_ok(), expected, "{n}: {found:?}\n{calls:#?}");
        assert!(!matches!(found, Err(Fault::Undecided(_))));
        accepted += u32::from(expected);
    }
    assert!((2_000..18_000).contains(&accepted), "{accepted} of 20000 are linearizable");
}
