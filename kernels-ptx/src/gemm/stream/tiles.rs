//! The tiles that stream, by how b is stored.

use crate::gemm::sizes::Storage;

/// The shape of a tile and how its block works on it.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// The last part of the entry's name.
    pub(super) name: &'static str,
    /// Rows and columns of c.
    pub(super) extent: [u32; 2],
    /// Warps, down and across.
    pub(super) warps: [u32; 2],
    /// Blocks that find room on a multiprocessor together, which limits the registers of a thread.
    pub(super) together: u32,
    /// Length of the contraction in a stage and number of stages: where a block may have 160 KiB
    /// of shared memory, where it may have 99, and where it may have 64. None where warps have not
    /// the registers for the sums.
    pub(super) stages: [[u32; 2]; 3],
    /// Number of stages of 64 where warpgroups multiply bf16.
    pub(super) behind: u32,
}

impl Tile {
    /// The name of the entry in `image`.
    pub(super) fn named(&self, image: &str) -> String {
        format!("{image}_{}", self.name)
    }
}

/// The tiles of products whose b is stored so.
pub(super) fn of(storage: Storage) -> &'static [Tile] {
    match storage {
        Storage::F32 => &SINGLE,
        Storage::Bf16 => &BRAIN,
        Storage::Nf4 => &CODED,
    }
}

const SINGLE: [Tile; 2] = [
    Tile {
        name: "128x128_stream",
        extent: [128, 128],
        warps: [2, 4],
        together: 1,
        stages: [[32, 4], [32, 2], [16, 2]],
        behind: 0,
    },
    Tile {
        name: "64x64_stream",
        extent: [64, 64],
        warps: [2, 2],
        together: 3,
        stages: [[32, 4], [32, 2], [16, 2]],
        behind: 0,
    },
];

const BRAIN: [Tile; 5] = [
    Tile {
        name: "192x256_stream",
        extent: [192, 256],
        warps: [12, 1],
        together: 1,
        stages: [[0, 0]; 3],
        behind: 4,
    },
    Tile {
        name: "128x192_stream",
        extent: [128, 192],
        warps: [8, 1],
        together: 1,
        stages: [[0, 0]; 3],
        behind: 5,
    },
    Tile {
        name: "256x128_stream",
        extent: [256, 128],
        warps: [4, 2],
        together: 1,
        stages: [[64, 3], [32, 3], [32, 2]],
        behind: 4,
    },
    Tile {
        name: "128x128_stream",
        extent: [128, 128],
        warps: [2, 4],
        together: 2,
        stages: [[64, 3], [32, 2], [32, 2]],
        behind: 6,
    },
    Tile {
        name: "64x64_stream",
        extent: [64, 64],
        warps: [2, 2],
        together: 4,
        stages: [[64, 3], [32, 2], [32, 2]],
        behind: 6,
    },
];

/// Those of products whose b is in NF4: codes take room, too.
const CODED: [Tile; 4] = [
    Tile {
        name: "192x128_stream",
        extent: [192, 128],
        warps: [12, 1],
        together: 1,
        stages: [[0, 0]; 3],
        behind: 5,
    },
    Tile { stages: [[64, 2], [32, 3], [32, 2]], ..BRAIN[2] },
    BRAIN[3],
    BRAIN[4],
];
