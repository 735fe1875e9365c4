//! Operand checks that launch constructors share.

use crate::{Element, FoundSizes, KernelError, View};

/// The checks of one kernel; the field is the kernel name for error messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check(pub(crate) &'static str);

impl Check {
    /// Checks that `view` has exactly `expected` elements.
    pub(crate) fn length<B: Copy, T: Element>(
        self,
        operand: &'static str,
        view: View<B, T>,
        expected: usize,
    ) -> Result<(), KernelError> {
        self.elements(operand, view.len(), expected)
    }

    /// Checks that `actual`, the length of an operand, is `expected`.
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

    /// Converts a size to a `.u32` parameter.
    pub(crate) fn size(self, what: &'static str, value: usize) -> Result<u32, KernelError> {
        self.at_most(what, value, u32::MAX as usize)
    }

    /// Converts a size of at most `limit`, which itself fits a `.u32` parameter.
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

    /// Multiplies sizes; the product must not overflow `usize`.
    pub(crate) fn product(self, what: &'static str, sizes: &[usize]) -> Result<usize, KernelError> {
        let checked = |product: usize, size: &usize| product.checked_mul(*size);
        let overflow = || KernelError::Overflow { kernel: self.0, what, sizes: sizes.to_vec() };
        sizes.iter().try_fold(1, checked).ok_or_else(overflow)
    }

    /// Checks a rule. `rule` is a sentence without a full stop that names its limits; `found` are
    /// the sizes that it is about, in its order.
    pub(crate) fn rule(
        self,
        holds: bool,
        rule: &'static str,
        found: impl Into<FoundSizes>,
    ) -> Result<(), KernelError> {
        if holds {
            return Ok(());
        }
        Err(KernelError::Shape { kernel: self.0, rule, found: found.into() })
    }

    /// Checks that a constant is finite and positive.
    pub(crate) fn positive(self, operand: &'static str, value: f32) -> Result<(), KernelError> {
        let holds = value.is_finite() && value > 0.0;
        self.constant(operand, value, holds, "finite and above 0")
    }

    /// Checks that a constant is finite and not negative.
    pub(crate) fn not_negative(self, operand: &'static str, value: f32) -> Result<(), KernelError> {
        let holds = value.is_finite() && value >= 0.0;
        self.constant(operand, value, holds, "finite and not negative")
    }

    /// Returns the cap for a kernel: 0 for none.
    pub(crate) fn softcap(self, softcap: Option<f32>) -> Result<f32, KernelError> {
        let Some(cap) = softcap else { return Ok(0.0) };
        self.positive("softcap", cap)?;
        Ok(cap)
    }

    /// Checks a rule about a constant.
    pub(crate) fn constant(
        self,
        operand: &'static str,
        value: f32,
        holds: bool,
        rule: &'static str,
    ) -> Result<(), KernelError> {
        if holds {
            return Ok(());
        }
        Err(KernelError::Constant { kernel: self.0, operand, value: value.to_string(), rule })
    }
}
