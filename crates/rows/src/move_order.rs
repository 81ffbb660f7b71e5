//! The row of a move's order: what its operator asked for. The job that carries it out writes other rows.

use bytes::Bytes;

use crate::ActorId;
use crate::codec::{DecodeError, FieldDecoder, FieldEncoder, coded};

/// The version of an order from a Riak that names no queue: it has that of the default name.
const SWEEP_VERSION: u8 = 1;
/// The version of an order from an S3 store: programs that read none refuse it.
const S3_VERSION: u8 = 2;
/// The version of an order from a Riak that names its queue.
const VERSION: u8 = 3;
/// The version of an order from an S3 store that brings the ACLs of objects.
const S3_ACLS_VERSION: u8 = 4;
/// The name of the replication queue in orders without one.
pub const MOVE_QUEUE_DEFAULT: &str = "larder";
/// Most types, or buckets, of one move.
const TYPES_MAX: usize = 10_000;

coded! {
    /// What the job of a move has to do.
    pub enum MoveWish {
        /// It copies, and follows the source.
        Run = 1, "run";
        /// It stops until it is resumed.
        Pause = 2, "pause";
        /// It compares all with the source, then follows it again.
        Verify = 3, "verify";
        /// It ends: what it knows of addresses is removed.
        Finish = 4, "finish";
        /// It ends before it is done; what it copied stays.
        Cancel = 5, "cancel";
        /// It verifies, and copies again what differs.
        Repair = 6, "repair";
        /// It hands what changes here back to the Riak that it came from, until it ends.
        Back = 7, "back";
    }
}

/// The terms of a move from an S3 store.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct S3MoveTerms {
    /// The secret of the access key in the source's address.
    pub secret: String,
    /// The buckets that move; without any, all.
    pub buckets: Vec<String>,
    /// The canonical id of the user who owns the buckets here.
    pub owner: String,
    /// Whether the ACLs of objects move, too: each takes a request.
    pub acls: bool,
}

impl std::fmt::Debug for S3MoveTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Logs must not show the secret.
        f.debug_struct("S3MoveTerms")
            .field("buckets", &self.buckets)
            .field("owner", &self.owner)
            .field("acls", &self.acls)
            .finish_non_exhaustive()
    }
}

/// The order of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveOrder {
    /// The id of the move.
    pub id: String,
    /// The address of the source.
    pub source: String,
    /// The bucket types that it moves.
    pub types: Vec<Bytes>,
    /// Most requests to the source in a second.
    pub rate: u32,
    /// The actor of the rows that it writes: no run of a server has it, so they differ from those of clients.
    pub actor: ActorId,
    /// What the job has to do.
    pub wish: MoveWish,
    /// The number of the wish: the job notes the last one that it carried out.
    pub number: u64,
    /// The replication queue that a Riak fills for this move; empty for an S3 store.
    pub queue: String,
    /// The terms of a move from an S3 store; `None`: it comes from a Riak.
    pub s3: Option<S3MoveTerms>,
}

impl MoveOrder {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let version = match &self.s3 {
            Some(terms) if terms.acls => S3_ACLS_VERSION,
            Some(_) => S3_VERSION,
            None => VERSION,
        };
        let mut out = FieldEncoder::versioned(version, 64 + self.source.len());
        out.text(&self.id);
        out.text(&self.source);
        out.list(&self.types, |out, name| out.bytes(name));
        out.varint(self.rate.into());
        out.u64(self.actor.0);
        out.u8(self.wish.code());
        out.varint(self.number);
        match &self.s3 {
            Some(terms) => {
                out.text(&terms.secret);
                out.list(&terms.buckets, |out, name| out.text(name));
                out.text(&terms.owner);
            }
            None => out.text(&self.queue),
        }
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let others = [SWEEP_VERSION, S3_VERSION, S3_ACLS_VERSION];
        let version = value.first().copied().filter(|version| others.contains(version));
        let version = version.unwrap_or(VERSION);
        let mut rest = FieldDecoder::versioned(value, version)?;
        let (id, source) = (rest.text()?, rest.text()?);
        let types = (0..rest.count(TYPES_MAX)?).map(|_| rest.bytes()).collect::<Result<_, _>>()?;
        let rate = u32::try_from(rest.varint()?).map_err(|_| DecodeError::Invalid("rate"))?;
        let actor = ActorId(rest.u64()?);
        let wish = MoveWish::from_code(rest.u8()?).ok_or(DecodeError::Invalid("wish"))?;
        let number = rest.varint()?;
        let s3 = match version {
            S3_VERSION | S3_ACLS_VERSION => {
                let secret = rest.text()?;
                let buckets = (0..rest.count(TYPES_MAX)?).map(|_| rest.text()).collect::<Result<_, _>>()?;
                Some(S3MoveTerms { secret, buckets, owner: rest.text()?, acls: version == S3_ACLS_VERSION })
            }
            _ => None,
        };
        let queue = match version {
            S3_VERSION | S3_ACLS_VERSION => String::new(),
            SWEEP_VERSION => MOVE_QUEUE_DEFAULT.to_owned(),
            _ => rest.text()?,
        };
        let order = Self { id, source, types, rate, actor, wish, number, queue, s3 };
        rest.finish()?;
        Ok(order)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_golden_order_still_decodes() {
        let order = MoveOrder {
            id: "i".into(),
            source: "s".into(),
            types: vec!["t".into()],
            rate: 300,
            actor: ActorId(1),
            wish: MoveWish::Verify,
            number: 2,
            queue: "q".into(),
            s3: None,
        };
        let golden = Bytes::from_static(b"\x03\x01i\x01s\x01\x01t\xac\x02\0\0\0\0\0\0\0\x01\x03\x02\x01q");
        assert_eq!(order.encode(), golden);
        assert_eq!(MoveOrder::decode(golden), Ok(order.clone()));
        let old = Bytes::from_static(b"\x01\x01i\x01s\x01\x01t\xac\x02\0\0\0\0\0\0\0\x01\x03\x02");
        let unnamed = MoveOrder { queue: MOVE_QUEUE_DEFAULT.into(), ..order.clone() };
        assert_eq!(MoveOrder::decode(old), Ok(unnamed), "an order that an older program wrote");
        let terms = S3MoveTerms { secret: "k".into(), buckets: vec!["b".into()], owner: "o".into(), acls: false };
        let order = MoveOrder { s3: Some(terms), queue: String::new(), ..order };
        let golden =
            Bytes::from_static(b"\x02\x01i\x01s\x01\x01t\xac\x02\0\0\0\0\0\0\0\x01\x03\x02\x01k\x01\x01b\x01o");
        assert_eq!(order.encode(), golden);
        assert!(!format!("{order:?}").contains("\"k\""), "the secret is not shown");
        assert_eq!(MoveOrder::decode(golden.clone()), Ok(order.clone()));
        let terms = S3MoveTerms { acls: true, ..order.s3.clone().unwrap() };
        let golden: Bytes = [b"\x04", &golden[1..]].concat().into();
        assert_eq!(MoveOrder::decode(golden), Ok(MoveOrder { s3: Some(terms), ..order }));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = MoveOrder::decode(bytes.clone().into());
            let _ = MoveOrder::decode([&[VERSION], &bytes[..]].concat().into());
            let _ = MoveOrder::decode([&[S3_VERSION], &bytes[..]].concat().into());
            let _ = MoveOrder::decode([&[SWEEP_VERSION], &bytes[..]].concat().into());
        }
    }
}
