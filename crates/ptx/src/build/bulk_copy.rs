//! Asynchronous bulk copies between global and shared memory (`cp.async.bulk`) by the tensor memory
//! accelerator (TMA).
//!
//! One thread starts a copy. A load completes at an `mbarrier`: the phase waits for its bytes,
//! which [`Kernel::mbarrier_arrive_expect_tx`] announces. A store belongs to the next
//! [`Kernel::cp_async_bulk_commit_group`] of its thread, and
//! [`Kernel::cp_async_bulk_wait_group_read`] waits until it has read its source. Shared memory
//! written by other instructions needs [`Kernel::fence_proxy_async`] and a barrier before a store
//! reads it.

use super::kernel::{Emit, Kernel};
use super::pointer::Ptr;
use super::predicate::Pred;
use super::scalar::{Arg, Scalar};
use super::shared::Shared;
use super::value::Value;
use crate::ast::{Address, AddressBase, Immediate, Modifier, Opcode, Operand, Type};

/// Bytes of a tensor map (`CUtensorMap`), and its alignment.
const TENSOR_MAP: (u32, u32) = (128, 64);

/// A parameter that is a tensor map (`CUtensorMap`), passed by value: `.param .align 64 .b8
/// name[128]`.
#[derive(Clone, Copy, Debug)]
pub struct TensorMapParam<'k> {
    address: Value<'k, u64>,
}

impl<'k> TensorMapParam<'k> {
    /// The generic address of the tensor map.
    pub fn address(self) -> Value<'k, u64> {
        self.address
    }

    /// Returns `other` if `condition` holds, else this map.
    #[must_use]
    pub fn or(self, other: Self, condition: Pred<'k>) -> Self {
        Self { address: condition.select(other.address, self.address) }
    }

    #[track_caller]
    fn coordinates<const N: usize>(self, coordinates: [Value<'k, u32>; N]) -> Operand {
        let coordinates = coordinates.map(signed).to_vec();
        Operand::TensorCoordinates(self.address.register(), coordinates)
    }
}

/// A coordinate as a signed 32-bit operand.
#[track_caller]
fn signed(coordinate: Value<'_, u32>) -> Operand {
    match coordinate.known() {
        Some(known) => Operand::Immediate(Immediate::Integer(i64::from(known as i32))),
        None => coordinate.operand(),
    }
}

#[track_caller]
fn at<T: Scalar>(place: Shared<'_, T>) -> Operand {
    Operand::Address(place.location().address)
}

#[track_caller]
fn global<T: Scalar>(pointer: Ptr<'_, T>) -> Operand {
    Operand::Address(pointer.location().address)
}

const LOAD: [Modifier; 2] = [Modifier::SharedClusterGlobal, Modifier::MbarrierCompleteTxBytes];
const STORE: [Modifier; 2] = [Modifier::GlobalSharedCta, Modifier::BulkGroup];

impl<'k> Kernel<'k> {
    /// A parameter that is a tensor map.
    pub fn tensor_map(&self, name: &str) -> TensorMapParam<'k> {
        let (bytes, align) = TENSOR_MAP;
        TensorMapParam { address: self.param_bytes(name, bytes, align) }
    }

    /// Prefetches the tensor map, so that the first copy finds it in a cache
    /// (`prefetch.tensormap`). Needs sm_90.
    #[track_caller]
    pub fn prefetch_tensormap(&self, map: TensorMapParam<'k>) {
        let base = AddressBase::Register(map.address.register());
        let operands = vec![Operand::Address(Address { base, offset: 0 })];
        let modifiers = &[Modifier::Tensormap];
        self.emit(Emit { opcode: Opcode::Prefetch, modifiers, types: &[], operands });
    }

    /// Copies `bytes` bytes from global memory and completes them at `mbarrier` (`cp.async.bulk`).
    /// `bytes` and both addresses are multiples of 16. Needs sm_90.
    #[track_caller]
    pub fn cp_async_bulk_load<T: Scalar, U: Scalar>(
        &self,
        to: Shared<'k, T>,
        from: Ptr<'k, U>,
        bytes: impl Arg<'k, u32>,
        mbarrier: Shared<'k, u64>,
    ) {
        let bytes = bytes.into_value(*self).operand();
        let operands = vec![at(to), global(from), bytes, at(mbarrier)];
        self.bulk(&[&[Modifier::AsyncBulk], &LOAD], operands);
    }

    /// Copies `bytes` bytes to global memory (`cp.async.bulk`). `bytes` and both addresses are
    /// multiples of 16. Needs sm_90.
    #[track_caller]
    pub fn cp_async_bulk_store<T: Scalar, U: Scalar>(
        &self,
        to: Ptr<'k, U>,
        from: Shared<'k, T>,
        bytes: impl Arg<'k, u32>,
    ) {
        let operands = vec![global(to), at(from), bytes.into_value(*self).operand()];
        self.bulk(&[&[Modifier::AsyncBulk], &STORE], operands);
    }

    /// As [`Kernel::cp_async_bulk_store`], but adds f32 elements to those in global memory
    /// (`cp.reduce.async.bulk`). Each element is added atomically; sums depend on the order of the
    /// additions. Needs sm_90.
    #[track_caller]
    pub fn cp_reduce_async_bulk_add(
        &self,
        to: Ptr<'k, f32>,
        from: Shared<'k, f32>,
        bytes: impl Arg<'k, u32>,
    ) {
        let operands = vec![global(to), at(from), bytes.into_value(*self).operand()];
        let modifiers = &[&[Modifier::ReduceAsyncBulk][..], &STORE, &[Modifier::Add]].concat();
        self.emit(Emit { opcode: Opcode::Cp, modifiers, types: &[Type::F32], operands });
    }

    /// Loads the box of a matrix whose first element has these coordinates, the first along the
    /// contiguous dimension, and completes its bytes at `mbarrier` (`cp.async.bulk.tensor.2d`).
    /// Elements outside of the matrix become zero and count as bytes. Needs sm_90.
    #[track_caller]
    pub fn cp_async_bulk_tensor_2d_load<T: Scalar>(
        &self,
        to: Shared<'k, T>,
        map: TensorMapParam<'k>,
        coordinates: [impl Arg<'k, u32>; 2],
        mbarrier: Shared<'k, u64>,
    ) {
        let map = map.coordinates(coordinates.map(|c| c.into_value(*self)));
        let name = [Modifier::AsyncBulkTensor, Modifier::Dim2, Modifier::Tile];
        self.bulk(&[&name, &LOAD], vec![at(to), map, at(mbarrier)]);
    }

    /// The same for a tensor of three dimensions (`cp.async.bulk.tensor.3d`). Needs sm_90.
    #[track_caller]
    pub fn cp_async_bulk_tensor_3d_load<T: Scalar>(
        &self,
        to: Shared<'k, T>,
        map: TensorMapParam<'k>,
        coordinates: [impl Arg<'k, u32>; 3],
        mbarrier: Shared<'k, u64>,
    ) {
        let map = map.coordinates(coordinates.map(|c| c.into_value(*self)));
        let name = [Modifier::AsyncBulkTensor, Modifier::Dim3, Modifier::Tile];
        self.bulk(&[&name, &LOAD], vec![at(to), map, at(mbarrier)]);
    }

    /// As [`Kernel::cp_async_bulk_tensor_2d_load`], but to the same shared address in every block
    /// of the cluster whose bit is set in `blocks`. It completes at the `mbarrier` of each block
    /// (`.multicast::cluster`). Needs sm_90.
    #[track_caller]
    pub fn cp_async_bulk_tensor_2d_load_multicast<T: Scalar>(
        &self,
        to: Shared<'k, T>,
        map: TensorMapParam<'k>,
        coordinates: [impl Arg<'k, u32>; 2],
        mbarrier: Shared<'k, u64>,
        blocks: u16,
    ) {
        let map = map.coordinates(coordinates.map(|c| c.into_value(*self)));
        let blocks = Operand::Immediate(Immediate::Integer(blocks.into()));
        let name = [Modifier::AsyncBulkTensor, Modifier::Dim2, Modifier::Tile];
        let multicast = [Modifier::MulticastCluster];
        self.bulk(&[&name, &LOAD, &multicast], vec![at(to), map, at(mbarrier), blocks]);
    }

    /// The same for a tensor of three dimensions (`cp.async.bulk.tensor.3d`). Needs sm_90.
    #[track_caller]
    pub fn cp_async_bulk_tensor_3d_load_multicast<T: Scalar>(
        &self,
        to: Shared<'k, T>,
        map: TensorMapParam<'k>,
        coordinates: [impl Arg<'k, u32>; 3],
        mbarrier: Shared<'k, u64>,
        blocks: u16,
    ) {
        let map = map.coordinates(coordinates.map(|c| c.into_value(*self)));
        let blocks = Operand::Immediate(Immediate::Integer(blocks.into()));
        let name = [Modifier::AsyncBulkTensor, Modifier::Dim3, Modifier::Tile];
        let multicast = [Modifier::MulticastCluster];
        self.bulk(&[&name, &LOAD, &multicast], vec![at(to), map, at(mbarrier), blocks]);
    }

    /// Stores the box of a matrix whose first element has these coordinates, the first along the
    /// contiguous dimension (`cp.async.bulk.tensor.2d`). Elements outside of the matrix are not
    /// written. Needs sm_90.
    #[track_caller]
    pub fn cp_async_bulk_tensor_2d_store<T: Scalar>(
        &self,
        map: TensorMapParam<'k>,
        coordinates: [impl Arg<'k, u32>; 2],
        from: Shared<'k, T>,
    ) {
        let map = map.coordinates(coordinates.map(|c| c.into_value(*self)));
        let name = [Modifier::AsyncBulkTensor, Modifier::Dim2, Modifier::Tile];
        self.bulk(&[&name, &STORE], vec![map, at(from)]);
    }

    /// The same for a tensor of three dimensions (`cp.async.bulk.tensor.3d`). Needs sm_90.
    #[track_caller]
    pub fn cp_async_bulk_tensor_3d_store<T: Scalar>(
        &self,
        map: TensorMapParam<'k>,
        coordinates: [impl Arg<'k, u32>; 3],
        from: Shared<'k, T>,
    ) {
        let map = map.coordinates(coordinates.map(|c| c.into_value(*self)));
        let name = [Modifier::AsyncBulkTensor, Modifier::Dim3, Modifier::Tile];
        self.bulk(&[&name, &STORE], vec![map, at(from)]);
    }

    /// As [`Kernel::cp_async_bulk_tensor_2d_store`], but adds to global memory
    /// (`cp.reduce.async.bulk.tensor`). Sums of floats depend on the order of the blocks. Needs
    /// sm_90.
    #[track_caller]
    pub fn cp_reduce_async_bulk_tensor_2d_add<T: Scalar>(
        &self,
        map: TensorMapParam<'k>,
        coordinates: [impl Arg<'k, u32>; 2],
        from: Shared<'k, T>,
    ) {
        let map = map.coordinates(coordinates.map(|c| c.into_value(*self)));
        let name = [Modifier::ReduceAsyncBulkTensor, Modifier::Dim2, Modifier::Tile, Modifier::Add];
        self.bulk(&[&name, &STORE], vec![map, at(from)]);
    }

    /// Puts the bulk stores that this thread has started since the last commit into one group
    /// (`cp.async.bulk.commit_group`). Needs sm_90.
    pub fn cp_async_bulk_commit_group(&self) {
        self.bulk(&[&[Modifier::BulkCommitGroup]], Vec::new());
    }

    /// Waits until all of this thread's groups except the last `pending` are complete, and their
    /// writes are visible to the thread (`cp.async.bulk.wait_group`). Needs sm_90.
    pub fn cp_async_bulk_wait_group(&self, pending: u32) {
        let operands = vec![Operand::Immediate(Immediate::Integer(pending.into()))];
        self.bulk(&[&[Modifier::BulkWaitGroup]], operands);
    }

    /// Waits until all of this thread's groups except the last `pending` have read their sources,
    /// which may then be overwritten (`cp.async.bulk.wait_group.read`). Needs sm_90.
    pub fn cp_async_bulk_wait_group_read(&self, pending: u32) {
        let operands = vec![Operand::Immediate(Immediate::Integer(pending.into()))];
        self.bulk(&[&[Modifier::BulkWaitGroup, Modifier::Read]], operands);
    }

    /// Makes this thread's writes to global memory visible to bulk copies
    /// (`fence.proxy.async.global`). Needs sm_90.
    pub fn fence_proxy_async_global(&self) {
        let modifiers = &[Modifier::ProxyAsync, Modifier::Global];
        self.emit(Emit { opcode: Opcode::Fence, modifiers, types: &[], operands: Vec::new() });
    }

    fn bulk(&self, modifiers: &[&[Modifier]], operands: Vec<Operand>) {
        let modifiers = &modifiers.concat();
        self.emit(Emit { opcode: Opcode::Cp, modifiers, types: &[], operands });
    }
}
