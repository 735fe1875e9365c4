//! The parts of a training state, in the order in which a checkpoint stores them.

use crate::error::Result;

/// A tensor in the training state of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatePart {
    /// The parameter itself.
    Parameter,
    /// The first moment.
    ExpAvg,
    /// The second moment.
    ExpAvgSq,
}

impl StatePart {
    /// Every part, in the order of the file.
    pub const ALL: &[Self] = &[Self::Parameter, Self::ExpAvg, Self::ExpAvgSq];

    /// Returns the name of the tensor with this part of the parameter `name`.
    pub fn tensor_name(self, name: &str) -> String {
        match self {
            Self::Parameter => name.to_owned(),
            Self::ExpAvg => format!("adamw.first.{name}"),
            Self::ExpAvgSq => format!("adamw.second.{name}"),
        }
    }
}

/// A source of training state.
pub trait StateReader {
    /// Reads a part of the state of the trained parameter `index`.
    ///
    /// # Errors
    /// If the state cannot be read, for example because the device is lost.
    fn read(&mut self, index: usize, part: StatePart) -> Result<Vec<f32>>;
}

/// Returns the tensors of `parameters` trained parameters, in the order of the file.
pub(crate) fn state_order(parameters: usize) -> impl Iterator<Item = (usize, StatePart)> {
    (0..parameters).flat_map(|index| StatePart::ALL.iter().map(move |&part| (index, part)))
}
