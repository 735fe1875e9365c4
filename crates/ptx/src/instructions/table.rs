//! The table: for each opcode its word, its semantics, and its forms. The forms are in one file
//! for each area.

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

/// Declares lists of forms. Each list of slots, types and operands becomes a constant of its own,
/// because it must live as long as the program.
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
    /// Asks for a line of a cache.
    Prefetch = "prefetch" => memory::PREFETCH,
    /// Asks for a line of the uniform cache.
    Prefetchu = "prefetchu" => memory::PREFETCHU,
    /// Converts between types.
    Cvt = "cvt" => convert::CVT,
    /// Adds.
    Add = "add" => arithmetic::ADD,
    /// Subtracts.
    Sub = "sub" => arithmetic::SUB,
    /// Adds with the carry of the instruction before.
    Addc = "addc" => arithmetic::ADDC,
    /// Subtracts with the borrow of the instruction before.
    Subc = "subc" => arithmetic::SUBC,
    /// Multiplies: the lower half, the upper half, or the whole product.
    Mul = "mul" => arithmetic::MUL,
    /// Multiplies and adds; for floats it is `fma`.
    Mad = "mad" => arithmetic::MAD,
    /// Multiplies and adds with the carry of the instruction before.
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
    /// The lesser; a float that is not a number gives way, unless `.NaN` is written.
    Min = "min" => arithmetic::MIN,
    /// The greater; a float that is not a number gives way, unless `.NaN` is written.
    Max = "max" => arithmetic::MAX,
    /// Multiplies the lower 24 bits.
    Mul24 = "mul24" => arithmetic::MUL24,
    /// Multiplies the lower 24 bits and adds.
    Mad24 = "mad24" => arithmetic::MAD24,
    /// The absolute difference of two operands, and a third one added.
    Sad = "sad" => arithmetic::SAD,
    /// The dot product of four bytes, and a third operand added.
    Dp4a = "dp4a" => arithmetic::DP4A,
    /// The dot product of two halfwords and two bytes, and a third operand added.
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
    /// Tests which class a float is of.
    Testp = "testp" => special::TESTP,
    /// Bitwise and.
    And = "and" => bits::AND,
    /// Bitwise or.
    Or = "or" => bits::OR,
    /// Bitwise exclusive or.
    Xor = "xor" => bits::XOR,
    /// Bitwise complement.
    Not = "not" => bits::NOT,
    /// 1 for zero, 0 for the rest.
    Cnot = "cnot" => bits::CNOT,
    /// Shifts left.
    Shl = "shl" => bits::SHL,
    /// Shifts right; signed types keep their sign.
    Shr = "shr" => bits::SHR,
    /// Shifts two registers joined together.
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
    /// Picks four bytes out of eight.
    Prmt = "prmt" => bits::PRMT,
    /// A mask of ones, by its place and length.
    Bmsk = "bmsk" => bits::BMSK,
    /// Extends the low bits by their sign or by zeros.
    Szext = "szext" => bits::SZEXT,
    /// Finds the n-th bit that is set.
    Fns = "fns" => bits::FNS,
    /// Compares into a predicate, or into a pair of it and its opposite, and may combine both
    /// with another predicate.
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
    /// Stops for a debugger.
    Brkpt = "brkpt" => control::BRKPT,
    /// Waits about as long as the operand says.
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
    /// The lanes that execute this together.
    Activemask = "activemask" => cooperate::ACTIVEMASK,
    /// Exchanges values between lanes.
    Shfl = "shfl" => cooperate::SHFL,
    /// Combines a predicate over the lanes.
    Vote = "vote" => cooperate::VOTE,
    /// Finds the lanes that have the same value.
    Match = "match" => cooperate::MATCH,
    /// Combines a value over the lanes.
    Redux = "redux" => cooperate::REDUX,
    /// Chooses one lane.
    Elect = "elect" => cooperate::ELECT,
    /// Changes memory atomically and returns the old value.
    Atom = "atom" => atomics::ATOM,
    /// Changes memory in one step.
    Red = "red" => atomics::RED,
    /// An object in shared memory that threads arrive at and wait for, and that counts the bytes of
    /// asynchronous copies.
    Mbarrier = "mbarrier" => mbarrier::MBARRIER,
    /// Changes how many registers each thread of the warpgroup has.
    Setmaxnreg = "setmaxnreg" => control::SETMAXNREG,
    /// The address of a shared variable in another block of the cluster.
    Mapa = "mapa" => memory::MAPA,
    /// Asynchronous copies between global and shared memory, commit and wait.
    Cp = "cp" => tensor::CP,
    /// Loads matrices of 8 by 8 from shared memory, by all lanes of a warp together.
    Ldmatrix = "ldmatrix" => tensor::LDMATRIX,
    /// Stores matrices of 8 by 8 to shared memory, by all lanes of a warp together.
    Stmatrix = "stmatrix" => tensor::STMATRIX,
    /// Transposes a matrix of 8 by 8 that the lanes of a warp hold.
    Movmatrix = "movmatrix" => tensor::MOVMATRIX,
    /// Multiplies matrices that the lanes of a warp hold, and adds.
    Mma = "mma" => tensor::MMA,
    /// Loads, stores and multiplies matrices whose places in registers are not told.
    Wmma = "wmma" => tensor::WMMA,
    /// Asynchronous matrix product of a warpgroup (four warps).
    Wgmma = "wgmma" => warpgroup::WGMMA,
}
