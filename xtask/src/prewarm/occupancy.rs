//! Occupancy (resident blocks per SM), computed without a device.
//!
//! Source: the tables "Technical Specifications per Compute Capability" of the CUDA C++ programming
//! guide, and the rules of the occupancy calculator of the toolkit.

use retrograph_ptx::SmTarget;

/// The resources of an SM.
struct Limits {
    threads: u32,
    blocks: u32,
    shared_bytes: u32,
    /// Shared memory per block that the system reserves.
    reserved_shared_bytes: u32,
    /// The allocation unit of shared memory.
    shared_unit: u32,
}

const REGISTERS: u32 = 64 << 10;
/// The allocation unit of a warp's registers.
const WARP_REGISTER_UNIT: u32 = 256;
/// Partitions of an SM, which share its warps and registers equally.
const PARTITIONS: u32 = 4;

/// The resources of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) threads: u32,
    /// Registers per thread.
    pub(crate) registers: u32,
    /// Static and dynamic shared memory.
    pub(crate) shared_bytes: u32,
}

/// Resident blocks per SM.
pub(crate) fn blocks(target: SmTarget, block: Block) -> u32 {
    let limits = limits(target);
    let warps = block.threads.div_ceil(32).max(1);
    let per_warp = (block.registers * 32).next_multiple_of(WARP_REGISTER_UNIT).max(1);
    let by_registers = REGISTERS / PARTITIONS / per_warp * PARTITIONS / warps;
    let shared = block.shared_bytes + limits.reserved_shared_bytes;
    let by_shared = limits.shared_bytes / shared.next_multiple_of(limits.shared_unit).max(1);
    let by_threads = limits.threads / (warps * 32);
    by_registers.min(by_shared).min(by_threads).min(limits.blocks)
}

/// The occupancy of an SM by `blocks` blocks, in percent.
pub(crate) fn percent(target: SmTarget, blocks: u32, threads: u32) -> u32 {
    100 * blocks * threads.next_multiple_of(32) / limits(target).threads
}

fn limits(target: SmTarget) -> Limits {
    let kib = |kib: u32| kib << 10;
    let (threads, blocks, shared_bytes) = match target.number {
        0..=79 => (1024, 16, kib(64)),
        80 => (2048, 32, kib(164)),
        86 => (1536, 16, kib(100)),
        87 => (1536, 16, kib(164)),
        89 => (1536, 24, kib(100)),
        90..=119 => (2048, 32, kib(228)),
        _ => (1536, 24, kib(100)),
    };
    let old = target.number < 80;
    let (reserved_shared_bytes, shared_unit) = if old { (0, 256) } else { (kib(1), 128) };
    Limits { threads, blocks, shared_bytes, reserved_shared_bytes, shared_unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_90(threads: u32, registers: u32, shared_bytes: u32) -> u32 {
        blocks(SmTarget::arch_specific(90), Block { threads, registers, shared_bytes })
    }

    #[test]
    fn each_resource_can_limit_occupancy() {
        assert_eq!(on_90(1024, 32, 0), 2, "threads");
        assert_eq!(on_90(32, 16, 0), 32, "blocks");
        assert_eq!(on_90(256, 128, 0), 2, "registers");
        assert_eq!(on_90(256, 255, 0), 1, "registers, of which 255 are given as 256");
        assert_eq!(on_90(128, 32, 100 << 10), 2, "shared memory");
        assert_eq!(on_90(1024, 72, 0), 0, "a block of 1024 threads has no room for 72 registers");
        assert_eq!(
            blocks(SmTarget::portable(75), Block { threads: 256, registers: 32, shared_bytes: 0 }),
            4
        );
    }

    #[test]
    fn occupancy_is_a_share_of_the_threads() {
        let target = SmTarget::arch_specific(90);
        assert_eq!(percent(target, 2, 1024), 100);
        assert_eq!(percent(target, 1, 250), 12);
    }
}
