//! Checks of operands that constructors of launches share.

use crate::{Element, KernelError, View};

/// The checks of one kernel; the field is its name, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check(pub(crate) &'static str);

impl Check {
    /// `view` must have exactly `expected` elements.
    pub(crate) fn length<B: Copy, T: Element>(
        self,
        operand: &'static str,
        view: View<B, T>,
        expected: usize,
    ) -> Result<(), KernelError> {
        self.elements(operand, view.len(), expected)
    }

    /// An operand of `actual` elements must have exactly `expected`.
    pub(crate) fn elements(
        self,
        operand: &'static str,
        actual: usize,
        expected: usize,
    ) -> Result<(), KernelError> {
        if actual == expected {
            return Ok(());
        }
        Err(KernelError::Length { kernel: self.0, operand, expected, actual })
    }

    /// A size as the value of a `.u32` parameter.
    pub(crate) fn size(self, what: &'static str, value: usize) -> Result<u32, KernelError> {
        self.at_most(what, value, u32::MAX as usize)
    }

    /// A size of at most `limit`, which itself fits a `.u32` parameter.
    pub(crate) fn at_most(
        self,
        what: &'static str,
        value: usize,
        limit: usize,
    ) -> Result<u32, KernelError> {
        match u32::try_from(value) {
            Ok(size) if value <= limit => Ok(size),
            _ => Err(KernelError::TooLarge { kernel: self.0, what, value, limit }),
        }
    }

    /// The product of sizes, which must not overflow `usize`.
    pub(crate) fn product(self, what: &'static str, sizes: &[usize]) -> Result<usize, KernelError> {
        let checked = |product: usize, size: &usize| product.checked_mul(*size);
        sizes.iter().try_fold(1, checked).ok_or(KernelError::TooLarge {
            kernel: self.0,
            what,
            value: usize::MAX,
            limit: usize::MAX - 1,
        })
    }

    /// A rule about two sizes must hold. `rule` is a sentence without full stop.
    pub(crate) fn rule(
        self,
        holds: bool,
        rule: &'static str,
        (left, right): (usize, usize),
    ) -> Result<(), KernelError> {
        if holds { Ok(()) } else { Err(KernelError::Shape { kernel: self.0, rule, left, right }) }
    }

    /// A rule about a constant must hold.
    pub(crate) fn constant(
        self,
        operand: &'static str,
        value: f32,
        (holds, rule): (bool, &'static str),
    ) -> Result<(), KernelError> {
        if holds {
            return Ok(());
        }
        Err(KernelError::Constant { kernel: self.0, operand, value: value.to_string(), rule })
    }
}
