//! The table: for each opcode its word, what it does, and its forms.

use super::form::{Form, Shape, Slot, Ty, maybe, one};
use super::sets::*;
use crate::ast::{Modifier, Type};
use crate::words::words;

/// Turns the table into [`Opcode`] and its forms.
macro_rules! instructions {
    ($(
        $(#[$doc:meta])* $name:ident = $text:literal [ $(
            Form::new($slots:expr, $types:expr, $operands:expr $(,)?)
            $(.since($isa:ident, $sm:literal))?
        ),* $(,)? ]
    )*) => {
        words! {
            /// The operation of an instruction.
            pub enum Opcode { $( $(#[$doc])* $name = $text, )* }
        }

        impl Opcode {
            /// The forms that the instruction has.
            pub const fn forms(self) -> &'static [Form] {
                match self { $( Self::$name => {
                    const FORMS: &[Form] = &[$({
                        const SLOTS: &[Slot] = $slots;
                        const TYPES: &[&[Type]] = $types;
                        const OPERANDS: &[Shape] = $operands;
                        Form::new(SLOTS, TYPES, OPERANDS)$(.since($isa, $sm))?
                    }),*];
                    FORMS
                } )* }
            }
        }
    };
}

instructions! {
    /// Copies a value, reads a special register, takes an address, packs or unpacks a vector.
    Mov = "mov" [
        Form::new(&[], &[MOVED], &[D, Shape::Anything]),
        Form::new(&[], &[&[Type::B32, Type::B64]], &[Shape::Unpacked, S]),
    ]
    /// Loads from memory.
    Ld = "ld" [
        Form::new(&[maybe(SPACES), maybe(LOAD_CACHE), maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[one(&[Modifier::Global]), maybe(READ_ONLY_CACHE), one(&[Modifier::Nc]),
            maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[one(WEAK), maybe(SPACES), maybe(VECTOR)], &[MEMORY], LOAD),
        Form::new(&[one(&[Modifier::Relaxed, Modifier::Acquire]), one(SCOPES), maybe(ATOMIC_SPACES),
            maybe(VECTOR)], &[MEMORY], LOAD),
    ]
    /// Stores to memory.
    St = "st" [
        Form::new(&[maybe(STORE_SPACES), maybe(STORE_CACHE), maybe(VECTOR)], &[MEMORY], STORE),
        Form::new(&[one(WEAK), maybe(STORE_SPACES), maybe(VECTOR)], &[MEMORY], STORE),
        Form::new(&[one(&[Modifier::Relaxed, Modifier::Release]), one(SCOPES), maybe(ATOMIC_SPACES),
            maybe(VECTOR)], &[MEMORY], STORE),
    ]
    /// Converts between generic addresses and those of a space.
    Cvta = "cvta" [
        Form::new(&[maybe(&[Modifier::To]), one(CVTA_SPACES)], &[&[Type::U64]],
            &[D, Shape::AddressValue]),
    ]
    /// Converts between types.
    Cvt = "cvt" [
        Form::new(&[], &[INTEGERS, INTEGERS], CONVERT),
        // Saturation exists where the source has values that the destination has not.
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U8], BEYOND_U8], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U16], BEYOND_U16], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U32], BEYOND_U32], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::U64], BEYOND_U64], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S8], BEYOND_S8], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S16], BEYOND_S16], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S32], BEYOND_S32], CONVERT),
        Form::new(&[one(&[Modifier::Sat])], &[&[Type::S64], BEYOND_S64], CONVERT),
        Form::new(&[one(ROUND), SAT], &[FLOATS_AND_HALF, INTEGERS], CONVERT),
        Form::new(&[one(ROUND_INTEGER), FTZ, SAT], &[INTEGERS, F32], CONVERT),
        Form::new(&[one(ROUND_INTEGER), SAT], &[INTEGERS, &[Type::F16, Type::F64]], CONVERT),
        Form::new(&[maybe(ROUND_INTEGER), FTZ, SAT], &[F32, F32], CONVERT),
        Form::new(&[maybe(ROUND_INTEGER), SAT], &[F64, F64], CONVERT),
        Form::new(&[FTZ, SAT], &[F64, F32], CONVERT),
        Form::new(&[one(ROUND), FTZ, SAT], &[F32, F64], CONVERT),
        Form::new(&[FTZ, SAT], &[F32, F16], CONVERT),
        Form::new(&[SAT], &[F64, F16], CONVERT),
        Form::new(&[one(ROUND), FTZ, SAT], &[F16, F32], CONVERT),
        Form::new(&[one(ROUND), SAT], &[F16, F64], CONVERT),
        Form::new(&[one(&[Modifier::Rn, Modifier::Rz])], &[BF16, F32], CONVERT).since(ISA_7_0, 80),
        Form::new(&[], &[F32, BF16], CONVERT).since(ISA_7_1, 80),
    ]
    /// Adds.
    Add = "add" [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Sat])], &[S32], DSS),
        Form::new(&[maybe(ROUND), FTZ, SAT], &[F32], DSS),
        Form::new(&[maybe(ROUND)], &[F64], DSS),
    ]
    /// Subtracts.
    Sub = "sub" [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Sat])], &[S32], DSS),
        Form::new(&[maybe(ROUND), FTZ, SAT], &[F32], DSS),
        Form::new(&[maybe(ROUND)], &[F64], DSS),
    ]
    /// Multiplies: the lower half, the upper half, or the whole product.
    Mul = "mul" [
        Form::new(&[one(&[Modifier::Lo, Modifier::Hi])], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(&[Modifier::Wide])], &[NARROW_INTEGERS], &[D2, S, S]),
        Form::new(&[maybe(ROUND), FTZ, SAT], &[F32], DSS),
        Form::new(&[maybe(ROUND)], &[F64], DSS),
    ]
    /// Multiplies and adds; for floats it is `fma`.
    Mad = "mad" [
        Form::new(&[one(&[Modifier::Lo, Modifier::Hi])], &[WIDE_INTEGERS], DSSS),
        Form::new(&[one(&[Modifier::Wide])], &[NARROW_INTEGERS], &[D2, S, S,
            Shape::Source(Ty::Double)]),
        Form::new(&[one(&[Modifier::Hi]), one(&[Modifier::Sat])], &[S32], DSSS),
        Form::new(&[one(ROUND), FTZ, SAT], &[F32], DSSS),
        Form::new(&[one(ROUND)], &[F64], DSSS),
    ]
    /// Multiplies and adds with one rounding.
    Fma = "fma" [
        Form::new(&[one(ROUND), FTZ, SAT], &[F32], DSSS),
        Form::new(&[one(ROUND)], &[F64], DSSS),
    ]
    /// Divides.
    Div = "div" [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[one(ROUND), FTZ], &[F32], DSS),
        Form::new(&[one(&[Modifier::Approx, Modifier::Full]), FTZ], &[F32], DSS),
        Form::new(&[one(ROUND)], &[F64], DSS),
    ]
    /// The remainder, with the sign of the dividend.
    Rem = "rem" [ Form::new(&[], &[WIDE_INTEGERS], DSS) ]
    /// The absolute value.
    Abs = "abs" [
        Form::new(&[], &[SIGNED], DS),
        Form::new(&[FTZ], &[F32], DS),
        Form::new(&[], &[F64], DS),
    ]
    /// The negation.
    Neg = "neg" [
        Form::new(&[], &[SIGNED], DS),
        Form::new(&[FTZ], &[F32], DS),
        Form::new(&[], &[F64], DS),
    ]
    /// The lesser; a float that is not a number gives way, unless `.NaN` is written.
    Min = "min" [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[FTZ], &[F32], DSS),
        Form::new(&[FTZ, one(&[Modifier::PropagateNan])], &[F32], DSS).since(ISA_7_0, 80),
        Form::new(&[], &[F64], DSS),
    ]
    /// The greater; a float that is not a number gives way, unless `.NaN` is written.
    Max = "max" [
        Form::new(&[], &[WIDE_INTEGERS], DSS),
        Form::new(&[FTZ], &[F32], DSS),
        Form::new(&[FTZ, one(&[Modifier::PropagateNan])], &[F32], DSS).since(ISA_7_0, 80),
        Form::new(&[], &[F64], DSS),
    ]
    /// Multiplies the lower 24 bits.
    Mul24 = "mul24" [ Form::new(&[one(&[Modifier::Lo, Modifier::Hi])], &[INT32], DSS) ]
    /// Multiplies the lower 24 bits and adds.
    Mad24 = "mad24" [ Form::new(&[one(&[Modifier::Lo, Modifier::Hi])], &[INT32], DSSS) ]
    /// The square root.
    Sqrt = "sqrt" [
        Form::new(&[one(ROUND_OR_APPROX), FTZ], &[F32], DS),
        Form::new(&[one(ROUND)], &[F64], DS),
    ]
    /// The reciprocal of the square root.
    Rsqrt = "rsqrt" [
        Form::new(&[APPROX, FTZ], &[F32], DS),
        Form::new(&[APPROX], &[F64], DS),
    ]
    /// The reciprocal.
    Rcp = "rcp" [
        Form::new(&[one(ROUND_OR_APPROX), FTZ], &[F32], DS),
        Form::new(&[one(ROUND)], &[F64], DS),
        Form::new(&[APPROX, one(&[Modifier::Ftz])], &[F64], DS),
    ]
    /// Two to the power of the operand.
    Ex2 = "ex2" [ Form::new(&[APPROX, FTZ], &[F32], DS) ]
    /// The logarithm to base 2.
    Lg2 = "lg2" [ Form::new(&[APPROX, FTZ], &[F32], DS) ]
    /// The sine.
    Sin = "sin" [ Form::new(&[APPROX, FTZ], &[F32], DS) ]
    /// The cosine.
    Cos = "cos" [ Form::new(&[APPROX, FTZ], &[F32], DS) ]
    /// The hyperbolic tangent.
    Tanh = "tanh" [ Form::new(&[APPROX], &[F32], DS).since(ISA_7_0, 75) ]
    /// The second operand with the sign of the first.
    Copysign = "copysign" [ Form::new(&[], &[FLOATS], DSS) ]
    /// Tests which class a float is of.
    Testp = "testp" [ Form::new(&[one(CLASSES)], &[FLOATS], &[P, S]) ]
    /// Bitwise and.
    And = "and" [ Form::new(&[], &[LOGIC], DSS) ]
    /// Bitwise or.
    Or = "or" [ Form::new(&[], &[LOGIC], DSS) ]
    /// Bitwise exclusive or.
    Xor = "xor" [ Form::new(&[], &[LOGIC], DSS) ]
    /// Bitwise complement.
    Not = "not" [ Form::new(&[], &[LOGIC], DS) ]
    /// 1 for zero, 0 for the rest.
    Cnot = "cnot" [ Form::new(&[], &[BITS], DS) ]
    /// Shifts left.
    Shl = "shl" [ Form::new(&[], &[BITS], &[D, S, U]) ]
    /// Shifts right; signed types keep their sign.
    Shr = "shr" [ Form::new(&[], &[SHIFTED_RIGHT], &[D, S, U]) ]
    /// Shifts two registers joined together.
    Shf = "shf" [
        Form::new(&[one(&[Modifier::L, Modifier::R]), one(&[Modifier::Wrap, Modifier::Clamp])],
            &[B32], &[D, S, S, U]),
    ]
    /// Any bitwise function of three operands, by its truth table.
    Lop3 = "lop3" [ Form::new(&[], &[B32], &[D, S, S, S, Shape::Constant]) ]
    /// Extracts a field of bits.
    Bfe = "bfe" [ Form::new(&[], &[INT32_64], &[D, S, U, U]) ]
    /// Inserts a field of bits.
    Bfi = "bfi" [ Form::new(&[], &[B32_64], &[D, S, S, U, U]) ]
    /// Finds the highest bit that is not a copy of the sign.
    Bfind = "bfind" [ Form::new(&[maybe(&[Modifier::ShiftAmount])], &[INT32_64], &[D32, S]) ]
    /// Reverses the bits.
    Brev = "brev" [ Form::new(&[], &[B32_64], DS) ]
    /// Counts the leading zeros.
    Clz = "clz" [ Form::new(&[], &[B32_64], &[D32, S]) ]
    /// Counts the ones.
    Popc = "popc" [ Form::new(&[], &[B32_64], &[D32, S]) ]
    /// Picks four bytes out of eight.
    Prmt = "prmt" [ Form::new(&[], &[B32], DSSS) ]
    /// Compares into a predicate, or into a pair of it and its opposite, and may combine both
    /// with another predicate.
    Setp = "setp" [
        Form::new(&[one(COMPARE_BITS)], &[BITS], COMPARE),
        Form::new(&[one(COMPARE_UNSIGNED)], &[UNSIGNED], COMPARE),
        Form::new(&[one(COMPARE_SIGNED)], &[SIGNED], COMPARE),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[F32], COMPARE),
        Form::new(&[one(COMPARE_FLOAT)], &[F64], COMPARE),
        Form::new(&[one(COMPARE_BITS), one(COMBINE)], &[BITS], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_UNSIGNED), one(COMBINE)], &[UNSIGNED], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_SIGNED), one(COMBINE)], &[SIGNED], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE), FTZ], &[F32], COMPARE_AND_COMBINE),
        Form::new(&[one(COMPARE_FLOAT), one(COMBINE)], &[F64], COMPARE_AND_COMBINE),
    ]
    /// Compares into a register: all ones or 1.0 for true, 0 for false.
    Set = "set" [
        Form::new(&[one(COMPARE_BITS)], &[SET_RESULT, BITS], SET),
        Form::new(&[one(COMPARE_UNSIGNED)], &[SET_RESULT, UNSIGNED], SET),
        Form::new(&[one(COMPARE_SIGNED)], &[SET_RESULT, SIGNED], SET),
        Form::new(&[one(COMPARE_FLOAT), FTZ], &[SET_RESULT, F32], SET),
        Form::new(&[one(COMPARE_FLOAT)], &[SET_RESULT, F64], SET),
    ]
    /// Selects by a predicate.
    Selp = "selp" [ Form::new(&[], &[SELECTED], &[D, S, S, Shape::Predicate]) ]
    /// Selects by a sign.
    Slct = "slct" [
        Form::new(&[], &[SELECTED, S32], &[D, S, S, Shape::Source(Ty::Second)]),
        Form::new(&[FTZ], &[SELECTED, F32], &[D, S, S, Shape::Source(Ty::Second)]),
    ]
    /// Jumps.
    Bra = "bra" [ Form::new(&[maybe(&[Modifier::Uni])], &[], &[Shape::Target]) ]
    /// Ends the kernel for the thread.
    Ret = "ret" [ Form::new(&[maybe(&[Modifier::Uni])], &[], &[]) ]
    /// Ends the thread.
    Exit = "exit" [ Form::new(&[], &[], &[]) ]
    /// Stops the launch with an error.
    Trap = "trap" [ Form::new(&[], &[], &[]) ]
    /// Waits for the threads of the block, or of the warp.
    Bar = "bar" [
        Form::new(&[one(&[Modifier::Sync])], &[], &[U]),
        Form::new(&[one(&[Modifier::Sync, Modifier::Arrive])], &[], &[U, U]),
        Form::new(&[one(&[Modifier::Warp]), one(&[Modifier::Sync])], &[], &[U]),
        Form::new(&[one(&[Modifier::Cta]), one(&[Modifier::Sync])], &[], &[U]).since(ISA_7_8, 30),
        Form::new(&[one(&[Modifier::Cta]), one(&[Modifier::Sync, Modifier::Arrive])], &[],
            &[U, U]).since(ISA_7_8, 30),
    ]
    /// Waits for the threads of the block, which need not be converged.
    Barrier = "barrier" [
        Form::new(&[one(&[Modifier::Sync]), ALIGNED], &[], &[U]),
        Form::new(&[one(&[Modifier::Sync, Modifier::Arrive]), ALIGNED], &[], &[U, U]),
        Form::new(&[one(&[Modifier::Cta]), one(&[Modifier::Sync]), ALIGNED], &[], &[U])
            .since(ISA_7_8, 30),
        Form::new(&[one(&[Modifier::Cta]), one(&[Modifier::Sync, Modifier::Arrive]), ALIGNED], &[],
            &[U, U]).since(ISA_7_8, 30),
    ]
    /// Orders memory accesses.
    Membar = "membar" [
        Form::new(&[one(&[Modifier::Cta, Modifier::Gl, Modifier::Sys])], &[], &[]),
    ]
    /// Orders memory accesses.
    Fence = "fence" [
        Form::new(&[maybe(&[Modifier::AcqRel, Modifier::Sc]), one(SCOPES)], &[], &[]),
    ]
    /// The lanes that execute this together.
    Activemask = "activemask" [ Form::new(&[], &[B32], &[D]).since(ISA_6_2, 30) ]
    /// Exchanges values between lanes.
    Shfl = "shfl" [
        Form::new(&[one(&[Modifier::Sync]), one(SHUFFLES)], &[B32],
            &[Shape::DestinationAndPredicate(Ty::First), S, U, U, U]),
    ]
    /// Combines a predicate over the lanes.
    Vote = "vote" [
        Form::new(&[one(&[Modifier::Sync]), one(VOTES)], &[&[Type::Pred]],
            &[D, Shape::Predicate, U]),
        Form::new(&[one(&[Modifier::Sync]), one(&[Modifier::Ballot])], &[B32],
            &[D, Shape::Predicate, U]),
    ]
    /// Changes memory in one step and gives what was there.
    Atom = "atom" [
        Form::new(ATOMIC_ADD, &[ADDED], ATOM),
        Form::new(ATOMIC_EXTREME, &[INT32_64], ATOM),
        Form::new(ATOMIC_LOGIC, &[B32_64], ATOM),
        Form::new(ATOMIC_COUNT, &[U32], ATOM),
        Form::new(ATOMIC_EXCHANGE, &[B32_64], ATOM),
        Form::new(ATOMIC_COMPARE, &[B32_64], &[DS_OR_SINK, Shape::Memory, S, S]),
    ]
    /// Changes memory in one step.
    Red = "red" [
        Form::new(REDUCE_ADD, &[ADDED], &[Shape::Memory, S]),
        Form::new(REDUCE_EXTREME, &[INT32_64], &[Shape::Memory, S]),
        Form::new(REDUCE_LOGIC, &[B32_64], &[Shape::Memory, S]),
        Form::new(REDUCE_COUNT, &[U32], &[Shape::Memory, S]),
    ]
}
