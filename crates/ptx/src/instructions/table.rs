//! The table: for each opcode its name, its semantics, and its forms. The forms are in one file for
//! each area.

use super::form::Form;
use crate::words::words;

mod arithmetic;
mod atomics;
mod bits;
mod compare;
mod control;
mod convert;
mod cooperate;
mod mbarrier;
mod memory;
mod special;
mod tensor;
mod warpgroup;

/// Imports of the files of the areas.
mod prelude {
    pub(super) use super::forms;
    pub(super) use crate::ast::{Modifier, Type};
    pub(super) use crate::instructions::form::{Form, ModifierChoice, Shape, Ty, maybe, one};
    pub(super) use crate::instructions::sets::*;
}

/// Declares lists of forms. Each list of slots, types and operands becomes a separate constant,
/// because it must be `'static`.
macro_rules! forms {
    ($( $(#[$doc:meta])* $name:ident [ $(
        Form::new($slots:expr, $types:expr, $operands:expr $(,)?)
        $(.since($isa:ident, $sm:literal) $(.$exactly:ident())?)?
    ),* $(,)? ] )*) => { $(
        $(#[$doc])*
        pub(super) const $name: &[Form] = &[$({
            const SLOTS: &[$crate::instructions::form::ModifierChoice] = $slots;
            const TYPES: &[&[$crate::ast::Type]] = $types;
            const OPERANDS: &[$crate::instructions::form::Shape] = $operands;
            Form::new(SLOTS, TYPES, OPERANDS)$(.since($isa, $sm)$(.$exactly())?)?
        }),*];
    )* };
}

use forms;

/// Turns the table into [`Opcode`] and its forms.
macro_rules! instructions {
    ($( $(#[$doc:meta])* $name:ident = $text:literal => $forms:path, )*) => {
        words! {
            /// The operation of an instruction.
            pub enum Opcode { $( $(#[$doc])* $name = $text, )* }
        }

        impl Opcode {
            /// The forms that the instruction has.
            pub const fn forms(self) -> &'static [Form] {
                match self { $( Self::$name => $forms, )* }
            }
        }
    };
}

instructions! {
    /// Copies a value, reads a special register, takes an address, packs or unpacks a vector.
    Mov = "mov" => memory::MOV,
    /// Loads from memory.
    Ld = "ld" => memory::LD,
    /// Loads an address that is the same in all threads of a warp.
    Ldu = "ldu" => memory::LDU,
    /// Stores to memory.
    St = "st" => memory::ST,
    /// Converts between generic addresses and addresses of a space.
    Cvta = "cvta" => memory::CVTA,
    /// Tests which space a generic address is in.
    Isspacep = "isspacep" => memory::ISSPACEP,
    /// Prefetches a cache line.
    Prefetch = "prefetch" => memory::PREFETCH,
    /// Prefetches a line of the uniform cache.
    Prefetchu = "prefetchu" => memory::PREFETCHU,
    /// Converts between types.
    Cvt = "cvt" => convert::CVT,
    /// Adds.
    Add = "add" => arithmetic::ADD,
    /// Subtracts.
    Sub = "sub" => arithmetic::SUB,
    /// Adds with the carry of the previous instruction.
    Addc = "addc" => arithmetic::ADDC,
    /// Subtracts with the borrow of the previous instruction.
    Subc = "subc" => arithmetic::SUBC,
    /// Multiplies: the lower half, the upper half, or the whole product.
    Mul = "mul" => arithmetic::MUL,
    /// Multiplies and adds; for floats it is `fma`.
    Mad = "mad" => arithmetic::MAD,
    /// Multiplies and adds with the carry of the previous instruction.
    Madc = "madc" => arithmetic::MADC,
    /// Multiplies and adds with one rounding.
    Fma = "fma" => arithmetic::FMA,
    /// Divides.
    Div = "div" => arithmetic::DIV,
    /// The remainder, with the sign of the dividend.
    Rem = "rem" => arithmetic::REM,
    /// The absolute value.
    Abs = "abs" => arithmetic::ABS,
    /// The negation.
    Neg = "neg" => arithmetic::NEG,
    /// The minimum; ignores NaN unless `.NaN` is given.
    Min = "min" => arithmetic::MIN,
    /// The maximum; ignores NaN unless `.NaN` is given.
    Max = "max" => arithmetic::MAX,
    /// Multiplies the lower 24 bits.
    Mul24 = "mul24" => arithmetic::MUL24,
    /// Multiplies the lower 24 bits and adds.
    Mad24 = "mad24" => arithmetic::MAD24,
    /// The absolute difference of two operands, plus a third one.
    Sad = "sad" => arithmetic::SAD,
    /// The dot product of four bytes, plus a third operand.
    Dp4a = "dp4a" => arithmetic::DP4A,
    /// The dot product of two halfwords and two bytes, plus a third operand.
    Dp2a = "dp2a" => arithmetic::DP2A,
    /// The square root.
    Sqrt = "sqrt" => special::SQRT,
    /// The reciprocal of the square root.
    Rsqrt = "rsqrt" => special::RSQRT,
    /// The reciprocal.
    Rcp = "rcp" => special::RCP,
    /// Two to the power of the operand.
    Ex2 = "ex2" => special::EX2,
    /// The logarithm to base 2.
    Lg2 = "lg2" => special::LG2,
    /// The sine.
    Sin = "sin" => special::SIN,
    /// The cosine.
    Cos = "cos" => special::COS,
    /// The hyperbolic tangent.
    Tanh = "tanh" => special::TANH,
    /// The second operand with the sign of the first.
    Copysign = "copysign" => special::COPYSIGN,
    /// Tests the class of a float.
    Testp = "testp" => special::TESTP,
    /// Bitwise and.
    And = "and" => bits::AND,
    /// Bitwise or.
    Or = "or" => bits::OR,
    /// Bitwise exclusive or.
    Xor = "xor" => bits::XOR,
    /// Bitwise complement.
    Not = "not" => bits::NOT,
    /// Logical complement: 1 for zero, otherwise 0.
    Cnot = "cnot" => bits::CNOT,
    /// Shifts left.
    Shl = "shl" => bits::SHL,
    /// Shifts right; signed types keep their sign.
    Shr = "shr" => bits::SHR,
    /// Funnel shift of two concatenated registers.
    Shf = "shf" => bits::SHF,
    /// Any bitwise function of three operands, by its truth table.
    Lop3 = "lop3" => bits::LOP3,
    /// Extracts a field of bits.
    Bfe = "bfe" => bits::BFE,
    /// Inserts a field of bits.
    Bfi = "bfi" => bits::BFI,
    /// Finds the highest bit that is not a copy of the sign.
    Bfind = "bfind" => bits::BFIND,
    /// Reverses the bits.
    Brev = "brev" => bits::BREV,
    /// Counts the leading zeros.
    Clz = "clz" => bits::CLZ,
    /// Counts the ones.
    Popc = "popc" => bits::POPC,
    /// Selects four bytes out of eight.
    Prmt = "prmt" => bits::PRMT,
    /// A mask of ones, by position and length.
    Bmsk = "bmsk" => bits::BMSK,
    /// Extends the low bits by their sign or by zeros.
    Szext = "szext" => bits::SZEXT,
    /// Finds the n-th bit that is set.
    Fns = "fns" => bits::FNS,
    /// Compares into a predicate, or into a predicate and its complement; may combine both with
    /// another predicate.
    Setp = "setp" => compare::SETP,
    /// Compares into a register: all ones or 1.0 for true, 0 for false.
    Set = "set" => compare::SET,
    /// Selects by a predicate.
    Selp = "selp" => compare::SELP,
    /// Selects by a sign.
    Slct = "slct" => compare::SLCT,
    /// Jumps.
    Bra = "bra" => control::BRA,
    /// Jumps to a label of a table.
    Brx = "brx" => control::BRX,
    /// Calls a function.
    Call = "call" => control::CALL,
    /// Returns from a function, or ends the kernel for the thread.
    Ret = "ret" => control::RET,
    /// Ends the thread.
    Exit = "exit" => control::EXIT,
    /// Stops the launch with an error.
    Trap = "trap" => control::TRAP,
    /// Breakpoint.
    Brkpt = "brkpt" => control::BRKPT,
    /// Sleeps for about the given time.
    Nanosleep = "nanosleep" => control::NANOSLEEP,
    /// Waits for preceding grids, or lets dependent grids start (programmatic dependent launch).
    Griddepcontrol = "griddepcontrol" => control::GRIDDEPCONTROL,
    /// Waits for the threads of the block, or of the warp.
    Bar = "bar" => cooperate::BAR,
    /// Waits for the threads of the block, which need not be converged.
    Barrier = "barrier" => cooperate::BARRIER,
    /// Orders memory accesses.
    Membar = "membar" => cooperate::MEMBAR,
    /// Orders memory accesses.
    Fence = "fence" => cooperate::FENCE,
    /// The mask of lanes that execute this together.
    Activemask = "activemask" => cooperate::ACTIVEMASK,
    /// Exchanges values between lanes.
    Shfl = "shfl" => cooperate::SHFL,
    /// Combines a predicate over the lanes.
    Vote = "vote" => cooperate::VOTE,
    /// Finds the lanes that have the same value.
    Match = "match" => cooperate::MATCH,
    /// Combines a value over the lanes.
    Redux = "redux" => cooperate::REDUX,
    /// Elects one lane.
    Elect = "elect" => cooperate::ELECT,
    /// Changes memory atomically and returns the old value.
    Atom = "atom" => atomics::ATOM,
    /// Changes memory atomically, without a result.
    Red = "red" => atomics::RED,
    /// Barrier objects in shared memory, which also track the bytes of asynchronous copies.
    Mbarrier = "mbarrier" => mbarrier::MBARRIER,
    /// Changes the number of registers per thread of the warpgroup.
    Setmaxnreg = "setmaxnreg" => control::SETMAXNREG,
    /// The address of a shared variable in another block of the cluster.
    Mapa = "mapa" => memory::MAPA,
    /// The rank of the block of the cluster whose shared memory has an address.
    Getctarank = "getctarank" => memory::GETCTARANK,
    /// Asynchronous copies between global and shared memory, commit and wait.
    Cp = "cp" => tensor::CP,
    /// Loads 8 × 8 matrices from shared memory, by all lanes of a warp together.
    Ldmatrix = "ldmatrix" => tensor::LDMATRIX,
    /// Stores 8 × 8 matrices to shared memory, by all lanes of a warp together.
    Stmatrix = "stmatrix" => tensor::STMATRIX,
    /// Transposes an 8 × 8 matrix in the registers of a warp.
    Movmatrix = "movmatrix" => tensor::MOVMATRIX,
    /// Multiplies matrices in the registers of a warp, and accumulates.
    Mma = "mma" => tensor::MMA,
    /// Loads, stores and multiplies matrix fragments with an opaque register layout.
    Wmma = "wmma" => tensor::WMMA,
    /// Asynchronous matrix product of a warpgroup (four warps).
    Wgmma = "wgmma" => warpgroup::WGMMA,
}
