//! Fetching step parameters from a ring, against a ring on the host.

use retrograph_kernel_abi::step_parameters::{FETCH_STEP_PARAMETERS, module};
use retrograph_kernels::ops::FetchStepParameters;
use retrograph_kernels::{KernelError, SmTarget, View, images};

use crate::harness::{Device, UNWRITTEN};
use crate::support::numbers::Data;

/// Numbers of vec4s: one, primes, both sides of a warp and of a block, and several iterations of a
/// block.
const QUADS: [usize; 10] = [1, 2, 17, 31, 33, 65, 255, 257, 1031, 2309];

/// A ring on the device, and its model on the host.
struct Ring<'a> {
    device: &'a Device,
    words: Vec<u32>,
    take: FetchStepParameters<u64>,
}

impl<'a> Ring<'a> {
    fn new(device: &'a Device, quads: usize, taken: u32) -> Self {
        let mut words = vec![0; FetchStepParameters::<u64>::ring_words(quads * 4)];
        // After a whole turn, a ring holds the sequence numbers of the last turn.
        let turn = if taken == 0 { 0..0 } else { 0..FetchStepParameters::<u64>::SLOTS as u32 };
        for number in turn.map(|back| taken.wrapping_sub(back)) {
            words[Self::slot(number, quads * 4)] = number;
        }
        words[0] = taken;
        let ring = device.upload(&words);
        let block = device.upload(&vec![UNWRITTEN; quads * 4]);
        let take = FetchStepParameters { ring, block, taken: device.upload(&[taken]) };
        Self { device, words, take }
    }

    /// The start of the slot for sequence number `number`.
    fn slot(number: u32, words: usize) -> usize {
        let slot = number.wrapping_sub(1) as usize % FetchStepParameters::<u64>::SLOTS;
        FetchStepParameters::<u64>::HEADER_WORDS
            + slot * FetchStepParameters::<u64>::slot_words(words)
    }

    /// Writes `values` with sequence number `number` to its slot.
    fn put(&mut self, number: u32, values: &[u32]) {
        let start = Self::slot(number, values.len());
        self.words[start] = number;
        let start = start + FetchStepParameters::<u64>::SLOT_HEADER_WORDS;
        self.words[start..start + values.len()].copy_from_slice(values);
        self.words[0] = self.device.download(self.take.taken)[0];
        self.take.ring = self.device.upload(&self.words);
    }

    /// Runs the kernel, and returns the block and the counts of the device and of the host.
    fn taken(&self) -> (Vec<u32>, [u32; 2]) {
        self.device.run(&self.take.launch().unwrap());
        let counts = [self.take.taken, self.take.ring.slice(0..1)];
        (self.device.download(self.take.block), counts.map(|count| self.device.download(count)[0]))
    }
}

fn words(data: &mut Data, quads: usize) -> Vec<u32> {
    // Bits of every kind: of numbers of all scales, and of NaN.
    let mut words: Vec<u32> = data.spread(quads * 4).into_iter().map(f32::to_bits).collect();
    words[0] = f32::NAN.to_bits() | 0x1234;
    words[quads * 4 - 1] = f32::NEG_INFINITY.to_bits();
    words
}

#[test]
fn slots_are_fetched_in_order_once_and_past_the_wrap_around() {
    let (device, mut data) = (Device::new(), Data::new("fetch_step_parameters"));
    for quads in QUADS {
        for start in [0_u32, u32::MAX - 3] {
            let mut ring = Ring::new(&device, quads, start);
            // More than the number of slots, so that each is reused.
            for at in 1..=FetchStepParameters::<u64>::SLOTS as u32 + 3 {
                let (number, values) = (start.wrapping_add(at), words(&mut data, quads));
                ring.put(number, &values);
                let expected = (values, [number; 2]);
                assert!(ring.taken() == expected, "{quads} quads, number {number}");
                assert!(ring.taken() == expected, "taken twice: {quads} quads, number {number}");
            }
        }
    }
}

#[test]
fn a_slot_without_the_next_number_is_not_fetched() {
    let (device, mut data) = (Device::new(), Data::new("fetch_step_parameters/number"));
    for quads in [1, 65, 300] {
        let mut ring = Ring::new(&device, quads, 20);
        let untouched = (vec![UNWRITTEN; quads * 4], [20; 2]);
        assert!(ring.taken() == untouched, "an empty ring");
        // The sequence numbers of the previous turn, of an early turn, and of the turn after the
        // next.
        for number in [5, 37, 22] {
            ring.put(number, &words(&mut data, quads));
            assert!(ring.taken() == untouched, "{quads} quads, number {number}");
        }
        let values = words(&mut data, quads);
        ring.put(21, &values);
        assert!(ring.taken() == (values, [21; 2]), "{quads} quads");
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let ring = |words| View::<u64, u32>::new(0, FetchStepParameters::<u64>::ring_words(words));
    let (block, taken) = (View::new(0, 8), View::new(0, 1));
    let fits = FetchStepParameters { ring: ring(8), block, taken };
    assert!(fits.launch().is_ok());
    for words in [0, 6] {
        let odd = FetchStepParameters { ring: ring(words), block: View::new(0, words), taken };
        assert!(matches!(odd.launch(), Err(KernelError::Shape { .. })), "{words} words");
    }
    let short = FetchStepParameters { ring: ring(8).slice(1..100), ..fits };
    assert!(matches!(short.launch(), Err(KernelError::Length { operand: "ring", .. })));
    let counts = FetchStepParameters { taken: View::new(0, 2), ..fits };
    assert!(matches!(counts.launch(), Err(KernelError::Length { operand: "taken", .. })));
}

#[test]
fn the_embedded_image_is_the_text_of_its_source() {
    // Programs load the text of the source, and find its code in bundles of embedded images.
    let name = FETCH_STEP_PARAMETERS.image;
    for &target in SmTarget::GENERATED {
        let text = module(target).to_string();
        assert_eq!(images::ptx(name, target), Some(text.as_str()), "{target}");
        assert_eq!(images::entry_digest(name, name, target), images::digest(name, target));
    }
}
