//! Products of tiles in shared memory, loaded by tensor copies.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Type;
use retrograph_ptx::build::{HalfType, Kernel, MatrixA, ModuleBuilder, ScaleD};
use retrograph_ptx_exec::memory::Memory;
use retrograph_ptx_exec::tensor_map::{TensorMap, TensorMapSwizzle};
use retrograph_ptx_exec::{FaultKind, Launch, Program, ProxyMisuse, launch};

use super::bytes_of;

/// Rows of a, columns of b, and steps of both, which are two lines of 128 bytes in a row.
const EXTENT: u32 = 64;
const TILE_BYTES: u32 = EXTENT * 128;

/// The location of matrix a.
#[derive(Clone, Copy, PartialEq)]
enum Location {
    Shared,
    Registers,
}

/// One warpgroup multiplies a tile of each matrix and stores the 64 × 64 sums. They are initially
/// 1, which the first product overwrites unless `adds`. It waits for the tiles if `waits`.
fn product(element: HalfType, location: Location, adds: bool, waits: bool) -> Program {
    let entry = Kernel::build("product", |k| {
        k.max_threads(128);
        let (a, b) = (k.tensor_map("a"), k.tensor_map("b"));
        let (pairs, out) = (k.pointer::<u32>("pairs"), k.pointer::<f32>("out"));
        let tiles = k.dynamic_shared_aligned::<u32>(1024);
        let (a_tile, b_tile) = (tiles, tiles.offset(i64::from(TILE_BYTES / 4)));
        let full = k.shared::<u64>("full", 1);
        let first = k.tid_x().eq(0);
        k.when(first, || {
            k.mbarrier_init(full, 1);
            k.fence_mbarrier_init();
        });
        k.barrier();
        k.when(first, || {
            k.mbarrier_arrive_expect_tx(full, 2 * TILE_BYTES);
            k.cp_async_bulk_tensor_2d_load(a_tile, a, [0, 0], full);
            k.cp_async_bulk_tensor_2d_load(b_tile, b, [0, 0], full);
        });
        if waits {
            k.mbarrier_wait_parity(full, 0);
        }
        let (group, member) = (k.lane() >> 2, k.lane() & 3);
        let row = k.warp() * 16 + group;
        let sums: Vec<_> = (0..EXTENT / 2).map(|_| k.var(1.0f32)).collect();
        let fragments: Vec<_> = (0..4)
            .map(|step| {
                let from = pairs.at(row * 32 + member).offset(8 * step);
                [0, 8 * 32, 4, 8 * 32 + 4].map(|further| from.load(further))
            })
            .collect();
        k.wgmma_fence();
        for (step, fragment) in (0..4).zip(fragments) {
            let b = b_tile.k_major_descriptor().offset(32 * step);
            let a = match location {
                Location::Shared => MatrixA::Shared(a_tile.k_major_descriptor().offset(32 * step)),
                Location::Registers => MatrixA::Registers(fragment),
            };
            let scale_d = match (step, adds) {
                (0, false) => ScaleD::Zero,
                (0, true) => ScaleD::OneIf(k.tid_x().lt(128)),
                _ => ScaleD::One,
            };
            k.wgmma_mma_async(element, a, b, &sums, scale_d);
        }
        k.wgmma_commit_group();
        k.wgmma_wait_group(0);
        for (index, sum) in (0..).zip(&sums) {
            let to = out.at(row * EXTENT + member * 2);
            let place = index / 2 % 2 * 8 * EXTENT + index / 4 * 8 + index % 2;
            to.store(place, sum.get());
        }
    });
    let module = ModuleBuilder::new(SmTarget::arch_specific(90)).entry(entry).build();
    Program::decode(&module, "product", &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

/// The element of a matrix at a line and a step, a small integer.
fn number(matrix: u32, line: u32, step: u32) -> i32 {
    ((line * (5 + matrix) + step * 7) % 13).cast_signed() - 6
}

/// A matrix as pairs of elements.
fn pairs(element: HalfType, matrix: u32) -> Vec<u32> {
    let bits = |value: i32| match element {
        HalfType::Bf16 => (value as f32).to_bits() >> 16,
        HalfType::F16 if value == 0 => 0,
        // The exponent of f16 has a bias of 15 instead of 127, and the mantissa 10 bits.
        HalfType::F16 => {
            let single = (value as f32).to_bits();
            let exponent = (single >> 23 & 0xff) - 127 + 15;
            single >> 31 << 15 | exponent << 10 | single >> 13 & 0x3ff
        }
    };
    let lines = (0..EXTENT).flat_map(|line| (0..EXTENT).step_by(2).map(move |step| (line, step)));
    let pair = |(line, step)| {
        bits(number(matrix, line, step)) | bits(number(matrix, line, step + 1)) << 16
    };
    lines.map(pair).collect()
}

fn run(program: &Program, element: HalfType) -> Result<Vec<f32>, FaultKind> {
    let memory = Memory::new(1 << 20);
    let matrices = [0, 1].map(|matrix| {
        let address = memory.alloc(TILE_BYTES.into()).unwrap();
        memory.write(address, &bytes_of(&pairs(element, matrix))).unwrap();
        address
    });
    let out = memory.alloc(u64::from(EXTENT * EXTENT * 4)).unwrap();
    let map = |address| TensorMap {
        element: Type::Bf16,
        address,
        dimensions: vec![EXTENT.into(); 2],
        strides: vec![128],
        extent: vec![EXTENT; 2],
        swizzle: TensorMapSwizzle::Bytes128,
    };
    let mut parameters = matrices.map(|address| map(address).encode()).concat();
    parameters.extend([matrices[0], out].map(u64::to_le_bytes).concat());
    let request = Launch {
        block: [128, 1, 1],
        shared_bytes: 2 * TILE_BYTES,
        parameters: &parameters,
        seed: 3,
        ..Launch::default()
    };
    launch(program, &request, &memory).map_err(|fault| fault.kind)?;
    let mut bytes = vec![0; (EXTENT * EXTENT * 4) as usize];
    memory.read(out, &mut bytes).unwrap();
    Ok(bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect())
}

#[test]
fn tensor_copies_and_descriptors_agree_on_the_swizzle() {
    for element in [HalfType::Bf16, HalfType::F16] {
        for (location, adds) in [(Location::Shared, false), (Location::Registers, true)] {
            let out = run(&product(element, location, adds, true), element).unwrap();
            for row in 0..EXTENT {
                for column in 0..EXTENT {
                    let terms = (0..EXTENT).map(|s| number(0, row, s) * number(1, column, s));
                    let want = terms.sum::<i32>() + i32::from(adds);
                    assert_eq!(out[(row * EXTENT + column) as usize], want as f32, "{element:?}");
                }
            }
        }
    }
}

#[test]
fn a_product_of_a_tile_in_flight_is_refused() {
    let element = HalfType::Bf16;
    let program = product(element, Location::Shared, false, false);
    let Err(FaultKind::AsyncProxy(misuse)) = run(&program, element) else {
        panic!("the product was computed")
    };
    assert!(matches!(*misuse, ProxyMisuse::TargetInFlight { writes: false, .. }), "{misuse}");
}
