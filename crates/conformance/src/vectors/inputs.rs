//! The inputs of cases: edge values of each type, and random values seeded by the instance's name.

use retrograph_ptx::ast::Type;

use super::instance::{Input, Instance, Role};

/// The words that the kernel of an instance reads, case by case.
pub(super) fn inputs(instance: &Instance) -> Vec<u64> {
    let mut random = Random::new(&instance.name);
    let mut words = Vec::with_capacity(instance.cases * instance.sources.len());
    for case in 0..instance.cases {
        for (at, source) in instance.sources.iter().enumerate() {
            words.push(value(source, (case, at, instance.sources.len()), &mut random));
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

/// The value of a source. Instructions with one source get every edge value; others get pairs of
/// edge values in random order.
fn value(source: &Input, (case, at, count): (usize, usize, usize), random: &mut Random) -> u64 {
    match source.role {
        Role::Count => COUNTS[random.below(COUNTS.len())],
        Role::Exact => exact(source.of, random),
        Role::Value => {
            let edges = edges(source.of);
            if count == 1 && case < edges.len() {
                return edges[case];
            }
            // The first cases of several sources pair equal edges.
            if case < edges.len() / 2 && at > 0 && case % 2 == 0 {
                return edges[(case + at) % edges.len()];
            }
            match random.below(8) {
                0..=4 => edges[random.below(edges.len())],
                5 => moderate(source.of, random),
                _ => truncated(source.of, random.next()),
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

/// The edge values of a type, as bits.
fn edges(of: Type) -> Vec<u64> {
    match of {
        Type::Pred => vec![0, 1],
        Type::F32 | Type::Tf32 => F32.iter().map(|bits| u64::from(*bits)).collect(),
        Type::F64 => F64.to_vec(),
        Type::F16 => F16.iter().map(|bits| u64::from(*bits)).collect(),
        Type::Bf16 => BF16.iter().map(|bits| u64::from(*bits)).collect(),
        Type::F16x2 => pairs(F16),
        Type::Bf16x2 => pairs(BF16),
        Type::U16x2 | Type::S16x2 => pairs(&[0, 1, 2, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xffff]),
        _ => integers(of.bits()),
    }
}

/// Words of two 16-bit edge values.
fn pairs(halves: &[u16]) -> Vec<u64> {
    let word = |at: usize| {
        let other = halves[(at * 7 + 3) % halves.len()];
        u64::from(halves[at]) | u64::from(other) << 16
    };
    (0..halves.len()).map(word).collect()
}

fn integers(bits: u32) -> Vec<u64> {
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let top = 1u64 << (bits - 1);
    let mut all = vec![0, 1, 2, 3, 5, 7, 10, 31, 32, 100, 127, 128, 255];
    all.extend([256, 0x7fff, 0x8000, 0xffff, 0x1_0000, 0x00ff_ffff, 0x0100_0000]);
    all.extend([0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa, 0x0123_4567_89ab_cdef]);
    all.extend([0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x1_0000_0000]);
    all.extend([top, top - 1, top + 1, mask, mask - 1, mask - 2, mask - 99, top >> 1]);
    for value in &mut all {
        *value &= mask;
    }
    all.sort_unstable();
    all.dedup();
    all
}

const F32: &[u32] = &[
    0x0000_0000,
    0x8000_0000,
    0x0000_0001,
    0x8000_0001,
    0x0000_1234,
    0x0040_0000,
    0x007f_ffff,
    0x807f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x0080_0001,
    0x00ff_ffff,
    0x0100_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f00_0000,
    0x7e80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xffc0_0001,
    0x7f80_0001,
    0xff80_1234,
    0x7fff_ffff,
    0x7fc1_2345,
    0x3f80_0000,
    0xbf80_0000,
    0x3f7f_ffff,
    0x3f80_0001,
    0xbf7f_ffff,
    0xbf80_0001,
    0x3f00_0000,
    0xbf00_0000,
    0x3eff_ffff,
    0x3f00_0001,
    0x3fc0_0000,
    0xbfc0_0000,
    0x4000_0000,
    0xc000_0000,
    0x4020_0000,
    0xc020_0000,
    0x4040_0000,
    0x4060_0000,
    0x4080_0000,
    0x4120_0000,
    0xc120_0000,
    0x4b00_0000,
    0x4b00_0001,
    0x4b7f_ffff,
    0x4b80_0000,
    0xcb80_0001,
    0x4efe_0000,
    0x4f00_0000,
    0xcf00_0000,
    0xcf00_0001,
    0x4f7f_ffff,
    0x4f80_0000,
    0x5f00_0000,
    0xdf00_0000,
    0x5f80_0000,
    0x3dcc_cccd,
    0x3eaa_aaab,
    0x3fb5_04f3,
    0x4049_0fdb,
    0xc049_0fdb,
    0x3fc9_0fdb,
    0x42c8_0000,
    0x437f_0000,
    0x4380_0000,
    0xc300_0000,
    0x42fe_0000,
    0xc2fc_0000,
    0xc315_0000,
    0x3089_705f,
    0x501502f9,
    0x3f31_7218,
    0x402d_f854,
    0x4700_0000,
    0x477f_e000,
    0x477f_f000,
    0x3380_0000,
    0x3300_0000,
    0x3880_0000,
    0x387f_c000,
];

const F64: &[u64] = &[
    0x0000_0000_0000_0000,
    0x8000_0000_0000_0000,
    0x0000_0000_0000_0001,
    0x8000_0000_0000_0001,
    0x0008_0000_0000_0000,
    0x000f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x8010_0000_0000_0000,
    0x0010_0000_0000_0001,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x7fe0_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0xfff8_0000_0000_0001,
    0x7ff0_0000_0000_0001,
    0x7fff_ffff_ffff_ffff,
    0x7ff8_1234_5678_9abc,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x3fef_ffff_ffff_ffff,
    0x3ff0_0000_0000_0001,
    0x3fe0_0000_0000_0000,
    0xbfe0_0000_0000_0000,
    0x3fdf_ffff_ffff_ffff,
    0x3fe0_0000_0000_0001,
    0x3ff8_0000_0000_0000,
    0xbff8_0000_0000_0000,
    0x4000_0000_0000_0000,
    0xc000_0000_0000_0000,
    0x4004_0000_0000_0000,
    0xc004_0000_0000_0000,
    0x400c_0000_0000_0000,
    0x4024_0000_0000_0000,
    0x4340_0000_0000_0000,
    0x4340_0000_0000_0001,
    0x4330_0000_0000_0000,
    0x41df_ffff_ffc0_0000,
    0x41e0_0000_0000_0000,
    0xc1e0_0000_0000_0000,
    0xc1e0_0000_0020_0000,
    0x41ef_ffff_ffe0_0000,
    0x41f0_0000_0000_0000,
    0x43e0_0000_0000_0000,
    0xc3e0_0000_0000_0000,
    0x43f0_0000_0000_0000,
    0x3fb9_9999_9999_999a,
    0x3fd5_5555_5555_5555,
    0x3ff6_a09e_667f_3bcd,
    0x4009_21fb_5444_2d18,
    0x4059_0000_0000_0000,
    0x47ef_ffff_e000_0000,
    0x47ef_ffff_f000_0000,
    0x3810_0000_0000_0000,
    0x380f_ffff_ffff_ffff,
    0x36a0_0000_0000_0000,
    0x3690_0000_0000_0000,
    0x40ef_fc00_0000_0000,
    0x40ef_fe00_0000_0000,
    0x3e70_0000_0000_0000,
    0x3e60_0000_0000_0000,
    0x4060_0000_0000_0000,
    0xc060_2000_0000_0000,
];

const F16: &[u16] = &[
    0x0000, 0x8000, 0x0001, 0x8001, 0x0200, 0x03ff, 0x83ff, 0x0400, 0x8400, 0x0401, 0x7bff, 0xfbff,
    0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0xfd23, 0x7fff, 0x3c00, 0xbc00, 0x3bff, 0x3c01, 0x3800,
    0xb800, 0x37ff, 0x3801, 0x3e00, 0xbe00, 0x4000, 0xc000, 0x4100, 0x4200, 0x4900, 0xc900, 0x5640,
    0x6400, 0x6800, 0x6bff, 0x7800, 0x2e66, 0x3555, 0x3da8, 0x4248, 0xc248, 0x5bf8, 0x5c00, 0xdc00,
];

const BF16: &[u16] = &[
    0x0000, 0x8000, 0x0001, 0x8001, 0x0040, 0x007f, 0x807f, 0x0080, 0x8080, 0x0081, 0x7f7f, 0xff7f,
    0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0xffa3, 0x7fff, 0x3f80, 0xbf80, 0x3f7f, 0x3f81, 0x3f00,
    0xbf00, 0x3eff, 0x3f01, 0x3fc0, 0xbfc0, 0x4000, 0xc000, 0x4020, 0x4040, 0x4120, 0xc120, 0x42c8,
    0x4300, 0x4380, 0x437f, 0x7f00, 0x3dcd, 0x3eab, 0x3fb5, 0x4049, 0xc049, 0x4f00, 0x4f80, 0xcf00,
];
