//! Received messages that are handled by somebody outside this process, who renews and ends the reservation he was given: the HTTP
//! interface is for those. Nothing here renews in the background, and dropping anything gives nothing back; a reservation that is not
//! renewed lapses.

use std::time::Duration;

use jiff::Timestamp;

use crate::error::Result;
use crate::id::OwnerToken;
use crate::queue::ClaimRequest;
use crate::telemetry;
use crate::text::error_text;

use super::{BeginAnswer, GuardOptions, Inbox, InboxKey, Reservation, ReservationEnd};

impl Inbox {
    /// Reserves a message for `owner`, as [`Inbox::begin`] does. The reservation is the caller's if the answer is [`BeginAnswer::New`].
    pub async fn reserve(
        &self,
        key: &InboxKey,
        owner: OwnerToken,
        options: &GuardOptions,
    ) -> Result<(Option<Reservation>, BeginAnswer)> {
        owner.validate("inbox.begin")?;
        options.validate()?;
        let answer = self.store().begin(key, options.hash.as_ref(), owner, options.lease).await?;
        telemetry::begun(self.store().identifier(), key, &answer);
        let reservation = match &answer {
            BeginAnswer::New(reserved) => {
                Some(Reservation { key: key.clone(), owner, generation: reserved.generation })
            }
            BeginAnswer::Busy { .. } | BeginAnswer::Done { .. } | BeginAnswer::Dead { .. } => None,
        };
        Ok((reservation, answer))
    }

    /// Extends a reservation to `lease` from the database's now: until when. None when it no longer holds.
    pub async fn renew_reservation(
        &self,
        reservation: &Reservation,
        lease: Duration,
    ) -> Result<Option<Timestamp>> {
        reservation.owner.validate("inbox.renew")?;
        ClaimRequest::validate_lease("inbox.renew", lease)?;
        let until = self.store().renew(reservation, lease).await?;
        if until.is_none() {
            telemetry::guard_lost(self.store().identifier(), &reservation.key);
        }
        Ok(until)
    }

    /// Ends a reservation. False when it no longer held.
    pub async fn end_reservation(&self, reservation: &Reservation, end: ReservationEnd) -> Result<bool> {
        reservation.owner.validate("inbox.end")?;
        let end = match end {
            ReservationEnd::Complete => ReservationEnd::Complete,
            ReservationEnd::Fail(error) => ReservationEnd::Fail(error.as_deref().and_then(error_text)),
            ReservationEnd::Release(error) => ReservationEnd::Release(error.as_deref().and_then(error_text)),
        };
        let ended = self.store().end(reservation, &end).await?;
        if ended {
            telemetry::guard_ended(self.store().identifier(), &reservation.key, &end);
        } else {
            telemetry::guard_lost(self.store().identifier(), &reservation.key);
        }
        Ok(ended)
    }
}
