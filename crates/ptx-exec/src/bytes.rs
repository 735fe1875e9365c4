//! Semantics of PTX instructions on carries, packed integers and bytes, for one lane.

use super::integer::Int;

/// `add` of `a`, `b` and a carry.
pub(super) fn add_carry<T: Int>([a, b, carry]: [u64; 3]) -> u64 {
    T::low(T::of(a).wide() + T::of(b).wide() + i128::from(carry & 1))
}

/// The carry of [`add_carry`].
pub(super) fn carry_of<T: Int>([a, b, carry]: [u64; 3]) -> u64 {
    let low = |bits: u64| u128::from(T::low(T::of(bits).wide()));
    let sum = low(a) + low(b) + u128::from(carry & 1);
    (sum >> T::BITS) as u64
}

/// `a − b`, minus 1 if the carry is not set: hardware adds the complement of `b`.
pub(super) fn sub_borrow<T: Int>([a, b, carry]: [u64; 3]) -> u64 {
    T::low(T::of(a).wide() - T::of(b).wide() - i128::from(carry & 1 ^ 1))
}

/// The carry of [`sub_borrow`]: set if there is no borrow.
pub(super) fn borrow_of<T: Int>([a, b, carry]: [u64; 3]) -> u64 {
    let low = |bits: u64| i128::from(T::low(T::of(bits).wide()));
    u64::from(low(a) - low(b) - i128::from(carry & 1 ^ 1) >= 0)
}

/// `sad`: the absolute difference of `a` and `b`, added to `c`.
pub(super) fn sad<T: Int>([a, b, c]: [u64; 3]) -> u64 {
    let (a, b, c) = (T::of(a).wide(), T::of(b).wide(), T::of(c).wide());
    T::low(c + (a - b).abs())
}

/// Bits `start` to `start + bits` of `value`, sign-extended if `signed`.
fn field(value: u64, start: u32, bits: u32, signed: bool) -> i64 {
    let raw = (value >> start << (64 - bits)) as i64;
    if signed { raw >> (64 - bits) } else { (raw as u64 >> (64 - bits)) as i64 }
}

/// The modifiers of `dp4a` and `dp2a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DotProduct {
    /// Whether the elements of `a` are signed.
    pub(super) a_signed: bool,
    /// Whether the elements of `b` are signed.
    pub(super) b_signed: bool,
    /// `dp2a.hi`: the elements of `b` are its upper two bytes.
    pub(super) upper: bool,
}

/// `dp4a`: `c` plus the products of four bytes of `a` and `b`.
pub(super) fn dp4a([a, b, c]: [u64; 3], mode: DotProduct) -> u64 {
    let (left, right) = (mode.a_signed, mode.b_signed);
    let products = (0..4).map(|i| field(a, 8 * i, 8, left) * field(b, 8 * i, 8, right));
    (c as u32).wrapping_add(products.sum::<i64>() as u32).into()
}

/// `dp2a`: `c` plus the products of two halfwords of `a` and two bytes of `b`.
pub(super) fn dp2a([a, b, c]: [u64; 3], mode: DotProduct) -> u64 {
    let (left, right) = (mode.a_signed, mode.b_signed);
    let start = if mode.upper { 16 } else { 0 };
    let products = (0..2).map(|i| field(a, 16 * i, 16, left) * field(b, start + 8 * i, 8, right));
    (c as u32).wrapping_add(products.sum::<i64>() as u32).into()
}

/// A mode of `prmt` other than the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermuteMode {
    /// `.f4e`: four bytes upwards from the selected one.
    ForwardExtract,
    /// `.b4e`: four bytes downwards from the selected one.
    BackwardExtract,
    /// `.rc8`: one byte, four times.
    Replicate8,
    /// `.ecl`: bytes left of the selected one are clamped to it.
    EdgeClampLeft,
    /// `.ecr`: bytes right of the selected one are clamped to it.
    EdgeClampRight,
    /// `.rc16`: one halfword, twice.
    Replicate16,
}

/// `prmt` in a mode other than the default.
pub(super) fn permute([a, b, c]: [u64; 3], mode: PermuteMode) -> u64 {
    let bytes = (b << 32 | a & 0xffff_ffff).to_le_bytes();
    let start = (c & 3) as usize;
    let choose = |index: usize| match mode {
        PermuteMode::ForwardExtract => (start + index) & 7,
        PermuteMode::BackwardExtract => start.wrapping_sub(index) & 7,
        PermuteMode::Replicate8 => start,
        PermuteMode::EdgeClampLeft => index.max(start),
        PermuteMode::EdgeClampRight => index.min(start),
        PermuteMode::Replicate16 => (start & 1) * 2 + (index & 1),
    };
    (0..4).map(|index| u64::from(bytes[choose(index)]) << (8 * index)).sum()
}

/// `bmsk`: `b` ones from bit `a`; with `wrap`, both numbers are modulo 32.
pub(super) fn bit_mask([a, b, _]: [u64; 3], wrap: bool) -> u64 {
    let fit = |value: u64| if wrap { value & 31 } else { (value & 0xffff_ffff).min(32) };
    let ones = (1u64 << fit(b)) - 1;
    ones << fit(a) & 0xffff_ffff
}

/// The modifiers of `szext`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BitField {
    /// Whether the length is modulo 32.
    pub(super) wrap: bool,
    /// Whether the field is sign-extended.
    pub(super) signed: bool,
}

/// `szext`: extends the low `b` bits of `a`.
pub(super) fn sign_extend([a, b, _]: [u64; 3], mode: BitField) -> u64 {
    let length = if mode.wrap { b & 31 } else { (b & 0xffff_ffff).min(32) };
    if length == 0 {
        return 0;
    }
    field(a, 0, length as u32, mode.signed) as u32 as u64
}

/// `fns`: the position of the `c`-th set bit of `a`, counted from bit `b`, upwards for positive
/// counts and downwards for negative ones.
pub(super) fn fns([a, b, c]: [u64; 3]) -> u64 {
    let (mask, base, count) = (a as u32, b as u32, c as u32 as i32);
    if base > 31 {
        return u64::from(u32::MAX);
    }
    if count == 0 {
        return u64::from(if mask >> base & 1 == 1 { base } else { u32::MAX });
    }
    let is_set = |place: &u32| mask >> place & 1 == 1;
    let nth = count.unsigned_abs() as usize - 1;
    let found = if count > 0 {
        (base..32).filter(is_set).nth(nth)
    } else {
        (0..=base).rev().filter(is_set).nth(nth)
    };
    u64::from(found.unwrap_or(u32::MAX))
}

/// The operation of [`packed_integers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackedOperation {
    Add,
    Min,
    Max,
}

/// An operation on two 16-bit integers in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedIntegers {
    /// The operation.
    pub(super) operation: PackedOperation,
    /// `.s16x2` instead of `.u16x2`.
    pub(super) signed: bool,
    /// Whether negative results become 0.
    pub(super) relu: bool,
}

/// `add`, `min` and `max` of `.u16x2` and `.s16x2`.
pub(super) fn packed_integers([a, b, _]: [u64; 3], mode: PackedIntegers) -> u64 {
    let one = |start: u32| {
        let (a, b) = (field(a, start, 16, mode.signed), field(b, start, 16, mode.signed));
        let value = match mode.operation {
            PackedOperation::Add => a + b,
            PackedOperation::Min => a.min(b),
            PackedOperation::Max => a.max(b),
        };
        let value = if mode.relu { value.max(0) } else { value };
        value as u64 & 0xffff
    };
    one(16) << 16 | one(0)
}

/// `min.relu.s32`.
pub(super) fn min_relu([a, b, _]: [u64; 3]) -> u64 {
    u64::from((a as u32 as i32).min(b as u32 as i32).max(0) as u32)
}

/// `max.relu.s32`.
pub(super) fn max_relu([a, b, _]: [u64; 3]) -> u64 {
    u64::from((a as u32 as i32).max(b as u32 as i32).max(0) as u32)
}

/// `mad24.hi.sat.s32`.
pub(super) fn mad24_saturating([a, b, c]: [u64; 3]) -> u64 {
    let product = field(a, 0, 24, true) * field(b, 0, 24, true);
    let sum = (product >> 16) + i64::from(c as u32 as i32);
    u64::from(sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32)
}

/// `mad.hi.sat.s32`.
pub(super) fn mad_saturating([a, b, c]: [u64; 3]) -> u64 {
    let signed = |value: u64| i64::from(value as u32 as i32);
    let sum = ((signed(a) * signed(b)) >> 32) + signed(c);
    u64::from(sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32)
}
