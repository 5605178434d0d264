//! Histories of overlapping calls, and a check that some order of the calls explains every answer
//! (linearizability). Moments are values of one shared counter, not times. Each key is checked
//! separately.
//!
//! [`check`] searches each key by the algorithm of Wing and Gong with Lowe's cache. A configuration
//! is a state of the key and the set of open calls that took effect. When a call is answered, open
//! calls are applied in all orders, and only configurations in which the call took effect with that
//! answer remain. If none remains, no order explains the answers. The search only compares tags for
//! equality; [`check_tags`] checks that tags grow. A key with too many open calls or configurations
//! has the result [`Fault::Undecided`].

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of configurations of a key at one moment.
const CONFIGURATIONS_MAX: usize = 100_000;
/// The maximum number of open calls of a key at one moment, because a set of open calls has 64
/// bits.
const OPEN_MAX: usize = 64;
/// The explanation of a fault is shortened only if it has at most this many calls, because each
/// attempt to shorten it is a search.
const SHRINK_MAX: usize = 2_000;
/// The moment of an answer that was never received.
const NEVER: u64 = u64::MAX;

/// The contents of a row: two numbers, so that a merge can change one and keep the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair(pub i64, pub i64);

/// A call on one key. An `Option<u64>` is the tag that the row must have, if the call demands one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads the row.
    Get,
    /// Writes a row that must not exist.
    Insert(Pair),
    /// Writes the row unconditionally.
    Upsert(Pair),
    /// Replaces an existing row.
    Replace(Pair, Option<u64>),
    /// Sets the second number of an existing row.
    Merge(i64, Option<u64>),
    /// Deletes an existing row.
    Delete(Option<u64>),
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A read succeeded: the tag and the row, if there is one.
    Found(Option<(u64, Pair)>),
    /// A write took effect. Has the tag of the row; `None` for a delete, or if the tag was not
    /// requested or not received.
    Written(Option<u64>),
    /// A write was refused and did not take effect.
    Refused(Refusal),
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The row exists.
    Exists,
    /// The row does not exist.
    Missing,
    /// The row has another tag.
    Condition,
}

/// A call, from its invocation to its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number of the calling thread, for messages.
    pub thread: usize,
    /// The key.
    pub key: u32,
    /// The operation.
    pub op: Op,
    /// The answer. A call that was never answered has [`Answer::Written`], and may or may not have
    /// taken effect.
    pub answer: Answer,
    /// The moment before the call was made.
    pub invoked: u64,
    /// The moment after the call was answered, or `u64::MAX` if it never was.
    pub returned: u64,
}

/// The counter from which threads take their moments.
#[derive(Debug, Default)]
pub struct Moments(AtomicU64);

/// The calls of one thread, logged while they are made.
#[derive(Debug)]
pub struct Log<'m> {
    moments: &'m Moments,
    thread: usize,
    calls: Vec<Call>,
}

/// A logged call that was not answered yet. If the `Open` is dropped, the call stays unanswered.
#[derive(Debug)]
pub struct Open(usize);

/// Why a history is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No order of the calls explains the answers; the text explains why.
    NotLinearizable(String),
    /// The search gave up, because too many calls were open at the same time, or too many
    /// configurations were possible.
    Undecided(String),
}

/// The tag and the row of a key, if it has a row; the tag is `None` while it is unknown.
type State = Option<(Option<u64>, Pair)>;

/// A possible state of the key, and the set of open calls that took effect to reach it.
type Configuration = (State, u64);

/// The search over the calls of one key.
struct Search<'c> {
    calls: &'c [Call],
    /// The open calls. The position of a call here is its slot, the number of its bit in
    /// configurations.
    open: Vec<Option<usize>>,
    configurations: HashSet<Configuration>,
}

/// The result of a search.
enum Outcome {
    Explained,
    TooMuch,
    /// The call with an unexplained answer, the last moment without open calls, and the possible
    /// states at that moment.
    Stuck(usize, u64, Vec<State>),
}

impl Moments {
    /// Creates a counter that starts at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the next moment. Memory writes made before a moment is taken are visible to every
    /// thread that takes a later moment.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel)
    }

    /// Returns an empty log for `thread`.
    pub fn log(&self, thread: usize) -> Log<'_> {
        Log { moments: self, thread, calls: Vec::new() }
    }
}

impl Log<'_> {
    /// Logs that a call is about to be made.
    pub fn invoke(&mut self, key: u32, op: Op) -> Open {
        let invoked = self.moments.next();
        self.invoke_at(invoked, key, op)
    }

    /// As [`invoke`](Self::invoke), at a moment that was taken earlier. Keys that are read together
    /// share their moments.
    pub fn invoke_at(&mut self, invoked: u64, key: u32, op: Op) -> Open {
        let (thread, answer) = (self.thread, Answer::Written(None));
        self.calls.push(Call { thread, key, op, answer, invoked, returned: NEVER });
        Open(self.calls.len() - 1)
    }

    /// Logs the answer that a call just received.
    pub fn answer(&mut self, call: Open, answer: Answer) {
        let returned = self.moments.next();
        self.answer_at(returned, call, answer);
    }

    /// As [`answer`](Self::answer), at a moment that was taken earlier.
    pub fn answer_at(&mut self, returned: u64, call: Open, answer: Answer) {
        let call = &mut self.calls[call.0];
        (call.answer, call.returned) = (answer, returned);
    }

    /// Returns the logged calls.
    pub fn into_calls(self) -> Vec<Call> {
        self.calls
    }
}

/// Checks that some order of `calls` explains every answer. Each call takes effect at one moment
/// between its invocation and its answer.
///
/// # Errors
/// The first key without such an order, with an explanation.
pub fn check(calls: &[Call]) -> Result<(), Fault> {
    let mut keys: BTreeMap<u32, Vec<Call>> = BTreeMap::new();
    for call in calls {
        keys.entry(call.key).or_default().push(*call);
    }
    for (key, calls) in keys {
        match search(&calls, &[None]) {
            Outcome::Explained => {}
            Outcome::TooMuch => {
                let problem = format!("key {key}: too many calls are open at once");
                return Err(Fault::Undecided(problem));
            }
            Outcome::Stuck(call, since, states) => {
                return Err(Fault::NotLinearizable(explain(&calls, call, since, &states)));
            }
        }
    }
    Ok(())
}

/// Checks that tags grow: two commits never have the same tag, and a write that began after another
/// write was answered, of the same or another key, has the larger tag. Writes invoked at the same
/// moment are one commit.
///
/// # Errors
/// The first two writes that violate this.
pub fn check_tags(calls: &[Call]) -> Result<(), Fault> {
    let tagged = |call: &Call| match call.answer {
        Answer::Written(Some(tag)) => Some((tag, *call)),
        _ => None,
    };
    let mut invoked: Vec<(u64, Call)> = calls.iter().filter_map(tagged).collect();
    let mut returned = invoked.clone();
    invoked.sort_by_key(|(_, call)| call.invoked);
    returned.sort_by_key(|(_, call)| call.returned);
    let fault = |older: &Call, newer: &Call| {
        Err(Fault::NotLinearizable(format!("tags do not grow\n  {older}\n  {newer}")))
    };
    let mut largest: Option<(u64, Call)> = None;
    let mut answered = returned.iter().peekable();
    for (tag, call) in &invoked {
        while let Some(before) = answered.next_if(|(_, before)| before.returned < call.invoked) {
            largest = largest.filter(|(tag, _)| *tag > before.0).or(Some(*before));
        }
        if let Some((largest, before)) = &largest
            && largest >= tag
        {
            return fault(before, call);
        }
    }
    invoked.sort_by_key(|(tag, call)| (*tag, call.invoked));
    let same =
        |pair: &&[(u64, Call)]| pair[0].0 == pair[1].0 && pair[0].1.invoked != pair[1].1.invoked;
    invoked.windows(2).find(same).map_or(Ok(()), |pair| fault(&pair[0].1, &pair[1].1))
}

/// Returns the state after the call takes effect; `None` if the answer does not fit.
fn apply(state: State, call: &Call) -> Option<State> {
    let holds = |demand: Option<u64>, tag: Option<u64>| match (demand, tag) {
        (Some(demand), Some(tag)) => demand == tag,
        // The tag of this row is unknown, so it may equal the demanded tag.
        _ => true,
    };
    let (demand, row) = match (call.op, state) {
        (Op::Get, _) => {
            let Answer::Found(found) = call.answer else { return None };
            let fits = match (found, state) {
                (None, None) => true,
                (Some((tag, row)), Some((of, held))) => row == held && holds(Some(tag), of),
                _ => false,
            };
            return fits.then(|| found.map(|(tag, row)| (Some(tag), row)));
        }
        (Op::Insert(_), Some(_)) => {
            return (call.answer == Answer::Refused(Refusal::Exists)).then_some(state);
        }
        (Op::Insert(row) | Op::Upsert(row), _) => (None, Some(row)),
        (_, None) => return (call.answer == Answer::Refused(Refusal::Missing)).then_some(state),
        (Op::Replace(row, demand), Some(_)) => (demand, Some(row)),
        (Op::Merge(second, demand), Some((_, held))) => (demand, Some(Pair(held.0, second))),
        (Op::Delete(demand), Some(_)) => (demand, None),
    };
    match call.answer {
        Answer::Written(tag) => {
            let held = state.and_then(|(tag, _)| tag);
            holds(demand, held).then(|| row.map(|row| (tag, row)))
        }
        Answer::Refused(Refusal::Condition) => {
            let (demand, (held, _)) = (demand?, state?);
            held.is_none_or(|held| held != demand).then_some(state)
        }
        _ => None,
    }
}

/// Searches for an order of the calls of one key that starts in one of `states`.
fn search(calls: &[Call], states: &[State]) -> Outcome {
    let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * calls.len());
    for (index, call) in calls.iter().enumerate() {
        moments.push((call.invoked, false, index));
        if call.returned != NEVER {
            moments.push((call.returned, true, index));
        }
    }
    // Sorts invocations before answers of the same moment. Reads of one snapshot share moments, and
    // all of them must be invoked before any is answered.
    moments.sort_unstable();
    let configurations = states.iter().map(|state| (*state, 0)).collect();
    let mut search = Search { calls, open: Vec::new(), configurations };
    let (mut quiet, mut quiet_states) = (0, states.to_vec());
    for (moment, is_answer, index) in moments {
        if !is_answer {
            if search.open.iter().all(Option::is_none) {
                quiet = moment;
                quiet_states = search.configurations.iter().map(|(state, _)| *state).collect();
            }
            if !search.begin(index) {
                return Outcome::TooMuch;
            }
        } else if !search.finish(index) {
            return Outcome::TooMuch;
        }
        if search.configurations.is_empty() {
            quiet_states.sort_unstable();
            return Outcome::Stuck(index, quiet, quiet_states);
        }
    }
    Outcome::Explained
}

impl Search<'_> {
    /// Adds an open call. Returns false if there are too many.
    fn begin(&mut self, index: usize) -> bool {
        match self.open.iter().position(Option::is_none) {
            Some(slot) => self.open[slot] = Some(index),
            None => self.open.push(Some(index)),
        }
        self.open.len() <= OPEN_MAX
    }

    /// Keeps the configurations in which the call took effect. Returns false if there are too many.
    fn finish(&mut self, index: usize) -> bool {
        let Some(slot) = self.open.iter().position(|open| *open == Some(index)) else {
            return false;
        };
        let bit = 1 << slot;
        let mut todo: Vec<Configuration> = self.configurations.drain().collect();
        let mut tried: HashSet<Configuration> = todo.iter().copied().collect();
        while let Some((state, done)) = todo.pop() {
            if done & bit != 0 {
                // The slot becomes free, so its bit is cleared in all remaining configurations.
                self.configurations.insert((state, done & !bit));
                continue;
            }
            for (other, call) in self.open.iter().enumerate() {
                let Some(call) = call.filter(|_| done & (1 << other) == 0) else { continue };
                if let Some(state) = apply(state, &self.calls[call]) {
                    let next = (state, done | 1 << other);
                    if tried.insert(next) {
                        todo.push(next);
                    }
                }
            }
            if tried.len() > CONFIGURATIONS_MAX {
                return false;
            }
        }
        self.open[slot] = None;
        true
    }
}

/// Describes why no order of the calls explains the answer of call `stuck`, given the possible
/// `states` at the moment `since`.
fn explain(calls: &[Call], stuck: usize, since: u64, states: &[State]) -> String {
    let end = calls[stuck].returned;
    let mut core: Vec<Call> = calls.iter().filter(|call| call.invoked >= since).copied().collect();
    // A call that is still open at the end matters only if it is a write, which may have taken
    // effect.
    core.retain(|call| call.invoked < end && (call.returned <= end || call.is_effective()));
    for call in core.iter_mut().filter(|call| call.returned > end) {
        call.returned = NEVER;
    }
    let fails = |calls: &[Call]| matches!(search(calls, states), Outcome::Stuck(..));
    // Removes each read or refused call without which the search still fails.
    let tried = if core.len() <= SHRINK_MAX { core.len() } else { 0 };
    for index in (0..tried).rev() {
        let call = core.remove(index);
        if call.is_effective() || !fails(&core) {
            core.insert(index, call);
        }
    }
    core.sort_by_key(|call| call.invoked);
    let mut mentioned: HashSet<u64> = core.iter().flat_map(Call::tags).collect();
    mentioned.extend(states.iter().flatten().filter_map(|(tag, _)| *tag));
    let context = calls.iter().filter(|call| {
        let is_writer =
            matches!(call.answer, Answer::Written(Some(tag)) if mentioned.contains(&tag));
        is_writer && !core.iter().any(|c| (c.thread, c.invoked) == (call.thread, call.invoked))
    });
    let mut lines = vec![format!("key {}: no order explains the answers", calls[stuck].key)];
    lines.extend(context.map(|call| format!("  {call}  (context)")));
    let states: Vec<String> = states.iter().map(|state| state_text(*state)).collect();
    lines.push(format!("  at {since} it was {}", states.join(" or ")));
    lines.extend(core.iter().map(|call| format!("  {call}")));
    lines.join("\n")
}

fn state_text(state: State) -> String {
    match state {
        None => "absent".to_owned(),
        Some((Some(tag), row)) => format!("{row} with tag {tag}"),
        Some((None, row)) => format!("{row} with a tag that no caller received"),
    }
}

impl Call {
    /// Whether the call changed the row, or may have changed it.
    fn is_effective(&self) -> bool {
        matches!(self.answer, Answer::Written(_))
    }

    /// Returns the tags that the call demands or was answered with.
    fn tags(&self) -> impl Iterator<Item = u64> {
        let demanded = match self.op {
            Op::Replace(_, demand) | Op::Merge(_, demand) | Op::Delete(demand) => demand,
            _ => None,
        };
        let answered = match self.answer {
            Answer::Found(found) => found.map(|(tag, _)| tag),
            Answer::Written(tag) => tag,
            Answer::Refused(_) => None,
        };
        demanded.into_iter().chain(answered)
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let demand = match self {
            Op::Get => return write!(f, "get"),
            Op::Insert(row) => return write!(f, "insert {row}"),
            Op::Upsert(row) => return write!(f, "upsert {row}"),
            Op::Replace(row, demand) => write!(f, "replace {row}").map(|()| demand)?,
            Op::Merge(second, demand) => write!(f, "merge (_, {second})").map(|()| demand)?,
            Op::Delete(demand) => write!(f, "delete").map(|()| demand)?,
        };
        demand.map_or(Ok(()), |tag| write!(f, " if {tag}"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Found(None) => write!(f, "absent"),
            Answer::Found(Some((tag, row))) => write!(f, "{row} with tag {tag}"),
            Answer::Written(None) => write!(f, "done"),
            Answer::Written(Some(tag)) => write!(f, "tag {tag}"),
            Answer::Refused(Refusal::Exists) => write!(f, "refused: exists"),
            Answer::Refused(Refusal::Missing) => write!(f, "refused: missing"),
            Answer::Refused(Refusal::Condition) => write!(f, "refused: another tag"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, invoked, returned, op, answer, .. } = self;
        match *returned {
            NEVER => write!(f, "{invoked}..  thread {thread}: {op} -> not answered yet"),
            _ => write!(f, "{invoked}..{returned}  thread {thread}: {op} -> {answer}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotLinearizable(why) | Fault::Undecided(why) => f.write_str(why),
        }
    }
}
