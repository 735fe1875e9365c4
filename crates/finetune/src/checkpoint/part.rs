//! The parts of a training state, in the order in which a checkpoint stores them.

use crate::error::Result;

/// The parts of the state that are stored for each trainable parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatePart {
    /// The parameter itself.
    Parameter,
    /// The first moment.
    First,
    /// The second moment.
    Second,
}

impl StatePart {
    /// Every part, in the order of the file.
    pub const ALL: [Self; 3] = [Self::Parameter, Self::First, Self::Second];

    /// The name of the tensor that stores this part of the parameter `name`.
    pub fn tensor_name(self, name: &str) -> String {
        match self {
            Self::Parameter => name.to_owned(),
            Self::First => format!("adamw.first.{name}"),
            Self::Second => format!("adamw.second.{name}"),
        }
    }
}

/// Where the state comes from when a checkpoint is written.
pub trait StateReader {
    /// The elements of one part of the state of the trainable parameter `index`.
    ///
    /// # Errors
    /// Whatever keeps it from being read, for example a lost device.
    fn read(&mut self, index: usize, part: StatePart) -> Result<Vec<f32>>;
}

/// The tensors in the order of the file.
pub(super) fn state_order(parameters: usize) -> impl Iterator<Item = (usize, StatePart)> {
    (0..parameters).flat_map(|index| StatePart::ALL.map(|part| (index, part)))
}
