//! Special registers that are the same for all blocks of a launch.

use retrograph_ptx::ast::SpecialRegister;

use super::BlockRunner;
use crate::program::{LANES, Preset, Width};
use crate::registers::{Lanes, Offset};

impl BlockRunner<'_> {
    pub(super) fn fill_presets(&mut self, warp: usize) {
        let program = self.machine.program;
        for &(preset, offset) in &program.presets {
            match preset {
                Preset::Constant(bits, width) => self.fill(warp, offset, width, bits),
                Preset::Shared(address, width) => {
                    let address = self.machine.memories.shared.base + address;
                    self.fill(warp, offset, width, address);
                }
                Preset::FramePointer | Preset::FrameEnd(_) => {}
                Preset::Special(special) => {
                    let lanes = self.special(special, warp);
                    self.set(warp, offset, lanes);
                }
            }
        }
    }

    /// Fills all lanes of a slot.
    fn fill(&mut self, warp: usize, offset: Offset, width: Width, bits: u64) {
        let file = self.file(warp);
        // SAFETY: the slot at this offset has this width.
        unsafe {
            match width {
                Width::Predicate => file.set_predicate(offset, u32::MAX, bits as u32),
                Width::Word => file.write(offset, [bits as u32; LANES]),
                Width::Double => file.write(offset, [bits; LANES]),
            }
        }
    }

    pub(super) fn lanes_of_warp(&self, warp: usize) -> u32 {
        let threads = self.launch.block.iter().product::<u32>() as usize - warp * LANES;
        if threads >= LANES { u32::MAX } else { (1 << threads) - 1 }
    }

    /// The value of a special register that is the same for all threads of a block but differs
    /// between blocks.
    pub(super) fn special_of_block(&self, special: SpecialRegister) -> Option<u32> {
        use SpecialRegister as S;
        let ([x, y, z], [cx, cy, cz]) = (self.ctaid, self.launch.cluster);
        Some(match special {
            S::CtaidX => x,
            S::CtaidY => y,
            S::CtaidZ => z,
            S::ClusterIdX => x / cx,
            S::ClusterIdY => y / cy,
            S::ClusterIdZ => z / cz,
            S::ClusterCtaidX => x % cx,
            S::ClusterCtaidY => y % cy,
            S::ClusterCtaidZ => z % cz,
            S::ClusterCtarank => self.rank,
            _ => return None,
        })
    }

    /// The value of a special register that is the same for all blocks; zero for others.
    fn special(&self, special: SpecialRegister, warp: usize) -> Lanes<u32> {
        use SpecialRegister as S;
        let ([nx, ny, nz], [gx, gy, gz]) = (self.launch.block, self.launch.grid);
        std::array::from_fn(|lane| {
            let thread = (warp * LANES + lane) as u32;
            let bit = 1u32 << lane;
            match special {
                S::TidX => thread % nx,
                S::TidY => thread / nx % ny,
                S::TidZ => thread / nx / ny,
                S::NtidX => nx,
                S::NtidY => ny,
                S::NtidZ => nz,
                S::NctaidX => gx,
                S::NctaidY => gy,
                S::NctaidZ => gz,
                S::LaneId => lane as u32,
                S::WarpId => warp as u32,
                S::NWarpId => self.warps.len() as u32,
                S::LaneMaskEq => bit,
                S::LaneMaskLt => bit - 1,
                S::LaneMaskLe => bit | (bit - 1),
                S::LaneMaskGt => !(bit | (bit - 1)),
                S::LaneMaskGe => !(bit - 1),
                S::DynamicSharedSize => self.launch.shared_bytes,
                S::TotalSharedSize | S::AggregateSharedSize => {
                    self.launch.shared_bytes + self.machine.program.shared_bytes
                }
                // A single SM runs all blocks.
                S::NSmId => 1,
                S::ClusterNctarank => self.launch.blocks_per_cluster(),
                S::ClusterNctaidX => self.launch.cluster[0],
                S::ClusterNctaidY => self.launch.cluster[1],
                S::ClusterNctaidZ => self.launch.cluster[2],
                S::EnvReg1 => (self.workspace >> 32) as u32,
                S::EnvReg2 => self.workspace as u32,
                S::NClusterIdX => self.launch.clusters()[0],
                S::NClusterIdY => self.launch.clusters()[1],
                S::NClusterIdZ => self.launch.clusters()[2],
                _ => 0,
            }
        })
    }
}
