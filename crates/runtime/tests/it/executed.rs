//! Random passes, run in many orders that the simulated driver chooses.

use proptest::prelude::*;
use retrograph_driver_sim::Config;
use retrograph_kernels::ops::{Add, Silu};
use retrograph_runtime::{
    Bindings, BuildOptions, DeviceBuffer, Pass, PassError, Policy, Reuse, Slice,
};

use crate::device::{Device, device_of, simulated};
use crate::programs::build;
use crate::support::with;

const LEN: usize = 40;

/// An operation, with buffers and ranges modulo their counts.
#[derive(Clone, Debug)]
struct Random {
    what: u8,
    buffers: [usize; 3],
    starts: [usize; 3],
    len: usize,
}

fn random() -> impl Strategy<Value = Random> {
    let (buffers, starts) = ([0usize..8, 0..8, 0..8], [0usize..LEN, 0..LEN, 0..LEN]);
    (0u8..4, buffers, starts, 1usize..LEN).prop_map(|(what, buffers, starts, len)| Random {
        what,
        buffers,
        starts,
        len,
    })
}

/// The pass and its externals: three buffers in eight are external.
fn described(list: &[Random]) -> (Pass, Vec<Slice<f32>>) {
    let mut pass = Pass::new("random");
    let slices: Vec<Slice<f32>> = (0..8)
        .map(|at| match at {
            0..3 => pass.external(format!("external {at}"), LEN),
            _ => pass.transient(format!("transient {at}"), LEN),
        })
        .collect();
    for random in list {
        let refused = add(&mut pass, &slices, random).is_err();
        // Most refusals are reads before writes; write the range, so that passes grow.
        if refused {
            let _ = pass.fill(slices[random.buffers[0]], 0x3f80_0000 + random.len as u32);
        }
    }
    (pass, slices[..3].to_vec())
}

fn add(pass: &mut Pass, slices: &[Slice<f32>], random: &Random) -> Result<(), PassError> {
    let longest = random.starts.iter().max().map_or(LEN, |start| LEN - start);
    let len = random.len.min(longest);
    let [a, b, out] = std::array::from_fn(|at| {
        let start = random.starts[at];
        slices[random.buffers[at]].slice(start..start + len)
    });
    match random.what {
        0 => pass.fill(a, 0x3f00_0000 + random.starts[0] as u32)?,
        1 => pass.copy(a, out)?,
        2 => pass.launch(Silu { x: a, y: out }.launch()?)?,
        _ => pass.launch(Add { a, b, out }.launch()?)?,
    };
    Ok(())
}

/// The bits of all externals after two steps.
fn run(device: &Device, pass: &Pass, externals: &[Slice<f32>], options: BuildOptions) -> Vec<u32> {
    let mut bindings = Bindings::new();
    let buffers: Vec<DeviceBuffer<f32>> = (0..externals.len())
        .map(|at| {
            let values: Vec<f32> = (0..LEN).map(|index| (index * 7 + at) as f32 * 0.01).collect();
            DeviceBuffer::from_slice(&device.stream, &values).unwrap()
        })
        .collect();
    for (slice, buffer) in externals.iter().zip(&buffers) {
        bindings.bind(*slice, buffer);
    }
    let mut program = build(device, pass, &bindings, options).unwrap();
    for _ in 0..2 {
        program.step(&device.stream, &pass.controls()).unwrap();
    }
    let bits = |buffer: &DeviceBuffer<f32>| buffer.download(&device.stream).unwrap();
    buffers.iter().flat_map(bits).map(f32::to_bits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn graphs_give_the_bits_of_eager_in_every_order(
        list in prop::collection::vec(random(), 1..24),
        seed in any::<u64>(),
    ) {
        let (pass, externals) = described(&list);
        let device = |seed| device_of(&simulated(with(Config::default(), |it| it.seed = seed)));
        let eager = run(&device(seed), &pass, &externals, Policy::Eager.into());
        let reuses = [Reuse::WhenOrdered, Reuse::Full, Reuse::Never];
        for (offset, reuse) in reuses.into_iter().enumerate() {
            let mut options = BuildOptions::from(Policy::Manual);
            options.reuse = Some(reuse);
            options.nan_transients = offset == 0;
            for turn in 0..2 {
                let device = device(seed.wrapping_add(1 + offset as u64 * 2 + turn));
                prop_assert_eq!(&run(&device, &pass, &externals, options), &eager);
            }
        }
        let captured = run(&device(!seed), &pass, &externals, Policy::Capture.into());
        prop_assert_eq!(captured, eager);
    }
}
