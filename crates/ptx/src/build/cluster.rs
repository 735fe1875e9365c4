//! Roles of warps and blocks: election of a lane, registers of a warpgroup, and clusters.

use std::marker::PhantomData;

use super::kernel::{Emit, Kernel};
use super::memory::Location;
use super::predicate::Pred;
use super::scalar::Scalar;
use super::shared::Shared;
use super::value::Value;
use crate::ast::{
    Address, AddressBase, Immediate, Modifier, Opcode, Operand, RegisterId, SpecialRegister, Type,
};

impl<'k> Kernel<'k> {
    /// True in one lane of the warp (`elect.sync`). Every lane must execute it. Needs sm_90.
    #[track_caller]
    pub fn elect_sync(&self) -> Pred<'k> {
        let elected = self.register(Type::Pred);
        let all = Operand::Immediate(Immediate::Integer(0xFFFF_FFFF));
        let operands = vec![Operand::Pair(None, Some(elected)), all];
        let modifiers = &[Modifier::Sync];
        self.emit(Emit { opcode: Opcode::Elect, modifiers, types: &[], operands });
        Pred::new(*self, elected)
    }

    /// Raises the registers of each thread of this warpgroup to `registers`, and waits until they
    /// are free (`setmaxnreg.inc`): a multiple of 8 from 24 to 256. The kernel needs
    /// [`Kernel::max_threads`]. sm_90a only.
    pub fn setmaxnreg_inc(&self, registers: u32) {
        self.setmaxnreg(Modifier::IncSync, registers);
    }

    /// Lowers the registers of each thread of this warpgroup to `registers` (`setmaxnreg.dec`): a
    /// multiple of 8 from 24 to 256. The kernel needs [`Kernel::max_threads`]. sm_90a only.
    pub fn setmaxnreg_dec(&self, registers: u32) {
        self.setmaxnreg(Modifier::DecSync, registers);
    }

    fn setmaxnreg(&self, direction: Modifier, registers: u32) {
        let operands = vec![Operand::Immediate(Immediate::Integer(registers.into()))];
        let (modifiers, types) = (&[direction, Modifier::Aligned], &[Type::U32]);
        self.emit(Emit { opcode: Opcode::Setmaxnreg, modifiers, types, operands });
    }

    /// Rank of the block in its cluster (`%cluster_ctarank`). Needs sm_90.
    pub fn cluster_ctarank(&self) -> Value<'k, u32> {
        self.special(SpecialRegister::ClusterCtarank)
    }

    /// Blocks in the cluster (`%cluster_nctarank`). Needs sm_90.
    pub fn cluster_nctarank(&self) -> Value<'k, u32> {
        self.special(SpecialRegister::ClusterNctarank)
    }

    /// Index of the block in its cluster, x (`%cluster_ctaid.x`). Needs sm_90.
    pub fn cluster_ctaid_x(&self) -> Value<'k, u32> {
        self.special(SpecialRegister::ClusterCtaidX)
    }

    /// Index of the cluster in the grid, x (`%clusterid.x`). Needs sm_90.
    pub fn clusterid_x(&self) -> Value<'k, u32> {
        self.special(SpecialRegister::ClusterIdX)
    }

    /// Arrives at the barrier of the cluster (`barrier.cluster.arrive`). Needs sm_90.
    pub fn barrier_cluster_arrive(&self) {
        self.barrier_cluster(&[Modifier::Arrive]);
    }

    /// As [`Kernel::barrier_cluster_arrive`], but does not make earlier writes of this thread
    /// visible to the cluster (`barrier.cluster.arrive.relaxed`). Needs sm_90.
    pub fn barrier_cluster_arrive_relaxed(&self) {
        self.barrier_cluster(&[Modifier::Arrive, Modifier::Relaxed]);
    }

    /// Waits until all threads of the cluster have arrived (`barrier.cluster.wait`). Needs sm_90.
    pub fn barrier_cluster_wait(&self) {
        self.barrier_cluster(&[Modifier::Wait]);
    }

    fn barrier_cluster(&self, step: &[Modifier]) {
        let modifiers = &[&[Modifier::Cluster], step, &[Modifier::Aligned]].concat();
        self.emit(Emit { opcode: Opcode::Barrier, modifiers, types: &[], operands: Vec::new() });
    }

    /// Counts one arrival at the `mbarrier` of the block `rank` of the cluster (`mapa` and
    /// `mbarrier.arrive.shared::cluster`). Needs sm_90.
    #[track_caller]
    pub fn mbarrier_arrive_cluster(&self, mbarrier: Shared<'k, u64>, rank: Value<'k, u32>) {
        let base = AddressBase::Register(self.mapa(mbarrier.address(), rank));
        let operands = vec![Operand::Sink, Operand::Address(Address { base, offset: 0 })];
        let modifiers = &[Modifier::Arrive, Modifier::SharedCluster];
        self.emit(Emit { opcode: Opcode::Mbarrier, modifiers, types: &[Type::B64], operands });
    }

    /// The address of a shared variable in the block `rank` of the cluster.
    #[track_caller]
    fn mapa(&self, address: Value<'k, u32>, rank: Value<'k, u32>) -> RegisterId {
        let operands = vec![Operand::Register(address.register()), rank.operand()];
        let (modifiers, types) = (&[Modifier::SharedCluster], &[Type::U32]);
        self.compute(Type::U32, Emit { opcode: Opcode::Mapa, modifiers, types, operands })
    }
}

/// A pointer to elements of type `T` in the shared memory of a block of the cluster.
pub struct ClusterShared<'k, T> {
    location: Location<'k>,
    element: PhantomData<T>,
}

impl<'k, T: Scalar> Shared<'k, T> {
    /// The same address in the block `rank` of the cluster (`mapa.shared::cluster`). Needs sm_90.
    #[track_caller]
    pub fn in_block(self, rank: Value<'k, u32>) -> ClusterShared<'k, T> {
        let (kernel, address) = (rank.kernel(), self.address());
        let base = AddressBase::Register(kernel.mapa(address, rank));
        let (space, address) = (Modifier::SharedCluster, Address { base, offset: 0 });
        let location = Location { kernel, space, address };
        ClusterShared { location, element: PhantomData }
    }
}

impl<'k, T: super::Word> ClusterShared<'k, T> {
    /// Stores four elements from `index` with one instruction (`st.shared::cluster`). The address
    /// must be a multiple of 16.
    #[track_caller]
    pub fn store_vec4(&self, index: u32, values: [Value<'k, T>; 4]) {
        let Address { base, offset } = self.location.address;
        let offset = offset + i64::from(index) * i64::from(T::TYPE.size());
        Location { address: Address { base, offset }, ..self.location }.store_vector(values);
    }
}
