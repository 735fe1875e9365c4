//! Prints modules as PTX text.
//!
//! Floats are printed as their bits, so that printing does not round.

mod entry;

use std::fmt::{self, Display, Formatter, Write};

use entry::EntryPrinter;

use crate::ast::{
    Entry, Immediate, Instruction, Limits, Linkage, Module, Parameter, Prototype, StateSpace,
    Variable,
};

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, ".version {}\n.target {}\n.address_size 64", self.isa, self.target)?;
        for variable in &self.variables {
            write!(f, "\n{variable}\n")?;
        }
        // Every function is declared before any is defined, so that they can call each other.
        for function in &self.functions {
            write!(f, "\n{}{};\n", function.linkage, Signature(&function.code))?;
        }
        for function in self.functions.iter().filter(|function| function.is_defined) {
            write!(f, "\n{}{}\n", function.linkage, Signature(&function.code))?;
            EntryPrinter::new(self, &function.code).print_body(f)?;
        }
        for entry in &self.entries {
            f.write_char('\n')?;
            EntryPrinter::new(self, entry).print(f)?;
        }
        Ok(())
    }
}

impl Display for Linkage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Internal => "",
            Self::Extern => ".extern ",
            Self::Visible => ".visible ",
            Self::Weak => ".weak ",
            Self::Common => ".common ",
        })
    }
}

/// A function without its body.
struct Signature<'a>(&'a Entry);

impl Display for Signature<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |list: &[Parameter]| {
            let texts: Vec<String> = list.iter().map(Parameter::to_string).collect();
            format!("({})", texts.join(", "))
        };
        let Entry { name, parameters, results, .. } = self.0;
        f.write_str(".func ")?;
        if !results.is_empty() {
            write!(f, "{} ", list(results))?;
        }
        write!(f, "{name} {}", list(parameters))
    }
}

impl Display for Variable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.linkage, self.space.modifier())?;
        if self.is_managed {
            f.write_str(" .attribute(.managed)")?;
        }
        if let Some(align) = self.align {
            write!(f, " .align {align}")?;
        }
        write!(f, " .{} {}", self.ty, self.name)?;
        match self.length {
            Some(0) => f.write_str("[]")?,
            Some(length) => write!(f, "[{length}]")?,
            None => {}
        }
        match &self.initial[..] {
            [] => {}
            [one] if self.length.is_none() => write!(f, " = {one}")?,
            list => {
                let list: Vec<String> = list.iter().map(Immediate::to_string).collect();
                write!(f, " = {{{}}}", list.join(", "))?;
            }
        }
        f.write_char(';')
    }
}

impl Display for Prototype {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |parameters: &[Parameter]| {
            let list: Vec<String> = parameters.iter().map(Parameter::to_string).collect();
            list.join(", ")
        };
        let (results, parameters) = (list(&self.results), list(&self.parameters));
        write!(f, "{}: .callprototype ({results}) _ ({parameters});", self.name)
    }
}

impl Display for Parameter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(".param ")?;
        if let (Some(align), None) = (self.align, self.pointer) {
            write!(f, ".align {align} ")?;
        }
        write!(f, ".{} ", self.ty)?;
        if let Some(pointer) = self.pointer {
            f.write_str(".ptr ")?;
            if let Some(space) = pointer.space {
                write!(f, ".{} ", space.modifier())?;
            }
            if let Some(align) = pointer.align {
                write!(f, ".align {align} ")?;
            }
        }
        f.write_str(&self.name)?;
        match self.length {
            Some(length) => write!(f, "[{length}]"),
            None => Ok(()),
        }
    }
}

impl Display for Limits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some([x, y, z]) = self.max_threads {
            writeln!(f, ".maxntid {x}, {y}, {z}")?;
        }
        if let Some([x, y, z]) = self.required_threads {
            writeln!(f, ".reqntid {x}, {y}, {z}")?;
        }
        if let Some(blocks) = self.min_blocks {
            writeln!(f, ".minnctapersm {blocks}")?;
        }
        if let Some(registers) = self.max_registers {
            writeln!(f, ".maxnreg {registers}")?;
        }
        if let Some([x, y, z]) = self.cluster {
            writeln!(f, ".reqnctapercluster {x}, {y}, {z}")?;
        }
        if self.explicit_cluster {
            writeln!(f, ".explicitcluster")?;
        }
        if let Some(rank) = self.max_cluster_rank {
            writeln!(f, ".maxclusterrank {rank}")?;
        }
        Ok(())
    }
}

impl Display for Immediate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::F32(bits) => write!(f, "0f{bits:08X}"),
            Self::F64(bits) => write!(f, "0d{bits:016X}"),
        }
    }
}

/// Opcode, modifiers and types.
pub(crate) fn mnemonic(instruction: &Instruction) -> String {
    let opcode = instruction.opcode;
    let mut text = opcode.text().to_owned();
    let modifiers = || instruction.modifiers.iter();
    let name = modifiers().filter(|&modifier| opcode.binds(modifier));
    for modifier in name.chain(modifiers().filter(|&modifier| !opcode.binds(modifier))) {
        text.push('.');
        text.push_str(modifier.text());
    }
    for ty in &instruction.types {
        text.push('.');
        text.push_str(ty.text());
    }
    text
}

impl Display for StateSpace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.modifier().text())
    }
}
