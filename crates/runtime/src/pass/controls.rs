//! The control block: values that change from step to step without changing the program.
//!
//! All controls of a pass are in one device allocation at fixed offsets; [`Controls`] is its host
//! copy. Declaring the first control appends an operation that fetches the values of a step
//! ([`super::OperationKind::FetchStepParameters`]). No value is part of a node, and operations that
//! read a control depend on the fetch.

use std::ops::Range;
use std::sync::Arc;

use retrograph_kernel_abi::Element;

use super::buffer::{ALIGNMENT, PassId, Slice};
use super::ranges::RangeSet;

/// Alignment of single values. Arrays are aligned as allocations, for wide loads.
const VALUE_ALIGNMENT: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    buffer: usize,
    name: String,
    bytes: Range<usize>,
}

/// The layout of the control block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlLayout {
    pass: PassId,
    fields: Vec<Field>,
    bytes: usize,
}

impl ControlLayout {
    pub(super) fn new(pass: PassId) -> Self {
        Self { pass, fields: Vec::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, buffer: usize, name: String, bytes: usize) {
        let alignment = if bytes > VALUE_ALIGNMENT { ALIGNMENT } else { VALUE_ALIGNMENT };
        let start = self.bytes.next_multiple_of(alignment);
        self.fields.push(Field { buffer, name, bytes: start..start + bytes });
        self.bytes = start + bytes;
    }

    /// The size of the block.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The size on the device, a multiple of 16 bytes.
    pub(crate) fn block_bytes(&self) -> usize {
        self.bytes.next_multiple_of(VALUE_ALIGNMENT)
    }

    /// The offset of the control with this buffer index.
    pub(crate) fn offset(&self, buffer: usize) -> Option<usize> {
        self.field(buffer).map(|field| field.bytes.start)
    }

    fn field(&self, buffer: usize) -> Option<&Field> {
        let at = self.fields.partition_point(|field| field.buffer < buffer);
        self.fields.get(at).filter(|field| field.buffer == buffer)
    }
}

/// A control that could not be set, or has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The slice is not a control of the pass that made the controls.
    #[error("the slice is not a control of this pass")]
    NotAControl,

    /// The slice exceeds its control.
    #[error("elements {elements:?} are outside of the control `{control}`")]
    OutsideControl {
        /// The control.
        control: String,
        /// The elements of the slice.
        elements: Range<usize>,
    },

    /// The number of values is not the number of elements.
    #[error("{given} values for {expected} elements of the control `{control}`")]
    LengthMismatch {
        /// The control.
        control: String,
        /// Values given.
        given: usize,
        /// Elements of the slice.
        expected: usize,
    },

    /// A control has no value.
    #[error("the control `{control}` has no value; set every control before a step")]
    Missing {
        /// The control.
        control: String,
    },

    /// The controls belong to another pass, or were made before its last control was declared.
    #[error("the controls were made for another pass, or before its last control was declared")]
    OtherLayout,
}

/// Values for every control of a pass.
///
/// ```
/// let mut pass = retrograph_runtime::Pass::new("training");
/// let lr = pass.control::<f32>("lr");
/// let tokens = pass.control_array::<u32>("tokens", 4);
/// let mut controls = pass.controls();
/// controls.set(lr, 1e-3)?;
/// controls.set_array(tokens, &[1, 2, 3, 4])?;
/// # Ok::<(), retrograph_runtime::ControlError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Controls {
    layout: Arc<ControlLayout>,
    bytes: Vec<u8>,
    given: RangeSet,
    /// Whether every control has a value; cached, since every step asks.
    complete: bool,
}

impl Controls {
    pub(super) fn new(layout: Arc<ControlLayout>) -> Self {
        let bytes = vec![0; layout.bytes()];
        Self { layout, bytes, given: RangeSet::default(), complete: false }
    }

    /// Sets a single value.
    ///
    /// # Errors
    /// If `control` is not one element of a control of this pass.
    pub fn set<T: Element>(&mut self, control: Slice<T>, value: T) -> Result<(), ControlError> {
        self.set_array(control, &[value])
    }

    /// Sets one value per element of the slice.
    ///
    /// # Errors
    /// If `control` is not a slice of a control of this pass, or the lengths differ.
    pub fn set_array<T: Element>(
        &mut self,
        control: Slice<T>,
        values: &[T],
    ) -> Result<(), ControlError> {
        let id = control.buffer();
        let ours = id.pass == self.layout.pass;
        let field = self.layout.field(id.index()).filter(|_| ours);
        let field = field.ok_or(ControlError::NotAControl)?;
        let (start, range) = (field.bytes.start, control.byte_range());
        if range.end > field.bytes.len() {
            let elements = range.start / size_of::<T>()..range.end / size_of::<T>();
            return Err(ControlError::OutsideControl { control: field.name.clone(), elements });
        }
        if values.len() != control.len() {
            let control_name = field.name.clone();
            let (given, expected) = (values.len(), control.len());
            return Err(ControlError::LengthMismatch { control: control_name, given, expected });
        }
        let target = start + range.start..start + range.end;
        self.bytes[target.clone()].copy_from_slice(bytemuck::cast_slice(values));
        if !self.complete {
            self.given.insert(target);
            self.complete = self.missing().is_none();
        }
        Ok(())
    }

    /// The bytes of the control block, if every control has a value.
    pub(crate) fn complete(&self, layout: &Arc<ControlLayout>) -> Result<&[u8], ControlError> {
        // Comparing names in every step would cost more than copying the values.
        if !Arc::ptr_eq(&self.layout, layout) && *self.layout != **layout {
            return Err(ControlError::OtherLayout);
        }
        if self.complete {
            return Ok(&self.bytes);
        }
        match self.missing() {
            Some(field) => Err(ControlError::Missing { control: field.name.clone() }),
            // There are no controls.
            None => Ok(&self.bytes),
        }
    }

    /// The first control with an element without a value.
    fn missing(&self) -> Option<&Field> {
        let missing = |field: &&Field| self.given.first_gap(&field.bytes).is_some();
        self.layout.fields.iter().find(missing)
    }
}
