//! Operands of `call`.

use super::Checker;
use crate::ast::{Operand, Parameter};

/// The parameters and results of a call.
pub(super) struct Signature<'a> {
    pub(super) results: &'a [Parameter],
    pub(super) parameters: &'a [Parameter],
}

impl Checker<'_> {
    /// The signature of the function or of the prototype that the instruction names.
    pub(super) fn signature(&self) -> Result<Signature<'_>, String> {
        let called = self.instruction.operands.iter().find_map(|operand| match operand {
            Operand::Function(index) => {
                let code = &self.names.functions().get(*index as usize)?.code;
                Some(Signature { results: &code.results, parameters: &code.parameters })
            }
            Operand::Prototype(index) => {
                let prototype = self.names.prototypes.get(*index as usize)?;
                let (results, parameters) = (&prototype.results, &prototype.parameters);
                Some(Signature { results, parameters })
            }
            _ => None,
        });
        called.ok_or_else(|| "the name of a function".to_owned())
    }

    /// Checks that a call has the lists that the function needs.
    pub(super) fn call_lists(&self, callee: &Signature<'_>) -> Result<(), String> {
        let is_list = |operand: Option<&Operand>| matches!(operand, Some(Operand::List(_)));
        // A prototype is the last operand.
        let list = match &self.instruction.operands[..] {
            [list @ .., Operand::Prototype(_)] => list,
            list => list,
        };
        let missing = |wanted: &[Parameter], found: bool| !wanted.is_empty() && !found;
        if missing(callee.results, is_list(list.first())) {
            return Err(format!("{} results in parentheses", callee.results.len()));
        }
        if missing(callee.parameters, is_list(list.last()) && list.len() > 1) {
            return Err(format!("{} arguments in parentheses", callee.parameters.len()));
        }
        Ok(())
    }

    /// Checks that `operand` lists these parameters or results of a function.
    pub(super) fn call_list(
        &self,
        operand: &Operand,
        wanted: &[Parameter],
        written: bool,
    ) -> Result<(), String> {
        let Operand::List(list) = operand else { return Err("a list in parentheses".to_owned()) };
        if list.len() != wanted.len() {
            return Err(format!("{} in parentheses", wanted.len()));
        }
        list.iter().zip(wanted).try_for_each(|(operand, wanted)| match operand {
            Operand::Symbol(symbol, 0) => {
                let found = (self.names.parameter)(*symbol);
                match found.is_some_and(|found| found.fits(wanted)) {
                    true => Ok(()),
                    false => Err(format!("a parameter like {}", wanted.name)),
                }
            }
            _ if wanted.length.is_some() => Err("a parameter".to_owned()),
            _ if written => self.register(operand, wanted.ty, false),
            _ => self.value(operand, wanted.ty, false),
        })
    }
}
