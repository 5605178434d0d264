//! Limits the requests that are carried out at the same time, in total and for each client.
//!
//! Invariants
//! * there are no more requests than slots;
//! * a client, and an account with all its clients, takes another slot only while enough slots are
//!   free. So neither can take all slots, and a single client can use most of them.
//!
//! A client is an address with a key or a token of an account. `connection_slots` has the slots of
//! connections.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Code;
use crate::rest::protocol::fault::Fault;
use crate::sync::Mutex;

/// A client takes another slot only if it holds fewer than this many times the free slots. A single
/// client gets three quarters of all slots, and two clients three sevenths each.
const CLIENT_PER_FREE: usize = 3;
/// The same for an account. It exceeds the limit of a client, so that a client does not exclude the
/// others of its account.
const ACCOUNT_PER_FREE: usize = 7;

/// The request slots of a server.
#[derive(Debug)]
pub(in crate::rest) struct RequestSlots {
    slots: u32,
    free: Arc<Semaphore>,
    hasher: RandomState,
    /// The number of slots that each client and each account holds, keyed by hash.
    held: Mutex<HashMap<u64, usize>>,
}

/// The slot of one request. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct RequestSlot {
    slots: Arc<RequestSlots>,
    /// The client and the account that hold the slot; `None` until the client is authenticated.
    holders: Mutex<Option<[u64; 2]>>,
    _permit: OwnedSemaphorePermit,
}

impl RequestSlots {
    pub(in crate::rest) fn new(slots: usize) -> Arc<Self> {
        let slots = u32::try_from(slots.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Arc::new(Self {
            slots,
            free: Arc::new(Semaphore::new(slots as usize)),
            hasher: RandomState::new(),
            held: Mutex::default(),
        })
    }

    /// Takes a free slot; `None` if there is none.
    pub(in crate::rest) fn take(self: &Arc<Self>) -> Option<RequestSlot> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(RequestSlot { slots: Arc::clone(self), holders: Mutex::new(None), _permit: permit })
    }

    /// Completes when no request holds a slot.
    pub(in crate::rest) async fn all_free(&self) {
        drop(self.free.acquire_many(self.slots).await);
    }
}

impl RequestSlot {
    /// Charges the slot to an authenticated client, which has `token` or else a key of `account`.
    /// Further calls have no effect.
    ///
    /// # Errors
    /// `ServerBusy` if the client or the account has its share of the slots.
    pub(in crate::rest) fn charge(
        &self,
        account: &str,
        token: Option<&str>,
        address: IpAddr,
    ) -> Result<(), Fault> {
        let mut holders = self.holders.lock();
        if holders.is_some() {
            return Ok(());
        }
        let hasher = &self.slots.hasher;
        let own = [hasher.hash_one((account, token, address)), hasher.hash_one(account)];
        let mut held = self.slots.held.lock();
        // The slot itself counts as free.
        let free = self.slots.free.available_permits() + 1;
        let is_above = |(holder, per_free): (&u64, usize)| {
            held.get(holder).is_some_and(|held| *held >= per_free * free)
        };
        if own.iter().zip([CLIENT_PER_FREE, ACCOUNT_PER_FREE]).any(is_above) {
            return Err(Code::ServerBusy.into());
        }
        own.iter().for_each(|holder| *held.entry(*holder).or_default() += 1);
        *holders = Some(own);
        Ok(())
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        let Some(holders) = *self.holders.lock() else { return };
        let mut held = self.slots.held.lock();
        for holder in holders {
            let count = held.remove(&holder).unwrap_or_default();
            debug_assert!(count > 0, "a holder of a slot is counted");
            if count > 1 {
                held.insert(holder, count - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client of an account: its token, and the last byte of its address.
    type Client = (&'static str, Option<&'static str>, u8);

    const KEY: Client = ("a", None, 1);

    fn charge(slot: &RequestSlot, (account, token, address): Client) -> bool {
        slot.charge(account, token, IpAddr::from([192, 0, 2, address])).is_ok()
    }

    /// Takes slots for requests of `client` until one is refused.
    fn fill(slots: &Arc<RequestSlots>, client: Client) -> Vec<RequestSlot> {
        std::iter::from_fn(|| slots.take().filter(|slot| charge(slot, client))).collect()
    }

    #[test]
    fn a_client_gets_most_slots_and_leaves_some_to_others() {
        let slots = RequestSlots::new(256);
        let first = fill(&slots, KEY);
        assert_eq!(first.len(), 192);
        // Another address, a token and another account are other clients.
        for other in [("a", None, 2), ("a", Some("t"), 1), ("b", None, 1)] {
            let other = fill(&slots, other);
            assert!(other.len() >= 30, "{}", other.len());
        }
        // Freed slots can be taken again.
        drop(first);
        assert_eq!(fill(&slots, KEY).len(), 192);
        assert!(slots.held.lock().is_empty());
    }

    #[test]
    fn an_account_with_many_clients_leaves_slots_to_others() {
        let slots = RequestSlots::new(256);
        let mut held: Vec<_> = (0..=u8::MAX).flat_map(|n| fill(&slots, ("a", None, n))).collect();
        // A key holder can make any number of tokens.
        held.extend(["s", "t", "u"].iter().flat_map(|token| fill(&slots, ("a", Some(token), 1))));
        assert_eq!(held.len(), 224);
        assert_eq!(fill(&slots, ("b", None, 1)).len(), 24);
    }

    #[test]
    fn a_slot_is_charged_once_and_a_refused_one_to_no_client() {
        let slots = RequestSlots::new(4);
        let held = fill(&slots, KEY);
        assert_eq!(held.len(), 3);
        assert!(held.iter().all(|slot| charge(slot, KEY)));
        let refused = slots.take().unwrap();
        assert!(!charge(&refused, KEY) && !charge(&refused, KEY));
        drop((held, refused));
        assert!(slots.held.lock().is_empty());
    }

    #[test]
    fn a_single_slot_is_for_everyone() {
        let slots = RequestSlots::new(1);
        for client in [KEY, ("b", None, 1)] {
            assert_eq!(fill(&slots, client).len(), 1);
        }
    }
}
