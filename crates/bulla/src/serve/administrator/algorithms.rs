//! DISPLAY ALGUSE: what the messages of a running queue manager are sealed with. No message is opened.

use super::{Administrator, failed};
use crate::catalog::status::{AlgorithmUse, SealedAs};
use crate::envelope::{self, Arrival};
use crate::manager::State;
use crate::mqsc::run::AdminError;
use crate::wall_clock::wall_ms;
use bulla_amqp::Payload;
use bulla_queue::{Place, QueueId, ReadError};
use bulla_seal::policy::{ContentCipher, Quality};
use bulla_seal::sealed_with;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// How long one command looks at messages: what is left then is said to be left. Who may look, and no more, must not
/// keep other commands waiting; ten thousand messages in memory take 0.05 s.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of messages that are read at a time, while the queues are locked.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Messages that are read at a time.
const BATCH_MESSAGES_MAX: usize = 64;
/// Ways of sealing that are told apart on one queue: who may put can make each message different.
const WAYS_MAX: usize = 100;

impl Administrator<'_> {
    /// Looks at the first so many messages of each queue whose name is wanted. Others have the queues while seals are
    /// read, and while bodies are read back.
    pub(super) fn look_at_algorithms(
        &mut self,
        is_wanted: &dyn Fn(&str) -> bool,
        messages_max: u64,
    ) -> Result<Vec<AlgorithmUse>, AdminError> {
        let mut queues: Vec<String> =
            self.state.store.queues().map(|(_, name)| name).filter(|name| is_wanted(name)).map(str::to_owned).collect();
        queues.sort_unstable();
        let began = Instant::now();
        let mut rows = Vec::new();
        for name in queues {
            // It may have gone meanwhile.
            let Some(queue) = self.state.store.queue(&name) else { continue };
            let counted = self.count_algorithms(queue, messages_max, began)?;
            let row = |(sealed, messages)| AlgorithmUse { queue: name.clone(), sealed, messages };
            rows.extend(counted.into_iter().map(row));
        }
        Ok(rows)
    }

    fn count_algorithms(
        &mut self,
        queue: QueueId,
        messages_max: u64,
        began: Instant,
    ) -> Result<BTreeMap<SealedAs, u64>, AdminError> {
        let (mut counted, mut looked, mut after) = (BTreeMap::new(), 0_u64, None);
        while looked < messages_max && began.elapsed() < TIME_MAX {
            let now_ms = wall_ms(SystemTime::now());
            let most = usize::try_from(messages_max - looked).unwrap_or(usize::MAX).min(BATCH_MESSAGES_MAX);
            let taken = self.read_back(|state| take(state, queue, &mut after, most, now_ms)).map_err(failed)?;
            if taken.is_empty() {
                break;
            }
            looked += taken.len() as u64;
            let ways = self.apart(|_| taken.iter().map(|body| of_body(body.as_ref(), now_ms)).collect::<Vec<_>>());
            ways.into_iter().for_each(|way| count(&mut counted, way));
        }
        let depth = self.state.store.status(queue).map_or(0, |status| u64::from(status.depth));
        let left = depth.saturating_sub(looked);
        if left > 0 {
            counted.insert(SealedAs::NotLookedAt, left);
        }
        Ok(counted)
    }
}

/// The next messages, under the queues' lock; none where there are no more. A body that can't be read is none.
///
/// # Errors
/// The first of them is still being read back.
fn take(
    state: &mut State,
    queue: QueueId,
    after: &mut Option<Place>,
    most: usize,
    now_ms: u64,
) -> Result<Vec<Option<Payload>>, ReadError> {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    while taken.len() < most && bytes < BATCH_BYTES_MAX {
        let Some(found) = state.store.browse_next(queue, *after, now_ms) else { break };
        let payload = match state.store.body(found.id) {
            Err(ReadError::Away { .. }) if !taken.is_empty() => break,
            Err(error @ ReadError::Away { .. }) => return Err(error),
            Err(_) => None,
            Ok(body) => Some(envelope::payload_of(&body)),
        };
        *after = Some(found.place);
        bytes += payload.as_ref().map_or(0, Payload::len);
        taken.push(payload);
    }
    Ok(taken)
}

/// How a message is protected, by its own word.
fn of_body(payload: Option<&Payload>, now_ms: u64) -> SealedAs {
    let Some(payload) = payload else { return SealedAs::Unreadable };
    let defective = SealedAs::Defective { cause: "malformed" };
    let Ok(arrival) = Arrival::read(payload, now_ms) else { return defective };
    if !arrival.claims_seal() {
        return SealedAs::Clear;
    }
    let Ok(der) = arrival.sealed_body() else { return defective };
    match sealed_with(&der) {
        Ok(found) => SealedAs::Sealed {
            quality: match found.quality {
                Some(Quality::Integrity) => "INTEGRITY",
                Some(Quality::Confidentiality) => "CONFIDENTIALITY",
                Some(Quality::Privacy | Quality::None) | None => "ENCRYPTED",
            },
            signers: found.signers,
            recipients: found.recipients,
            cipher: found.cipher.map(ContentCipher::as_str).unwrap_or_default(),
        },
        Err(error) => SealedAs::Defective { cause: error.cause() },
    }
}

fn count(counted: &mut BTreeMap<SealedAs, u64>, way: SealedAs) {
    let is_one_more = counted.len() >= WAYS_MAX && !counted.contains_key(&way);
    let way = if is_one_more { SealedAs::Other } else { way };
    *counted.entry(way).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ways_than_are_told_apart_are_counted_together() {
        let mut counted = BTreeMap::new();
        let way = |number: usize| SealedAs::Sealed {
            quality: "INTEGRITY",
            signers: vec![format!("rsa{number} SHA256")],
            recipients: Vec::new(),
            cipher: "",
        };
        (0..2 * WAYS_MAX).for_each(|number| count(&mut counted, way(number)));
        count(&mut counted, way(0));
        assert_eq!(counted.len(), WAYS_MAX + 1);
        assert_eq!((counted[&way(0)], counted[&SealedAs::Other]), (2, WAYS_MAX as u64));
    }
}
