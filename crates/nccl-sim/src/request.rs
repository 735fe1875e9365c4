//! Requests of ranks: kind, element type and size of a collective.

use std::fmt;

use retrograph_nccl_sys::{ncclDataType_t, ncclRedOp_t};

/// The kind of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
}

impl Kind {
    const ALL: [Self; 4] = [Self::AllReduce, Self::ReduceScatter, Self::AllGather, Self::Broadcast];

    fn call(self) -> &'static str {
        match self {
            Self::AllReduce => "ncclAllReduce",
            Self::ReduceScatter => "ncclReduceScatter",
            Self::AllGather => "ncclAllGather",
            Self::Broadcast => "ncclBroadcast",
        }
    }

    pub(crate) fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter)
    }
}

/// A collective without its buffers. The requests of all ranks must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) data_type: ncclDataType_t,
    /// The operation of a reduction.
    pub(crate) operation: ncclRedOp_t,
    /// Elements as in the call: of the block of one rank, or of all blocks.
    pub(crate) count: u64,
    /// The root of a broadcast.
    pub(crate) root: i32,
}

impl Request {
    pub(crate) const BYTES: usize = 21;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = vec![self.kind as u8];
        bytes.extend(self.data_type.0.to_le_bytes());
        bytes.extend(self.operation.0.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(self.root.to_le_bytes());
        bytes.try_into().expect("five fields have 21 bytes")
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a range of four bytes"))
        };
        let count = u64::from(word(9)) | u64::from(word(13)) << 32;
        Self {
            kind: Kind::ALL[usize::from(bytes[0]) % Kind::ALL.len()],
            data_type: ncclDataType_t(word(1)),
            operation: ncclRedOp_t(word(5)),
            count,
            root: word(17) as i32,
        }
    }

    /// Bytes of an element; `None` for a type that nccl.h does not list.
    pub(crate) fn element(&self) -> Option<usize> {
        match self.data_type.0 {
            0 | 1 => Some(1),
            6 | 9 => Some(2),
            2 | 3 | 7 => Some(4),
            4 | 5 | 8 => Some(8),
            _ => None,
        }
    }

    /// Returns the bytes that each of `ranks` ranks sends and receives.
    pub(crate) fn bytes(&self, ranks: usize) -> Option<[usize; 2]> {
        let count = usize::try_from(self.count).ok()?.checked_mul(self.element()?)?;
        let all = count.checked_mul(ranks)?;
        Some(match self.kind {
            Kind::AllReduce | Kind::Broadcast => [count, count],
            Kind::ReduceScatter => [all, count],
            Kind::AllGather => [count, all],
        })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, data_type, operation, count, root } = self;
        write!(f, "{} of {count} {data_type:?}", kind.call())?;
        match kind {
            Kind::Broadcast => write!(f, " from rank {root}"),
            kind if kind.reduces() => write!(f, " by {operation:?}"),
            _ => Ok(()),
        }
    }
}
