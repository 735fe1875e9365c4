//! Features of the instruction set and the multiprocessors of SM targets.

use crate::target::{Reach, SmTarget};

/// Hardware features that select kernel variants.
///
/// Sources: the "Target ISA Notes" of each instruction in the PTX ISA manual, and the table
/// "Technical Specifications per Compute Capability" in the CUDA C++ programming guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmFeatures {
    /// Asynchronous copies from global to shared memory (`cp.async`).
    pub cp_async: bool,
    /// Tensor cores for bf16 and tf32 (`mma.sync`), and conversion of two f32 to two bf16 or f16 at
    /// a time (`cvt.rn.bf16x2.f32`, `cvt.rn.f16x2.f32`).
    pub bf16_mma: bool,
    /// Asynchronous tensor-core products of a warpgroup (`wgmma`).
    pub wgmma: bool,
    /// Programmatic dependent launch (`griddepcontrol`).
    pub pdl: bool,
    /// Whether graphs were measured to be faster with programmatic dependent launch
    /// (docs/hardware/2026-11-21-graph-runtime).
    pub faster_with_pdl: bool,
    /// Barriers in shared memory that count the bytes of copies (`mbarrier.arrive.expect_tx`,
    /// `mbarrier.try_wait`).
    pub mbarrier: bool,
    /// Stores of 8 × 8 matrices to shared memory (`stmatrix`).
    pub stmatrix: bool,
    /// Register reallocation between warpgroups (`setmaxnreg`).
    pub setmaxnreg: bool,
    /// Thread block clusters.
    pub clusters: bool,
    /// Tensor memory accelerator (`cp.async.bulk.tensor`).
    pub tma: bool,
    /// Maximum shared memory per block in bytes, with opt-in for dynamic shared memory.
    pub smem_bytes_per_block: u32,
    /// Whether `ptxas` 13.0 spills in kernels with 80 registers per thread that do not spill on
    /// other targets.
    pub spills_at_80_registers: bool,
}

impl SmTarget {
    /// The features of this target.
    pub const fn features(self) -> SmFeatures {
        let ampere = self.number >= 80;
        let hopper = self.number >= 90;
        let smem_kib = match self.number {
            0..=79 => 64,
            80 | 87 => 163,
            81..=89 => 99,
            90..=119 => 227,
            _ => 99,
        };
        SmFeatures {
            cp_async: ampere,
            bf16_mma: ampere,
            wgmma: self.number == 90 && matches!(self.reach, Reach::ArchSpecific),
            pdl: hopper,
            faster_with_pdl: self.number == 90,
            mbarrier: hopper,
            stmatrix: hopper,
            setmaxnreg: self.number == 90 && matches!(self.reach, Reach::ArchSpecific),
            clusters: hopper,
            tma: hopper,
            smem_bytes_per_block: smem_kib << 10,
            spills_at_80_registers: self.number >= 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wgmma_needs_the_architecture_specific_target() {
        assert!(SmTarget::arch_specific(90).features().wgmma);
        assert!(!SmTarget::portable(90).features().wgmma);
        assert!(!SmTarget::portable(100).features().wgmma);
    }

    #[test]
    fn features_agree_with_the_first_target_of_their_instructions() {
        for &target in SmTarget::GENERATED {
            let features = target.features();
            assert_eq!(features.cp_async, accepts(target, "cp.async.commit_group"), "{target}");
            assert_eq!(features.pdl, accepts(target, "griddepcontrol.wait"), "{target}");
            assert_eq!(features.wgmma, accepts(target, "wgmma.fence.sync.aligned"), "{target}");
            let registers = "setmaxnreg.dec.sync.aligned.u32 40";
            assert_eq!(features.setmaxnreg, accepts(target, registers), "{target}");
            assert_eq!(features.tma, accepts(target, "cp.async.bulk.commit_group"), "{target}");
            let cluster = "barrier.cluster.arrive";
            assert_eq!(features.clusters, accepts(target, cluster), "{target}");
        }
    }

    /// Whether parser and validator accept the instruction `text` for `target`.
    fn accepts(target: SmTarget, text: &str) -> bool {
        let isa = target.min_isa().max(crate::IsaVersion::new(8, 0));
        let module = format!(
            ".version {}.{}\n.target {target}\n.address_size 64\n\
             .visible .entry probe()\n{{\n\t{text};\n\tret;\n}}\n",
            isa.major, isa.minor
        );
        crate::parse(&module).is_ok_and(|module| crate::validate(&module).is_ok())
    }

    #[test]
    fn shared_memory_per_block_follows_the_programming_guide() {
        let kib = |number| SmTarget::portable(number).features().smem_bytes_per_block >> 10;
        assert_eq!([75, 80, 86, 87, 89].map(kib), [64, 163, 99, 163, 99]);
        assert_eq!([90, 100, 120].map(kib), [227, 227, 99]);
    }
}
