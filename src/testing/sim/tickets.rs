//! Steps that submit commits without waiting for them, and later await, poll or forget their
//! tickets.

use crate::error::Result as EngineResult;
use crate::options::Durability;

use super::counts::Event;
use super::oracle::Change;
use super::row::ticks;
use super::runner::{Outcome, Runner, line};
use super::runner_state::{Ask, Waiting};
use super::step::{Verb, Write};

impl Runner {
    pub(super) fn submit(
        &mut self,
        name: &str,
        table: &str,
        writes: &[Write],
        durability: Option<Durability>,
    ) -> Outcome {
        if self.tickets.contains_key(name) {
            return line("taken");
        }
        let change = Change::Rows { table: table.to_owned(), writes: writes.to_vec() };
        let ask = Ask::writes(table, writes);
        let busy = self.asks(&ask);
        let etags = self.etags(table, writes);
        let submitted = self.engine.submit(table, writes, &etags, durability);
        self.record_given()?;
        let error = submitted.as_ref().err();
        let expected = busy.or_refused(self.oracle.check(&change), error);
        self.asked(&ask, error);
        match (submitted, expected) {
            (Ok(ticket), Ok(())) => {
                let seq = ticket.seq().ticks();
                let has_tag: Vec<bool> =
                    writes.iter().map(|write| write.verb != Verb::Delete).collect();
                let etag = if has_tag.contains(&true) { seq } else { 0 };
                let durability = durability.unwrap_or(self.engine.config.durability);
                self.accepted(&change, etag, seq, durability)?;
                self.tickets.insert(name.to_owned(), Waiting { ticket, seq, has_tag });
                self.counts.note(Event::Ticket);
                line(format!("#{} submitted", self.oracle.commits()))
            }
            (Err(error), expected) => self.refused(&error, expected, change, true),
            (Ok(_), Err(refusal)) => Err(format!("accepted: where {refusal:?} was due")),
        }
    }

    pub(super) fn wait(&mut self, name: &str) -> Outcome {
        let Some(waiting) = self.tickets.remove(name) else { return line("no such ticket") };
        let Waiting { ticket, seq, has_tag } = waiting;
        let result = ticket.wait();
        self.acknowledged(result, seq, &has_tag)
    }

    pub(super) fn poll(&mut self, name: &str) -> Outcome {
        use std::pin::Pin;
        use std::task::{Context, Poll, Waker};
        let Some(waiting) = self.tickets.get_mut(name) else { return line("no such ticket") };
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut waiting.ticket).poll(&mut context) {
            Poll::Pending => line("pending"),
            Poll::Ready(result) => match self.tickets.remove(name) {
                Some(Waiting { seq, has_tag, .. }) => self.acknowledged(result, seq, &has_tag),
                None => Ok(Vec::new()),
            },
        }
    }

    /// Checks the answer to a ticket.
    fn acknowledged(
        &mut self,
        result: EngineResult<Vec<Option<crate::model::ETag>>>,
        seq: u64,
        has_tag: &[bool],
    ) -> Outcome {
        match result {
            Ok(etags) => {
                let found: Vec<_> = etags.into_iter().map(|etag| etag.map(ticks)).collect();
                let expected: Vec<_> = has_tag.iter().map(|tag| tag.then_some(seq)).collect();
                if found != expected {
                    return Err(format!("tags: {found:?}, expected {expected:?}"));
                }
                if self.engine.is_open() && self.engine.published() < seq {
                    return Err(format!("acknowledged: number {seq} before it is published"));
                }
                let number = self.oracle.count_up_to(seq);
                self.oracle.show(number);
                line(format!("#{number} acknowledged"))
            }
            Err(error) => self.excuse(Err(error)),
        }
    }
}
