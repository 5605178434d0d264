//! A durable queue in the rows of a table.
//!
//! Invariants
//! * a message has one row, whose RowKey begins with the time from which it is visible. One group
//!   moves the row, on the condition of the ETag that was read;
//! * a claim whose outcome is not known returns no message;
//! * all times are those of the store.
//!
//! The section "Queue" of docs/PATTERNS.md has the design. Files: `message` (a message and its
//! row).

mod message;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use self::message::Message;
use self::message::{Receipt, is_of_claim, refused, time_key};
use super::pages::{Side, quoted as literal};
use super::table_store::{Condition, TableStore};
use crate::error::{Code, Error, ErrorKind, Result, quoted};
use crate::model::{KeyPart, check_key, keys};
use crate::rng::Rng;
use crate::sync::Mutex;
use crate::table::EntityGroup;

/// The most messages of a claim, as of a request of Azure Queue storage.
const CLAIM_MAX: usize = 32;
/// The most buckets of a queue.
const BUCKETS_MAX: u32 = 1_000;
/// The longest visibility timeout: seven days, as in Azure Queue storage.
const VISIBILITY_MAX: Duration = Duration::from_secs(7 * 86_400);
/// The most operations and about the most bytes of a group.
const GROUP_MAX: usize = 100;
const GROUP_BYTES: usize = 3 << 20;
/// The number of times that a claim looks at a bucket in which other consumers are faster. The last
/// time each message has a group of its own.
const ROUNDS: usize = 3;
/// The number of times that a delete without an answer is sent.
const DELETES_MAX: usize = 3;

/// A durable queue in a table of any store, with the words of Azure Queue storage.
///
/// A consumer [claims](Self::claim) messages for a *visibility timeout*, in which no other consumer
/// gets them. It deletes each message after its work. The messages of a consumer that was killed
/// become visible again after their timeout, so delivery is *at least once*: the work must tolerate
/// repetition.
///
/// ```
/// use std::time::Duration;
/// use rowstone::Db;
/// use rowstone::queue::{Options, Queue};
///
/// # fn main() -> rowstone::Result<()> {
/// let store = Db::open_in_memory()?; // or a Remote
/// let orders = Queue::create(&store, "queues", "orders", Options::default())?;
/// orders.put_many(&["two bolts", "one nut"])?;
///
/// let timeout = Duration::from_secs(30);
/// loop {
///     let claimed = orders.claim(32, timeout)?;
///     if claimed.is_empty() {
///         break; // a consumer waits, longer after each empty claim
///     }
///     for message in claimed {
///         // Work that takes longer than expected extends the timeout.
///         let message = orders.extend(&message, timeout)?;
///         println!("{}, try {}", message.text, message.dequeue_count);
///         orders.delete(&message)?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// **Buckets.** A queue has [`Options::buckets`] partitions, over which messages are spread, so
/// that producers and consumers rarely meet. All programs use the same number for a queue.
///
/// **Time.** Deadlines are compared by [`TableStore::now`], never by the clock of a consumer. Over
/// an endpoint this time is up to about a second late, and so much earlier a timeout ends.
///
/// **Order.** Approximately the order of insertion within a bucket, none between buckets.
///
/// **Lost answers.** After `OutcomeUnknown` nothing has to be settled:
/// * a claim has handed nothing out. If it took effect, the messages return after their timeout;
/// * a put may be repeated, and may have stored the message twice, with two ids;
/// * an extension or update leaves a receipt that may be void. If a delete with it has no answer
///   either, the message may return although the delete succeeds;
/// * a delete may be repeated.
///
/// Open a `Remote` for producers without retries: its own repeat of a
/// put could store a message under the same id again after a consumer has claimed it.
///
/// **Poison messages.** A message that was claimed [`Options::max_dequeue_count`] times and not
/// deleted is moved by the next claim to a partition of its own, which [`poisoned`](Self::poisoned)
/// lists.
pub struct Queue<'s> {
    store: &'s dyn TableStore,
    table: String,
    name: String,
    options: Options,
    rng: Mutex<Rng>,
}

/// Settings of a [`Queue`], which must be the same in all programs that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of partitions over which messages are spread: 1 to 1,000, by default 4. An empty
    /// bucket costs a request per look.
    pub buckets: u32,
    /// The number of times that a message is claimed before it is poison: at least 1, by default 5.
    pub max_dequeue_count: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { buckets: 4, max_dequeue_count: 5 }
    }
}

impl<'s> Queue<'s> {
    /// Returns the queue `name` of a table, which may have several. Sends nothing.
    ///
    /// # Errors
    /// `InvalidInput` for a name that is no part of a PartitionKey, and for options out of range.
    pub fn open(
        store: &'s dyn TableStore,
        table: impl Into<String>,
        name: impl Into<String>,
        options: Options,
    ) -> Result<Self> {
        let (table, name) = (table.into(), name.into());
        if !(1..=BUCKETS_MAX).contains(&options.buckets) || options.max_dequeue_count == 0 {
            let text = format!("a queue has 1 to {BUCKETS_MAX} buckets, and at least 1 claim");
            return Err(refused(text));
        }
        if name.is_empty() {
            return Err(refused("the name of a queue is empty"));
        }
        let rng = Mutex::new(Rng::from_entropy());
        let queue = Self { store, table, name, options, rng };
        check_key(KeyPart::PartitionKey, &queue.poison_partition())?;
        Ok(queue)
    }

    /// As [`open`](Self::open), and creates the table if it does not exist.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of [`TableStore::create_table`] but `AlreadyExists`.
    pub fn create(
        store: &'s dyn TableStore,
        table: impl Into<String>,
        name: impl Into<String>,
        options: Options,
    ) -> Result<Self> {
        let queue = Self::open(store, table, name, options)?;
        match store.create_table(&queue.table) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(queue),
        }
    }

    /// Puts a message of at most 32,768 characters (UTF-16 units, 64 KiB), which is visible at
    /// once. Returns its id.
    ///
    /// # Errors
    /// `InvalidInput` for a longer text; `OutcomeUnknown` if it may have been stored; those of
    /// [`TableStore::commit`].
    pub fn put(&self, text: impl AsRef<str>) -> Result<String> {
        let mut ids = self.put_many(&[text])?;
        Ok(ids.pop().unwrap_or_default())
    }

    /// Puts many messages: up to 100 of a bucket are one group. Returns their ids.
    ///
    /// # Errors
    /// As [`put`](Self::put). Nothing is stored if a text is too long. After another error some of
    /// the messages may be stored.
    pub fn put_many(&self, texts: &[impl AsRef<str>]) -> Result<Vec<String>> {
        let now = self.store.now()?;
        let (mut ids, mut buckets) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for (index, text) in texts.iter().enumerate() {
            // Messages of one call have the same time, and are claimed in their order.
            let id = format!("{index:08x}{}", self.random_id());
            let bucket = keys::bucket(&id, self.options.buckets);
            ids.push(id.clone());
            buckets.entry(bucket).or_default().push(Message::new(id, text.as_ref(), now)?);
        }
        for (bucket, messages) in buckets {
            let partition_key = self.partition(&bucket);
            for part in parts(&messages, GROUP_MAX) {
                let mut group = EntityGroup::new(&partition_key);
                for message in part {
                    group.insert(message.row(&partition_key, ""))?;
                }
                self.store.commit(&self.table, &group)?;
            }
        }
        Ok(ids)
    }

    /// Claims up to `n` visible messages, at most 32, of one bucket: those that have been visible
    /// longest. No other consumer gets them before [`Message::next_visible`], the store's time plus
    /// `visibility_timeout`. Returns none if no bucket has a visible message, or if other consumers
    /// were faster.
    ///
    /// A visible message that was claimed [`Options::max_dequeue_count`] times is moved to the
    /// poison messages.
    ///
    /// # Errors
    /// `InvalidInput` if `n` is 0 or above 32, or the timeout 0 or above seven days;
    /// `OutcomeUnknown` if messages may have been claimed, which return after the timeout; those of
    /// the store.
    pub fn claim(&self, n: usize, visibility_timeout: Duration) -> Result<Vec<Message>> {
        if !(1..=CLAIM_MAX).contains(&n) {
            return Err(refused(format!("a claim has 1 to {CLAIM_MAX} messages")));
        }
        if visibility_timeout.is_zero() {
            return Err(refused("the visibility timeout of a claim is 0"));
        }
        check_timeout(visibility_timeout)?;
        let mut buckets = self.buckets();
        for round in 1..=ROUNDS {
            let mut contended = Vec::new();
            for partition_key in buckets {
                let visible = self.visible(&partition_key, n)?;
                if visible.is_empty() {
                    continue;
                }
                let claimed = match round {
                    ROUNDS => self.claim_each(&partition_key, visible, visibility_timeout)?,
                    _ => self.claim_group(&partition_key, visible, visibility_timeout)?,
                };
                if !claimed.is_empty() {
                    return Ok(claimed);
                }
                contended.push(partition_key);
            }
            buckets = contended;
        }
        Ok(Vec::new())
    }

    /// Makes a claimed message invisible for `visibility_timeout` from now on; 0 gives it back at
    /// once. Returns the message with a new pop receipt; that of `message` is void.
    ///
    /// # Errors
    /// * `NotFound` if the receipt is void: the message was claimed again, moved or deleted;
    /// * `InvalidInput` for a timeout above seven days, and for a peeked or poison message;
    /// * `OutcomeUnknown` if the receipt may be void;
    /// * those of the store.
    pub fn extend(&self, message: &Message, visibility_timeout: Duration) -> Result<Message> {
        self.renew(message, message.clone(), visibility_timeout)
    }

    /// As [`extend`](Self::extend), and replaces the text, such as by the progress of the work.
    ///
    /// # Errors
    /// As [`extend`](Self::extend), and `InvalidInput` for a text that is too long.
    pub fn update(
        &self,
        message: &Message,
        text: impl AsRef<str>,
        visibility_timeout: Duration,
    ) -> Result<Message> {
        let text = Message::new(String::new(), text.as_ref(), message.inserted)?.text;
        self.renew(message, Message { text, ..message.clone() }, visibility_timeout)
    }

    /// Deletes a claimed or poison message.
    ///
    /// # Errors
    /// * `NotFound` if the receipt is void: the message was claimed again, moved or deleted;
    /// * `InvalidInput` for a peeked message;
    /// * `OutcomeUnknown` if it may have been deleted;
    /// * those of the store.
    pub fn delete(&self, message: &Message) -> Result<()> {
        self.delete_row(message, None)
    }

    /// Deletes many claimed or poison messages: up to 100 of a bucket are one group. Returns those
    /// whose receipts are void: they were claimed again, moved or deleted.
    ///
    /// # Errors
    /// As [`delete`](Self::delete), without `NotFound`. Some of the messages may be deleted.
    pub fn delete_many<'m>(&self, messages: &'m [Message]) -> Result<Vec<&'m Message>> {
        let mut buckets = BTreeMap::<&str, Vec<&Message>>::new();
        for message in messages {
            buckets.entry(&message.receipt()?.partition_key).or_default().push(message);
        }
        let mut void = Vec::new();
        for (partition_key, messages) in buckets {
            for part in messages.chunks(GROUP_MAX) {
                let mut group = EntityGroup::new(partition_key);
                for message in part {
                    let Receipt { row_key, etag, .. } = message.receipt()?;
                    group.delete_if(row_key, etag)?;
                }
                let lost = match self.store.commit(&self.table, &group) {
                    Ok(_) => continue,
                    Err(error) if error.kind() == ErrorKind::OutcomeUnknown => Some(error),
                    Err(error) if is_conflict(&error) => None,
                    Err(error) => return Err(error),
                };
                for message in part {
                    match self.delete_row(message, lost.clone()) {
                        Err(error) if is_conflict(&error) => void.push(*message),
                        deleted => deleted?,
                    }
                }
            }
        }
        Ok(void)
    }

    /// Returns up to `n` visible messages, at most 32, without claiming them. They have no pop
    /// receipt.
    ///
    /// # Errors
    /// `InvalidInput` if `n` is 0 or above 32; those of [`TableStore::query`].
    pub fn peek(&self, n: usize) -> Result<Vec<Message>> {
        if !(1..=CLAIM_MAX).contains(&n) {
            return Err(refused(format!("a peek has 1 to {CLAIM_MAX} messages")));
        }
        let mut peeked = Vec::new();
        for partition_key in self.buckets() {
            let is_alive = |it: &Message| it.dequeue_count < self.options.max_dequeue_count;
            let found = self.read_visible(&partition_key, n - peeked.len())?;
            peeked.extend(found.into_iter().filter(is_alive));
            if peeked.len() == n {
                break;
            }
        }
        peeked.iter_mut().for_each(|message| message.receipt = None);
        Ok(peeked)
    }

    /// Returns up to `n` poison messages, by id. [`delete`](Self::delete) removes one; to have it
    /// processed again, put its text before.
    ///
    /// If a consumer deletes a message after its timeout and at the moment at which a claim moves
    /// it, the message is poison although its work is done.
    ///
    /// # Errors
    /// Those of [`TableStore::query`].
    pub fn poisoned(&self, n: usize) -> Result<Vec<Message>> {
        self.rows(&format!("PartitionKey eq {}", literal(&self.poison_partition())), n)
    }

    /// Returns the partitions of all buckets, from a random one on, so that consumers do not meet
    /// at the first.
    fn buckets(&self) -> Vec<String> {
        let count = self.options.buckets;
        let start = self.rng.lock().below(count.into()) as u32;
        let digits = (count - 1).to_string().len();
        let name = |index: u32| self.partition(&format!("{:0digits$}", (start + index) % count));
        (0..count).map(name).collect()
    }

    fn partition(&self, bucket: &str) -> String {
        format!("{}-{bucket}", self.name)
    }

    fn poison_partition(&self) -> String {
        self.partition("poison")
    }

    fn random_id(&self) -> String {
        let mut rng = self.rng.lock();
        format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64())
    }

    fn rows(&self, filter: &str, n: usize) -> Result<Vec<Message>> {
        let side = Side { store: self.store, table: &self.table };
        side.rows(filter, &[], n).take(n).map(|row| Message::read(&row?)).collect()
    }

    /// Returns up to `n` visible messages of a bucket, the longest visible first.
    fn read_visible(&self, partition_key: &str, n: usize) -> Result<Vec<Message>> {
        let end = literal(&time_key(self.store.now()?.ticks().saturating_add(1)));
        let partition = literal(partition_key);
        self.rows(&format!("PartitionKey eq {partition} and RowKey lt {end}"), n)
    }

    /// As [`read_visible`](Self::read_visible), after moving poison messages among them.
    fn visible(&self, partition_key: &str, n: usize) -> Result<Vec<Message>> {
        loop {
            let found = self.read_visible(partition_key, n)?;
            let is_poison = |it: &Message| it.dequeue_count >= self.options.max_dequeue_count;
            let (poison, alive): (Vec<_>, Vec<_>) = found.into_iter().partition(is_poison);
            let mut has_moved = false;
            for message in &poison {
                has_moved |= self.move_poison(message)?;
            }
            // Other messages may be behind the poison ones.
            if !alive.is_empty() || !has_moved {
                return Ok(alive);
            }
        }
    }

    /// Moves a message to the poison messages. A repeat writes the same row. Returns false if
    /// another consumer has moved or deleted it.
    fn move_poison(&self, message: &Message) -> Result<bool> {
        let row = message.poison_row(&self.poison_partition());
        self.store.upsert(&self.table, &row)?;
        let Receipt { partition_key, row_key, etag } = message.receipt()?;
        let condition = Condition::Match(etag.clone());
        match self.store.delete(&self.table, partition_key, row_key, &condition) {
            Err(error) if is_conflict(&error) => Ok(false),
            deleted => deleted.map(|()| true),
        }
    }

    /// Claims messages in one group, or none if another consumer was faster.
    fn claim_group(
        &self,
        partition_key: &str,
        messages: Vec<Message>,
        visibility_timeout: Duration,
    ) -> Result<Vec<Message>> {
        let count = parts(&messages, GROUP_MAX / 2).next().map_or(0, <[_]>::len);
        let now = self.store.now()?;
        let moves = messages.into_iter().take(count).map(|message| {
            let (from, mut to) = (message.receipt()?.clone(), message);
            to.dequeue_count += 1;
            to.hide(now, visibility_timeout);
            Ok((from, to))
        });
        let mut claimed = match self.shift(partition_key, moves.collect::<Result<_>>()?) {
            Err(error) if is_conflict(&error) => return Ok(Vec::new()),
            claimed => claimed?,
        };
        // After a late answer, another consumer may have them.
        let now = self.store.now()?;
        claimed.retain(|message| now < message.next_visible);
        Ok(claimed)
    }

    /// Claims messages one by one, from a random one on.
    fn claim_each(
        &self,
        partition_key: &str,
        mut messages: Vec<Message>,
        visibility_timeout: Duration,
    ) -> Result<Vec<Message>> {
        let start = self.rng.lock().index(messages.len());
        messages.rotate_left(start);
        let mut claimed = Vec::new();
        for message in messages {
            match self.claim_group(partition_key, vec![message], visibility_timeout) {
                Ok(one) => claimed.extend(one),
                // The messages before are claimed.
                Err(_) if !claimed.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(claimed)
    }

    fn renew(
        &self,
        message: &Message,
        mut renewed: Message,
        visibility_timeout: Duration,
    ) -> Result<Message> {
        check_timeout(visibility_timeout)?;
        let receipt = message.receipt()?.clone();
        if receipt.partition_key == self.poison_partition() {
            return Err(refused("a poison message has no visibility timeout"));
        }
        renewed.hide(self.store.now()?, visibility_timeout);
        let partition_key = receipt.partition_key.clone();
        let mut moved = self.shift(&partition_key, vec![(receipt, renewed)])?;
        let is_void = || Error::refused(Code::ResourceNotFound).about(|| about(message));
        moved.pop().ok_or_else(is_void)
    }

    /// Moves rows of a partition to the keys of new states in one group. Returns the new states
    /// with their receipts, without those that another consumer has claimed since.
    fn shift(&self, partition_key: &str, moves: Vec<(Receipt, Message)>) -> Result<Vec<Message>> {
        let claim_id = self.random_id();
        let mut group = EntityGroup::new(partition_key);
        for (from, to) in &moves {
            group.delete_if(&from.row_key, &from.etag)?;
            group.insert(to.row(partition_key, &claim_id))?;
        }
        let mut to = moves.into_iter().map(|(_, to)| Message { receipt: None, ..to });
        let etags = match self.store.commit(&self.table, &group) {
            Ok(etags) => etags,
            // The refusal may be that of a repeat, after an answer that was lost.
            Err(error) if is_conflict(&error) => {
                let Some(mut first) = to.next() else { return Ok(Vec::new()) };
                first.receipt = self.receipt_of(partition_key, &first, &claim_id)?;
                return match first.receipt.is_some() {
                    true => self.settled(partition_key, [first].into_iter().chain(to), &claim_id),
                    false => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let inserted = etags.into_iter().skip(1).step_by(2);
        let to = to.zip(inserted).map(|(mut to, etag)| {
            let (partition_key, row_key) = (partition_key.to_owned(), to.row_key());
            to.receipt = etag.map(|etag| Receipt { partition_key, row_key, etag });
            to
        });
        self.settled(partition_key, to, &claim_id)
    }

    /// Reads the receipts that are missing after a group took effect.
    fn settled(
        &self,
        partition_key: &str,
        messages: impl Iterator<Item = Message>,
        claim_id: &str,
    ) -> Result<Vec<Message>> {
        let mut settled = Vec::new();
        for mut message in messages {
            if message.receipt.is_none() {
                message.receipt = self.receipt_of(partition_key, &message, claim_id)?;
            }
            settled.extend(message.receipt.is_some().then_some(message));
        }
        Ok(settled)
    }

    /// Reads the receipt of a message that was moved by the group `claim_id`; `None` if the row is
    /// not there or is of another group.
    fn receipt_of(
        &self,
        partition_key: &str,
        message: &Message,
        claim_id: &str,
    ) -> Result<Option<Receipt>> {
        let row_key = message.row_key();
        let read = self.store.get(&self.table, partition_key, &row_key, &[]).map_err(|error| {
            let text = format!("{} may have been moved: {}", about(message), error.message());
            Error::new(ErrorKind::OutcomeUnknown, text)
        })?;
        let own = read.filter(|row| is_of_claim(row, claim_id));
        let partition_key = partition_key.to_owned();
        Ok(own.and_then(|row| row.etag()).map(|etag| Receipt { partition_key, row_key, etag }))
    }

    /// Deletes the row of a receipt. `lost` is the error of an earlier try whose outcome is not
    /// known.
    fn delete_row(&self, message: &Message, mut lost: Option<Error>) -> Result<()> {
        let Receipt { partition_key, row_key, etag } = message.receipt()?;
        let condition = Condition::Match(etag.clone());
        for _ in 0..DELETES_MAX {
            match self.store.delete(&self.table, partition_key, row_key, &condition) {
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => lost = Some(error),
                Err(error) if is_conflict(&error) => {
                    let Some(lost) = lost else { return Err(error.about(|| about(message))) };
                    // Until then no other consumer moves the row: the earlier try deleted it.
                    let is_own = self.store.now()? < message.next_visible;
                    return if is_own { Ok(()) } else { Err(lost) };
                }
                deleted => return deleted,
            }
        }
        lost.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, name, options, .. } = self;
        f.debug_tuple("Queue").field(table).field(name).field(options).finish()
    }
}

/// Divides messages into parts that fit a group: at most `most` messages, and about
/// [`GROUP_BYTES`].
fn parts(messages: &[Message], most: usize) -> impl Iterator<Item = &[Message]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |message: &&Message| {
            bytes += message.weight();
            bytes <= GROUP_BYTES
        };
        let count = rest.iter().take(most).take_while(fits).count().max(1).min(rest.len());
        let (part, after) = rest.split_at(count);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// Whether a row is not in the state that was read.
fn is_conflict(error: &Error) -> bool {
    let codes =
        [Code::ResourceNotFound, Code::EntityAlreadyExists, Code::UpdateConditionNotSatisfied];
    codes.iter().any(|code| error.code() == code.as_str())
}

fn check_timeout(visibility_timeout: Duration) -> Result<()> {
    match visibility_timeout > VISIBILITY_MAX {
        true => Err(refused("a visibility timeout is at most seven days")),
        false => Ok(()),
    }
}

fn about(message: &Message) -> String {
    quoted("message", &message.id)
}
