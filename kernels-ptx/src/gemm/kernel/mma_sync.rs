//! bf16 GEMM by `mma.sync`, with register-staged operands that are converted to bf16.
//!
//! Operands keep their global orientation in shared memory; `ldmatrix` transposes if necessary.

use retrograph_kernel_abi::gemm::GemmImage;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Shared};

use crate::gemm::accumulator::{AccFragment, WarpTile, accumulators};
use crate::gemm::config::mma_sync::{MmaConfig, STAGES};
use crate::gemm::epilogue::{Epilogue, SliceSums};
use crate::gemm::loader::register_bf16::RegisterLoader;
use crate::gemm::loader::vector::OperandFormat;
use crate::gemm::mainloop::mma_sync::{FragmentLoader, multiply};
use crate::gemm::mainloop::register_staged::RegisterStaged;
use crate::gemm::operand_tile::majors;
use crate::gemm::params::GemmParams;

/// Builds the entry of `image` for one configuration.
pub(in crate::gemm) fn entry(
    target: SmTarget,
    name: &str,
    config: &MmaConfig,
    image: &GemmImage,
) -> Entry {
    let majors = majors(image.layout);
    Kernel::build(name, |k| {
        k.max_threads(config.tile.threads());
        k.min_blocks(config.tile.min_blocks_per_sm);
        let params = GemmParams::declare(k, image);
        let (params, origin) = params.of_block(k, config.tile.shape);
        let tiles = [0, 1].map(|i| config.operand_tile(config.tile.shape[i], majors[i]));
        let tile_lens = tiles.map(|tile| tile.smem.words());
        let smem_len = ((tile_lens[0] + tile_lens[1]) * STAGES).max(config.slice_sums_len());
        let smem = k.shared::<u32>("smem", smem_len as usize);
        let loaders = params
            .block_operands(tiles, origin)
            .map(|operand| RegisterLoader::new(k, target, operand));
        let warp_tile = WarpTile::of_warp(k, config.warps, config.warp());
        let acc = accumulators(k, config.warp());
        let first_k = warp_tile.slice * config.slice_k;
        let fragment_loaders =
            [0, 1].map(|i| FragmentLoader::new(k, tiles[i], warp_tile.origin[i], first_k, i == 0));

        if let OperandFormat::Nf4(nf4) = params.b.format {
            nf4.fill_tables();
        }
        let tile_k = config.tile.block_k();
        let mainloop =
            RegisterStaged { kernel: *k, stages: STAGES, tile_k, tile_lens, loaders, smem };
        mainloop.run(&params, |stage| {
            let tiles = [stage, stage.offset(i64::from(tile_lens[0]))];
            multiply(k, target, config.slice_k, &fragment_loaders, tiles, &acc);
        });
        let epilogue = Epilogue { kernel: *k, bf16_target: None, params, origin };
        write(config, &epilogue, smem.reinterpret(), &warp_tile, &acc);
    })
}

/// Writes the accumulators of the block to c. Several slices are first added through `smem`, whose
/// stages are no longer read.
fn write<'k>(
    config: &MmaConfig,
    epilogue: &Epilogue<'k>,
    smem: Shared<'k, f32>,
    warp_tile: &WarpTile<'k>,
    acc: &[Vec<AccFragment<'k>>],
) {
    let k = epilogue.kernel;
    let [rows, columns] = config.tile.shape;
    let slice = smem.at(warp_tile.slice * (rows * columns));
    if config.slices == 1 {
        warp_tile.for_each_pair(&k, acc, |row, column, pair| epilogue.write(row, column, &pair));
    } else {
        warp_tile.store_pairs(&k, slice, columns, acc);
        k.barrier();
        epilogue.write_slices(&SliceSums {
            smem,
            count: config.slices,
            first_row: 0,
            extent: [rows, columns],
            pitch: columns,
            threads: config.tile.threads(),
        });
    }
}
