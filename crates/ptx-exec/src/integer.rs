//! Semantics of PTX integer and bit instructions, for one lane.
//!
//! Values are the low bits of a `u64`. Division by zero, which is machine-specific in PTX, returns
//! all ones, as does the remainder; this is the behaviour of hardware.

/// An integer type of PTX.
pub(super) trait Int: Copy + Ord {
    /// Number of bits.
    const BITS: u32;
    /// The value in the low bits.
    fn of(bits: u64) -> Self;
    /// The value extended to 128 bits according to its signedness.
    fn wide(self) -> i128;
    /// The low bits of `value`, zero above.
    fn low(value: i128) -> u64;
    /// Minimum and maximum value.
    const RANGE: (i128, i128);
}

macro_rules! int {
    ($($ty:ident as $unsigned:ident),*) => {$(
        impl Int for $ty {
            const BITS: u32 = $ty::BITS;
            fn of(bits: u64) -> Self {
                bits as $ty
            }
            fn wide(self) -> i128 {
                self as i128
            }
            fn low(value: i128) -> u64 {
                value as $unsigned as u64
            }
            const RANGE: (i128, i128) = ($ty::MIN as i128, $ty::MAX as i128);
        }
    )*};
}
int!(u8 as u8, i8 as u8, u16 as u16, i16 as u16, u32 as u32, i32 as u32, u64 as u64, i64 as u64);

fn wide<T: Int>(bits: u64) -> i128 {
    T::of(bits).wide()
}

macro_rules! wrapping {
    ($($(#[$doc:meta])* $name:ident($a:ident, $b:ident, $c:ident) = $value:expr;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name<T: Int>(values: [u64; 3]) -> u64 {
            let [$a, $b, $c] = values.map(wide::<T>);
            let _ = (&$a, &$b, &$c);
            T::low($value)
        }
    )*};
}

wrapping! {
    /// `add`.
    add(a, b, _c) = a + b;
    /// `add.sat`.
    add_saturating(a, b, _c) = (a + b).clamp(T::RANGE.0, T::RANGE.1);
    /// `sub`.
    sub(a, b, _c) = a - b;
    /// `sub.sat`.
    sub_saturating(a, b, _c) = (a - b).clamp(T::RANGE.0, T::RANGE.1);
    /// `mul.lo`.
    mul_low(a, b, _c) = a.wrapping_mul(b);
    /// `mul.hi`; the product of two unsigned 64-bit numbers fills all 128 bits.
    mul_high(a, b, _c) = ((a as u128).wrapping_mul(b as u128) as i128) >> T::BITS;
    /// `mad.lo`.
    mad_low(a, b, c) = a.wrapping_mul(b).wrapping_add(c);
    /// `mad.hi`.
    mad_high(a, b, c) = (((a as u128).wrapping_mul(b as u128) as i128) >> T::BITS) + c;
    /// `div`.
    div(a, b, _c) = if b == 0 { -1 } else { a / b };
    /// `rem`.
    rem(a, b, _c) = if b == 0 { -1 } else { a % b };
    /// `min`.
    min(a, b, _c) = a.min(b);
    /// `max`.
    max(a, b, _c) = a.max(b);
    /// `abs`.
    abs(a, _b, _c) = a.abs();
    /// `neg`.
    neg(a, _b, _c) = -a;
    /// `and`.
    and(a, b, _c) = a & b;
    /// `or`.
    or(a, b, _c) = a | b;
    /// `xor`.
    xor(a, b, _c) = a ^ b;
    /// `not`.
    not(a, _b, _c) = !a;
    /// `cnot`: 1 for zero and 0 for anything else.
    cnot(a, _b, _c) = i128::from(a == 0);
    /// `mul24.lo`, `mad24.lo` with operand `c`.
    mad24_low(a, b, c) = ((low24::<T>(a) * low24::<T>(b)) & 0xffff_ffff) + c;
    /// `mul24.hi`, `mad24.hi` with operand `c`.
    mad24_high(a, b, c) = ((low24::<T>(a) * low24::<T>(b)) >> 16) + c;
}

fn low24<T: Int>(value: i128) -> i128 {
    if T::RANGE.0 < 0 { i128::from((value as i32) << 8 >> 8) } else { value & 0xff_ffff }
}

/// `mul.wide` and `mad.wide`; the third operand has twice the width.
pub(super) fn mad_wide<T: Int>([a, b, c]: [u64; 3]) -> u64 {
    let product = wide::<T>(a) * wide::<T>(b);
    let mask = u64::MAX >> (64 - 2 * T::BITS);
    (product as u64).wrapping_add(c) & mask
}

/// `shl`; amounts beyond the width give zero.
pub(super) fn shl<T: Int>([a, b, _]: [u64; 3]) -> u64 {
    let amount = b as u32;
    if amount >= T::BITS { 0 } else { T::low(wide::<T>(a) << amount) }
}

/// `shr`; amounts beyond the width give zero or the sign.
pub(super) fn shr<T: Int>([a, b, _]: [u64; 3]) -> u64 {
    T::low(wide::<T>(a) >> (b as u32).min(T::BITS))
}

/// `shf.l` and `shf.r`.
pub(super) fn funnel_shift([a, b, c]: [u64; 3], right: bool, clamp: bool) -> u64 {
    let amount = c as u32;
    let amount = if clamp { amount.min(32) } else { amount & 31 };
    let both = b << 32 | a & 0xffff_ffff;
    if right {
        (both >> amount) & 0xffff_ffff
    } else {
        both.checked_shl(amount).unwrap_or(0) >> 32 & 0xffff_ffff
    }
}

/// `lop3` with a truth table.
pub(super) fn lop3([a, b, c]: [u64; 3], table: u8) -> u64 {
    let term = |index: u64| {
        let pick = |value: u64, bit: u64| if index >> bit & 1 == 1 { value } else { !value };
        if table >> index & 1 == 1 { pick(a, 2) & pick(b, 1) & pick(c, 0) } else { 0 }
    };
    (0..8).map(term).fold(0, |sum, term| sum | term) & 0xffff_ffff
}

/// The position or length of a field. 32-bit instructions read only the low 8 bits, 64-bit ones all
/// bits.
fn field_number<T: Int>(bits: u64) -> u32 {
    if T::BITS == 64 { (bits as u32).min(255) } else { bits as u32 & 0xff }
}

/// `bfe`: `b` is the position and `c` the length.
pub(super) fn bfe<T: Int>([a, b, c]: [u64; 3]) -> u64 {
    let (position, length) = (field_number::<T>(b), field_number::<T>(c));
    if length == 0 {
        return 0;
    }
    // The 128-bit value is sign-extended, as the instruction requires past the last bit.
    let field = wide::<T>(a) >> position.min(127);
    let length = length.min(T::BITS);
    // The sign is the last bit of the field inside the operand.
    let last = (position + length - 1).min(T::BITS - 1);
    let negative = T::RANGE.0 < 0 && wide::<T>(a) >> last & 1 == 1;
    let mask = (1i128 << length) - 1;
    let inside = T::BITS.saturating_sub(position);
    let valid = (1i128 << inside.min(length)) - 1;
    T::low(field & valid | if negative { !(valid & mask) } else { 0 })
}

/// `bfi`: inserts the low bits of `a` into `b`. The third value holds the position, with the length
/// in its upper half.
pub(super) fn bfi<T: Int>([a, b, c]: [u64; 3]) -> u64 {
    let (position, length) = (field_number::<T>(c), field_number::<T>(c >> 32));
    let mask = 1u128.checked_shl(length).unwrap_or(0).wrapping_sub(1);
    let mask = mask.checked_shl(position).unwrap_or(0);
    let inserted = u128::from(a).checked_shl(position).unwrap_or(0);
    let all = u64::MAX >> (64 - T::BITS);
    ((u128::from(b) & !mask | inserted & mask) as u64) & all
}

/// `bfind`: the position of the most significant bit that is not a copy of the sign.
pub(super) fn bfind<T: Int>([a, _, _]: [u64; 3]) -> u64 {
    let value = wide::<T>(a);
    let magnitude = T::low(if value < 0 { !value } else { value });
    if magnitude == 0 {
        return 0xffff_ffff;
    }
    63 - u64::from(magnitude.leading_zeros())
}

/// `bfind.shiftamt`: the shift that moves the bit of [`bfind`] to the top.
pub(super) fn bfind_shift_amount<T: Int>(values: [u64; 3]) -> u64 {
    match bfind::<T>(values) {
        0xffff_ffff => 0xffff_ffff,
        position => u64::from(T::BITS) - 1 - position,
    }
}

/// `brev`.
pub(super) fn brev<T: Int>([a, _, _]: [u64; 3]) -> u64 {
    a.reverse_bits() >> (64 - T::BITS)
}

/// `clz`.
pub(super) fn clz<T: Int>([a, _, _]: [u64; 3]) -> u64 {
    u64::from(T::low(wide::<T>(a)).leading_zeros() - (64 - T::BITS))
}

/// `popc`.
pub(super) fn popc<T: Int>([a, _, _]: [u64; 3]) -> u64 {
    u64::from(T::low(wide::<T>(a)).count_ones())
}

/// `prmt` in its default mode.
pub(super) fn prmt([a, b, c]: [u64; 3]) -> u64 {
    let bytes = (b << 32 | a & 0xffff_ffff).to_le_bytes();
    let select = |index: u64| {
        let code = c >> (4 * index) & 0xf;
        let byte = bytes[(code & 7) as usize];
        let byte = if code & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        u64::from(byte) << (8 * index)
    };
    (0..4).map(select).sum()
}
