//! Edge values of each type.

use retrograph_ptx::ast::Type;

/// The edge values of a type, as bits.
pub(super) fn edges(of: Type) -> Vec<u64> {
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
pub(super) fn pairs(halves: &[u16]) -> Vec<u64> {
    let word = |at: usize| {
        let other = halves[(at * 7 + 3) % halves.len()];
        u64::from(halves[at]) | u64::from(other) << 16
    };
    (0..halves.len()).map(word).collect()
}

pub(super) fn integers(bits: u32) -> Vec<u64> {
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

pub(super) const F32: &[u32] = &[
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

pub(super) const F64: &[u64] = &[
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

pub(super) const F16: &[u16] = &[
    0x0000, 0x8000, 0x0001, 0x8001, 0x0200, 0x03ff, 0x83ff, 0x0400, 0x8400, 0x0401, 0x7bff, 0xfbff,
    0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0xfd23, 0x7fff, 0x3c00, 0xbc00, 0x3bff, 0x3c01, 0x3800,
    0xb800, 0x37ff, 0x3801, 0x3e00, 0xbe00, 0x4000, 0xc000, 0x4100, 0x4200, 0x4900, 0xc900, 0x5640,
    0x6400, 0x6800, 0x6bff, 0x7800, 0x2e66, 0x3555, 0x3da8, 0x4248, 0xc248, 0x5bf8, 0x5c00, 0xdc00,
];

pub(super) const BF16: &[u16] = &[
    0x0000, 0x8000, 0x0001, 0x8001, 0x0040, 0x007f, 0x807f, 0x0080, 0x8080, 0x0081, 0x7f7f, 0xff7f,
    0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0xffa3, 0x7fff, 0x3f80, 0xbf80, 0x3f7f, 0x3f81, 0x3f00,
    0xbf00, 0x3eff, 0x3f01, 0x3fc0, 0xbfc0, 0x4000, 0xc000, 0x4020, 0x4040, 0x4120, 0xc120, 0x42c8,
    0x4300, 0x4380, 0x437f, 0x7f00, 0x3dcd, 0x3eab, 0x3fb5, 0x4049, 0xc049, 0x4f00, 0x4f80, 0xcf00,
];
