//! The inputs of cases: edge values of each type, and random values seeded by the instance's name.

mod edges;

use retrograph_ptx::ast::Type;

use self::edges::edges;
use super::instance::{Input, Instance, Role};

/// The words that the kernel of an instance reads, case by case.
pub(super) fn inputs(instance: &Instance) -> Vec<u64> {
    let mut random = Random::new(&instance.name);
    let mut words = Vec::with_capacity(instance.cases * instance.sources.len());
    let sources: Vec<Source<'_>> = instance.sources.iter().map(Source::new).collect();
    for case in 0..instance.cases {
        for (at, source) in sources.iter().enumerate() {
            words.push(source.value(case, [at, sources.len()], &mut random));
        }
    }
    words
}

/// A checksum of the inputs.
pub(super) fn checksum(words: &[u64]) -> u32 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for byte in words.iter().flat_map(|word| word.to_le_bytes()) {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (sum ^ (sum >> 32)) as u32
}

/// SplitMix64, seeded by a text.
struct Random(u64);

impl Random {
    fn new(seed: &str) -> Self {
        let bytes: Vec<u64> = seed.bytes().map(u64::from).collect();
        Self(u64::from(checksum(&bytes)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// A source of an instruction.
struct Source<'a> {
    input: &'a Input,
    /// The edge values of its type.
    edges: Vec<u64>,
}

impl<'a> Source<'a> {
    fn new(input: &'a Input) -> Self {
        Self { input, edges: edges(input.of) }
    }

    /// The value for a case, of the source `at` of `count`. Instructions with one source get every
    /// edge value; others get pairs of edge values in random order.
    fn value(&self, case: usize, [at, count]: [usize; 2], random: &mut Random) -> u64 {
        let (of, edges) = (self.input.of, &self.edges);
        match self.input.role {
            Role::Count => COUNTS[random.below(COUNTS.len())],
            Role::Exact => exact(of, random),
            Role::Value => {
                if count == 1 && case < edges.len() {
                    return edges[case];
                }
                // The first cases of several sources pair equal edges.
                if case < edges.len() / 2 && at > 0 && case.is_multiple_of(2) {
                    return edges[(case + at) % edges.len()];
                }
                match random.below(8) {
                    0..=4 => edges[random.below(edges.len())],
                    5 => moderate(of, random),
                    _ => truncated(of, random.next()),
                }
            }
        }
    }
}

/// Shift counts, field positions and lanes, within and beyond every width.
const COUNTS: &[u64] = &[
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    11,
    13,
    15,
    16,
    17,
    19,
    23,
    24,
    30,
    31,
    32,
    33,
    40,
    47,
    48,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    257,
    0x1f1f,
    0x181f,
    0x1c03,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000,
];

fn truncated(of: Type, word: u64) -> u64 {
    match of {
        Type::Pred => word & 1,
        _ if of.bits() >= 64 => word,
        _ => word & ((1 << of.bits()) - 1),
    }
}

/// Small whole numbers in each element.
fn exact(of: Type, random: &mut Random) -> u64 {
    let mut small = |most: i64| random.below(2 * most as usize + 1) as i64 - most;
    match of {
        Type::F16x2 => u64::from(half(small(6))) | u64::from(half(small(6))) << 16,
        Type::Bf16x2 => {
            let one = |value: i64| u64::from((value as f32).to_bits() >> 16);
            one(small(6)) | one(small(6)) << 16
        }
        Type::Tf32 | Type::F32 => u64::from((small(12) as f32).to_bits()),
        Type::F64 => (small(1000) as f64).to_bits(),
        Type::S32 => truncated(of, small(100_000) as u64),
        _ => truncated(of, random.next()),
    }
}

/// A small whole number as f16.
fn half(value: i64) -> u16 {
    if value == 0 {
        return 0;
    }
    let bits = (value as f32).to_bits();
    let exponent = ((bits >> 23) & 0xff) as i32 - 127 + 15;
    ((bits >> 16) & 0x8000) as u16 | (exponent as u16) << 10 | ((bits >> 13) & 0x3ff) as u16
}

/// A float of everyday size, or a small integer.
fn moderate(of: Type, random: &mut Random) -> u64 {
    let scale = [1.0, 4.0, 100.0, 0.01][random.below(4)];
    let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    let value = (unit * 2.0 - 1.0) * scale;
    match of {
        Type::F32 | Type::Tf32 => u64::from((value as f32).to_bits()),
        Type::F64 => value.to_bits(),
        Type::Bf16 => u64::from((value as f32).to_bits() >> 16),
        Type::F16 => u64::from(half(random.below(200) as i64 - 100)),
        Type::F16x2 => exact(Type::F16x2, random),
        Type::Bf16x2 => exact(Type::Bf16x2, random),
        _ => truncated(of, (random.below(200) as i64 - 100) as u64),
    }
}
