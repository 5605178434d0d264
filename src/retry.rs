//! Retry policies, also those of the service's clients: whether to retry, and after which pause.
//!
//! | policy | pause before retry x = 1, 2, … |
//! | --- | --- |
//! | fixed | always the same, so clients that failed together retry together |
//! | exponential, in process | `min(zmin + y, zmax)` with `y = rand(0.8 z, 1.2 z) (2^x - 1)` |
//! | client library of 2010 | 3, 27 and 81 s, each ± 20 %, at most 90 s |
//!
//! Invariant: a pause depends only on the policy, the number of the retry and the random number
//! generator; this module neither reads a clock nor waits.

use std::time::Duration;

use crate::error::{Error, Result};
pub use crate::rng::Rng;

/// Random factors are multiples of one millionth.
const MICROS: u64 = 1_000_000;
/// A pause varies by this percentage in either direction.
const SPREAD_PERCENT: u64 = 20;
/// The pauses of the service's client library of 2010.
const STEPS_2010: [Duration; 3] =
    [Duration::from_secs(3), Duration::from_secs(27), Duration::from_secs(81)];
/// The default number of retries of the service's client library.
const RETRIES: u32 = 3;
/// The number of retries in a process: they last some 1.5 s in all.
const RETRIES_IN_PROCESS: u32 = 12;

/// The number of retries of a failed operation, and the pauses before them.
///
/// This type only computes pauses. [`run`](Self::run) waits by calling a function of the caller,
/// such as `std::thread::sleep`. Only transient errors are retried: see [`Error::is_transient`].
///
/// ```
/// use std::time::Duration;
/// use rowstone::{Db, Entity, RetryPolicy, retry::Rng};
/// # fn main() -> rowstone::Result<()> {
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// let policy = RetryPolicy::in_process();
/// let bolt = Entity::new("bolts", "m4x20").with("Stock", 1_200);
/// policy.run(&mut Rng::from_entropy(), std::thread::sleep, || parts.insert(bolt.clone()))?;
/// # Ok(())
/// # }
/// ```
///
/// # Lost responses
///
/// Within one process a response is never lost: an error that [is transient](Error::is_transient)
/// guarantees that nothing was done. But a connection between an application and the table may
/// break after the commit and before the response. The retry then finds the result of the first
/// try. An insert that succeeded gets `EntityAlreadyExists` (409), a delete `ResourceNotFound`
/// (404), a write with an ETag `UpdateConditionNotSatisfied` (412). None of these errors shows
/// which request made the change. There are two remedies:
///
/// 1. If a second execution is harmless, treat the error as success. Examples are a delete, and an
///    insert of an entity that is the same from every writer.
/// 2. Otherwise store the id of the request in the entity, and compare it.
///
/// ```
/// use rowstone::{Db, Entity, Error, ErrorKind, RetryPolicy, retry::Rng};
///
/// /// The result that a client sees: a response, or none.
/// enum Failed {
///     NoAnswer,
///     Refused(Error),
/// }
///
/// # fn main() -> rowstone::Result<()> {
/// let orders = Db::open_in_memory()?.create_table("orders")?;
/// let (policy, mut rng) = (RetryPolicy::client_2010(), Rng::from_seed(1));
/// let passes = |failed: &Failed| match failed {
///     Failed::NoAnswer => true,
///     Failed::Refused(error) => error.is_transient(),
/// };
///
/// // The first response to each request is lost, after the commit.
/// let order = Entity::new("2024-05", "1001").with("RequestId", "f2b1").with("Total", 12.5);
/// let (mut tries, mut pauses) = (0, 0);
/// let answer = policy.run_while(&mut rng, |_| pauses += 1, passes, || {
///     tries += 1;
///     let answer = orders.insert(order.clone()).map_err(Failed::Refused);
///     if tries == 1 { Err(Failed::NoAnswer) } else { answer }
/// });
/// assert_eq!((tries, pauses), (2, 1));
///
/// // The retry found an entity. Did the first try insert it?
/// let Err(Failed::Refused(error)) = answer else { panic!("the first try was committed") };
/// assert_eq!((error.kind(), error.status()), (ErrorKind::AlreadyExists, 409));
/// let found = orders.get("2024-05", "1001")?.expect("the retry found it");
/// assert_eq!(found.get::<String>("RequestId")?, "f2b1"); // Yes: the insert succeeded.
///
/// // A second delete is harmless: an absent entity counts as deleted.
/// let mut tries = 0;
/// let answer = policy.run_while(&mut rng, |_| (), passes, || {
///     tries += 1;
///     let answer = orders.delete("2024-05", "1001").map_err(Failed::Refused);
///     if tries == 1 { Err(Failed::NoAnswer) } else { answer }
/// });
/// assert!(matches!(answer, Err(Failed::Refused(error)) if error.kind() == ErrorKind::NotFound));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    retries: u32,
    pauses: Pauses,
}

/// An iterator over the pauses before the retries of one operation; see [`RetryPolicy::pauses`].
#[derive(Clone, Debug)]
pub struct RetryPauses {
    policy: RetryPolicy,
    rng: Rng,
    retry: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pauses {
    Fixed(Duration),
    Exponential {
        z: Duration,
        min: Duration,
        max: Duration,
    },
    /// The pauses before the first three retries, each at most `max`. Further retries repeat the
    /// last pause.
    Steps {
        steps: [Duration; 3],
        max: Duration,
    },
}

impl RetryPolicy {
    /// Returns a policy without retries.
    pub fn none() -> Self {
        Self::fixed(0, Duration::ZERO)
    }

    /// Returns a policy of `retries` retries, each after the same `pause`.
    pub fn fixed(retries: u32, pause: Duration) -> Self {
        Self { retries, pauses: Pauses::Fixed(pause) }
    }

    /// Returns a policy with the service's formula and its defaults: z = 30 s, pauses of 3 s to 90
    /// s, three retries.
    ///
    /// The first pause is 27 to 39 s, the second 75 to 90 s, all others 90 s.
    pub fn exponential() -> Self {
        let seconds = Duration::from_secs;
        Self::exponential_within(seconds(30), seconds(3), seconds(90))
    }

    /// Returns a policy with the service's formula and three retries. The pause before retry x is
    /// `min + rand(0.8 z, 1.2 z) (2^x - 1)`, at most `max`.
    pub fn exponential_within(z: Duration, min: Duration, max: Duration) -> Self {
        Self { retries: RETRIES, pauses: Pauses::Exponential { z, min, max } }
    }

    /// Returns the policy of the client library of 2010: three retries after 3, 27 and 81 s, each ±
    /// 20 %, at most 90 s.
    pub fn client_2010() -> Self {
        let pauses = Pauses::Steps { steps: STEPS_2010, max: Duration::from_secs(90) };
        Self { retries: RETRIES, pauses }
    }

    /// Returns a policy for calls within a process: twelve retries with the service's formula, z =
    /// 2 ms and pauses of 1 to 200 ms.
    ///
    /// The first pauses are some 3, 7 and 15 ms; all last some 1.5 s together. The pauses of the
    /// other policies suit a service, whose first retry after 3 or 30 s is too late for two threads
    /// that write the same entity.
    pub fn in_process() -> Self {
        let [z, min, max] = [2, 1, 200].map(Duration::from_millis);
        Self::exponential_within(z, min, max).with_retries(RETRIES_IN_PROCESS)
    }

    /// Returns a policy with the same pauses and another number of retries. If there are more than
    /// three, [`client_2010`](Self::client_2010) repeats its last pause.
    pub fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Returns the maximum number of retries of an operation.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// Returns the pause before retry number `retry`, counted from 1; `None` if the policy has no
    /// such retry.
    pub fn pause(&self, retry: u32, rng: &mut Rng) -> Option<Duration> {
        if retry == 0 || retry > self.retries {
            return None;
        }
        Some(match self.pauses {
            Pauses::Fixed(pause) => pause,
            Pauses::Exponential { z, min, max } => {
                let factor = 1u32.checked_shl(retry).unwrap_or(u32::MAX).saturating_sub(1).max(1);
                min.saturating_add(spread(z, rng).saturating_mul(factor)).min(max)
            }
            Pauses::Steps { steps, max } => {
                let at = (retry as usize - 1).min(steps.len() - 1);
                spread(steps[at], rng).min(max)
            }
        })
    }

    /// Returns the pauses of one operation, with `seed` for the random factors.
    pub fn pauses(&self, seed: u64) -> RetryPauses {
        RetryPauses { policy: self.clone(), rng: Rng::from_seed(seed), retry: 0 }
    }

    /// Runs `operation` until it succeeds, fails with an error that is not transient, or has no
    /// retry left. Between two tries `wait` is called with the pause.
    ///
    /// # Errors
    /// The last error of `operation`.
    pub fn run<T>(
        &self,
        rng: &mut Rng,
        wait: impl FnMut(Duration),
        operation: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        self.run_while(rng, wait, Error::is_transient, operation)
    }

    /// As [`run`](Self::run), for errors of any type. An error is considered transient if `passes`
    /// returns true for it.
    ///
    /// # Errors
    /// The last error of `operation`.
    pub fn run_while<T, E>(
        &self,
        rng: &mut Rng,
        mut wait: impl FnMut(Duration),
        mut passes: impl FnMut(&E) -> bool,
        mut operation: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut retry = 0u32;
        loop {
            let error = match operation() {
                Err(error) if passes(&error) => error,
                ended => return ended,
            };
            retry = retry.saturating_add(1);
            match self.pause(retry, rng) {
                Some(pause) => wait(pause),
                None => return Err(error),
            }
        }
    }
}

impl Iterator for RetryPauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.retry = self.retry.saturating_add(1);
        self.policy.pause(self.retry, &mut self.rng)
    }
}

/// Returns a random duration between 80 % and 120 % of `time`.
fn spread(time: Duration, rng: &mut Rng) -> Duration {
    let width = 2 * SPREAD_PERCENT * MICROS / 100;
    let factor = MICROS - SPREAD_PERCENT * MICROS / 100 + rng.below(width + 1);
    let nanos = time.as_nanos().saturating_mul(u128::from(factor)) / u128::from(MICROS);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Code, ErrorKind};

    fn seconds(pauses: RetryPauses) -> Vec<f64> {
        pauses.map(|pause| pause.as_secs_f64()).collect()
    }

    #[track_caller]
    fn check_within(policy: &RetryPolicy, expected: &[(f64, f64)]) {
        let mut seen = vec![(f64::MAX, f64::MIN); expected.len()];
        for seed in 0..2_000 {
            let pauses = seconds(policy.pauses(seed));
            assert_eq!(pauses.len(), expected.len());
            for (pause, (least, most)) in pauses.into_iter().zip(&mut seen) {
                (*least, *most) = (least.min(pause), most.max(pause));
            }
        }
        for ((least, most), (low, high)) in seen.into_iter().zip(expected) {
            // All pauses are within the expected interval. The shortest and the longest are close
            // to its ends.
            assert!(least >= *low && least <= low + (high - low) / 50.0, "{least}, not {low}");
            assert!(most <= *high && most >= high - (high - low) / 50.0, "{most}, not {high}");
        }
    }

    #[test]
    fn the_formula_of_the_service() {
        let policy = RetryPolicy::exponential().with_retries(4);
        check_within(&policy, &[(27.0, 39.0), (75.0, 90.0), (90.0, 90.0), (90.0, 90.0)]);
    }

    #[test]
    fn the_client_library_of_2010() {
        check_within(&RetryPolicy::client_2010(), &[(2.4, 3.6), (21.6, 32.4), (64.8, 90.0)]);
    }

    #[test]
    fn retries_in_a_process_are_short() {
        let all: Vec<f64> = seconds(RetryPolicy::in_process().pauses(7));
        assert!(
            (0.002..0.004).contains(&all[0]) && all.iter().all(|pause| *pause <= 0.2),
            "{all:?}"
        );
        assert_eq!(all.len(), 12);
    }

    #[test]
    fn fixed_pauses_and_none() {
        let pause = Duration::from_millis(250);
        assert_eq!(seconds(RetryPolicy::fixed(2, pause).pauses(7)), [0.25, 0.25]);
        assert_eq!(RetryPolicy::none().pauses(7).next(), None);
    }

    #[test]
    fn the_seed_decides_the_pauses() {
        let policy = RetryPolicy::exponential();
        assert_eq!(seconds(policy.pauses(3)), seconds(policy.pauses(3)));
        assert_ne!(seconds(policy.pauses(3)), seconds(policy.pauses(4)));
    }

    #[test]
    fn no_number_of_retries_overflows() {
        let long = Duration::MAX;
        let policy = RetryPolicy::exponential_within(long, long, long).with_retries(u32::MAX);
        let mut rng = Rng::from_seed(1);
        for retry in [1, 31, 32, 33, 64, u32::MAX] {
            assert_eq!(policy.pause(retry, &mut rng), Some(long));
        }
        assert_eq!(policy.pause(0, &mut rng), None);
    }

    #[track_caller]
    fn check_run(policy: &RetryPolicy, answers: &[Result<(), Code>], tries: usize, waits: usize) {
        let (mut tried, mut waited) = (0, 0);
        let answer = policy.run(
            &mut Rng::from_seed(1),
            |_| waited += 1,
            || {
                tried += 1;
                answers[tried - 1].map_err(Error::refused)
            },
        );
        assert_eq!((tried, waited), (tries, waits));
        let code = |error: Error| error.code();
        assert_eq!(answer.map_err(code), answers[tries - 1].map_err(|code| code.as_str()));
    }

    #[test]
    fn only_transient_errors_are_retried() {
        let policy = RetryPolicy::exponential();
        let busy = Err(Code::ServerBusy);
        check_run(&policy, &[Ok(())], 1, 0);
        check_run(&policy, &[busy, Err(Code::OperationTimedOut), Ok(())], 3, 2);
        check_run(&policy, &[busy, Err(Code::EntityAlreadyExists), Ok(())], 2, 1);
        check_run(&policy, &[busy, busy, busy, busy, Ok(())], 4, 3);
        check_run(&RetryPolicy::none(), &[busy, Ok(())], 1, 0);
    }

    #[test]
    fn errors_of_the_caller_are_retried_as_it_specifies() {
        let policy = RetryPolicy::fixed(9, Duration::ZERO);
        let mut left = [ErrorKind::Io, ErrorKind::Io, ErrorKind::Locked].into_iter();
        let mut rng = Rng::from_seed(1);
        let answer: Result<(), ErrorKind> = policy.run_while(
            &mut rng,
            drop,
            |kind| *kind == ErrorKind::Io,
            || left.next().map_or(Ok(()), Err),
        );
        assert_eq!((answer, left.next()), (Err(ErrorKind::Locked), None));
    }
}
