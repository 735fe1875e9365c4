//! f32 GEMM by fused multiply-adds (SIMT), with register-staged operands.

use retrograph_kernel_abi::gemm::GemmImage;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use crate::gemm::config::simt::{SimtConfig, ThreadAccumulators, ThreadTile};
use crate::gemm::epilogue::{Epilogue, SliceSums};
use crate::gemm::loader::register_f32::RegisterLoader;
use crate::gemm::loader::vector::OperandFormat;
use crate::gemm::mainloop::register_staged::RegisterStaged;
use crate::gemm::mainloop::simt::multiply;
use crate::gemm::operand_tile::majors;
use crate::gemm::params::GemmParams;

/// Builds the entry of `image` for one configuration.
pub(in crate::gemm) fn entry(name: &str, config: &SimtConfig, image: &GemmImage) -> Entry {
    let majors = majors(image.layout);
    Kernel::build(name, |k| {
        k.max_threads(config.tile.threads());
        k.min_blocks(config.min_blocks_per_sm(image.b));
        let params = GemmParams::declare(k, image);
        let (params, origin) = params.of_block(k, config.tile.shape);
        let tiles = [0, 1].map(|i| config.operand_tile(config.tile.shape[i], majors[i]));
        let loaders =
            params.block_operands(tiles, origin).map(|operand| RegisterLoader::new(k, operand));
        let tile_lens = tiles.map(|tile| tile.smem.words());
        let smem_len = (tile_lens[0] + tile_lens[1]) * config.stages;
        let smem = k.shared::<f32>("smem", smem_len.max(config.slice_sums_len()) as usize);
        let thread_tile = ThreadTile::new(k, config);
        let [thread_rows, thread_columns] = config.thread_tile;
        let row = || (0..thread_columns).map(|_| k.var(0.0f32)).collect();
        let acc: ThreadAccumulators<'_> = (0..thread_rows).map(|_| row()).collect();

        if let OperandFormat::Nf4(nf4) = params.b.format {
            nf4.fill_tables();
        }
        let (tile_k, stages) = (tiles[0].tile_k, config.stages);
        let mainloop = RegisterStaged { kernel: *k, stages, tile_k, tile_lens, loaders, smem };
        mainloop.run(&params, |stage| multiply(config, tiles, stage, &thread_tile, &acc));
        let epilogue = Epilogue { kernel: *k, bf16_target: None, params, origin };
        write(config, &epilogue, smem, &thread_tile, &acc);
    })
}

/// Writes the accumulators of the block to c. Several slices are first added, band by band.
fn write<'k>(
    config: &SimtConfig,
    epilogue: &Epilogue<'k>,
    smem: Shared<'k, f32>,
    thread_tile: &ThreadTile<'k>,
    acc: &ThreadAccumulators<'k>,
) {
    let k = epilogue.kernel;
    if config.slices == 1 {
        for_each_vec4(config, thread_tile, acc, |_, row, column, vec4| {
            let (params, sums) = (&epilogue.params, vec4.map(Var::get));
            if params.split.is_none() {
                return epilogue.write(row, column, &sums);
            }
            let [first_row, first_column] = epilogue.origin;
            let place = [first_row + row, first_column + column];
            k.when(place[0].lt(params.m) & place[1].lt(params.n), || {
                epilogue.write(row, column, &params.unsplit(place, sums));
            });
        });
        return;
    }
    assert!(epilogue.params.split.is_none(), "no tile of split operands has slices");
    let columns = config.tile.shape[1];
    for band in 0..config.bands() {
        if band > 0 {
            // All threads must have read the previous band before it is overwritten.
            k.barrier();
        }
        store_band(config, band, smem, thread_tile, acc);
        k.barrier();
        epilogue.write_slices(&SliceSums {
            smem,
            count: config.slices,
            first_row: band * config.band_rows(),
            extent: [config.band_rows(), columns],
            pitch: columns,
            threads: config.tile.threads(),
        });
    }
}

/// Calls `visit` for each vec4 of this thread, with its band, and its row and column in the tile.
fn for_each_vec4<'k>(
    config: &SimtConfig,
    thread_tile: &ThreadTile<'k>,
    acc: &ThreadAccumulators<'k>,
    visit: impl Fn(u32, Value<'k, u32>, Value<'k, u32>, [Var<'k, f32>; 4]),
) {
    let column_stride = config.tile.shape[1] / (config.thread_tile[1] / 4);
    for (i, acc_row) in (0..).zip(acc) {
        let row = thread_tile.row * 4 + (i / 4 * config.band_rows() + i % 4);
        for (j, vec4) in (0..).zip(acc_row.chunks_exact(4)) {
            let column = thread_tile.column * 4 + j * column_stride;
            visit(i / 4, row, column, [vec4[0], vec4[1], vec4[2], vec4[3]]);
        }
    }
}

/// Stores one band of this thread's slice to `smem`, whose previous contents are no longer read.
fn store_band<'k>(
    config: &SimtConfig,
    band: u32,
    smem: Shared<'k, f32>,
    thread_tile: &ThreadTile<'k>,
    acc: &ThreadAccumulators<'k>,
) {
    let columns = config.tile.shape[1];
    let slice = smem.at(thread_tile.slice * (config.band_rows() * columns));
    for_each_vec4(config, thread_tile, acc, |band_of_vec4, row, column, vec4| {
        if band_of_vec4 == band {
            let index = (row - band * config.band_rows()) * columns + column;
            slice.store_vec4(index, vec4.map(Var::get));
        }
    });
}
