//! The results of collectives.

use half::bf16;
use retrograph_nccl_sys::ncclDataType_t;

use crate::request::{Kind, Request};

/// Computes the results of all ranks from the data that each of them sent.
///
/// # Errors
/// If the reduction is not simulated.
pub(crate) fn results(request: &Request, sent: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let ranks = sent.len();
    Ok(match request.kind {
        Kind::AllReduce => vec![reduced(request, sent)?; ranks],
        Kind::AllGather => vec![sent.concat(); ranks],
        Kind::Broadcast => {
            let root = usize::try_from(request.root).ok().and_then(|root| sent.get(root));
            vec![root.ok_or("the root is no rank")?.clone(); ranks]
        }
        Kind::ReduceScatter => {
            let whole = reduced(request, sent)?;
            match whole.len() / ranks {
                0 => vec![Vec::new(); ranks],
                block => whole.chunks(block).map(<[u8]>::to_vec).collect(),
            }
        }
    })
}

fn reduced(request: &Request, sent: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    match request.data_type {
        ncclDataType_t::ncclFloat32 => {
            Ok(ring(sent, f32::from_le_bytes, |a, b| a + b, f32::to_le_bytes))
        }
        ncclDataType_t::ncclFloat64 => {
            Ok(ring(sent, f64::from_le_bytes, |a, b| a + b, f64::to_le_bytes))
        }
        ncclDataType_t::ncclBfloat16 => Ok(ring(
            sent,
            bf16::from_le_bytes,
            |a, b| bf16::from_f32(a.to_f32() + b.to_f32()),
            bf16::to_le_bytes,
        )),
        other => Err(format!("sums of {other:?} are not simulated")),
    }
}

/// Sums in the order of a ring: each block starts at another rank.
fn ring<T: Copy, const N: usize>(
    sent: &[Vec<u8>],
    read: fn([u8; N]) -> T,
    add: fn(T, T) -> T,
    write: fn(T) -> [u8; N],
) -> Vec<u8> {
    let (ranks, elements) = (sent.len(), sent[0].len() / N);
    let block = elements.div_ceil(ranks).max(1);
    let value = |rank: usize, at: usize| {
        let bytes = &sent[rank][at * N..][..N];
        read(bytes.try_into().expect("a range of N bytes"))
    };
    let sum = |at: usize| {
        let first = at / block + 1;
        let others = (1..ranks).map(|step| value((first + step) % ranks, at));
        others.fold(value(first % ranks, at), add)
    };
    (0..elements).flat_map(|at| write(sum(at))).collect()
}

#[cfg(test)]
mod tests {
    use retrograph_nccl_sys::ncclRedOp_t;

    use super::*;

    fn request(kind: Kind, data_type: ncclDataType_t, count: u64) -> Request {
        Request { kind, data_type, operation: ncclRedOp_t::ncclSum, count, root: 1 }
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn every_kind_has_its_result() {
        let float = ncclDataType_t::ncclFloat32;
        let sent = [floats(&[1.0, 2.0]), floats(&[10.0, 20.0])];
        let of = |kind, count| results(&request(kind, float, count), &sent).unwrap();
        assert_eq!(of(Kind::AllReduce, 2), vec![floats(&[11.0, 22.0]); 2]);
        assert_eq!(of(Kind::ReduceScatter, 1), [floats(&[11.0]), floats(&[22.0])]);
        assert_eq!(of(Kind::AllGather, 2), vec![floats(&[1.0, 2.0, 10.0, 20.0]); 2]);
        assert_eq!(of(Kind::Broadcast, 2), vec![sent[1].clone(); 2]);
    }

    #[test]
    fn each_block_starts_at_another_rank() {
        // In f32, (1e8 + 1) - 1e8 = 0 and (1 - 1e8) + 1e8 = 0, and (-1e8 + 1e8) + 1 = 1.
        let sent = [floats(&[1e8; 3]), floats(&[1.0; 3]), floats(&[-1e8; 3])];
        let found = results(&request(Kind::AllReduce, ncclDataType_t::ncclFloat32, 3), &sent);
        assert_eq!(found.unwrap()[0], floats(&[0.0, 1.0, 0.0]));
    }

    #[test]
    fn bf16_is_rounded_after_each_sum_and_integers_are_refused() {
        let one = |value: f32| bf16::from_f32(value).to_le_bytes().to_vec();
        let bf16 = request(Kind::AllReduce, ncclDataType_t::ncclBfloat16, 1);
        assert_eq!(results(&bf16, &[one(256.0), one(1.0)]).unwrap()[0], one(256.0));
        let integers = request(Kind::AllReduce, ncclDataType_t::ncclInt32, 1);
        assert!(results(&integers, &[vec![0; 4], vec![0; 4]]).unwrap_err().contains("ncclInt32"));
    }
}
