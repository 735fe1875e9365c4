//! Occupancy: resident blocks per SM.

use retrograph_driver_sys::*;

use super::device::{
    BLOCKS_PER_MULTIPROCESSOR, MULTIPROCESSORS, REGISTERS, RESERVED_SHARED_BYTES,
    THREADS_PER_MULTIPROCESSOR, shared_opt_in, shared_per_multiprocessor,
};
use super::functions::{max_threads_of, registers};
use super::launch::{LaunchRequest, check_geometry};
use super::launch_attributes::PORTABLE_CLUSTER;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::{Function, State};
use crate::work::Launch;

/// The maximum threads per block.
const MAX_THREADS: u32 = 1024;
/// The allocation unit of a warp's registers.
const WARP_REGISTER_UNIT: u32 = 256;
/// Partitions of an SM, which share its warps and registers equally.
const PARTITIONS: u32 = 4;

impl State {
    /// An upper bound of the blocks of a launch that the device can hold at once. It ignores
    /// registers, because their number is an estimate: a bound that is too low would report
    /// deadlocks that hardware does not have.
    pub(crate) fn most_resident_blocks(&self, launch: &Launch) -> u64 {
        let threads = launch.block.iter().product();
        let shared = launch.program.shared_bytes() + launch.shared_bytes;
        let per_multiprocessor = self.resident_blocks_without_registers(threads, shared.into());
        u64::from(per_multiprocessor.max(1)) * u64::from(MULTIPROCESSORS.unsigned_abs())
    }

    /// Resident blocks per SM for a block size and bytes of shared memory, without regard to
    /// registers.
    fn resident_blocks_without_registers(&self, threads: u32, shared: u64) -> u32 {
        let per_block = shared.next_multiple_of(128) + u64::from(RESERVED_SHARED_BYTES);
        let by_shared = u64::from(shared_per_multiprocessor(&self.config)) / per_block;
        let by_threads = THREADS_PER_MULTIPROCESSOR / threads.next_multiple_of(32);
        let least = by_threads.min(BLOCKS_PER_MULTIPROCESSOR);
        least.min(u32::try_from(by_shared).unwrap_or(u32::MAX))
    }

    /// Resident blocks per SM for a block size and a number of dynamic shared bytes.
    pub(super) fn resident_blocks(&self, function: &Function, threads: u32, dynamic: u64) -> u32 {
        let statically = u64::from(function.program.shared_bytes());
        let max_shared = u64::from(shared_opt_in(&self.config));
        let is_allowed = dynamic <= u64::from(function.dynamic_shared_limit);
        if threads > MAX_THREADS || !is_allowed || statically + dynamic > max_shared {
            return 0;
        }
        let warps = threads.div_ceil(32);
        let per_warp = (registers(function) * 32).next_multiple_of(WARP_REGISTER_UNIT);
        let resident_warps = REGISTERS / PARTITIONS / per_warp * PARTITIONS;
        let by_registers = resident_warps / warps;
        self.resident_blocks_without_registers(threads, statically + dynamic).min(by_registers)
    }

    pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &mut self,
        blocks: Out<i32>,
        function: CUfunction,
        block_size: i32,
        dynamic_shared_bytes: usize,
    ) -> Call {
        self.current()?;
        blocks.require()?;
        let function = self.resolved(function)?;
        let threads = u32::try_from(block_size).ok().filter(|threads| *threads > 0);
        let threads = threads.ok_or(invalid(Rule::OccupancyThreads))?;
        let found = self.functions.get(function)?;
        let count = self.resident_blocks(found, threads, dynamic_shared_bytes as u64);
        blocks.write(count.cast_signed())
    }

    pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &mut self,
        blocks: Out<i32>,
        function: CUfunction,
        block_size: i32,
        dynamic_shared_bytes: usize,
        flags: u32,
    ) -> Call {
        self.current()?;
        check_flags(flags)?;
        let shared = dynamic_shared_bytes;
        self.cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared)
    }

    pub(crate) fn cuOccupancyAvailableDynamicSMemPerBlock(
        &mut self,
        dynamic_shared_bytes: Out<usize>,
        function: CUfunction,
        blocks: i32,
        block_size: i32,
    ) -> Call {
        self.current()?;
        let function = self.resolved(function)?;
        if dynamic_shared_bytes.is_null() {
            return Err(self.undefined("the result is written through null"));
        }
        let positive = |number: i32| u32::try_from(number).ok().filter(|number| *number > 0);
        let (blocks, threads) =
            positive(blocks).zip(positive(block_size)).ok_or(invalid(Rule::OccupancyThreads))?;
        let found = self.functions.get(function)?;
        if self.resident_blocks(found, threads, 0) < blocks {
            return Err(invalid(Rule::OccupancyBlocks));
        }
        let share = shared_per_multiprocessor(&self.config) / blocks / 128 * 128;
        let share = share.saturating_sub(RESERVED_SHARED_BYTES).min(found.dynamic_shared_limit);
        dynamic_shared_bytes.write(share as usize)
    }

    pub(crate) fn cuOccupancyMaxPotentialBlockSize(
        &mut self,
        min_grid_size: Out<i32>,
        block_size: Out<i32>,
        function: CUfunction,
        shared_of_block: CUoccupancyB2DSize,
        dynamic_shared_bytes: usize,
        block_size_limit: i32,
    ) -> Call {
        self.current()?;
        min_grid_size.require()?;
        block_size.require()?;
        let function = self.resolved(function)?;
        if shared_of_block.is_some() {
            return Err(
                self.unsupported("a function that computes the shared memory of a block size")
            );
        }
        let (blocks, threads) =
            self.best_block(function, dynamic_shared_bytes, block_size_limit)?;
        min_grid_size.write(blocks.cast_signed() * MULTIPROCESSORS)?;
        block_size.write(threads.cast_signed())
    }

    #[allow(clippy::too_many_arguments)] // As many as the function of the driver has.
    pub(crate) fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        &mut self,
        min_grid_size: Out<i32>,
        block_size: Out<i32>,
        function: CUfunction,
        shared_of_block: CUoccupancyB2DSize,
        dynamic_shared_bytes: usize,
        block_size_limit: i32,
        flags: u32,
    ) -> Call {
        self.current()?;
        check_flags(flags)?;
        self.cuOccupancyMaxPotentialBlockSize(
            min_grid_size,
            block_size,
            function,
            shared_of_block,
            dynamic_shared_bytes,
            block_size_limit,
        )
    }

    pub(crate) fn cuOccupancyMaxPotentialClusterSize(
        &mut self,
        size: Out<i32>,
        function: CUfunction,
        config: In<CUlaunchConfig>,
    ) -> Call {
        let function = self.clustered(function)?;
        check_geometry(&LaunchRequest::of_config(&config.get()?))?;
        match self.functions.get(function)?.large_clusters {
            false => size.write(PORTABLE_CLUSTER as i32),
            true => Err(self.unsupported("the size of clusters that are not portable")),
        }
    }

    pub(crate) fn cuOccupancyMaxActiveClusters(
        &mut self,
        clusters: Out<i32>,
        function: CUfunction,
        config: In<CUlaunchConfig>,
    ) -> Call {
        let function = self.clustered(function)?;
        let config = config.get()?;
        let cluster = self.launch_attributes(&config)?.cluster;
        let request = LaunchRequest { cluster, ..LaunchRequest::of_config(&config) };
        self.check_cluster(function, &request)?;
        if [request.grid, request.block].concat().contains(&0) {
            return Err(invalid(Rule::OccupancyNoThreads));
        }
        match cluster {
            None => clusters.write(0),
            // Depends on which SMs of the die are enabled.
            Some(_) => Err(self.unsupported("the number of clusters that fit on the device")),
        }
    }

    /// The function of an occupancy query for clusters.
    fn clustered(&mut self, function: CUfunction) -> Result<CUfunction, Refusal> {
        self.current()?;
        match function.is_null() {
            true => Err(invalid(Rule::OccupancyNoFunction)),
            false => self.resolved(function),
        }
    }

    /// Returns the largest block size that maximizes resident threads, and its resident blocks.
    fn best_block(
        &self,
        function: CUfunction,
        shared: usize,
        limit: i32,
    ) -> Result<(u32, u32), Refusal> {
        let found = self.functions.get(function)?;
        let limit = u32::try_from(limit).map_err(|_| invalid(Rule::OccupancyLimit))?;
        let most = max_threads_of(found).min(if limit == 0 { u32::MAX } else { limit });
        let mut best = (0, 0, 0);
        let mut threads = most;
        while threads > 0 {
            let blocks = self.resident_blocks(found, threads, shared as u64);
            if blocks * threads > best.0 {
                best = (blocks * threads, blocks, threads);
            }
            threads = (threads - 1) / 32 * 32;
        }
        Ok((best.1, best.2))
    }
}

/// Checks flags: `DEFAULT` or `DISABLE_CACHING_OVERRIDE`.
fn check_flags(flags: u32) -> Call {
    if flags > 1 { Err(invalid(Rule::OccupancyFlags)) } else { Ok(()) }
}
