//! What PTX instructions on carries, packed integers and bytes compute, one lane at a time.

use super::integer::Int;

/// `add` of `a`, `b` and a carry.
pub(super) fn add_carry<T: Int>([a, b, carry]: [u64; 3], _: u64) -> u64 {
    T::low(T::of(a).wide() + T::of(b).wide() + i128::from(carry & 1))
}

/// The carry of [`add_carry`].
pub(super) fn carry_of<T: Int>([a, b, carry]: [u64; 3], _: u64) -> u64 {
    let low = |bits: u64| u128::from(T::low(T::of(bits).wide()));
    let sum = low(a) + low(b) + u128::from(carry & 1);
    (sum >> T::BITS) as u64
}

/// `a − b` less one where the carry is not set: hardware adds the complement of `b`.
pub(super) fn sub_borrow<T: Int>([a, b, carry]: [u64; 3], _: u64) -> u64 {
    T::low(T::of(a).wide() - T::of(b).wide() - i128::from(carry & 1 ^ 1))
}

/// The carry of [`sub_borrow`]: set where there is no borrow.
pub(super) fn borrow_of<T: Int>([a, b, carry]: [u64; 3], _: u64) -> u64 {
    let low = |bits: u64| i128::from(T::low(T::of(bits).wide()));
    u64::from(low(a) - low(b) - i128::from(carry & 1 ^ 1) >= 0)
}

/// `sad`: the absolute difference of `a` and `b`, added to `c`.
pub(super) fn sad<T: Int>([a, b, c]: [u64; 3], _: u64) -> u64 {
    let (a, b, c) = (T::of(a).wide(), T::of(b).wide(), T::of(c).wide());
    T::low(c + (a - b).abs())
}

/// Bits `start` to `start + bits` of `value`, extended by their sign if they have one.
fn field(value: u64, start: u32, bits: u32, signed: bool) -> i64 {
    let raw = (value >> start << (64 - bits)) as i64;
    if signed { raw >> (64 - bits) } else { (raw as u64 >> (64 - bits)) as i64 }
}

/// `dp4a`: `constant` says which of `a` and `b` are signed, by bits 0 and 1.
pub(super) fn dp4a([a, b, c]: [u64; 3], constant: u64) -> u64 {
    let (left, right) = (constant & 1 == 1, constant & 2 == 2);
    let products = (0..4).map(|i| field(a, 8 * i, 8, left) * field(b, 8 * i, 8, right));
    (c as u32).wrapping_add(products.sum::<i64>() as u32).into()
}

/// `dp2a`: as for [`dp4a`]; bit 2 takes the upper half of `b`.
pub(super) fn dp2a([a, b, c]: [u64; 3], constant: u64) -> u64 {
    let (left, right) = (constant & 1 == 1, constant & 2 == 2);
    let start = if constant & 4 == 4 { 16 } else { 0 };
    let products = (0..2).map(|i| field(a, 16 * i, 16, left) * field(b, start + 8 * i, 8, right));
    (c as u32).wrapping_add(products.sum::<i64>() as u32).into()
}

/// The modes of `prmt` that are not the default, in the order of their numbers.
pub(super) fn prmt_mode([a, b, c]: [u64; 3], mode: u64) -> u64 {
    let bytes = (b << 32 | a & 0xffff_ffff).to_le_bytes();
    let start = (c & 3) as usize;
    let choose = |index: usize| match mode {
        // Forward and backward extraction of four bytes in a row.
        0 => (start + index) & 7,
        1 => start.wrapping_sub(index) & 7,
        // Replication of one byte.
        2 => start,
        // Clamps at the left and at the right edge.
        3 => index.max(start),
        4 => index.min(start),
        // Replication of one halfword.
        _ => (start & 1) * 2 + (index & 1),
    };
    (0..4).map(|index| u64::from(bytes[choose(index)]) << (8 * index)).sum()
}

/// `bmsk`: ones from `a` on, `b` many; `constant` 1 wraps both numbers.
pub(super) fn bmsk([a, b, _]: [u64; 3], constant: u64) -> u64 {
    let fit = |value: u64| if constant == 1 { value & 31 } else { (value & 0xffff_ffff).min(32) };
    let ones = (1u64 << fit(b)) - 1;
    ones << fit(a) & 0xffff_ffff
}

/// `szext`: extends the low `b` bits of `a`; `constant` bit 0 wraps the length, bit 1 says signed.
pub(super) fn szext([a, b, _]: [u64; 3], constant: u64) -> u64 {
    let length = if constant & 1 == 1 { b & 31 } else { (b & 0xffff_ffff).min(32) };
    if length == 0 {
        return 0;
    }
    field(a, 0, length as u32, constant & 2 == 2) as u32 as u64
}

/// `fns`: the place of the `c`-th bit of `a` that is set, counted from place `b`, upwards for
/// positive counts and downwards for negative ones.
pub(super) fn fns([a, b, c]: [u64; 3], _: u64) -> u64 {
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

/// Pairs of 16-bit integers: bit 0 of `constant` says signed, bit 1 `.relu`, and the bits above
/// which of add, min and max it is.
pub(super) fn pairs([a, b, _]: [u64; 3], constant: u64) -> u64 {
    let signed = constant & 1 == 1;
    let one = |start: u32| {
        let (a, b) = (field(a, start, 16, signed), field(b, start, 16, signed));
        let value = match constant >> 2 {
            0 => a + b,
            1 => a.min(b),
            _ => a.max(b),
        };
        let value = if constant & 2 == 2 { value.max(0) } else { value };
        value as u64 & 0xffff
    };
    one(16) << 16 | one(0)
}

/// `min.relu.s32` and, with `constant` 1, `max.relu.s32`.
pub(super) fn extremum_relu([a, b, _]: [u64; 3], constant: u64) -> u64 {
    let (a, b) = (a as u32 as i32, b as u32 as i32);
    let value = if constant == 1 { a.max(b) } else { a.min(b) };
    u64::from(value.max(0) as u32)
}

/// `mad24.hi.sat.s32`.
pub(super) fn mad24_saturating([a, b, c]: [u64; 3], _: u64) -> u64 {
    let product = field(a, 0, 24, true) * field(b, 0, 24, true);
    let sum = (product >> 16) + i64::from(c as u32 as i32);
    u64::from(sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32)
}

/// `mad.hi.sat.s32`.
pub(super) fn mad_saturating([a, b, c]: [u64; 3], _: u64) -> u64 {
    let signed = |value: u64| i64::from(value as u32 as i32);
    let sum = ((signed(a) * signed(b)) >> 32) + signed(c);
    u64::from(sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_and_borrows() {
        let all = u64::from(u32::MAX);
        assert_eq!((add_carry::<u32>([all, 0, 1], 0), carry_of::<u32>([all, 0, 1], 0)), (0, 1));
        assert_eq!(carry_of::<i32>([all, 1, 0], 0), 1);
        assert_eq!(carry_of::<u64>([u64::MAX, u64::MAX, 1], 0), 1);
        assert_eq!((sub_borrow::<u32>([0, 0, 0], 0), borrow_of::<u32>([0, 0, 0], 0)), (all, 0));
        assert_eq!(borrow_of::<i64>([5, u64::MAX, 1], 0), 0);
    }

    #[test]
    fn sums_of_products() {
        assert_eq!(sad::<i32>([1, u64::from(u32::MAX), 10], 0), 12);
        assert_eq!(dp4a([0x0102_03ff, 0x0101_0101, 0], 0), 1 + 2 + 3 + 255);
        assert_eq!(dp4a([0x0102_03ff, 0x0101_0101, 0], 1), 5);
        assert_eq!(dp2a([0x0002_ffff, 0x0303_0101, 1], 1 | 4), 4);
    }

    #[test]
    fn bytes_are_picked_by_mode() {
        let (a, b) = (0x3322_1100, 0x7766_5544);
        let run = |mode, c| prmt_mode([a, b, c], mode);
        assert_eq!([run(0, 2), run(1, 1)], [0x5544_3322, 0x6677_0011]);
        assert_eq!([run(2, 3), run(3, 2)], [0x3333_3333, 0x3322_2222]);
        assert_eq!([run(4, 1), run(5, 1)], [0x1111_1100, 0x3322_3322]);
    }

    #[test]
    fn masks_and_places() {
        assert_eq!([bmsk([4, 8, 0], 0), bmsk([40, 8, 0], 0), bmsk([33, 1, 0], 1)], [0xff0, 0, 2]);
        assert_eq!(szext([0x80, 8, 0], 2), 0xffff_ff80);
        assert_eq!([szext([0xfff, 8, 0], 0), szext([0xfff, 64, 0], 0)], [0xff, 0xfff]);
        assert_eq!([fns([0b1010, 0, 2], 0), fns([0b1010, 2, u64::from(u32::MAX)], 0)], [3, 1]);
        assert_eq!(fns([0b1010, 0, 3], 0), u64::from(u32::MAX));
        assert_eq!(pairs([0xffff_0001, 0x0001_0002, 0], 1), 3);
        assert_eq!(pairs([0xffff_0001, 0x0001_0002, 0], 1 | 2 | 2 << 2), 0x0001_0002);
    }
}
