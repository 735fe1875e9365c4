//! Boxes of a tensor whose rows end inside a piece of 16 bytes, at every position around it.

use super::*;

/// Columns and rows of the tensor, and words from one row to the next.
const SIZE: [u32; 2] = [10, 3];
const STRIDE: u32 = 12;
/// Columns and rows of a box.
const BOX: [u32; 2] = [8, 2];
const BOX_WORDS: u32 = BOX[0] * BOX[1];
/// Words of shared memory that a box takes if its rows have a pitch of 64 bytes.
const SPAN_WORDS: u32 = 32;

/// A kernel that loads the box at `(x, y)` and writes it to `out`, or that stores a box of the
/// numbers from 100 on.
fn program(stores: bool) -> Program {
    let entry = Kernel::build("k", |k| {
        let map = k.tensor_map("map");
        let (x, y) = (k.param::<u32>("x"), k.param::<u32>("y"));
        let out = k.pointer::<u32>("out");
        let (tile, full) = (k.dynamic_shared_aligned::<u32>(1024), k.shared::<u64>("full", 1));
        let (first, thread) = (k.tid_x().eq(0), k.tid_x());
        if stores {
            k.when(thread.lt(BOX_WORDS), || tile.store(thread, thread + 100));
            k.fence_proxy_async();
            k.barrier();
            k.when(first, || {
                k.cp_async_bulk_tensor_2d_store(map, [x, y], tile);
                k.cp_async_bulk_commit_group();
                k.cp_async_bulk_wait_group(0);
            });
        } else {
            k.when(first, || {
                k.mbarrier_init(full, 1);
                k.fence_mbarrier_init();
                k.mbarrier_arrive_expect_tx(full, BOX_WORDS * 4);
                k.cp_async_bulk_tensor_2d_load(tile, map, [x, y], full);
            });
            k.barrier();
            k.mbarrier_wait_parity(full, 0);
            out.store(thread, tile.load(thread));
        }
    });
    let module = ModuleBuilder::new(SmTarget::arch_specific(90)).entry(entry).build();
    Program::decode(&module, "k", &|_| None).unwrap_or_else(|error| panic!("{error}\n{module}"))
}

/// Runs a kernel for the box at `(x, y)` and returns the tensor with its padding, whose words count
/// from 1, and the output.
fn run_at(program: &Program, x: i32, y: i32, swizzle: TensorMapSwizzle) -> [Vec<u32>; 2] {
    let memory = Memory::new(1 << 20);
    let tensor: Vec<u32> = (1..=STRIDE * SIZE[1]).collect();
    let address = memory.alloc(4 * tensor.len() as u64).unwrap();
    memory.write(address, &crate::bytes_of(&tensor)).unwrap();
    let out = memory.alloc(u64::from(4 * SPAN_WORDS)).unwrap();
    let map = TensorMap {
        element: Type::F32,
        address,
        dimensions: SIZE.map(u64::from).to_vec(),
        strides: vec![u64::from(4 * STRIDE)],
        extent: BOX.to_vec(),
        swizzle,
    };
    let mut parameters = map.encode().to_vec();
    parameters.extend([x, y].map(i32::to_le_bytes).concat());
    parameters.extend(out.to_le_bytes());
    let request = Launch {
        block: [32, 1, 1],
        shared_bytes: 4 * SPAN_WORDS,
        parameters: &parameters,
        ..Launch::default()
    };
    launch(program, &request, &memory).unwrap_or_else(|fault| panic!("{fault}"));
    let read = |address, count: usize| {
        let mut bytes = vec![0; 4 * count];
        memory.read(address, &mut bytes).unwrap();
        words(&bytes)
    };
    [read(address, tensor.len()), read(out, SPAN_WORDS as usize)]
}

/// The positions of boxes that overlap the tensor partially, completely or not at all.
fn positions() -> impl Iterator<Item = (i32, i32)> {
    (-9..=11).flat_map(|x| (-3..=4).map(move |y| (x, y)))
}

/// For each word of a box, the index of its word in the tensor.
fn places(x: i32, y: i32) -> Vec<Option<usize>> {
    let [columns, rows] = SIZE.map(u32::cast_signed);
    let place = |(row, column): (i32, i32)| {
        let inside = (0..columns).contains(&column) && (0..rows).contains(&row);
        inside.then_some((row * STRIDE.cast_signed() + column) as usize)
    };
    let index = |i: i32| (y + i / BOX[0].cast_signed(), x + i % BOX[0].cast_signed());
    (0..BOX_WORDS.cast_signed()).map(index).map(place).collect()
}

#[test]
fn loads_replace_each_element_outside_the_tensor_by_zero() {
    let program = program(false);
    for (x, y) in positions() {
        let want = places(x, y).into_iter().map(|place| place.map_or(0, |at| at as u32 + 1));
        let want: Vec<_> = want.collect();
        let [_, tile] = run_at(&program, x, y, TensorMapSwizzle::None);
        assert_eq!(tile[..BOX_WORDS as usize], want, "({x}, {y})");
        // A row takes the span of the swizzle. Two rows of 64 bytes are in their order.
        let [_, tile] = run_at(&program, x, y, TensorMapSwizzle::Bytes64);
        let row = BOX[0] as usize;
        assert_eq!([&tile[..row], &tile[16..16 + row]].concat(), want, "({x}, {y})");
    }
}

#[test]
fn stores_write_only_the_elements_inside_the_tensor() {
    let program = program(true);
    for (x, y) in positions() {
        let mut want: Vec<u32> = (1..=STRIDE * SIZE[1]).collect();
        for (number, place) in (100..).zip(places(x, y)) {
            place.into_iter().for_each(|at| want[at] = number);
        }
        let [tensor, _] = run_at(&program, x, y, TensorMapSwizzle::None);
        assert_eq!(tensor, want, "({x}, {y})");
    }
}
