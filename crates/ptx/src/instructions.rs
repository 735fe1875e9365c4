//! The instructions.

use crate::words::words;

words! {
    /// The operation of an instruction.
    pub enum Opcode {
        Mov = "mov",
        Ld = "ld",
        St = "st",
        Cvta = "cvta",
        Cvt = "cvt",
        Add = "add",
        Sub = "sub",
        Mul = "mul",
        Mad = "mad",
        Fma = "fma",
        Div = "div",
        Rem = "rem",
        Abs = "abs",
        Neg = "neg",
        Min = "min",
        Max = "max",
        Mul24 = "mul24",
        Mad24 = "mad24",
        Sqrt = "sqrt",
        Rsqrt = "rsqrt",
        Rcp = "rcp",
        Ex2 = "ex2",
        Lg2 = "lg2",
        Sin = "sin",
        Cos = "cos",
        Tanh = "tanh",
        Copysign = "copysign",
        Testp = "testp",
        And = "and",
        Or = "or",
        Xor = "xor",
        Not = "not",
        Cnot = "cnot",
        Shl = "shl",
        Shr = "shr",
        Shf = "shf",
        Lop3 = "lop3",
        Bfe = "bfe",
        Bfi = "bfi",
        Bfind = "bfind",
        Brev = "brev",
        Clz = "clz",
        Popc = "popc",
        Prmt = "prmt",
        Setp = "setp",
        Set = "set",
        Selp = "selp",
        Slct = "slct",
        Bra = "bra",
        Ret = "ret",
        Exit = "exit",
        Trap = "trap",
        Bar = "bar",
        Barrier = "barrier",
        Membar = "membar",
        Fence = "fence",
        Activemask = "activemask",
        Shfl = "shfl",
        Vote = "vote",
        Atom = "atom",
        Red = "red",
    }
}

impl Opcode {
    /// Whether the first operand is what the instruction writes.
    pub const fn has_destination(self) -> bool {
        !matches!(
            self,
            Self::St
                | Self::Red
                | Self::Bra
                | Self::Ret
                | Self::Exit
                | Self::Trap
                | Self::Bar
                | Self::Barrier
                | Self::Membar
                | Self::Fence
        )
    }
}
